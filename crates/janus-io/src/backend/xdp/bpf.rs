//! The bpf(2) system call: maps, loading a program, and the link that holds it on an interface. Knows no packets; what a
//! refusal means to a user is `refusal.rs`.

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

use super::asm::Insn;

// Commands.
const MAP_CREATE: u32 = 0;
const MAP_UPDATE: u32 = 2;
const MAP_DELETE: u32 = 3;
const PROG_LOAD: u32 = 5;
const LINK_CREATE: u32 = 28;
const LINK_DETACH: u32 = 34;

const MAP_LRU_HASH: u32 = 9;
const MAP_SOCKETS: u32 = 17;
const PROG_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_DRIVER: u32 = 1 << 2;
/// Bytes of the verifier's log: what it says of a program of this size fits.
const LOG: usize = 256 << 10;
const LICENSE: &std::ffi::CStr = c"MIT";

/// How the program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    /// By the driver, before the kernel makes anything of the packet.
    Native,
    /// By the kernel, on packets it has already taken in: slower, and works with any driver.
    Generic,
}

/// `union bpf_attr`, as far as we need it: fields at their offsets, the rest zero.
#[repr(C, align(8))]
struct Attr([u8; 120]);

impl Attr {
    fn new() -> Self {
        Self([0; 120])
    }

    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn pointer<T>(self, at: usize, to: *const T) -> Self {
        self.u64(at, to.expose_provenance() as u64)
    }

    fn fd(self, at: usize, fd: &impl AsFd) -> Self {
        self.u32(at, fd.as_fd().as_raw_fd() as u32)
    }

    /// # Safety
    /// What the fields point to is as long as the command takes it to be, and writable where the kernel writes.
    unsafe fn call(&self, command: u32) -> Result<i32, Errno> {
        let attr: *const Self = self;
        // SAFETY: the kernel reads as many bytes of the attribute as we say it has; the caller vouches for the rest.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<Self>()) };
        if result < 0 {
            Err(last_error())
        } else {
            Ok(result as i32)
        }
    }

    /// # Safety
    /// As for [`call`](Self::call), and the command makes a descriptor.
    unsafe fn make(&self, command: u32) -> Result<OwnedFd, Errno> {
        // SAFETY: the caller's.
        let fd = unsafe { self.call(command)? };
        // SAFETY: the kernel has just made it, for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// The error of the system call that has just failed.
pub(super) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A map from queue numbers to AF_XDP sockets.
pub(crate) fn socket_map(queues: u32) -> Result<OwnedFd, Errno> {
    map(MAP_SOCKETS, 4, queues)
}

/// A set of keys of `N` bytes that forgets the one longest unused when full.
pub(crate) fn forgetful_set<const N: usize>(entries: u32) -> Result<OwnedFd, Errno> {
    map(MAP_LRU_HASH, N as u32, entries)
}

fn map(kind: u32, key_size: u32, entries: u32) -> Result<OwnedFd, Errno> {
    let attr = Attr::new()
        .u32(0, kind)
        .u32(4, key_size)
        .u32(8, 4)
        .u32(12, entries);
    // SAFETY: the attribute holds no pointers.
    unsafe { attr.make(MAP_CREATE) }
}

/// Puts a value of four bytes into a map.
pub(crate) fn put<const N: usize>(map: &OwnedFd, key: &[u8; N], value: u32) -> Result<(), Errno> {
    let attr = Attr::new()
        .fd(0, map)
        .pointer(8, key)
        .pointer(16, &raw const value);
    // SAFETY: the maps of this file have values of four bytes, and keys as long as their users' arrays.
    unsafe { attr.call(MAP_UPDATE) }.map(drop)
}

/// Takes a key out of a map.
pub(crate) fn remove<const N: usize>(map: &OwnedFd, key: &[u8; N]) -> Result<(), Errno> {
    let attr = Attr::new().fd(0, map).pointer(8, key);
    // SAFETY: as in `put`.
    unsafe { attr.call(MAP_DELETE) }.map(drop)
}

/// Loads an XDP program. When the verifier refuses it, the second part of the error is what it said.
pub(crate) fn load(program: &[Insn]) -> Result<OwnedFd, (Errno, String)> {
    let attr = Attr::new()
        .u32(0, PROG_XDP)
        .u32(4, program.len() as u32)
        .pointer(8, program.as_ptr())
        .pointer(16, LICENSE.as_ptr())
        .u32(68, ATTACH_XDP);
    // SAFETY: the instructions are as many as said, and the license ends with a zero byte.
    let errno = match unsafe { attr.make(PROG_LOAD) } {
        Ok(fd) => return Ok(fd),
        Err(errno) => errno,
    };
    // Once more, only to hear why.
    let mut log = vec![0_u8; LOG];
    let attr = attr
        .u32(24, 1)
        .u32(28, LOG as u32)
        .pointer(32, log.as_mut_ptr());
    // SAFETY: as above, and the log is as long as said and ours to write.
    let again = unsafe { attr.make(PROG_LOAD) };
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG);
    let said = String::from_utf8_lossy(&log[..end]).into_owned();
    again.map_err(|_| (errno, said))
}

/// Puts a program onto an interface. It is there for as long as the link is open, and so at most as long as the process,
/// however that ends.
pub(crate) fn link(program: &OwnedFd, interface: u32, attach: Attach) -> Result<OwnedFd, Errno> {
    let mode = match attach {
        Attach::Native => FLAG_DRIVER,
        Attach::Generic => FLAG_GENERIC,
    };
    let attr = Attr::new()
        .fd(0, program)
        .u32(4, interface)
        .u32(8, ATTACH_XDP)
        .u32(12, mode);
    // SAFETY: the attribute holds no pointers.
    unsafe { attr.make(LINK_CREATE) }
}

/// Takes the program off at once, not when the kernel gets round to closing the link.
pub(crate) fn detach(link: &OwnedFd) -> Result<(), Errno> {
    let attr = Attr::new().fd(0, link);
    // SAFETY: the attribute holds no pointers.
    unsafe { attr.call(LINK_DETACH) }.map(drop)
}
