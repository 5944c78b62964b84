//! Where a frame belongs: its class, its flow key (made of the NIC's Toeplitz hash), and the shard that the published steering
//! names for it. It decides and marks the frame; it moves nothing. What a shard does with a flow it does not know is
//! the walk, in `janus-csb`.

mod echo;
mod flow;
mod sockets;

use std::sync::Arc;

use janus_csb::policy::HeatSampler;
use janus_csb::{FlowId, Held, IoEnd, ShardId, Steering, Tag};
use janus_mem::{Frame, LOOPED, RETURNS};
use janus_wire::classify::plain_tcp4;
use janus_wire::{Class, FlowNames, Link, Stamps, Toeplitz, classify};

use crate::batch::BURST;
use crate::core::cause::Cause;
use crate::core::policy::{Gate, Open, Stage, opens};
use crate::debug::opaque;
use flow::{answered, flow_of};
pub use sockets::SocketPorts;

/// In a frame's tag there is a place for all.
const _: () = assert!((LOOPED | RETURNS) & Tag::MASK == 0);

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To this shard.
    Shard(ShardId),
    /// To this shard, which has the UDP port, or answers that the port has no socket.
    Socket(ShardId),
    /// A copy to each: every shard resolves link addresses for itself.
    Every,
    /// Nowhere.
    Drop(Cause),
}

/// Decides for one core. Each has its own: the hash tables stay in its cache and the balancer's end is for one thread.
pub struct Steerer {
    toeplitz: Toeplitz,
    names: FlowNames,
    end: IoEnd,
    link: Link,
    /// Names the owners in the timestamps that peers echo.
    stamps: Option<Stamps>,
    /// Owners of the UDP ports; `None`: the stack does not speak UDP.
    sockets: Option<Arc<SocketPorts>>,
    /// Samples where the load is, for the planner.
    heat: Option<HeatSampler>,
    /// Called when a newer steering was adopted: the driver of the balancer may wait for that.
    control: Option<Box<dyn Fn() + Send>>,
    /// Goes to the core with its steerer.
    pub(crate) stage: Option<Box<Stage>>,
}

opaque!(Steerer);

/// Scratch space of the passes over a burst, by frame.
struct Scratch {
    keys: [u32; BURST],
    ports: [u16; BURST],
    owners: [ShardId; BURST],
}

impl Steerer {
    /// Steers frames of `link` by what `end` sees published; `toeplitz` must be the one the NIC and the stacks use, and
    /// `names` the ones of the shards.
    #[must_use]
    pub fn new(toeplitz: Toeplitz, names: FlowNames, end: IoEnd, link: Link) -> Self {
        Self {
            toeplitz,
            names,
            end,
            link,
            stamps: None,
            sockets: None,
            heat: None,
            control: None,
            stage: None,
        }
    }

    /// Lets in what `stage` lets in, on the core that gets this steerer.
    #[must_use]
    pub fn behind(mut self, stage: Stage) -> Self {
        self.stage = Some(Box::new(stage));
        self
    }

    /// Calls `control` whenever a newer steering was adopted.
    #[must_use]
    pub fn telling(mut self, control: Box<dyn Fn() + Send>) -> Self {
        self.control = Some(control);
        self
    }

    /// Sends what echoes a timestamp to the owner whom that names by `stamps`, and asks nothing else about it.
    #[must_use]
    pub fn by_echoes(mut self, stamps: Stamps) -> Self {
        self.stamps = Some(stamps);
        self
    }

    /// Steers UDP by this table. Without one, UDP datagrams are dropped.
    #[must_use]
    pub fn with_sockets(mut self, sockets: Arc<SocketPorts>) -> Self {
        self.sockets = Some(sockets);
        self
    }

    /// Routes to the owner of our UDP port `port`. A port without an owner goes to the first shard, which answers, as it does a ping.
    fn socket(&self, port: u16) -> Route {
        match &self.sockets {
            Some(sockets) => Route::Socket(sockets.owner(port).unwrap_or(ShardId(0))),
            None => Route::Drop(Cause::Unknown),
        }
    }

    /// Leaves one key in 64 for the planner.
    #[must_use]
    pub fn sampled(mut self, heat: HeatSampler) -> Self {
        self.heat = Some(heat);
        self
    }

