//! The one symbol that the tool looks for.

use super::cabi::thread;
use super::entry::{Interface, User};
use super::netdev;
use super::room::Room;
use core::ffi::{CStr, c_char};
use std::sync::Arc;

/// Fills the table with a host of its own. What is wrong with `flags` is said on standard error, and every function
/// then fails. The calling thread is the one that plays the script: its calls never wait.
///
/// # Safety
///
/// `flags` is NULL or a C string; `table` has room for an [`Interface`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, table: *mut Interface) {
    if table.is_null() {
        return;
    }
    let flags = match flags.is_null() {
        true => "".into(),
        // SAFETY: it is a C string, as the contract of this function says.
        false => unsafe { CStr::from_ptr(flags) }.to_string_lossy(),
    };
    let host = std::panic::catch_unwind(|| {
        thread::unlock_memory();
        netdev::host(&flags)
    });
    let room = match host {
        Ok(Ok(host)) => Some(Room::new(host)),
        Ok(Err(message)) => {
            eprintln!("janus: {message}");
            None
        }
        Err(_) => None,
    };
    let user = Arc::new(User::new(room));
    let table_of_ours = Interface::new(Arc::into_raw(user).cast_mut().cast());
    // SAFETY: there is room for it, as the contract of this function says.
    unsafe { table.write(table_of_ours) };
}
