//! How much of a link one long transfer gets, over loss, round trip and buffer, with each congestion control: measured in
//! virtual time, beside what theory says. `janus sim goodput` writes `docs/goodput.md` and its plots; a test measures a few
//! cells again and finds what is written there.
//! What never lives here: how a stack behaves, and what it ought to.

mod plot;
mod report;
mod theory;
mod transfers;

pub use plot::svg;
pub use report::{markdown, parse};
pub use theory::Prediction;
pub use transfers::Transfers;

use crate::net::{LinkModel, Network, Pair};
use janus_tcp::{Config, CongestionControl};
use std::time::Duration;

/// Bits a second of the bottleneck, headers included.
pub const RATE: u64 = 100_000_000;
/// Packets of a million that are lost.
pub const LOSSES: [u32; 4] = [0, 100, 1_000, 10_000];
/// Round trips in milliseconds, queueing not counted.
pub const ROUND_TRIPS: [u32; 4] = [1, 10, 50, 200];
/// Sizes of the bottleneck's queue, in percent of the bytes that the path holds.
pub const BUFFERS: [u32; 3] = [10, 50, 100];
/// The algorithms, in the order of the table.
pub const ALGORITHMS: [CongestionControl; 2] =
    [CongestionControl::NewReno, CongestionControl::Cubic];

/// Bytes of a full packet, and what it carries: 20 bytes IPv4, 20 TCP, 12 timestamps.
const PACKET: u32 = 1_500;
const PAYLOAD: u32 = PACKET - 52;
/// However little the path holds, two packets may wait.
const LEAST_BUFFER: u64 = 2 * PACKET as u64;
/// Not measured: slow start, and what it broke.
const WARM_UP: Duration = Duration::from_secs(60);

/// A place in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Packets of a million that are lost.
    pub loss_ppm: u32,
    /// Milliseconds.
    pub rtt_ms: u32,
    /// Percent of what the path holds.
    pub buffer_percent: u32,
}

/// Measured goodput of a cell, in Mbit/s of payload, in the order of [`ALGORITHMS`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    /// Where.
    pub cell: Cell,
    /// Measured.
    pub measured: [f64; 2],
}

impl Cell {
    /// All of them, in the order of the table.
    pub fn all() -> impl Iterator<Item = Cell> {
        LOSSES.into_iter().flat_map(|loss_ppm| {
            ROUND_TRIPS.into_iter().flat_map(move |rtt_ms| {
                BUFFERS.into_iter().map(move |buffer_percent| Cell {
                    loss_ppm,
                    rtt_ms,
                    buffer_percent,
                })
            })
        })
    }

    /// Bytes that the path holds: rate times round trip.
    fn path_bytes(self) -> u64 {
        RATE / 8 * u64::from(self.rtt_ms) / 1_000
    }

    /// Bytes that may wait before the bottleneck.
    fn buffer_bytes(self) -> u64 {
        (self.path_bytes() * u64::from(self.buffer_percent) / 100).max(LEAST_BUFFER)
    }

    /// Packets for the path, and for the buffer.
    fn packets(self) -> (f64, f64) {
        let packets = |bytes: u64| bytes as f64 / f64::from(PACKET);
        (packets(self.path_bytes()), packets(self.buffer_bytes()))
    }

    /// How long to measure: many periods between losses, where those come by chance; a few, where they come from a full
    /// buffer (Reno on the longest path takes minutes for one).
    fn duration(self) -> Duration {
        Duration::from_secs(match (self.loss_ppm, self.rtt_ms) {
            (10_000, _) => 300,
            (_, 0..=10) => 40,
            (0, 50) => 80,
            (0, _) => 300,
            _ => 400,
        })
    }

    /// One long transfer through this cell's link: Mbit/s of payload.
    pub fn measure(self, algorithm: CongestionControl) -> f64 {
        let seed = u64::from(self.loss_ppm) << 32
            | u64::from(self.rtt_ms) << 8
            | u64::from(self.buffer_percent);
        let mut network = Network::new(seed);
        let room = 2 * (self.path_bytes() + self.buffer_bytes()) + (256 << 10);
        let config = Config {
            // Of a size that does not matter, and stays: what is measured is congestion control.
            receive_buffer: room as u32,
            receive_buffer_max: room as u32,
            send_buffer: room as u32,
            send_buffer_max: room as u32,
            ..Config::default()
        };
        let there = LinkModel {
            delay: Duration::from_micros(u64::from(self.rtt_ms) * 500),
            rare_loss: self.loss_ppm,
            rate: Some(RATE),
            queue: self.buffer_bytes() as usize,
            ..LinkModel::default()
        };
        let back = LinkModel {
            delay: there.delay,
            ..LinkModel::default()
        };
        let mut pair = Pair::new(&mut network, &config, there, back);
        let mut transfers = Transfers::begin(&mut pair, &[algorithm]);
        transfers.run_for(&mut pair, WARM_UP);
        transfers.run_for(&mut pair, self.duration())[0]
    }
}
