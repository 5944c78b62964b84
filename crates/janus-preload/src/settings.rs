//! The environment that a program was begun with, as far as it is Janus's: the library, and its settings. Some programs clear theirs before
//! they become another (nginx does), and would leave listeners to one that does not know what they are.

use core::ffi::CStr;
use std::ffi::CString;
use std::sync::OnceLock;

use libc::c_char;

unsafe extern "C" {
    static environ: *const *const c_char;
}

static KEPT: OnceLock<Vec<CString>> = OnceLock::new();

/// Entries of an environment.
///
/// # Safety
/// It is null, or a null ends it.
unsafe fn entries(environment: *const *const c_char) -> Vec<*const c_char> {
    let mut all = Vec::new();
    if !environment.is_null() {
        // SAFETY: the null has not come yet.
        unsafe {
            while !(*environment.add(all.len())).is_null() {
                all.push(*environment.add(all.len()));
            }
        }
    }
    all
}

/// The name of a variable, with what separates it from its value.
fn name(entry: &[u8]) -> &[u8] {
    let end = entry.iter().position(|byte| *byte == b'=');
    end.map_or(entry, |end| &entry[..=end])
}

/// Keeps what is Janus's of the present environment.
pub(crate) fn keep() {
    // SAFETY: it is the process's, which has no other thread yet that could change it, and each entry is a string.
    let all = unsafe {
        entries(environ)
            .into_iter()
            .map(|entry| CStr::from_ptr(entry))
    };
    let ours = all.filter(|entry| {
        let name = name(entry.to_bytes());
        name == b"LD_PRELOAD=" || name.starts_with(b"JANUS_")
    });
    KEPT.get_or_init(|| ours.map(CStr::to_owned).collect());
}

/// An environment with what was kept, where it has no such variables. It names strings of both, and ends with a null.
///
/// # Safety
/// As the environment of execve.
pub(crate) unsafe fn with_kept(environment: *const *const c_char) -> Vec<*const c_char> {
    // SAFETY: the caller keeps execve's contract: each entry is a string.
    let mut all = unsafe { entries(environment) };
    // SAFETY: as above.
    let given: Vec<&[u8]> = (all.iter())
        .map(|entry| name(unsafe { CStr::from_ptr(*entry) }.to_bytes()))
        .collect();
    let kept = KEPT.get().into_iter().flatten();
    let lacks: Vec<*const c_char> = kept
        .filter(|entry| !given.contains(&name(entry.to_bytes())))
        .map(|entry| entry.as_ptr())
        .collect();
    all.extend(lacks);
    all.push(core::ptr::null());
    all
}
