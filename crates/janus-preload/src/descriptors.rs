//! Descriptors: closed, duplicated, asked about.

use janus_c::calls;
use libc::{c_int, c_uint, c_ulong, c_void};

use crate::choice;
use crate::inside::{self, Inside, is_ours, ours};
use crate::{claimed, left, made, real};

/// CLOSE_RANGE_CLOEXEC.
const ONLY_ON_EXEC: c_int = 4;

#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    inside::child_closes(fd, fd);
    match is_ours(fd) {
        true => ours(|| {
            choice::forget(fd);
            calls::close(fd)
        }),
        false if inside::is_kept(fd) => janus_c::fail(janus_process::Errno::EBADF),
        false => {
            made::forget(fd);
            claimed::forget(fd);
            // SAFETY: the call takes a number.
            let closed = unsafe { real::close(fd) };
            if let (0, Some(process)) = (closed, inside::process()) {
                // Another thread may have been about to make a socket of this number.
                ours(|| process.was_closed(fd));
            }
            closed
        }
    }
}

/// The program's descriptors in the range go; those that Janus works with stay, as a file of its own would be closed under it.
#[unsafe(no_mangle)]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let number = |fd| c_int::try_from(fd).unwrap_or(c_int::MAX);
    if flags & ONLY_ON_EXEC == 0 {
        claimed::forget_between(number(first), number(last));
    }
    let Some(process) = inside::process() else {
        if flags & ONLY_ON_EXEC == 0 {
            inside::child_closes(number(first), number(last));
        }
        // SAFETY: the call takes numbers.
        return unsafe { real::close_range(first, last, flags) };
    };
    let _inside = Inside::enter();
    if first > last {
        return janus_c::fail(janus_process::Errno::EINVAL);
    }
    let kept = process.own_descriptors();
    let mut from = first;
    for fd in kept.into_iter().filter_map(|fd| c_uint::try_from(fd).ok()) {
        if (from..=last).contains(&fd) {
            if fd > from {
                close_between(process, from, fd - 1, flags);
            }
            from = fd + 1;
        }
    }
    if from <= last {
        close_between(process, from, last, flags);
    }
    0
}

fn close_between(process: &janus_process::Process, first: c_uint, last: c_uint, flags: c_int) {
    if flags & ONLY_ON_EXEC == 0 {
        for fd in process.open_descriptors() {
            if (first..=last).contains(&(fd as c_uint)) {
                choice::forget(fd);
                calls::close(fd);
            }
        }
    }
    // SAFETY: the call takes numbers, of descriptors that are the program's.
    unsafe { real::close_range(first, last, flags) };
    if flags & ONLY_ON_EXEC == 0 {
        let made = process.open_descriptors().into_iter();
        made.filter(|fd| (first..=last).contains(&(*fd as c_uint)))
            .for_each(|fd| process.was_closed(fd));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn closefrom(first: c_int) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0);
}

#[unsafe(no_mangle)]
pub extern "C" fn dup(fd: c_int) -> c_int {
    inside::claim(fd);
    claimed::forget(fd);
    made::is_used(fd, || made::name(fd));
    match is_ours(fd) {
        true => ours(|| calls::duplicate(fd, 0, false)),
        false => {
            // SAFETY: the call takes a number.
            let new = unsafe { real::dup(fd) };
            left::copied(fd, new);
            new
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn dup2(fd: c_int, new: c_int) -> c_int {
    if is_ours(fd) && fd == new {
        return new;
    }
    replace(fd, new, 0, || {
        // SAFETY: the call takes numbers.
        unsafe { real::dup2(fd, new) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int {
    if flags & !libc::O_CLOEXEC != 0 || fd == new {
        return janus_c::fail(janus_process::Errno::EINVAL);
    }
    replace(fd, new, flags, || {
        // SAFETY: the call takes numbers.
        unsafe { real::dup3(fd, new, flags) }
    })
}

/// `new` becomes another name of what `fd` is; what it was is closed.
fn replace(fd: c_int, new: c_int, flags: c_int, kernels: impl FnOnce() -> c_int) -> c_int {
    let kernels = || {
        let done = kernels();
        left::copied(fd, done);
        done
    };
    made::is_used(fd, || made::name(fd));
    made::forget(new);
    claimed::forget(fd);
    claimed::forget(new);
    let Some(process) = inside::process() else {
        inside::claim(fd);
        if fd != new {
            inside::child_closes(new, new);
        }
        return kernels();
    };
    let _inside = Inside::enter();
    if process.keeps(new) {
        // As if it were beyond what the system allows.
        return janus_c::fail(janus_process::Errno::EBADF);
    }
    if process.has(fd) {
        return match process.duplicate_to(fd, new, flags & libc::O_CLOEXEC != 0) {
            Ok(()) => new,
            Err(error) => janus_c::fail(error),
        };
    }
    if process.has(new) {
        // The number stays taken all the while: the kernel's call replaces the placeholder.
        choice::forget(new);
        let mut done = -1;
        let replaced = process.give_up(new, |_| {
            done = kernels();
            match done {
                -1 => Err(choice::last_error()),
                _ => Ok(()),
            }
        });
        return match replaced {
            Ok(()) => done,
            Err(error) => janus_c::fail(error),
        };
    }
    kernels()
}

/// Commands of `fcntl` whose argument is an int, or that take none, as far as they mean something to a socket.
const KNOWN: [c_int; 6] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
];

/// Whether a child that calls this is about to use the descriptor, or to leave it to a program that it becomes.
fn uses(command: c_int, argument: c_int) -> bool {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETFL => true,
        libc::F_SETFD => argument & libc::FD_CLOEXEC == 0,
        _ => false,
    }
}

/// C declares it with any arguments; an int and a pointer come in the same place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    if uses(command, argument.addr() as c_int) {
        inside::claim(fd);
    }
    let duplicates = [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&command);
    if duplicates {
        claimed::forget(fd);
        made::is_used(fd, || made::name(fd));
    }
    match is_ours(fd) && KNOWN.contains(&command) {
        true => ours(|| calls::fcntl(fd, command, argument.addr() as c_int)),
        false => {
            // Of a socket of ours: owner, locks and the like are the placeholder's.
            // SAFETY: the caller keeps fcntl's contract.
            let done = unsafe { real::fcntl(fd, command, argument) };
            if duplicates {
                left::copied(fd, done);
            }
            done
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller keeps fcntl's contract.
    unsafe { fcntl(fd, command, argument) }
}

/// Requests of `ioctl` that concern the descriptor, not the socket.
const FIOCLEX: c_ulong = 0x5451;
const FIONCLEX: c_ulong = 0x5450;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller keeps ioctl's contract.
    unsafe {
        if !is_ours(fd) || [FIOCLEX, FIONCLEX].contains(&request) {
            return real::ioctl(fd, request, argument);
        }
        let done = ours(|| calls::ioctl(fd, request, argument));
        // An epoll instance is one of the kernel's too.
        match done == -1 && choice::last_error() == janus_process::Errno::ENOTSOCK {
            true => real::ioctl(fd, request, argument),
            false => done,
        }
    }
}
