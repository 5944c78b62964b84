//! Peers of members that are gone are told at once, as the kernel does it for a process that dies: a peer that waits for an answer would wait for ever.
//!
//! A reset needs the very number that the peer expects (RFC 9293 section 3.10.7.4), which nothing here knows. The peer is asked for it by a SYN: it
//! answers one with a challenge ACK (RFC 5961 section 4), which has that number. That ACK belongs to no connection any more, and whatever has the port by
//! now, the keeper, a successor or another of the group, resets it. A peer that has closed meanwhile answers the SYN by a reset, or begins a
//! handshake and is reset; one that has a new connection of the same four numbers gets an acknowledgement that it knows already.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use janus_shm::{Descriptor, Device};
use janus_wire::ethernet::ethertype::{IPV4, IPV6};
use janus_wire::proto::TCP;
use janus_wire::tcp::{Flags, Header, OptionsToSend};
use janus_wire::{FlowKey, MacAddr, SeqNum, classify, ethernet, ipv4, ipv6, tcp};

use crate::Counters;
use crate::flows::{Flow, Flows};
use crate::member::Member;
use crate::ports::{Owner, Port, Slot};
use crate::steer::{To, steer};
use crate::switch::Switch;

/// Peers that are asked at a time, and the pause until the next: 16,000 in a second, so that neither the keeper nor a device overflows.
const AT_ONCE: usize = 16;
const PAUSE: Duration = Duration::from_millis(1);
/// SYNs for a peer that is not heard of. Linux answers one in half a second on a connection (tcp_invalid_ratelimit).
const TRIES: u8 = 3;
const AGAIN: Duration = Duration::from_millis(700);
/// Time for a user's peers, if its rate holds the SYNs back.
const PATIENCE: Duration = Duration::from_secs(30);
/// Peers that wait to be told, of all members together. More are not told.
const WAITING_MAX: usize = 1 << 18;
/// Bytes of a SYN at most.
const SYN_MAX: usize = ethernet::LEN + ipv6::LEN + tcp::LEN;

/// A member that is gone, and those of its peers that have not been asked.
struct Gone {
    flows: Box<dyn Iterator<Item = Flow> + Send>,
    left: usize,
    /// As each is asked.
    asked: Asked,
}

/// A peer that is asked, or has been.
#[derive(Clone, Copy)]
struct Asked {
    mac: MacAddr,
    user: u32,
    tries: u8,
    until: Instant,
}

pub(crate) struct Resets {
    gone: VecDeque<Gone>,
    asked: HashMap<FlowKey, Asked>,
    /// Those of `asked`, and others that are told by now, by the time at which they are asked again.
    again: VecDeque<(Instant, FlowKey)>,
    /// None are asked before.
    next: Instant,
    random: RandomState,
}

impl Resets {
    pub(crate) fn new() -> Resets {
        Resets {
            gone: VecDeque::new(),
            asked: HashMap::new(),
            again: VecDeque::new(),
            next: Instant::now(),
            random: RandomState::new(),
        }
    }

