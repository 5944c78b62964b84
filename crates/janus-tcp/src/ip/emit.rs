//! Replies: segments without payload that belong to no output queue; and the next hop, for them and for all other frames.

use std::net::IpAddr;

use janus_mem::{Frame, HEADROOM, PacketBuf};
use janus_wire::{FlowKey, Link, MacAddr};

use crate::ip::{Host, Ip};
use crate::rules::Rules;
use crate::rules::profile::DEFAULT;
use crate::store::flows::KeyRef;
use crate::store::outgoing::{Outgoing, Usual};
use crate::store::schedule::MAX_REPLIES;
use crate::time::Instant;
use crate::wire::Envelope;

/// The way of a frame from here.
pub(crate) enum Way {
    /// It may leave.
    Out,
    /// The next hop's hardware address is not known yet.
    Unresolved(IpAddr),
    /// Back in: it is for one of our own addresses.
    In,
}

/// Finds how frames of a flow are written where the next hop is the last one's, or there is none, and the flow's `profile` says
/// nothing else: nearly always. Never for an address of ours, which no neighbor has.
#[inline(always)]
pub(crate) fn known_envelope<'h>(
    rules: &Rules,
    host: &'h Host,
    key: KeyRef<'_>,
    profile: u8,
    now: Instant,
) -> Option<&'h Envelope> {
    let neighbors = &host.neighbors;
    let envelope = match (rules.interface().link, key) {
        (Link::Ip, KeyRef::V4(key)) if rules.own_v4().has(key.peer) => return None,
        (Link::Ip, KeyRef::V6(key)) if rules.own_v6().has(key.peer) => return None,
        (Link::Ip, _) => &host.without_link,
        (Link::Ethernet, KeyRef::V4(key)) => {
            neighbors.latest_v4(rules.next_hop_v4(key.peer), now)?
        }
        (Link::Ethernet, KeyRef::V6(key)) => {
            neighbors.latest_v6(rules.next_hop_v6(key.peer), now)?
        }
    };
    let fits = profile == DEFAULT || envelope.has_ip(rules.profiles().ip(profile));
    fits.then_some(envelope)
}

impl Ip<'_> {
    /// Lets `write` write a frame of a flow as its next hop wants it, and finds its way.
    #[inline(always)]
    fn in_envelope(
        &mut self,
        key: &FlowKey,
        profile: u8,
        write: impl FnOnce(&Envelope) -> u16,
    ) -> (u16, Way) {
        let now = self.env.now;
        let searched;
        let (envelope, way) =
            match known_envelope(self.rules, self.host, KeyRef::of(key), profile, now) {
                Some(known) => (known, Way::Out),
                None => {
                    let way;
                    (searched, way) = self.envelope_by_search(key, profile);
                    (&searched, way)
                }
            };
        (write(envelope), way)
    }

    /// Finds the same where [`known_envelope`] has no answer.
    #[inline(never)]
    pub(crate) fn envelope_by_search(&mut self, key: &FlowKey, profile: u8) -> (Envelope, Way) {
        let (mut mac, mut way) = (None, Way::Out);
        if self.rules.loops(key.peer()) {
            (mac, way) = (Some(self.rules.interface().mac), Way::In);
        } else if self.rules.interface().link == Link::Ethernet {
            let hop = self.rules.interface().next_hop(key.peer());
            mac = self.resolve(hop);
            if mac.is_none() {
                way = Way::Unresolved(hop);
            }
        }
        let (rules, mac) = (self.rules, mac.unwrap_or_default());
        let envelope = Envelope::new(rules.interface(), key.is_v6(), mac);
        (envelope.with_ip(rules.profiles().ip(profile)), way)
    }

    /// The hardware address of a neighbour, if it is known. It is asked for again where that is old.
    #[inline(never)]
    pub(crate) fn resolve(&mut self, hop: IpAddr) -> Option<MacAddr> {
        let known = self.host.neighbors.lookup_to_send(hop, self.env.now)?;
        if known.is_stale(self.env.now) {
            if self.host.neighbors.should_probe(hop, self.env.now) {
                self.ask_for(hop);
            }
        } else {
            let interface = self.rules.interface();
            self.host.neighbors.remember(hop, known, interface);
        }
        Some(known.mac)
    }

    /// A buffer, of the reserve if need be, for a reply that there is still a place for.
    pub(crate) fn reply_buffer(&mut self) -> Option<PacketBuf> {
        if self.schedule.replies.len() >= MAX_REPLIES {
            self.env.counters.dropped_reply_full += 1;
            return None;
        }
        let buf = self.pool.alloc_reserved();
        self.env.counters.dropped_no_buffer += u64::from(buf.is_none());
        buf
    }

    /// Queues a segment without payload that belongs to no output queue. False when there was no place for it.
    pub(crate) fn reply(&mut self, segment: &Outgoing) -> bool {
        let Some(mut buf) = self.reply_buffer() else {
            return false;
        };
        let label = match segment.key {
            FlowKey::V4(_) => 0,
            FlowKey::V6(_) => self.rules.flow_label(&segment.key),
        };
        let write = |envelope: &Envelope| envelope.write(&mut buf, (HEADROOM, 0), segment, label);
        let (len, way) = self.in_envelope(&segment.key, segment.profile, write);
        self.env.counters.resets_out += u64::from(segment.is_reset());
        self.queue_reply(Frame::new(buf, len), way);
        true
    }

    /// Like [`reply`](Self::reply), for a usual segment.
    #[inline]
    pub(crate) fn reply_usual(&mut self, segment: &Usual<'_>) {
        let Some(mut buf) = self.reply_buffer() else {
            return;
        };
        let write = |envelope: &Envelope| {
            envelope.write_usual(
                &mut buf,
                (HEADROOM, 0),
                (KeyRef::of(segment.key), segment.label),
                segment.options,
                segment.numbers,
                segment.control,
            )
        };
        let (len, way) = self.in_envelope(segment.key, segment.profile, write);
        self.queue_reply(Frame::new(buf, len), way);
    }

    #[inline]
    fn queue_reply(&mut self, frame: Frame, way: Way) {
        self.env.counters.segments_out += 1;
        match way {
            Way::Out => self.schedule.replies.push(frame),
            Way::Unresolved(hop) => self.await_neighbor(hop, frame),
            Way::In => self.loop_in(frame),
        }
    }

    /// Keeps a frame until the neighbour `hop` is known, and asks for it.
    pub(crate) fn await_neighbor(&mut self, hop: IpAddr, frame: Frame) {
        if let Some(pushed_out) = self.host.neighbors.wait(hop, frame, self.env.now) {
            self.env.counters.dropped_no_neighbor += 1;
            self.recycle(pushed_out);
        }
        if self
            .host
            .neighbors
            .should_ask(hop, self.env.now, self.rules.interface())
        {
            self.ask_for(hop);
        }
    }

    /// A frame that will not be sent goes where a sent one would.
    pub(crate) fn recycle(&mut self, frame: Frame) {
        if frame.is_lent()
            && let Some(id) = self.segments.named(frame.key)
        {
            self.segments.came_home(id, frame.buf, self.pool);
        } else {
            self.pool.free(frame.buf);
        }
    }
}
