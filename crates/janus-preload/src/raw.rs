//! `syscall(2)`: libuv closes by it, and others do what libc has no name for. Numbers that concern a descriptor of ours become the call;
//! a program is told that there is no io_uring, as its rings would go past us.

use libc::{c_int, c_long, c_ulong};

use crate::inside;
use crate::{bytes, cloned, descriptors, life, ready, real};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork | libc::SYS_vfork => return cloned::forked(),
        // SAFETY: the caller keeps the contract.
        libc::SYS_clone => return unsafe { cloned::clone([a, b, c, d, e]) },
        _ => {}
    }
    let Some(process) = inside::process() else {
        // SAFETY: the caller keeps the contract of the call that he names, here and below.
        return unsafe { real::syscall(number, a, b, c, d, e, f) };
    };
    let fd = a as c_int;
    let answer = |it: c_int| c_long::from(it);
    // SAFETY: as above: the arguments have the types of that call.
    unsafe {
        match number {
            libc::SYS_io_uring_setup => answer(janus_c::fail(janus_process::Errno(libc::ENOSYS))),
            libc::SYS_socket => answer(life::socket(fd, b as c_int, c as c_int)),
            libc::SYS_close_range => answer(descriptors::close_range(a as _, b as _, c as _)),
            libc::SYS_epoll_ctl => answer(ready::epoll_ctl(fd, b as _, c as _, d as _)),
            libc::SYS_poll => answer(ready::poll(a as _, b, c as _)),
            libc::SYS_dup2 => answer(descriptors::dup2(fd, b as _)),
            libc::SYS_dup3 => answer(descriptors::dup3(fd, b as _, c as _)),
            _ if !process.has(fd) => real::syscall(number, a, b, c, d, e, f),
            libc::SYS_close => answer(descriptors::close(fd)),
            libc::SYS_dup => answer(descriptors::dup(fd)),
            libc::SYS_fcntl => answer(descriptors::fcntl(fd, b as _, c as _)),
            libc::SYS_ioctl => answer(descriptors::ioctl(fd, b, c as _)),
            libc::SYS_bind => answer(life::bind(fd, b as _, c as _)),
            libc::SYS_listen => answer(life::listen(fd, b as _)),
            libc::SYS_accept => answer(life::accept(fd, b as _, c as _)),
            libc::SYS_accept4 => answer(life::accept4(fd, b as _, c as _, d as _)),
            libc::SYS_connect => answer(life::connect(fd, b as _, c as _)),
            libc::SYS_shutdown => answer(life::shutdown(fd, b as _)),
            libc::SYS_getsockname => answer(life::getsockname(fd, b as _, c as _)),
            libc::SYS_getpeername => answer(life::getpeername(fd, b as _, c as _)),
            libc::SYS_setsockopt => answer(life::setsockopt(fd, b as _, c as _, d as _, e as _)),
            libc::SYS_getsockopt => answer(life::getsockopt(fd, b as _, c as _, d as _, e as _)),
            libc::SYS_read => bytes::read(fd, b as _, c as _) as c_long,
            libc::SYS_readv => bytes::readv(fd, b as _, c as _) as c_long,
            libc::SYS_recvfrom => {
                bytes::recvfrom(fd, b as _, c as _, d as _, e as _, f as _) as c_long
            }
            libc::SYS_recvmsg => bytes::recvmsg(fd, b as _, c as _) as c_long,
            libc::SYS_write => bytes::write(fd, b as _, c as _) as c_long,
            libc::SYS_writev => bytes::writev(fd, b as _, c as _) as c_long,
            libc::SYS_sendto => bytes::sendto(fd, b as _, c as _, d as _, e as _, f as _) as c_long,
            libc::SYS_sendmsg => bytes::sendmsg(fd, b as _, c as _) as c_long,
            libc::SYS_epoll_wait => answer(ready::epoll_wait(fd, b as _, c as _, d as _)),
            libc::SYS_epoll_pwait => answer(ready::epoll_pwait(fd, b as _, c as _, d as _, e as _)),
            _ => real::syscall(number, a, b, c, d, e, f),
        }
    }
}