    /// A member is gone: its peers are told, not before this time.
    pub(crate) fn tell(&mut self, flows: Flows, user: u32, from: Instant, counters: &Counters) {
        let waiting = self.gone.iter().map(|it| it.left).sum::<usize>() + self.asked.len();
        let left = flows.len().min(WAITING_MAX.saturating_sub(waiting));
        counters.ended.add((flows.len() - left) as u64);
        if left > 0 {
            self.next = self.next.max(from);
            let asked = Asked {
                mac: MacAddr::default(),
                user,
                tries: 0,
                until: from + PATIENCE,
            };
            let flows = Box::new(flows.drain().take(left));
            self.gone.push_back(Gone { flows, left, asked });
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.again.is_empty()
    }

    /// The time at which there is something to do next.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.gone.is_empty() {
            true => self.again.front().map(|(at, _)| (*at).max(self.next)),
            false => Some(self.next),
        }
    }

    /// The peer of this connection is reset, or has reset it, or begins another.
    pub(crate) fn is_over(&mut self, key: &FlowKey, counters: &Counters) {
        if !self.asked.is_empty() && self.asked.remove(key).is_some() {
            counters.told.add(1);
            counters.ended.add(1);
        }
    }

    /// The next peer that is to be asked now. Those that have not been go first, of each member in turn.
    fn pop(&mut self, now: Instant, counters: &Counters) -> Option<(FlowKey, Asked)> {
        while let Some(mut gone) = self.gone.pop_front() {
            let Some((key, mac)) = gone.flows.next() else {
                continue;
            };
            gone.left -= 1;
            let asked = Asked { mac, ..gone.asked };
            self.gone.push_back(gone);
            return Some((key, asked));
        }
        while let Some((_, key)) = self.again.pop_front_if(|(at, _)| *at <= now) {
            let Some(asked) = self.asked.remove(&key) else {
                continue;
            };
            if asked.tries < TRIES && now < asked.until {
                return Some((key, asked));
            }
            counters.ended.add(1);
        }
        if self.again.is_empty() {
            self.again.shrink_to_fit();
            self.asked.shrink_to_fit();
        }
        None
    }

    fn push(&mut self, at: Instant, key: FlowKey, asked: Asked, counters: &Counters) {
        if self.asked.insert(key, asked).is_some() {
            counters.ended.add(1);
        }
        self.again.push_back((at, key));
    }
}

/// Writes a SYN for the peer of a connection, as its member would; its length.
fn syn(out: &mut [u8; SYN_MAX], key: &FlowKey, from: Device, to: MacAddr, seq: SeqNum) -> usize {
    let header = Header {
        src_port: key.local_port(),
        dst_port: key.peer_port(),
        seq,
        ack: SeqNum(0),
        flags: Flags::SYN,
        window: u16::MAX,
        urgent: 0,
        header_len: tcp::LEN,
    };
    let len = tcp::LEN as u16;
    let ethertype = if key.is_v6() { IPV6 } else { IPV4 };
    let start = match from {
        Device::Ethernet(from) => {
            let link = [&to.0[..], &from, &ethertype.to_be_bytes()].concat();
            out[..ethernet::LEN].copy_from_slice(&link);
            ethernet::LEN
        }
        Device::Portal(_) => 0,
    };
    let packet = &mut out[start..];
    let at = match key {
        FlowKey::V4(key) => {
            let ip = ipv4::Repr {
                src: key.local,
                dst: key.peer,
                proto: TCP,
                payload_len: len,
                ttl: 64,
                tos: 0,
                id: 0,
                dont_fragment: true,
            };
            let at = ipv4::emit(packet, &ip);
            let segment = &mut packet[at..at + tcp::LEN];
            tcp::emit(segment, &header, &OptionsToSend::NONE);
            tcp::fill_checksum_v4(segment, key.local, key.peer);
            at
        }
        FlowKey::V6(key) => {
            let ip = ipv6::Repr {
                src: key.local,
                dst: key.peer,
                proto: TCP,
                payload_len: len,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
            };
            let at = ipv6::emit(packet, &ip);
            let segment = &mut packet[at..at + tcp::LEN];
            tcp::emit(segment, &header, &OptionsToSend::NONE);
            tcp::fill_checksum_v6(segment, key.local, key.peer);
            at
        }
    };
    start + at + tcp::LEN
}

impl Switch {
    /// Takes note of a segment that a member sends, and that may begin or end a connection of its.
    #[cold]
    pub(crate) fn turns(&mut self, member: &mut Member, frame: &[u8]) {
        if let (Some((flow, flags)), Some(to)) =
            (classify(frame, self.link).segment(), frame.first_chunk())
        {
            let key = flow.reversed();
            self.resets.is_over(&key, &self.counters);
            // A connection of a group may be gone where it was: then another of the group answers that it is none.
            let (udp, number) = (false, key.local_port());
            if flags.contains(Flags::RST) && self.ports.owner(Port { udp, number }) == Owner::Group
            {
                let others = self.members[..self.places].iter_mut().flatten();
                others.for_each(|it| it.flows.forget(&key, &self.counters));
            }
            let flow = (key, MacAddr(*to));
            member.flows.note(flow, flags, &self.counters);
        }
    }

