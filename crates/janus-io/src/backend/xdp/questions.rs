//! The neighbours we asked for. Where the kernel has the same address as we, an answer to one of our questions looks like
//! one to the kernel's; so the questions that we send are noted in a map that the program looks into, and forgotten when
//! the answer is here. Nothing of this is done for addresses that are ours alone.

use std::net::{IpAddr, Ipv6Addr};

use janus_wire::{arp, ethernet, icmpv6, ipv6, proto};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::bpf;
use super::program::QUESTION;

/// Questions that can be open at a time; when there are more the oldest counts as unanswered.
const OPEN_MAX: u32 = 256;

/// Address that a frame asks for or answers about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Talk {
    Asks(IpAddr),
    Answers(IpAddr),
}

/// The map of questions.
pub(super) struct Questions {
    map: OwnedFd,
}

impl Questions {
    pub(super) fn new() -> Result<Self, Errno> {
        let map = bpf::forgetful_set::<QUESTION>(OPEN_MAX)?;
        Ok(Self { map })
    }

    pub(super) fn map(&self) -> &OwnedFd {
        &self.map
    }

    /// To be shown every frame that is sent, before it is.
    #[inline]
    pub(super) fn sending(&self, frame: &[u8]) {
        if let Some(Talk::Asks(whom)) = talk(frame) {
            // When it cannot be noted the answer goes to the kernel, and the question is put again.
            let _ = bpf::put(&self.map, &key(whom), 1);
        }
    }

    /// To be shown every frame that is received.
    #[inline]
    pub(super) fn received(&self, frame: &[u8]) {
        if let Some(Talk::Answers(who)) = talk(frame) {
            // Nothing to forget: the answer was to a question of another shard, or to none.
            let _ = bpf::remove(&self.map, &key(who));
        }
    }
}

fn key(address: IpAddr) -> [u8; QUESTION] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Whether a frame is part of such a talk; as a rule two bytes tell that it is not.
#[inline]
pub(super) fn talk(frame: &[u8]) -> Option<Talk> {
    let kind = u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]);
    match kind {
        ethernet::ethertype::ARP => talk_v4(frame.get(ethernet::LEN..)?),
        ethernet::ethertype::IPV6 if frame.get(20) == Some(&proto::ICMPV6) => {
            talk_v6(frame.get(ethernet::LEN + ipv6::LEN..)?)
        }
        _ => None,
    }
}

#[cold]
fn talk_v4(packet: &[u8]) -> Option<Talk> {
    let packet = arp::Packet::parse(packet).ok()?;
    match packet.op {
        arp::Op::Request => Some(Talk::Asks(packet.target_ip.into())),
        arp::Op::Reply => Some(Talk::Answers(packet.sender_ip.into())),
        arp::Op::Other(_) => None,
    }
}

#[cold]
fn talk_v6(message: &[u8]) -> Option<Talk> {
    const SOLICITATION: u8 = 135;
    const ADVERTISEMENT: u8 = 136;
    let message = message.get(..icmpv6::LEN + 16)?;
    let target: [u8; 16] = message[icmpv6::LEN..].try_into().ok()?;
    let target = IpAddr::V6(Ipv6Addr::from(target));
    match message[0] {
        SOLICITATION => Some(Talk::Asks(target)),
        ADVERTISEMENT => Some(Talk::Answers(target)),
        _ => None,
    }
}
