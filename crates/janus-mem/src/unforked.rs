//! Memory that children get none of when this process forks. What is shared with another process they have no use for, and may be about to give up the
//! rights of its user. Where a program forks that knows nothing of Janus it is all memory: a child may have few addresses (RLIMIT_AS), and a
//! fork that copies no tables of pages is a quick one. But a copy that goes on in this process's place gets all.

use core::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, madvise};

/// Addresses and lengths.
static ALL: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

static KEEPS_ALL: AtomicBool = AtomicBool::new(false);

/// All memory that is reserved from now on is kept from children.
pub fn keep_all_from_children() {
    KEEPS_ALL.store(true, Ordering::Relaxed);
}

fn keeps_all() -> bool {
    KEEPS_ALL.load(Ordering::Relaxed)
}

/// Memory was reserved there.
pub(crate) fn is_mapped(base: NonNull<u8>, len: usize) {
    if keeps_all() {
        keep_from_children(base, len);
    }
}

/// Other memory was put into a part of what is reserved.
pub(crate) fn is_mapped_anew(at: *mut core::ffi::c_void, len: usize) {
    if keeps_all() {
        let _ = goes_along((at.expose_provenance(), len), false);
    }
}

fn all() -> MutexGuard<'static, Vec<(usize, usize)>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a child that is forked from now on gets what is mapped there.
fn goes_along((base, len): (usize, usize), does: bool) -> rustix::io::Result<()> {
    let advice = match does {
        true => Advice::LinuxDoFork,
        false => Advice::LinuxDontFork,
    };
    // SAFETY: the advice changes no contents.
    unsafe { madvise(core::ptr::with_exposed_provenance_mut(base), len, advice) }
}

/// Keeps what was mapped there from children, until [`forget`].
pub fn keep_from_children(base: NonNull<u8>, len: usize) {
    let range = (base.as_ptr().expose_provenance(), len);
    // One that is not kept from them is theirs too, which costs a little memory.
    let _ = goes_along(range, false);
    all().push(range);
}

/// It is about to be unmapped.
pub fn forget(base: NonNull<u8>) {
    all().retain(|(at, _)| *at != base.as_ptr().addr());
}

/// While it lives, this process's copies get that memory as well.
#[derive(Debug)]
pub struct Copied(());

impl Copied {
    /// From now on.
    ///
    /// # Errors
    /// As the system says; then they get none.
    pub fn by_forks() -> std::io::Result<Copied> {
        let copied = Copied(());
        for range in all().iter() {
            goes_along(*range, true)?;
        }
        Ok(copied)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        for range in all().iter() {
            let _ = goes_along(*range, false);
        }
    }
}
