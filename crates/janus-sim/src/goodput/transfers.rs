//! Long transfers from one host to another, side by side: applications that always have more to send, and read all there
//! is.
//! What never lives here: what the link is like.

use crate::net::Pair;
use janus_tcp::{CongestionControl, ConnId, Error, SocketOptions};
use std::time::Duration;

/// How much an application writes or reads at a time.
const CHUNK: usize = 64 << 10;

/// Transfers under way.
pub struct Transfers {
    /// The sending end, the receiving end, bytes received.
    each: Vec<(ConnId, ConnId, u64)>,
    chunk: Vec<u8>,
}

impl Transfers {
    /// Opens one for each, and sends nothing yet.
    pub fn begin(pair: &mut Pair<'_>, algorithms: &[CongestionControl]) -> Transfers {
        let each = algorithms.iter().map(|algorithm| {
            let (client, server) = pair.open_with(&SocketOptions {
                congestion: Some(*algorithm),
                ..SocketOptions::default()
            });
            (client, server, 0)
        });
        Transfers {
            each: each.collect(),
            chunk: vec![0; CHUNK],
        }
    }

    /// Goes on for so long. Mbit/s that each received meanwhile.
    pub fn run_for(&mut self, pair: &mut Pair<'_>, time: Duration) -> Vec<f64> {
        let limit = pair.network.now() + time;
        let before: Vec<u64> = self.each.iter().map(|(.., received)| *received).collect();
        loop {
            self.write(pair);
            if !pair.network.step_until(limit) {
                break;
            }
            self.read(pair);
        }
        let received = self.each.iter().map(|(.., received)| *received);
        received
            .zip(before)
            .map(|(after, before)| (after - before) as f64 * 8.0 / time.as_secs_f64() / 1e6)
            .collect()
    }

    fn write(&mut self, pair: &mut Pair<'_>) {
        let now = pair.network.now();
        let stack = &mut pair.network.host(pair.client).stack;
        for (client, ..) in &self.each {
            loop {
                match stack.write(now, *client, &self.chunk) {
                    Ok(_) => {}
                    Err(Error::WouldBlock) => break,
                    Err(error) => panic!("write: {error}"),
                }
            }
        }
    }

    fn read(&mut self, pair: &mut Pair<'_>) {
        let now = pair.network.now();
        let stack = &mut pair.network.host(pair.server).stack;
        for (_, server, received) in &mut self.each {
            loop {
                match stack.read(now, *server, &mut self.chunk) {
                    Ok(n) if n > 0 => *received += n as u64,
                    Err(Error::WouldBlock) => break,
                    other => panic!("read: {other:?}"),
                }
            }
        }
    }
}
