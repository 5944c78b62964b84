//! Plan of one hostile run, all of it drawn from the seed: hosts and their settings, links, partitions, and the
//! connections with what their applications do. What never lives here: carrying it out (`flow`, `side`).

use crate::net::{BUFFERS, LinkModel, Random, Way};
use janus_tcp::{Config, CongestionControl, Ecn, SynCookies};
use std::ops::Range;
use std::time::Duration;

/// From this length on a partition may end a connection.
pub(super) const FATAL_PARTITION: Duration = Duration::from_secs(15);
/// Of a thousand links so many take less than their hosts' interfaces.
const PATH_MTU: u16 = 150;
/// And of a thousand of those so many say nothing about it.
const BLACK_HOLES: u16 = 300;
/// Of a thousand hosts so many have few packet buffers.
const FEW_BUFFERS: u16 = 120;
/// Of a thousand runs in so many connections move.
const MOVES: u16 = 400;
/// Of a thousand runs so many end in silence.
const SILENCE: u16 = 200;
/// Most connections of a run.
pub(super) const FLOWS_MAX: u64 = 6;

/// A run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) hosts: Vec<HostPlan>,
    /// By sender, then receiver.
    pub(super) links: Vec<Vec<LinkModel>>,
    pub(super) partitions: Vec<PartitionPlan>,
    pub(super) flows: Vec<FlowPlan>,
    /// When all applications let go and no packet arrives any more, in time from the beginning.
    pub(super) silence: Option<Duration>,
    /// Of a thousand events so many move all that a host has to another stack.
    pub(super) moves: u16,
}

/// A host.
#[derive(Clone, Debug)]
pub(super) struct HostPlan {
    pub(super) config: Config,
    pub(super) mtu: u16,
    /// Packet buffers.
    pub(super) buffers: u32,
}

/// A partition, in time from the beginning.
#[derive(Clone, Debug)]
pub(super) struct PartitionPlan {
    pub(super) hosts: Vec<usize>,
    pub(super) during: Range<Duration>,
    pub(super) way: Way,
}

/// How a connection begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// The second end listens.
    Passive,
    /// Both ends connect to each other at the same moment.
    Simultaneous,
}

/// How it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parting {
    /// Both ends shut their sending side at the same moment.
    Together,
    /// One shuts; the other sends so many bytes more after it has seen that, and shuts too.
    HalfClose { first: usize, more: usize },
    /// One lets go when all has come; the other follows.
    Close { first: usize },
    /// One lets go in the middle of everything, once it has written and read so many bytes: with a reset, or in good
    /// order as far as it is concerned.
    Rude {
        who: usize,
        after: usize,
        abort: bool,
    },
}

/// A stretch of a connection's life: so many bytes from each end, then silence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) bytes: [usize; 2],
    pub(super) gap: Duration,
}

/// An application.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppPlan {
    pub(super) write_max: u64,
    pub(super) read_max: u64,
    /// After so many of a thousand reads it reads nothing for a while.
    pub(super) pauses: u16,
    pub(super) pause_max: Duration,
    pub(super) nodelay: bool,
    /// When there is nothing to read the connection rests, and nothing is looked for before it is roused.
    pub(super) rests: bool,
}

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct FlowPlan {
    pub(super) hosts: [usize; 2],
    pub(super) v6: bool,
    pub(super) opening: Opening,
    pub(super) starts: Duration,
    pub(super) phases: Vec<Phase>,
    pub(super) parting: Parting,
    pub(super) apps: [AppPlan; 2],
}

fn millis(random: &mut Random, range: Range<u64>) -> Duration {
    Duration::from_millis(random.within(range))
}