    /// A reset of this connection arrives, and leads to a member or not. If it is forged the peer is not told one day, and no more.
    #[cold]
    pub(crate) fn is_reset(&mut self, key: &FlowKey, to: Option<Slot>) {
        if let Some(member) = to.and_then(|slot| self.members[usize::from(slot)].as_mut()) {
            member.flows.forget(key, &self.counters);
        }
        self.resets.is_over(key, &self.counters);
    }

    /// A connection of a group has moved to this member from another of it.
    pub(crate) fn has(&mut self, slot: Slot, member: &mut Member, ends: (SocketAddr, SocketAddr)) {
        let (local, peer) = ends;
        let Some(flow) = FlowKey::new(peer, local) else {
            return;
        };
        if self.ports.groups.is_at(&flow, slot) {
            let mut others = self.members[..self.places].iter_mut().flatten();
            let known = others.find_map(|it| it.flows.take(&flow));
            let _ = known.map(|mac| member.flows.put((flow, mac)));
        }
    }

    /// Looks whether the keeper resets the peer of a member that is gone.
    pub(crate) fn keeper_sends(&mut self, frame: &[u8]) {
        if !self.resets.is_empty()
            && let Some((flow, flags)) = classify(frame, self.link).segment()
            && flags.contains(Flags::RST)
        {
            self.resets.is_over(&flow.reversed(), &self.counters);
        }
    }

    /// Asks peers of members that are gone, a few at a time; how many.
    pub(crate) fn resets_turn(&mut self) -> usize {
        if self.resets.is_empty() {
            return 0;
        }
        let now = Instant::now();
        if now < self.resets.next {
            return 0;
        }
        self.resets.next = now + PAUSE;
        for count in 0..AT_ONCE {
            let Some((key, mut asked)) = self.resets.pop(now, &self.counters) else {
                return count;
            };
            let mut frame = [0; SYN_MAX];
            let seq = SeqNum(self.resets.random.hash_one((now, count)) as u32);
            let from = self.welcome.device;
            let len = syn(&mut frame, &key, from, asked.mac, seq);
            let frame = &frame[..len];
            if (self.door.quotas).admits(asked.user, frame, len as u32) {
                asked.tries += 1;
                self.ask(frame);
            }
            (self.resets).push(now + AGAIN, key, asked, &self.counters);
        }
        AT_ONCE
    }