    /// Between bursts: adopts a newer steering if there is one. Never waits.
    #[inline]
    pub fn refresh(&mut self) -> bool {
        let adopted = self.end.refresh();
        if adopted && let Some(control) = &self.control {
            control();
        }
        adopted
    }

    /// Whether there is a newer steering to adopt.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.end.is_behind()
    }

    /// Called before the core sleeps: the control plane does not wait for it then. It must [`refresh`](Self::refresh) before it decides
    /// again.
    pub(crate) fn park(&mut self) {
        self.end.park();
    }

    /// Returns the tag of what the published layout steers.
    #[inline]
    pub(crate) fn published_tag(&self) -> Tag {
        Tag::new(self.steering().published().epoch(), false)
    }

    /// The steering in use.
    #[must_use]
    pub fn steering(&self) -> &Steering {
        self.end.steering()
    }

    /// `owner` sends these: while an update is pending, the flows whose SYN-ACKs are among them are known to be its.
    #[inline]
    pub(crate) fn learn(&mut self, frames: &[Frame], owner: ShardId) {
        if !frames.is_empty() && self.end.steering().is_pending() {
            self.learn_pending(frames, owner);
        }
    }

    #[cold]
    fn learn_pending(&mut self, frames: &[Frame], owner: ShardId) {
        for frame in frames {
            if let Some(flow) = answered(frame.data(), self.link) {
                let held = Held {
                    key: self.toeplitz.key_of(&flow),
                    port: flow.local_port(),
                    id: FlowId(self.names.of(&flow)),
                };
                self.end.learn(held, owner);
            }
        }
    }

    /// Whether this frame opens a connection.
    pub(crate) fn opens(&self, frame: &Frame) -> bool {
        is_opening(frame, self.link)
    }

    /// Decides for one frame and puts key and tag into it.
    pub fn route(&self, frame: &mut Frame) -> Route {
        let mut routes = [Route::Every; BURST];
        self.route_burst(core::slice::from_mut(frame), &mut routes);
        routes[0]
    }

    /// Decides for up to [`BURST`] frames and puts key and tag into each. One pass reads headers and hashes, one looks
    /// the keys up, so that the cache misses of a burst overlap.
    #[inline]
    pub fn route_burst(&self, frames: &mut [Frame], routes: &mut [Route; BURST]) {
        self.route_past(&mut Open, frames, routes);
    }

    /// Like [`route_burst`](Self::route_burst), but only for frames that `gate` lets in.
    #[inline]
    pub(crate) fn route_past(
        &self,
        gate: &mut impl Gate,
        frames: &mut [Frame],
        routes: &mut [Route; BURST],
    ) {
        assert!(frames.len() <= BURST, "a burst is at most {BURST} frames");
        if let Some(stamps) = &self.stamps {
            self.route_by_echoes(stamps, gate, frames, routes);
            return self.sample(frames, routes);
        }
        let count = frames.len();
        let mut scratch = Scratch {
            keys: [0; BURST],
            ports: [0; BURST],
            owners: [ShardId(0); BURST],
        };
        for (i, frame) in frames.iter_mut().enumerate() {
            let key = match frame.is_looped() {
                true => self.key_of_looped(frame.data()),
                false => self.key(frame.data(), gate),
            };
            match key {
                Ok((key, port)) => {
                    (scratch.keys[i], scratch.ports[i]) = (key, port);
                    routes[i] = Route::Shard(ShardId(0));
                    frame.key = key;
                }
                Err(route) => routes[i] = route,
            }
        }
        let Scratch {
            keys,
            ports,
            owners,
        } = &mut scratch;
        let name = |i: usize| {
            let frame: &Frame = &frames[i];
            let flow = flow_of(frame.data(), self.link);
            FlowId(flow.map_or(0, |flow| self.names.of(&flow)))
        };
        let (keys, ports, owners) = (&keys[..count], &ports[..count], &mut owners[..count]);
        let tags = self.end.look_up_batch(keys, ports, name, owners);
        for (i, ((frame, route), owner)) in frames
            .iter_mut()
            .zip(routes.iter_mut())
            .zip(owners)
            .enumerate()
        {
            if let Route::Shard(shard) = route {
                *shard = *owner;
                frame.steer(tags.get(i).bits());
            }
        }
        self.sample(frames, routes);
    }

    /// Returns why `gate` does not let a frame in.
    #[inline]
    pub(crate) fn refusal(&self, gate: &mut impl Gate, bytes: &[u8]) -> Option<Cause> {
        match plain_tcp4(bytes, self.link) {
            Some((flow, flags)) => gate.refuses_v4(flow.peer, flow.local, flags),
            None => gate.refuses(&classify(bytes, self.link)),
        }
    }

    #[inline]
    fn sample(&self, frames: &[Frame], routes: &[Route; BURST]) {
        if let Some(heat) = &self.heat
            && let Some(at) = heat.due(frames.len())
            && matches!(routes[at], Route::Shard(_))
        {
            self.sample_one(heat, &frames[at]);
        }
    }

    /// By its flow, whichever way it went.
    #[cold]
    fn sample_one(&self, heat: &HeatSampler, frame: &Frame) {
        if let Some(flow) = flow_of(frame.data(), self.link) {
            heat.sample(self.toeplitz.key_of(&flow));
        }
    }

    /// Key and local port of the flow a frame belongs to, or where it goes without one.
    #[inline]
    fn key(&self, bytes: &[u8], gate: &mut impl Gate) -> Result<(u32, u16), Route> {
        if let Some((flow, flags)) = plain_tcp4(bytes, self.link) {
            return match gate.refuses_v4(flow.peer, flow.local, flags) {
                Some(cause) => Err(Route::Drop(cause)),
                None => Ok((self.toeplitz.key_of_v4(&flow), flow.local_port)),
            };
        }
        let class = classify(bytes, self.link);
        match gate.refuses(&class) {
            Some(cause) => Err(Route::Drop(cause)),
            None => self.key_of_rest(class),
        }
    }

    /// Rules are for packets that have crossed a device.
    #[cold]
    fn key_of_looped(&self, bytes: &[u8]) -> Result<(u32, u16), Route> {
        self.key(bytes, &mut Open)
    }

    #[inline(never)]
    fn key_of_rest(&self, class: Class) -> Result<(u32, u16), Route> {
        let hash = &self.toeplitz;
        match class {
            Class::Tcp4(tcp) => Ok((hash.key_of_v4(&tcp.flow), tcp.flow.local_port)),
            Class::Tcp6(tcp) => Ok((hash.key_of_v6(&tcp.flow), tcp.flow.local_port)),
            Class::Udp4(udp) => Err(self.socket(udp.flow.local_port)),
            Class::Udp6(udp) => Err(self.socket(udp.flow.local_port)),
            // An error is for the shard whose packet it quotes.
            Class::Icmp4(icmp) => match (icmp.quoted, icmp.socket) {
                (Some(flow), _) => Ok((hash.key_of_v4(&flow), flow.local_port)),
                (None, Some(port)) => Err(self.socket(port)),
                (None, None) => Ok((hash.key_v4(icmp.src, icmp.dst, 0, 0), 0)),
            },
            Class::Icmp6(icmp) => match (icmp.quoted, icmp.socket) {
                (Some(flow), _) => Ok((hash.key_of_v6(&flow), flow.local_port)),
                (None, Some(port)) => Err(self.socket(port)),
                (None, None) if icmp.neighbor => Err(Route::Every),
                (None, None) => Ok((hash.key_v6(icmp.src, icmp.dst, 0, 0), 0)),
            },
            Class::Arp => Err(Route::Every),
            // All of one datagram to one shard, which puts it together and then asks whose the flow is.
            Class::Fragment4 {
                src,
                dst,
                id,
                proto,
                ..
            } => Ok((hash.key_v4(src, dst, id, u16::from(proto)), 0)),
            Class::Fragment6 { src, dst, id, .. } => {
                Ok((hash.key_v6(src, dst, (id >> 16) as u16, id as u16), 0))
            }
            Class::Other => Err(Route::Drop(Cause::Unknown)),
            Class::Malformed(_) => Err(Route::Drop(Cause::Malformed)),
        }
    }
}

/// Whether a frame of `link` opens a connection: a SYN without an acknowledgement.
#[must_use]
pub fn is_opening(frame: &Frame, link: Link) -> bool {
    let segment = classify(frame.data(), link).segment();
    segment.is_some_and(|(_, flags)| opens(flags))
}

#[cfg(test)]
mod tests;
