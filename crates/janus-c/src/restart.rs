//! Whether a call that a signal has interrupted goes on. The kernel knows which handler ran and its SA_RESTART; here it is known only that
//! one did, so all that are installed are asked: the call goes on unless one of them wants it not to.

use libc::c_int;

/// Signals are numbered from 1 to this.
const SIGNALS: c_int = 64;

/// Whether no handler that is installed wants calls to end.
pub(crate) fn goes_on() -> bool {
    (1..=SIGNALS).all(|signal| {
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
