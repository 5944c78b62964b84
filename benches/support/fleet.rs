//! Many shards' TCP stacks on one thread, full of idle connections with random tuples: what an update of the balancer
//! has to traverse. Connections are opened by hand-made handshakes and held by the stack that the newest ring names,
//! as SYNs are. Measuring is done elsewhere.

use janus_csb::{
    Balancer, DivergenceFilter, FlowBatch, FlowId, Flows, IoEnd, Phase, ShardEnd, ShardId, Work,
};
use janus_mem::{Depot, Frame, Growth, HEADROOM, MemError, Pool};
use janus_tcp::{
    Config, ConnId, Instant, Interface, IpCidr, ListenerId, Local, Secrets, Stack, Token,
};
use janus_wire::{FlowKey, FlowKeyV4, FlowNames, MICROSOFT_KEY, MacAddr, Toeplitz, checksum};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Where all connections go.
pub const PORT: u16 = 80;
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const GATEWAY: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// Handshakes under way at a time, over all stacks.
const BURST: usize = 512;
/// Handshakes one stack may have under way.
const BUFFERS: u32 = 2_048;
/// Connections remembered so that they can be ended.
const MORTAL: usize = 1 << 16;
const ETH: usize = 14;
const IP: usize = 20;

/// The tuple of connection number `number`: random, the same for the same seed.
pub fn tuple(number: u64) -> FlowKeyV4 {
    let bits = mix(number ^ 0x6a61_6e75_7320_6373);
    FlowKeyV4 {
        // 11.0.0.0 upwards: 800 million addresses that nobody minds.
        peer: Ipv4Addr::from(0x0b00_0000 + (((bits >> 32) * 0x3000_0000) >> 32) as u32),
        local: SERVER,
        peer_port: 1_024 + (bits & 0xffff) as u16 % 64_000,
        local_port: PORT,
    }
}

fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One shard: its stack and its end of the balancer.
pub struct Member {
    pub stack: Stack,
    pub end: ShardEnd,
    listener: ListenerId,
    frames: Vec<Frame>,
    tracking: bool,
}

/// All shards, the balancer, and one I/O core.
pub struct Fleet {
    pub balancer: Balancer,
    pub io: IoEnd,
    pub members: Vec<Member>,
    pub hash: Hash,
    opened: u64,
    mortal: VecDeque<(usize, ConnId)>,
    now: Instant,
}

/// What names and hashes flows, as the I/O cores do.
#[derive(Clone)]
pub struct Hash {
    toeplitz: Toeplitz,
    names: FlowNames,
}

impl Hash {
    pub fn new() -> Hash {
        Hash {
            toeplitz: Toeplitz::new(&MICROSOFT_KEY),
            names: FlowNames::new([1, 2]),
        }
    }

    #[inline]
    pub fn key(&self, flow: &FlowKey) -> u32 {
        match flow {
            FlowKey::V4(flow) => self.toeplitz.key_of_v4(flow),
            FlowKey::V6(flow) => self.toeplitz.key_of_v6(flow),
        }
    }

    #[inline]
    pub fn id(&self, flow: &FlowKey) -> FlowId {
        FlowId(self.names.of(flow))
    }
}

impl Default for Hash {
    fn default() -> Hash {
        Hash::new()
    }
}

/// A stack as the balancer sees it.
pub struct Held<'a> {
    pub stack: &'a mut Stack,
    pub hash: &'a Hash,
}

impl Flows for Held<'_> {
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        let hash = self.hash;
        let name = |flow: &FlowKeyV4| hash.id(&FlowKey::V4(*flow));
        let mut batch = FlowBatch::new(FlowKeyV4::NONE);
        let next = self.stack.visit_flows(cursor, budget, |flow| match flow {
            FlowKey::V4(v4) => {
                if batch.add(hash.key(flow), PORT, *v4) {
                    filter.flows(&mut batch, name);
                }
            }
            FlowKey::V6(_) => filter.flow(hash.key(flow), PORT, || hash.id(flow)),
        });
        filter.flows(&mut batch, name);
        next
    }

    fn take_moved(&mut self, filter: &mut DivergenceFilter<'_>) {
        let hash = self.hash;
        self.stack
            .take_moved(|flow| filter.flow(hash.key(flow), PORT, || hash.id(flow)));
    }

    fn held(&self) -> usize {
        self.stack.flows_held()
    }
}

