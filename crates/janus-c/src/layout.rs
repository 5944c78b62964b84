//! The caller's memory: addresses, vectors of buffers. What a pointer names is the caller's word for it, as everywhere in C.

use core::mem::size_of;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use janus_process::{Errno, Result};
use libc::{c_int, iovec, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

/// `UIO_MAXIOV`.
pub(crate) const PARTS_MAX: usize = 1_024;
/// An address of IPv6 without its scope, which the kernel takes too (SIN6_LEN_RFC2133).
const V6_LEN_MIN: usize = 24;

/// Reads an address; `None` is one of no family (AF_UNSPEC).
///
/// # Errors
/// Linux's.
///
/// # Safety
/// `len` bytes can be read at `name`, or it is null.
pub unsafe fn address(name: *const sockaddr, len: socklen_t) -> Result<Option<SocketAddr>> {
    if name.is_null() {
        return Err(Errno::EFAULT);
    }
    let len = len as usize;
    if len < size_of::<libc::sa_family_t>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: so many bytes are there; what is read of them is no more than that, and need not be aligned.
    unsafe {
        match c_int::from((&raw const (*name).sa_family).read_unaligned()) {
            libc::AF_UNSPEC => Ok(None),
            libc::AF_INET if len >= size_of::<sockaddr_in>() => {
                let name = name.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
                Ok(Some((ip, u16::from_be(name.sin_port)).into()))
            }
            libc::AF_INET6 if len >= V6_LEN_MIN => {
                let mut whole: sockaddr_in6 = core::mem::zeroed();
                let part = len.min(size_of::<sockaddr_in6>());
                core::ptr::copy_nonoverlapping(name.cast::<u8>(), (&raw mut whole).cast(), part);
                let ip = Ipv6Addr::from(whole.sin6_addr.s6_addr);
                let (port, flow) = (
                    u16::from_be(whole.sin6_port),
                    u32::from_be(whole.sin6_flowinfo),
                );
                Ok(Some(
                    SocketAddrV6::new(ip, port, flow, whole.sin6_scope_id).into(),
                ))
            }
            libc::AF_INET | libc::AF_INET6 => Err(Errno::EINVAL),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }
}

/// Writes an address: as much as there is room for, and its full length. A null `name` does not want it.
///
/// # Safety
/// `len` is null or can be read and written, and as many bytes as it says can be written at `name`.
pub(crate) unsafe fn tell(
    address: SocketAddr,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<()> {
    if name.is_null() {
        return Ok(());
    }
    if len.is_null() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: as the caller says; the structures are plain data, for which zeros are a value.
    unsafe {
        let room = len.read_unaligned();
        if c_int::try_from(room).is_err() {
            return Err(Errno::EINVAL);
        }
        let copy = |from: *const u8, size: usize| {
            core::ptr::copy_nonoverlapping(from, name.cast::<u8>(), size.min(room as usize));
            len.write_unaligned(size as socklen_t);
        };
        match address {
            SocketAddr::V4(at) => {
                let mut it: sockaddr_in = core::mem::zeroed();
                it.sin_family = libc::AF_INET as _;
                it.sin_port = at.port().to_be();
                it.sin_addr.s_addr = u32::from_ne_bytes(at.ip().octets());
                copy((&raw const it).cast(), size_of::<sockaddr_in>());
            }
            SocketAddr::V6(at) => {
                let mut it: sockaddr_in6 = core::mem::zeroed();
                it.sin6_family = libc::AF_INET6 as _;
                it.sin6_port = at.port().to_be();
                it.sin6_flowinfo = at.flowinfo().to_be();
                it.sin6_addr.s6_addr = at.ip().octets();
                it.sin6_scope_id = at.scope_id();
                copy((&raw const it).cast(), size_of::<sockaddr_in6>());
            }
        }
    }
    Ok(())
}

/// A buffer of the caller's to read from; empty ones may be anywhere.
///
/// # Safety
/// `len` bytes can be read at `from` while the slice is used.
pub(crate) unsafe fn bytes<'a>(from: *const libc::c_void, len: usize) -> Result<&'a [u8]> {
    match (len, from.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Errno::EFAULT),
        _ if isize::try_from(len).is_err() => Err(Errno::EFAULT),
        // SAFETY: as the caller says.
        _ => Ok(unsafe { core::slice::from_raw_parts(from.cast(), len) }),
    }
}

/// A buffer of the caller's to write to.
///
/// # Safety
/// `len` bytes can be written at `into` while the slice is used, and by no other meanwhile.
pub(crate) unsafe fn room<'a>(into: *mut libc::c_void, len: usize) -> Result<&'a mut [u8]> {
    match (len, into.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(Errno::EFAULT),
        _ if isize::try_from(len).is_err() => Err(Errno::EFAULT),
        // SAFETY: as the caller says.
        _ => Ok(unsafe { core::slice::from_raw_parts_mut(into.cast(), len) }),
    }
}

/// The parts of a vector.
///
/// # Safety
/// `count` parts can be read at `parts`.
unsafe fn parts<'a>(parts: *const iovec, count: usize) -> Result<&'a [iovec]> {
    match (count, parts.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Errno::EFAULT),
        (1..=PARTS_MAX, _) => {
            // SAFETY: as the caller says.
            let parts = unsafe { core::slice::from_raw_parts(parts, count) };
            let all = parts
                .iter()
                .try_fold(0usize, |all, part| all.checked_add(part.iov_len));
            match all.map(isize::try_from) {
                Some(Ok(_)) => Ok(parts),
                _ => Err(Errno::EINVAL),
            }
        }
        _ => Err(Errno::EINVAL),
    }
}

/// A vector of buffers to read from.
///
/// # Safety
/// As for [`bytes`], for each of `count` parts at `vector`.
pub(crate) unsafe fn gather<'a>(vector: *const iovec, count: usize) -> Result<Vec<IoSlice<'a>>> {
    // SAFETY: as the caller says.
    unsafe {
        let parts = parts(vector, count)?.iter();
        parts
            .map(|part| Ok(IoSlice::new(bytes(part.iov_base, part.iov_len)?)))
            .collect()
    }
}

/// A vector of buffers to write to.
///
/// # Safety
/// As for [`room`], for each of `count` parts at `vector`.
pub(crate) unsafe fn scatter<'a>(
    vector: *const iovec,
    count: usize,
) -> Result<Vec<IoSliceMut<'a>>> {
    // SAFETY: as the caller says.
    unsafe {
        let parts = parts(vector, count)?.iter();
        parts
            .map(|part| Ok(IoSliceMut::new(room(part.iov_base, part.iov_len)?)))
            .collect()
    }
}
