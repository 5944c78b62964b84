//! Checksums between the stack, which trusts a device's word for a whole port, and DPDK, whose drivers speak of single
//! frames: which frames the device shall fill in, and what to make of those that it did not check.

use janus_dpdk_sys::ffi;
use janus_wire::{ethernet, ipv4, ipv6, proto};

use crate::backend::sound;

/// Returns what a frame to send needs: flags and the lengths of its link and IP headers. A frame that is no TCP segment, or only a fragment
/// of one, has its checksum already.
#[inline]
pub(super) fn offload(frame: &[u8]) -> (u16, u8, u8) {
    const NONE: (u16, u8, u8) = (0, 0, 0);
    let Ok((header, packet)) = ethernet::Header::parse(frame) else {
        return NONE;
    };
    let link = ethernet::LEN as u8;
    match header.ethertype {
        ethernet::ethertype::IPV4 => match ipv4::parse(packet) {
            Ok(ip) if ip.proto == proto::TCP && !ip.is_fragment() => {
                (ffi::JD_TX_TCP_CHECKSUM, link, ip.header_len() as u8)
            }
            _ => NONE,
        },
        ethernet::ethertype::IPV6 => match ipv6::parse(packet) {
            Ok(ip) if ip.proto == proto::TCP && !ip.is_fragment() => {
                let flags = ffi::JD_TX_TCP_CHECKSUM | ffi::JD_TX_IPV6;
                let headers = ip.payload().as_ptr() as usize - packet.as_ptr() as usize;
                (flags, link, headers as u8)
            }
            _ => NONE,
        },
        _ => NONE,
    }
}

/// Returns true if a received frame may be believed: the device has said so, or we look ourselves. What is neither IP, nor TCP or
/// UDP in it, is for others to judge. A checksum that a sender on this machine left to its device (virtio) is filled in: whoever
/// gets the frame next, such as the kernel, may look at it.
#[inline]
pub(super) fn is_sound(flags: u16, frame: &mut [u8]) -> bool {
    const GOOD: u16 = ffi::JD_RX_IP_GOOD | ffi::JD_RX_L4_GOOD;
    flags & GOOD == GOOD
        || flags & ffi::JD_RX_L4_GOOD != 0 && is_v6(frame)
        || looks_sound(flags, frame)
}

#[cold]
fn looks_sound(flags: u16, frame: &mut [u8]) -> bool {
    if flags & ffi::JD_RX_L4_LEFT != 0 {
        sound::complete(frame);
    }
    sound::is_sound(frame)
}

/// IPv6 has no checksum of its own, so no device speaks of it.
fn is_v6(frame: &[u8]) -> bool {
    ethernet::Header::parse(frame)
        .is_ok_and(|(header, _)| header.ethertype == ethernet::ethertype::IPV6)
}

#[cfg(test)]
mod tests;