    fn ask(&mut self, bytes: &[u8]) {
        let Some(frame) = self.stock.copy(bytes) else {
            return;
        };
        self.counters.asked.add(1);
        if !self.identity.is_for_us(bytes) {
            return self.put_out(frame);
        }
        let class = classify(bytes, self.link);
        match steer(class, bytes, &self.ports, &mut self.pieces) {
            To::Member(slot, core) => self.deliver(slot, core, frame, Descriptor::INSIDE),
            To::Returns(slot, core) => {
                let tag = Descriptor::INSIDE | Descriptor::RETURNS;
                self.deliver(slot, core, frame, tag);
            }
            // It is gone too.
            _ => self.stock.pool.free(frame.buf),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const AT: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn key(member: u16, number: u16) -> FlowKey {
        let peer = SocketAddr::from(([10, 0, 0, 1], number));
        FlowKey::new(peer, SocketAddr::from(([192, 0, 2, 1], member))).unwrap()
    }

    /// A member with so many connections.
    fn flows(member: u16, count: u16, counters: &Counters) -> Flows {
        let mut flows = Flows::default();
        for number in 0..count {
            flows.note((key(member, number), AT), Flags::SYN, counters);
        }
        flows
    }

    /// Asks all that are to be asked now; how many of each member.
    fn ask(resets: &mut Resets, now: Instant, counters: &Counters) -> [usize; 2] {
        let mut count = [0; 2];
        while let Some((key, mut asked)) = resets.pop(now, counters) {
            count[usize::from(key.local_port())] += 1;
            asked.tries += 1;
            resets.push(now + AGAIN, key, asked, counters);
        }
        count
    }

    #[test]
    fn members_take_turns_and_peers_are_asked_until_they_are_told() {
        let (mut resets, counters) = (Resets::new(), Counters::default());
        let now = Instant::now();
        resets.tell(flows(0, 100, &counters), 7, now, &counters);
        resets.tell(flows(1, 10, &counters), 8, now, &counters);
        let mut first = Vec::new();
        for _ in 0..20 {
            let (key, mut asked) = resets.pop(now, &counters).unwrap();
            asked.tries += 1;
            resets.push(now + AGAIN, key, asked, &counters);
            first.push(key.local_port());
        }
        assert_eq!(first, [0, 1].repeat(10));
        assert_eq!(ask(&mut resets, now, &counters), [90, 0]);
        for number in 0..60 {
            resets.is_over(&key(0, number), &counters);
            resets.is_over(&key(0, number), &counters);
        }
        assert_eq!(ask(&mut resets, now, &counters), [0, 0], "not at once");
        let due = resets.due().unwrap();
        assert_eq!(due, now + AGAIN);
        assert_eq!(ask(&mut resets, due, &counters), [40, 10]);
        assert_eq!(ask(&mut resets, due + AGAIN, &counters), [40, 10]);
        assert_eq!(ask(&mut resets, due + 2 * AGAIN, &counters), [0, 0]);
        assert!(resets.is_empty() && resets.due().is_none() && resets.asked.is_empty());
        assert_eq!(counters.told.get(), 60);
        assert_eq!((counters.begun.get(), counters.ended.get()), (110, 110));
    }

    #[test]
    fn no_more_than_so_many_wait_and_none_for_ever() {
        let (mut resets, counters) = (Resets::new(), Counters::default());
        let now = Instant::now();
        let last = WAITING_MAX / 60_000;
        for member in 0..=last as u16 {
            resets.tell(flows(member, 60_000, &counters), 7, now, &counters);
        }
        let waiting = counters.begun.get() - counters.ended.get();
        assert_eq!(waiting, WAITING_MAX as u64);
        // A rate holds them back: none is sent.
        while let Some((key, asked)) = resets.pop(now, &counters) {
            resets.push(now + AGAIN, key, asked, &counters);
        }
        assert_eq!(resets.asked.len(), WAITING_MAX);
        assert!(resets.pop(now + PATIENCE, &counters).is_none());
        assert!(resets.is_empty());
        assert_eq!(counters.begun.get(), counters.ended.get());
    }

    #[test]
    fn the_syn_is_whole() {
        let v6 = |last, port| SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, last], port));
        let v6 = FlowKey::new(v6(2, 9), v6(1, 80)).unwrap();
        for key in [key(80, 9), v6] {
            let mut out = [0; SYN_MAX];
            let from = Device::Ethernet([2; 6]);
            let len = syn(&mut out, &key, from, AT, SeqNum(77));
            assert_eq!((&out[..6], &out[6..12]), (&AT.0[..], &[2; 6][..]));
            let class = classify(&out[..len], janus_wire::Link::Ethernet);
            assert_eq!(class.segment(), Some((key.reversed(), Flags::SYN)));
            let sum = match (key.local(), key.peer()) {
                (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
                    let ip = ipv4::parse(&out[ethernet::LEN..len]).unwrap();
                    assert!(ip.checksum_ok());
                    janus_wire::checksum::tcp_v4(src, dst, ip.payload())
                }
                (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => {
                    let ip = ipv6::parse(&out[ethernet::LEN..len]).unwrap();
                    janus_wire::checksum::tcp_v6(src, dst, ip.payload())
                }
                _ => unreachable!("one family"),
            };
            assert_eq!(sum, 0);
            let mut bare = [0; SYN_MAX];
            let bare_len = syn(&mut bare, &key, Device::Portal(0), AT, SeqNum(77));
            assert_eq!(bare[..bare_len], out[ethernet::LEN..len]);
        }
    }
}
