//! Sockets that go to other processes: with a message (SCM_RIGHTS), or to a program that is spawned. What goes is one end of a pair of the
//! kernel's; the connection stays here.

use std::collections::HashMap;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use libc::{c_int, msghdr, posix_spawn_file_actions_t, ssize_t};

use crate::inside::{self, Inside, is_ours};
use crate::{claimed, real};

/// Ends that go together: one for each socket, whatever the number of its names.
#[derive(Default)]
struct Handed(Vec<(i32, OwnedFd)>);

impl Handed {
    /// The descriptor that goes in the place of this one. A socket that is no connection of ours goes as what it is to the kernel.
    fn instead_of(&mut self, fd: c_int) -> c_int {
        inside::claim(fd);
        claimed::forget(fd);
        let Some(process) = inside::process().filter(|process| process.has(fd)) else {
            return fd;
        };
        let _inside = Inside::enter();
        let Ok(socket) = process.socket_of(fd) else {
            return fd;
        };
        let again = self.0.iter().find(|(of, _)| *of == socket);
        if let Some((_, end)) = again {
            return end.as_raw_fd();
        }
        let Ok(end) = process.hand_out(fd) else {
            return fd;
        };
        let number = end.as_raw_fd();
        self.0.push((socket, end));
        number
    }
}

/// `sendmsg` over a socket of the kernel's.
///
/// # Safety
/// sendmsg's contract.
pub(crate) unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller keeps sendmsg's contract, so the control buffer is as long as it says. Headers are walked in a copy, which is
    // aligned for them.
    unsafe {
        let none = inside::process().is_none() && !inside::is_forked();
        if none || inside::is_inside() || message.is_null() || (*message).msg_controllen == 0 {
            return real::sendmsg(fd, message, flags);
        }
        let mut copy = *message;
        let mut control = vec![0_u64; copy.msg_controllen.div_ceil(size_of::<u64>())];
        let from = copy.msg_control.cast_const().cast::<u8>();
        from.copy_to_nonoverlapping(control.as_mut_ptr().cast(), copy.msg_controllen);
        copy.msg_control = control.as_mut_ptr().cast();
        let mut handed = Handed::default();
        let mut header = libc::CMSG_FIRSTHDR(&copy);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let room = (*header)
                    .cmsg_len
                    .saturating_sub(libc::CMSG_LEN(0) as usize);
                let fds = libc::CMSG_DATA(header).cast::<c_int>();
                for at in 0..room / size_of::<c_int>() {
                    let end = handed.instead_of(fds.add(at).read_unaligned());
                    fds.add(at).write_unaligned(end);
                }
            }
            header = libc::CMSG_NXTHDR(&copy, header);
        }
        real::sendmsg(fd, &copy, flags)
    }
}

/// Ends for programs that are still to be spawned, by the list that names them.
static SPAWNED: Mutex<Option<HashMap<usize, Handed>>> = Mutex::new(None);

fn spawned<R>(call: impl FnOnce(&mut HashMap<usize, Handed>) -> R) -> R {
    let _inside = Inside::enter();
    let mut spawned = SPAWNED.lock().unwrap_or_else(PoisonError::into_inner);
    call(spawned.get_or_insert_default())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut posix_spawn_file_actions_t,
    fd: c_int,
    new: c_int,
) -> c_int {
    let from = match is_ours(fd) {
        true => {
            let mut handed = spawned(|all| all.remove(&actions.addr())).unwrap_or_default();
            let end = handed.instead_of(fd);
            spawned(|all| all.insert(actions.addr(), handed));
            end
        }
        false => {
            claimed::forget(fd);
            fd
        }
    };
    // SAFETY: the caller keeps the contract of libc's function of this name, here and below.
    unsafe { real::posix_spawn_file_actions_adddup2(actions, from, new) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_destroy(
    actions: *mut posix_spawn_file_actions_t,
) -> c_int {
    if inside::process().is_some() {
        spawned(|all| all.remove(&actions.addr()));
    }
    // SAFETY: as above.
    unsafe { real::posix_spawn_file_actions_destroy(actions) }
}