impl Member {
    fn new(end: ShardEnd, room: u32, growth: &Growth) -> Result<Member, MemError> {
        let interface = Interface {
            link: janus_wire::Link::Ethernet,
            mac: MAC,
            mtu: 1500,
            addresses: vec![IpCidr::new(SERVER, 24)],
            any_local: false,
            gateway: Some(Ipv4Addr::new(192, 0, 2, 2)),
            gateway_v6: None,
            routes: Vec::new(),
            tx_checksum: false,
            // The handshakes below do without.
            rx_checksum: true,
            answers: true,
            ports: None,
        };
        let config = Config {
            max_connections: room,
            ..Config::default()
        };
        let pool = Depot::new(BUFFERS, growth)?.pool();
        let mut stack = Stack::new(config, interface, Secrets::from_seed(7), pool, growth)?;
        let listener = stack
            .listen(SocketAddrV4::new(SERVER, PORT), 4096)
            .expect("the port is free");
        stack.wait_accept(listener, Some(Token(0)));
        Ok(Member {
            stack,
            end,
            listener,
            frames: Vec::new(),
            tracking: false,
        })
    }

    /// Takes in what waits, and gives each answer's flow and sequence number to `answer`, which may put more in.
    fn turn(&mut self, now: Instant, mut answer: impl FnMut(&mut Pool, &[u8]) -> Option<Frame>) {
        self.stack.input(now, &mut self.frames, &mut Local);
        while self.stack.pop_ready().is_some() {}
        let mut sent = Vec::new();
        self.stack.transmit(now, &mut sent, BURST);
        for frame in sent {
            let reply = answer(self.stack.pool(), frame.data());
            self.frames.extend(reply);
            if frame.is_lent() {
                self.stack.completed(frame);
            } else {
                self.stack.pool().free(frame.buf);
            }
        }
    }
}

impl Fleet {
    /// Shards on the ring of `balancer`, with room for `flows` connections in all.
    pub fn new(mut balancer: Balancer, shards: usize, flows: usize) -> Result<Fleet, MemError> {
        let io = balancer.io_end();
        // Uneven rings give a shard more than its part.
        let room = (flows * 2 / shards + 65_536) as u32;
        let members = (0..shards)
            .map(|shard| {
                Member::new(
                    balancer.shard_end(ShardId(shard as u8)),
                    room,
                    &Growth::Inline,
                )
            })
            .collect::<Result<_, _>>()?;
        Ok(Fleet {
            balancer,
            io,
            members,
            hash: Hash::new(),
            opened: 0,
            mortal: VecDeque::with_capacity(MORTAL),
            now: Instant::from_nanos(1_000_000_000),
        })
    }

    /// Connections opened so far, which are the numbers of their tuples.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Connections held.
    pub fn held(&self) -> usize {
        self.members
            .iter()
            .map(|member| member.stack.connections())
            .sum()
    }

    /// Opens so many more.
    pub fn open(&mut self, count: usize) {
        let last = self.opened + count as u64;
        while self.opened < last {
            let burst = BURST.min((last - self.opened) as usize) as u64;
            for number in self.opened..self.opened + burst {
                let flow = tuple(number);
                let key = self.hash.key(&FlowKey::V4(flow));
                let owner = self.balancer.current().newest().owner(key, PORT);
                let member = &mut self.members[owner.index()];
                let syn = segment(member.stack.pool(), &flow, number as u32, None);
                member.frames.push(syn);
            }
            self.opened += burst;
            self.shake_hands();
        }
    }

    /// SYNs wait; sees them through to connections that are accepted and idle.
    fn shake_hands(&mut self) {
        for (shard, member) in self.members.iter_mut().enumerate() {
            for _ in 0..4 {
                if member.frames.is_empty() {
                    break;
                }
                member.turn(self.now, acknowledge);
            }
            member.turn(self.now, acknowledge);
            while let Ok((id, _)) = member.stack.accept(member.listener) {
                if self.mortal.len() == MORTAL {
                    self.mortal.pop_front();
                }
                self.mortal.push_back((shard, id));
            }
            member.stack.wait_accept(member.listener, Some(Token(0)));
        }
    }

    /// So many end, and as many others come.
    pub fn churn(&mut self, count: usize) {
        for _ in 0..count {
            if let Some((shard, id)) = self.mortal.pop_front() {
                self.members[shard].stack.abort(self.now, id);
            }
        }
        self.members
            .iter_mut()
            .for_each(|member| member.turn(self.now, |_, _| None));
        self.open(count);
    }

