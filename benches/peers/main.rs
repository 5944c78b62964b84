//! Janus beside its peers, on the same work, in turns in one run: ratios with their spread. The peers are smoltcp and lwIP in
//! memory, behind the load generator of Janus's engine, and servers over the kernel's sockets (tokio, a loop over epoll, monoio).
//!
//! * A cell is a kind of work with its numbers. In each of its rounds every side works once, in an order that rotates; a ratio
//!   is of two figures of the same round. `min` and `max` are of all rounds, and `q25` and `q75` hold the middle half of them. Rounds
//!   are many and short: whatever else the machine does disturbs some of them, and the median little.
//! * `ns` is processor time of the server for a piece of work: a short connection (handshake, 64 bytes, the same 64 bytes, close) or
//!   an echo request over one of `conns` open connections. The far end's time is left out. `gbit_per_s` is payload over the
//!   server's time. `window` short connections are always in progress, and each waits for the packets of all others before its next
//!   one.
//! * `janus_to_peer` is Janus's time over the peer's: below 1 Janus is faster. For streams it is Janus's rate over the peer's: above 1
//!   Janus is faster.
//! * The peer `smoltcp, reference` works on the cell that the project's aims name, whatever the cell: 16 short connections at a
//!   time, or 64 open connections, both without timestamps.
//! * `timestamps=no` is a wire on which the client offers none. Debian's lwIP has none, so it appears only there.
//! * `instructions` are the server's for a piece of work, without the far end, where valgrind is installed (`counts.rs`).
//! * Over the kernel's sockets `ns` flatters the kernel, which does a part of the server's work in the client's time; `both_ends_ns`
//!   counts the client as well.
//!
//! `smol.rs`, `lwip.rs` and `loops.rs` say how each peer is used.

#![deny(unsafe_code)]

mod behind;
mod cells;
mod counts;
mod loops;
#[cfg(lwip)]
#[allow(unsafe_code, reason = "lwIP is C")]
mod lwip;
#[cfg(not(lwip))]
#[path = "no_lwip.rs"]
mod lwip;
mod rounds;
mod side;
mod smol;
#[path = "../support/mod.rs"]
mod support;

use cells::Work;
use rounds::Rounds;
use std::time::Duration;
use support::Scale;
use support::report::Report;
use support::valgrind;

/// Short connections at a time, where they are many.
const MANY: u32 = 4_096;
/// Connections that smoltcp and the kernel's servers hold.
const FEW: u32 = 1_000;

/// Names of the kinds of work: those given as arguments are measured, or all.
const WORKS: [&str; 5] = ["short", "echo", "bulk", "kernel", "instructions"];

fn main() {
    if valgrind::is_counted(counts::run) {
        return;
    }
    let scale = Scale::get();
    let mut report = Report::new("peers");
    let rounds = scale.pick(
        Rounds::new(1, 5, 10),
        Rounds::new(51, 1, 3),
        Rounds::new(301, 2, 10),
    );
    let kernel = scale.pick(
        Rounds::new(1, 5, 30),
        Rounds::new(5, 30, 150),
        Rounds::new(15, 100, 1_000),
    );
    // Waves of so many take some milliseconds each, and the first ones find nothing in the caches.
    let many = scale.pick(rounds, Rounds::new(15, 20, 30), Rounds::new(31, 20, 50));
    let named: Vec<String> = std::env::args().skip(1).collect();
    let all = !WORKS.iter().any(|work| named.iter().any(|arg| arg == work));
    let wanted = |work: &str| all || named.iter().any(|arg| arg == work);
    if wanted("short") {
        for window in scale.pick(&[16][..], &[16, 64, 256, MANY], &[16, 64, 256, MANY]) {
            let rounds = if *window == MANY { many } else { rounds };
            for timestamps in [true, false] {
                cells::in_memory(&mut report, Work::short(*window, timestamps), rounds);
            }
        }
        cells::http(&mut report, rounds);
    }
    if wanted("echo") {
        let counts = scale.pick(
            &[64][..],
            &[64, FEW, 100_000],
            &[64, FEW, 100_000, 10_000_000],
        );
        for conns in counts {
            for timestamps in [true, false] {
                cells::in_memory(&mut report, Work::echo(*conns, timestamps), rounds);
            }
        }
    }
    if wanted("bulk") {
        for conns in [1, 16] {
            for timestamps in [true, false] {
                cells::streams(&mut report, conns, timestamps, rounds);
            }
        }
    }
    if wanted("kernel") {
        let conns = scale.pick(&[64][..], &[64, FEW], &[64, FEW]);
        cells::kernel(&mut report, Work::short(64, true), kernel);
        for conns in conns {
            cells::kernel(&mut report, Work::echo(*conns, true), kernel);
        }
    }
    if wanted("instructions") {
        counts::compare(&mut report);
    }
    report.finish();
}

/// Longest time for opening the connections of a cell.
const OPEN_MAX: Duration = Duration::from_secs(900);
/// The same for a peer that looks at all its connections for each packet.
const OPEN_PEER_MAX: Duration = Duration::from_secs(5);