impl Plan {
    /// Some run.
    pub(super) fn draw(random: &mut Random) -> Plan {
        let count = match random.within(0..10) {
            0..=6 => 2,
            _ => random.within(3..5) as usize,
        };
        let hosts: Vec<HostPlan> = (0..count).map(|_| HostPlan::draw(random)).collect();
        // IPv6 demands 1,280 bytes of every link (RFC 8200 section 5).
        let v6 = hosts.iter().all(|host| host.mtu >= 1_280) && random.chance(500);
        let links = (0..count).map(|_| (0..count).map(|_| link(random, v6)).collect());
        let links = links.collect();
        let flows = (0..random.within(1..FLOWS_MAX + 1))
            .map(|_| FlowPlan::draw(random, count, v6))
            .collect();
        let partitions = match random.within(0..3) {
            0 => (0..random.within(1..4))
                .map(|_| PartitionPlan::draw(random, count))
                .collect(),
            _ => Vec::new(),
        };
        let silence = random.chance(SILENCE).then(|| millis(random, 1..40_000));
        let moves = random.chance(MOVES);
        Plan {
            hosts,
            links,
            partitions,
            flows,
            silence,
            moves: if moves {
                random.within(1..60) as u16
            } else {
                0
            },
        }
    }

    /// Whether something in the run may end a connection between these hosts, the second of which listens.
    pub(super) fn may_break(&self, hosts: [usize; 2]) -> bool {
        // A listener that keeps nothing resets data that overtook the acknowledgement with the cookie, as Linux does.
        if self.hosts[hosts[1]].config.syn_cookies == SynCookies::Always {
            return true;
        }
        // A host with few buffers may reset a connection for those that its peer keeps too long.
        if hosts.iter().any(|host| self.hosts[*host].has_few_buffers()) {
            return true;
        }
        let cut = |partition: &&PartitionPlan| {
            partition.hosts.contains(&hosts[0]) != partition.hosts.contains(&hosts[1])
        };
        let total: Duration = self
            .partitions
            .iter()
            .filter(cut)
            .map(|partition| partition.during.end - partition.during.start)
            .sum();
        total >= FATAL_PARTITION
    }
}

fn link(random: &mut Random, v6: bool) -> LinkModel {
    let mut model = match random.within(0..5) {
        0 => LinkModel::default(),
        _ => LinkModel::draw(random),
    };
    if random.chance(PATH_MTU) {
        let least = if v6 { 1_280 } else { 576 };
        model.mtu = random.within(least..1_500) as usize;
        model.black_hole = random.chance(BLACK_HOLES);
    }
    model
}

/// A buffer: tiny, small or ordinary.
fn buffer(random: &mut Random) -> u32 {
    let range = match random.within(0..8) {
        0 => 1_000..3_000,
        1 | 2 => 3_000..30_000,
        3 => 256_000..1_500_000,
        _ => 30_000..256_000,
    };
    random.within(range) as u32
}

/// How far a buffer of that size may grow: not at all, or several times.
fn growth(random: &mut Random, size: u32) -> u32 {
    match random.chance(500) {
        true => 0,
        false => size * random.within(2..6) as u32,
    }
}

impl HostPlan {
    pub(super) fn has_few_buffers(&self) -> bool {
        self.buffers < BUFFERS
    }

    /// Most bytes a connection may hold unread, and to send.
    pub(super) fn held_max(&self) -> (u32, u32) {
        let config = &self.config;
        let receive = config.receive_buffer.max(config.receive_buffer_max);
        let send = config.send_buffer.max(config.send_buffer_max);
        // The window field counts in steps of up to 2^14.
        (receive + (receive >> 15), send)
    }

    fn draw(random: &mut Random) -> HostPlan {
        let mtu = match random.within(0..10) {
            0 => random.within(120..576),
            1 | 2 => random.within(576..1_500),
            3 => random.within(1_501..1_900),
            _ => 1_500,
        };
        let (receive_buffer, send_buffer) = (buffer(random), buffer(random));
        HostPlan {
            config: Config {
                max_connections: 256,
                max_hot: 256,
                max_half_open: 64,
                max_time_wait: 64,
                max_segments: 1 << 16,
                receive_buffer,
                receive_buffer_max: growth(random, receive_buffer),
                send_buffer,
                send_buffer_max: growth(random, send_buffer),
                timestamps: random.chance(750),
                sack: random.chance(800),
                congestion: match random.chance(300) {
                    true => CongestionControl::NewReno,
                    false => CongestionControl::Cubic,
                },
                ecn: match random.within(0..3) {
                    0 => Ecn::Off,
                    1 => Ecn::Passive,
                    _ => Ecn::On,
                },
                syn_cookies: match random.within(0..12) {
                    0 => SynCookies::Always,
                    1 => SynCookies::Never,
                    _ => SynCookies::Pressure,
                },
                max_reordered: if random.chance(100) { 20 } else { 1 << 12 },
                delayed_ack: millis(random, 1..200),
                time_wait: millis(random, 1_000..60_000),
                ..Config::default()
            },
            mtu: mtu as u16,
            buffers: match random.chance(FEW_BUFFERS) {
                true => random.within(32..250) as u32,
                false => BUFFERS,
            },
        }
    }
}