    /// One turn of an update: every shard does one slice of `budget` records, or what else is asked of it; `timed` is
    /// called with each piece of work. Then the control side makes its step.
    pub fn turn(&mut self, budget: usize, timed: &mut dyn FnMut(Piece, &mut dyn FnMut())) -> Phase {
        for member in &mut self.members {
            member.end.refresh();
            let work = member.end.work();
            let tracking = work == Work::Traverse;
            if tracking != member.tracking {
                member.stack.track_moves(tracking);
                member.tracking = tracking;
            }
            match work {
                Work::Nothing => {}
                Work::Traverse => timed(Piece::Slice, &mut || {
                    let mut held = Held {
                        stack: &mut member.stack,
                        hash: &self.hash,
                    };
                    member.end.slice(&mut held, budget);
                }),
                // Nothing waits in a ring here.
                Work::Drain(round) => member.end.drained(round),
            }
        }
        timed(Piece::Io, &mut || {
            self.io.refresh();
        });
        let mut phase = Phase::Idle;
        timed(Piece::Control, &mut || phase = self.balancer.poll());
        phase
    }
}

/// Whose time a piece of an update takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A shard's.
    Slice,
    /// An I/O core's.
    Io,
    /// The control thread's.
    Control,
}

/// The client's answer to a frame of the server: to a SYN-ACK the ACK, to a question for an address the address.
fn acknowledge(pool: &mut Pool, frame: &[u8]) -> Option<Frame> {
    let (header, rest) = janus_wire::ethernet::Header::parse(frame).ok()?;
    if header.ethertype == janus_wire::ethernet::ethertype::ARP {
        let request = janus_wire::arp::Packet::parse(rest).ok()?;
        let mut reply = Frame::new(pool.alloc()?, 64);
        let out = &mut reply.buf.bytes_mut()[HEADROOM as usize..];
        out[..64].fill(0);
        let ethernet = janus_wire::ethernet::Header {
            dst: MAC,
            src: GATEWAY,
            ethertype: header.ethertype,
        };
        ethernet.emit(out);
        request.reply(GATEWAY).emit(&mut out[ETH..]);
        return Some(reply);
    }
    let tcp = rest.get(IP..)?;
    let is_syn_ack = tcp.get(13)? & 0x3f == 0x12;
    let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    let half = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    let flow = FlowKeyV4 {
        peer: Ipv4Addr::new(rest[16], rest[17], rest[18], rest[19]),
        local: SERVER,
        peer_port: half(2),
        local_port: PORT,
    };
    is_syn_ack.then(|| segment(pool, &flow, word(8), Some(word(4).wrapping_add(1))))
}

/// A SYN, or the ACK of a SYN-ACK; without a TCP checksum.
fn segment(pool: &mut Pool, flow: &FlowKeyV4, seq: u32, ack: Option<u32>) -> Frame {
    const TCP: usize = 20;
    let len = ETH + IP + TCP;
    let buf = pool.alloc().expect("as many buffers as handshakes");
    let mut frame = Frame::new(buf, len as u16);
    let out = &mut frame.buf.bytes_mut()[HEADROOM as usize..][..len];
    out.fill(0);
    let ethernet = janus_wire::ethernet::Header {
        dst: MAC,
        src: GATEWAY,
        ethertype: janus_wire::ethernet::ethertype::IPV4,
    };
    ethernet.emit(out);
    let ip = &mut out[ETH..ETH + IP];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((IP + TCP) as u16).to_be_bytes());
    ip[8] = 64;
    ip[9] = janus_wire::proto::TCP;
    ip[12..16].copy_from_slice(&flow.peer.octets());
    ip[16..20].copy_from_slice(&flow.local.octets());
    let sum = checksum::finish(checksum::sum(ip, 0));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let tcp = &mut out[ETH + IP..];
    tcp[..2].copy_from_slice(&flow.peer_port.to_be_bytes());
    tcp[2..4].copy_from_slice(&flow.local_port.to_be_bytes());
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&ack.unwrap_or(0).to_be_bytes());
    tcp[12] = (TCP as u8 / 4) << 4;
    tcp[13] = if ack.is_some() { 0x10 } else { 0x02 };
    tcp[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
    frame
}
