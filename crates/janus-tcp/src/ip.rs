//! The host below TCP: neighbors, fragments, ICMP, UDP, what is known of paths when no connection uses them, and the next hop of
//! every frame. Its rules are methods of [`Ip`], which borrows it and reaches no connection: an error about one is returned to the
//! caller, which knows them.

pub(crate) mod control;
pub(crate) mod emit;
pub(crate) mod fragments;
pub(crate) mod icmp;
pub(crate) mod icmp_errors;
pub(crate) mod icmp_out;
pub(crate) mod icmpv6;
pub(crate) mod nd;
pub(crate) mod neighbor;
pub(crate) mod own_loop;
pub(crate) mod reassembly;
pub(crate) mod udp;
pub(crate) mod walks;

use std::collections::VecDeque;
use std::net::IpAddr;

use janus_mem::{Frame, Pool};
use janus_wire::{FlowKey, MacAddr};

use crate::ip::fragments::Fragments;
use crate::ip::icmp_out::Budget;
use crate::ip::neighbor::Neighbors;
use crate::ip::own_loop::OwnLoop;
use crate::ip::udp::Sockets;
use crate::ip::walks::Walks;
use crate::rules::Rules;
use crate::rules::config::Secrets;
use crate::rules::interface::Interface;
use crate::rules::isn::{self, Purpose};
use crate::store::Blocks;
use crate::store::env::Env;
use crate::store::schedule::Schedule;
use crate::store::segment::Segments;
use crate::time::Instant;
use crate::wire::Envelope;

/// The host part of a stack.
pub(crate) struct Host {
    /// How frames are written on a link that has no header.
    without_link: Envelope,
    neighbors: Neighbors,
    /// Frames for our own addresses.
    own_loop: OwnLoop,
    fragments: Fragments,
    icmp_budget: Budget,
    /// Answer to a ping while it is written, in parts if need be; kept so that this allocates once.
    answer: Vec<u8>,
    deferred: Deferred,
    udp: Sockets,
    /// Identifications of fragments, and ports of connections that are opened from any.
    identifications: Walks,
    source_ports: Walks,
}

/// Work left for the end of a batch; the queues are kept so that no call allocates.
#[derive(Default)]
pub(crate) struct Deferred {
    /// Segments put together from fragments, with whose they are.
    segments: Vec<(FlowKey, Frame)>,
    /// ICMP errors about flows that are not here.
    astray: VecDeque<(FlowKey, Frame)>,
    /// Those of `segments` that are taken here.
    frames: Vec<Frame>,
}

/// The host, lent by [`Stack::ip`](crate::Stack).
pub(crate) struct Ip<'a> {
    rules: &'a Rules,
    env: &'a mut Env,
    host: &'a mut Host,
    schedule: &'a mut Schedule,
    /// Buffers that are lent to the device come home here.
    segments: &'a mut Segments,
    pool: &'a mut Pool,
}

impl Host {
    pub(crate) fn new(secrets: &Secrets, interface: &Interface) -> Host {
        let table = secrets.table_key();
        Host {
            without_link: Envelope::new(interface, false, MacAddr::default()),
            neighbors: Neighbors::new(table.0 ^ table.1.rotate_left(17)),
            own_loop: OwnLoop::default(),
            fragments: Fragments::default(),
            icmp_budget: Budget::default(),
            answer: Vec::new(),
            deferred: Deferred::default(),
            udp: Sockets::default(),
            identifications: Walks::new(isn::derived(secrets, Purpose::Identifications)),
            source_ports: Walks::new(isn::derived(secrets, Purpose::SourcePorts)),
        }
    }

    /// Frames for our own addresses.
    #[inline(always)]
    pub(crate) fn own_loop(&self) -> &OwnLoop {
        &self.own_loop
    }

    /// Like [`Host::own_loop`], to change it.
    pub(crate) fn own_loop_mut(&mut self) -> &mut OwnLoop {
        &mut self.own_loop
    }

    /// Our addresses have changed: one of them may have been a neighbor.
    pub(crate) fn forget_latest_neighbors(&mut self, now: Instant) {
        self.neighbors.forget_latest(now);
    }

    /// UDP's sockets.
    #[inline(always)]
    pub(crate) fn udp(&mut self) -> &mut Sockets {
        &mut self.udp
    }

    /// Packet buffers that hold datagrams which wait to be read.
    pub(crate) fn udp_buffers(&self) -> usize {
        self.udp.buffers()
    }

    /// Orders in which ports are tried for connections that are opened from any.
    pub(crate) fn source_ports(&mut self) -> &mut Walks {
        &mut self.source_ports
    }

    /// The way to `hop` may be dead.
    pub(crate) fn doubt(&mut self, hop: IpAddr, now: Instant) {
        self.neighbors.doubt(hop, now);
    }

    /// Takes a frame whose neighbor has not answered in time.
    #[inline(always)]
    pub(crate) fn pop_overdue(&mut self, now: Instant) -> Option<Frame> {
        self.neighbors.pop_overdue(now)
    }

    /// Address of the neighbor for which a frame was dropped last.
    pub(crate) fn unanswered(&self) -> Option<IpAddr> {
        self.neighbors.unanswered()
    }

    /// When a neighbor is to be asked again or given up, and when a datagram in pieces.
    #[inline(always)]
    pub(crate) fn deadlines(&self) -> (Option<Instant>, Option<Instant>) {
        (
            self.neighbors.next_deadline(),
            self.fragments.next_deadline(),
        )
    }

    /// Whether a batch has left work.
    #[inline(always)]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.segments.is_empty() || !self.deferred.astray.is_empty()
    }

    /// Takes the segments put together from fragments which `resteer` gives back, as those of other shards go elsewhere.
    pub(crate) fn deferred_segments(
        &mut self,
        mut resteer: impl FnMut(&FlowKey, Frame) -> Option<Frame>,
    ) -> Vec<Frame> {
        let Deferred {
            segments, frames, ..
        } = &mut self.deferred;
        let here = |(flow, frame)| resteer(&flow, frame);
        frames.extend(segments.drain(..).filter_map(here));
        core::mem::take(frames)
    }

    /// Gives back what [`Host::deferred_segments`] gave, now empty, so that no call allocates.
    pub(crate) fn keep_for_deferred(&mut self, frames: Vec<Frame>) {
        self.deferred.frames = frames;
    }

    /// Leaves an ICMP error about a flow that is not here for the end of the batch.
    pub(crate) fn defer_astray(&mut self, flow: FlowKey, frame: Frame) {
        self.deferred.astray.push_back((flow, frame));
    }

    /// Takes the oldest of what [`Host::defer_astray`] left.
    pub(crate) fn pop_astray(&mut self) -> Option<(FlowKey, Frame)> {
        self.deferred.astray.pop_front()
    }
}

impl<'a> Ip<'a> {
    #[inline(always)]
    pub(crate) fn of(
        rules: &'a Rules,
        env: &'a mut Env,
        host: &'a mut Host,
        schedule: &'a mut Schedule,
        blocks: &'a mut Blocks,
    ) -> Ip<'a> {
        Ip {
            rules,
            env,
            host,
            schedule,
            segments: &mut blocks.segments,
            pool: &mut blocks.pool,
        }
    }
}
