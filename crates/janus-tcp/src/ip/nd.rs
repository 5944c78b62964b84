//! Neighbour discovery (RFC 4861): who has which IPv6 address on the link, and that we have ours. The table is
//! `neighbor`, shared with ARP; routers are configured, not discovered.
//!
//! Whatever did not come with hop limit 255 has crossed a router and is not from the link (section 11.2).

use std::net::{IpAddr, Ipv6Addr};

use janus_mem::{Frame, HEADROOM};
use janus_wire::icmpv6::{self, Advertised};
use janus_wire::{Link, MacAddr, ethernet, ipv6, proto};

use crate::ip::Ip;
use crate::rules::interface::ALL_NODES;

/// Hop limit of a message that has come from the link itself, and of those sent.
pub(crate) const HOP_LIMIT: u8 = 255;
/// Whether a message is one of neighbour discovery: types 133 to 137 (section 4).
pub(crate) fn is_discovery(message: &[u8]) -> bool {
    matches!(message.first(), Some(133..=137))
}

/// A neighbour message's packet: whence, whither.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(super) src: Ipv6Addr,
    pub(super) dst: Ipv6Addr,
}

impl Ip<'_> {
    /// Somebody asks for one of our addresses, or wants to know whether it may have one (section 7.2.3).
    pub(crate) fn solicited(&mut self, ends: Ends, target: Ipv6Addr, source: Option<MacAddr>) {
        // Section 7.1.1: who has no address yet asks the group, and cannot say where it is.
        let detecting = ends.src.is_unspecified();
        let to_group = ends.dst == icmpv6::solicited_node(target);
        let sound = !detecting || (to_group && source.is_none());
        if !sound || source.is_some_and(MacAddr::is_group) {
            self.env.counters.dropped_malformed += 1;
            return;
        }
        if !self.rules.interface().is_own(target.into()) {
            return;
        }
        if let Some(mac) = source {
            self.neighbor_is(ends.src.into(), mac, true);
        }
        if !self.rules.interface().answers {
            return;
        }
        // An asker that does not say where it is must be known, or cannot be answered.
        let asker = IpAddr::V6(ends.src);
        let (dst, mac) = if detecting {
            (ALL_NODES, Some(icmpv6::multicast_mac(ALL_NODES)))
        } else {
            let known = self.host.neighbors.lookup(asker).map(|known| known.mac);
            (ends.src, source.or(known))
        };
        let Some(mac) = mac else {
            self.env.counters.dropped_no_neighbor += 1;
            return;
        };
        let flags = Advertised {
            router: false,
            solicited: !detecting,
            r#override: true,
        };
        let own = self.rules.interface().mac;
        self.send_neighbor_message(target, dst, mac, |out| {
            icmpv6::emit_advertisement(out, target, dst, target, own, flags)
        });
    }

    /// A neighbour says where it is (section 7.2.5). An unsolicited neighbor is not filed.
    pub(crate) fn advertised(
        &mut self,
        ends: Ends,
        target: Ipv6Addr,
        mac: Option<MacAddr>,
        flags: Advertised,
    ) {
        // Section 7.1.2.
        let unsound = ends.dst.is_multicast() && flags.solicited;
        if unsound || mac.is_some_and(MacAddr::is_group) {
            self.env.counters.dropped_malformed += 1;
            return;
        }
        // Somebody claims an address of ours: it was ours first, and is (RFC 4862 section 5.4.4 leaves it open).
        if self.rules.interface().is_own(target.into()) {
            self.env.counters.dropped_address += 1;
            return;
        }
        let addr = IpAddr::V6(target);
        let known = self.host.neighbors.lookup(addr).map(|known| known.mac);
        match (known, mac) {
            // Without the override flag what is known is not changed.
            (Some(known), Some(mac)) if known != mac && !flags.r#override => {}
            (_, Some(mac)) => self.neighbor_is(addr, mac, false),
            // It is still there, where we knew it.
            (Some(known), None) if flags.solicited => self.neighbor_is(addr, known, false),
            (_, None) => {}
        }
    }

    /// Files where a neighbour is, and sends what has waited for it.
    pub(crate) fn neighbor_is(&mut self, addr: IpAddr, mac: MacAddr, solicited: bool) {
        let filed =
            (self.host.neighbors).learn(addr, mac, solicited, self.env.now, self.rules.interface());
        self.env.counters.neighbors_refused += u64::from(!filed);
        while let Some(mut frame) = self.host.neighbors.pop_waiting(addr) {
            frame.data_mut()[..6].copy_from_slice(&mac.0);
            self.schedule.replies.push(frame);
        }
    }

    /// Asks everybody who might have `target` (section 7.2.2).
    pub(crate) fn solicit(&mut self, target: Ipv6Addr) {
        let Some(IpAddr::V6(src)) = self.rules.interface().source_for(target) else {
            return;
        };
        let dst = icmpv6::solicited_node(target);
        let own = self.rules.interface().mac;
        self.send_neighbor_message(src, dst, icmpv6::multicast_mac(dst), |out| {
            icmpv6::emit_solicitation(out, src, dst, target, own)
        });
    }

    fn send_neighbor_message(
        &mut self,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        mac: MacAddr,
        emit: impl FnOnce(&mut [u8]) -> usize,
    ) {
        if self.rules.interface().link != Link::Ethernet {
            return;
        }
        let Some(mut buf) = self.reply_buffer() else {
            return;
        };
        let header = ethernet::Header {
            dst: mac,
            src: self.rules.interface().mac,
            ethertype: ethernet::ethertype::IPV6,
        };
        let bytes = &mut buf.bytes_mut()[usize::from(HEADROOM)..];
        let link = header.emit(bytes);
        let len = emit(&mut bytes[link + ipv6::LEN..]);
        let repr = ipv6::Repr {
            src,
            dst,
            proto: proto::ICMPV6,
            payload_len: len as u16,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            flow_label: 0,
        };
        ipv6::emit(&mut bytes[link..], &repr);
        let total = link + ipv6::LEN + len;
        self.schedule.replies.push(Frame::new(buf, total as u16));
    }
}