impl PartitionPlan {
    fn draw(random: &mut Random, count: usize) -> PartitionPlan {
        let from = millis(random, 0..20_000);
        let lasts = match random.within(0..20) {
            0 => millis(random, 15_000..2_000_000),
            1..=4 => millis(random, 1_000..5_000),
            _ => millis(random, 10..1_000),
        };
        let first = random.within(0..count as u64) as usize;
        let second = random.within(0..count as u64) as usize;
        PartitionPlan {
            // Two of four hosts, perhaps; with two hosts, one.
            hosts: if count > 2 {
                vec![first, second]
            } else {
                vec![first]
            },
            during: from..from + lasts,
            way: match random.within(0..4) {
                0 => Way::In,
                1 => Way::Out,
                _ => Way::Both,
            },
        }
    }
}

impl AppPlan {
    fn draw(random: &mut Random) -> AppPlan {
        let size = |random: &mut Random| match random.within(0..6) {
            0 => random.within(2..40),
            1 => random.within(40..600),
            2 => random.within(20_000..70_000),
            _ => random.within(600..8_000),
        };
        AppPlan {
            write_max: size(random),
            read_max: size(random),
            pauses: if random.chance(400) { 30 } else { 0 },
            pause_max: millis(random, 1..3_000),
            nodelay: random.chance(300),
            rests: random.chance(400),
        }
    }

    /// Returns the most bytes of a phase, so that no application writes a hundred thousand bytes one by one.
    fn patience(&self) -> usize {
        (self.write_max.min(self.read_max) * 400).min(60_000) as usize
    }
}

impl FlowPlan {
    fn draw(random: &mut Random, hosts: usize, v6: bool) -> FlowPlan {
        let first = random.within(0..hosts as u64) as usize;
        let second = (first + random.within(1..hosts as u64) as usize) % hosts;
        let apps = [AppPlan::draw(random), AppPlan::draw(random)];
        let most = apps[0].patience().min(apps[1].patience()) as u64;
        let bytes = |random: &mut Random| match random.within(0..5) {
            0 => 0,
            1 => random.within(0..600.min(most)) as usize,
            _ => random.within(0..most) as usize,
        };
        let phases: Vec<Phase> = (0..random.within(1..5))
            .map(|_| Phase {
                bytes: [bytes(random), bytes(random)],
                gap: match random.within(0..4) {
                    0 => millis(random, 1_000..400_000),
                    _ => millis(random, 1..2_000),
                },
            })
            .collect();
        let total: usize = phases
            .iter()
            .map(|phase| phase.bytes[0] + phase.bytes[1])
            .sum();
        let side = random.within(0..2) as usize;
        let parting = match random.within(0..10) {
            0..=2 => Parting::Together,
            3..=5 => Parting::HalfClose {
                first: side,
                more: bytes(random),
            },
            6 | 7 => Parting::Close { first: side },
            _ => Parting::Rude {
                who: side,
                after: random.within(0..total as u64 + 1) as usize,
                abort: random.chance(500),
            },
        };
        FlowPlan {
            hosts: [first, second],
            v6: v6 && random.chance(600),
            opening: match random.within(0..6) {
                0 => Opening::Simultaneous,
                _ => Opening::Passive,
            },
            starts: millis(random, 0..8_000),
            phases,
            parting,
            apps,
        }
    }
}
