//! Whether a call that a signal has interrupted goes on. The kernel knows which handler ran and its SA_RESTART. Here that is known where a
//! library stands in front of handlers; else all that are installed are asked: the call goes on unless one of them wants it not to.

use janus_process::interrupts;
use libc::c_int;

/// Signals are numbered from 1 to this.
const SIGNALS: c_int = 64;

/// They are about the instruction that was interrupted, and interrupt no call.
const FAULTS: [c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Whether the handler that has run lets calls go on.
pub(crate) fn goes_on() -> bool {
    interrupts::goes_on().unwrap_or_else(all_go_on)
}

fn all_go_on() -> bool {
    let mut signals = (1..=SIGNALS).filter(|signal| !FAULTS.contains(signal));
    signals.all(|signal| {
        // SAFETY: the action is plain data, for which zeros are a value; the call writes it and changes nothing.
        let action = unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            if libc::sigaction(signal, core::ptr::null(), &mut action) != 0 {
                return true;
            }
            action
        };
        let handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !handled || action.sa_flags & libc::SA_RESTART != 0
    })
}
