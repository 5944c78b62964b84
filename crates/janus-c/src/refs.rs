//! Received bytes where they lie: `struct jn_ref` and its three calls.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the contract is that of janus.h"
)]

use janus_process::{Errno, Loan, Result};
use libc::{c_int, c_void, size_t, ssize_t};

use crate::errno::{done, size};
use crate::process;
use crate::restart::goes_on;

/// `struct jn_ref` of `janus.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ref {
    pub data: *const c_void,
    pub len: size_t,
    /// The loan's name; 0: there is none.
    pub key: u64,
}

const NONE: Ref = Ref {
    data: core::ptr::null(),
    len: 0,
    key: 0,
};

fn of(loan: Option<Loan>) -> Ref {
    loan.map_or(NONE, |loan| Ref {
        data: loan.at.cast(),
        len: loan.len,
        key: loan.key,
    })
}

/// The caller's reference.
unsafe fn read(place: *mut Ref) -> Result<Ref> {
    match place.is_null() {
        true => Err(Errno::EFAULT),
        // SAFETY: the caller keeps the function's contract.
        false => Ok(unsafe { place.read_unaligned() }),
    }
}

pub unsafe fn recv_ref(fd: c_int, place: *mut Ref, flags: c_int) -> ssize_t {
    let receive = || {
        if place.is_null() {
            return Err(Errno::EFAULT);
        }
        let received = process::get()?.receive_buf(fd, flags, goes_on)?;
        // SAFETY: the caller keeps the function's contract.
        unsafe { place.write_unaligned(of(received)) };
        Ok(received.map_or(0, |loan| loan.len))
    };
    size(receive())
}

pub unsafe fn release(place: *mut Ref) -> c_int {
    let release = || {
        // SAFETY: the caller keeps the function's contract.
        let held = unsafe { read(place) }?;
        process::get()?.release(held.key)?;
        // SAFETY: as above.
        unsafe { place.write_unaligned(NONE) };
        Ok(())
    };
    done(release())
}

/// No signal: a call that libc does not have owes none.
pub unsafe fn send_ref(fd: c_int, place: *mut Ref) -> ssize_t {
    let send = || {
        // SAFETY: the caller keeps the function's contract.
        let held = unsafe { read(place) }?;
        let loan = Loan {
            key: held.key,
            at: held.data.cast(),
            len: held.len,
        };
        let (sent, rest) = process::get()?.send_buf(fd, loan, goes_on)?;
        // SAFETY: as above.
        unsafe { place.write_unaligned(of(rest)) };
        Ok(sent)
    };
    size(send())
}
