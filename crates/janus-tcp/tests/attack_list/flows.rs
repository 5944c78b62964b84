//! Attackers who have connections, as many as they like, and keep to the protocol only as far as it hurts.

use core::time::Duration;

use janus_tcp::{Error, Stack};
use janus_wire::tcp::Flags;

use super::arena::Arena;
use super::support::{Craft, PORT, bytes_at};

pub(crate) fn holes(arena: &mut Arena) {
    arena.open_many(10, |syn| syn.options.sack_permitted = true);
    for at in 0..600 {
        for i in 0..10 {
            let byte = arena.mine[i].ahead(2 * at + 1, 1);
            arena.fire(&byte);
        }
    }
}

pub(crate) fn holes_backwards(arena: &mut Arena) {
    arena.open_many(10, |syn| syn.options.sack_permitted = true);
    for at in 0..600 {
        for i in 0..10 {
            let byte = arena.mine[i].ahead(50_000 - 3 * at, 2);
            arena.fire(&byte);
        }
    }
}

/// Whoever comes first in sequence is believed; in any case each place of the stream is delivered once.
pub(crate) fn overlaps_that_differ(arena: &mut Arena) {
    arena.open_many(4, |syn| syn.options.sack_permitted = true);
    let mut read = [0; 4];
    for n in 0..4_000u32 {
        let i = (n % 4) as usize;
        let (from, len) = (arena.below(3_000), 1 + arena.below(1_200) as usize);
        let from = if n % 16 < 4 { 0 } else { from };
        let mut part = arena.mine[i].ahead(from, len);
        part.payload = vec![n as u8; len];
        let before = arena.mine[i].snd;
        let seen = arena.ask(&part);
        let peer = &arena.mine[i];
        let ack = seen
            .iter()
            .filter(|s| s.to == peer.at)
            .map(|s| s.header.ack);
        let new = ack.map(|ack| (ack - before).max(0)).max().unwrap_or(0);
        arena.mine[i].skip(new as u32);
        read[i] += arena.read_all(i);
        if n % 64 < 4 {
            // What is owed is said, so that both know where they stand.
            let seen = arena.wait(Duration::from_millis(50));
            for peer in &mut arena.mine {
                let ack = seen
                    .iter()
                    .filter(|s| s.to == peer.at)
                    .map(|s| s.header.ack);
                let new = ack.map(|ack| (ack - peer.snd).max(0)).max().unwrap_or(0);
                peer.skip(new as u32);
            }
        }
    }
    arena.wait(Duration::from_millis(50));
    for (peer, read) in arena.mine.iter().zip(read) {
        assert!(
            read as u32 >= peer.sent,
            "every byte acknowledged is delivered"
        );
    }
}

pub(crate) fn tiny_segments(arena: &mut Arena) {
    for mss in [0, 1, 47, 48, 64, 100] {
        let at = arena.mine.len();
        arena.open_many(3, |syn| {
            syn.options.mss = Some(mss);
            syn.dst.1 = PORT;
            syn.src.1 += mss + 1;
        });
        for i in at..at + 3 {
            arena.write(i);
            for _ in 0..40 {
                let seen = arena.collect();
                arena.mine[i].take(&seen);
                let ack = arena.mine[i].segment(Flags::ACK);
                arena.fire(&ack);
            }
        }
    }
}

pub(crate) fn shut_windows(arena: &mut Arena) {
    arena.open_many(20, |_| {});
    for i in 0..20 {
        arena.mine[i].window = (i % 2) as u16;
        let shut = arena.mine[i].segment(Flags::ACK);
        arena.fire(&shut);
        arena.write(i);
    }
    for _ in 0..60 {
        let seen = arena.wait(Duration::from_secs(60));
        for i in 0..20 {
            arena.mine[i].take(&seen);
            let still = arena.mine[i].segment(Flags::ACK);
            arena.fire(&still);
        }
    }
}

pub(crate) fn flapping_windows(arena: &mut Arena) {
    arena.open_many(4, |_| {});
    for n in 0..4_000u32 {
        let i = (n % 4) as usize;
        arena.write(i);
        arena.mine[i].window = [0, 1, 0xffff, 0, 180, 50][arena.below(6) as usize];
        let seen = arena.collect();
        if arena.below(2) == 0 {
            arena.mine[i].take(&seen);
        }
        let ack = arena.mine[i].segment(Flags::ACK);
        arena.fire(&ack);
        if n % 50 == 0 {
            arena.wait(Duration::from_millis(300));
        }
    }
}

/// Nothing that was not sent is acknowledged, however boldly.
pub(crate) fn acknowledgements_of_the_future(arena: &mut Arena) {
    arena.open_many(4, |_| {});
    for n in 0..260u32 {
        let i = (n % 4) as usize;
        arena.write(i);
        arena.collect();
        let mut ack = arena.mine[i].segment(Flags::ACK);
        ack.ack = arena.sent_to(i) + [1, 1_400, 60_000, 1 << 30][arena.below(4) as usize];
        let before = arena.info(i);
        arena.fire(&ack);
        let after = arena.info(i);
        assert_eq!(after.in_flight, before.in_flight, "it was believed");
        // What was sent is acknowledged, whether it came or not.
        arena.mine[i].rcv = arena.sent_to(i);
        let optimistic = arena.mine[i].segment(Flags::ACK);
        arena.fire(&optimistic);
    }
}

/// The window grows by what is acknowledged, not by how often.
pub(crate) fn acknowledgements_in_pieces(arena: &mut Arena) {
    arena.open_many(2, |_| {});
    for i in 0..2 {
        let start = arena.info(i).cwnd;
        for piece in 0..2_000 {
            if piece % 100 == 0 {
                arena.write(i);
                arena.collect();
            }
            arena.mine[i].rcv += 1u32;
            assert!(arena.mine[i].rcv.lt(arena.sent_to(i)));
            let ack = arena.mine[i].segment(Flags::ACK);
            arena.fire(&ack);
        }
        let cwnd = arena.info(i).cwnd;
        assert!(cwnd <= start + 2_000, "{start} grew to {cwnd}");
    }
}

/// Repeats do not let out more than was written, nor more than the window.
pub(crate) fn acknowledgements_repeated(arena: &mut Arena) {
    arena.open_many(4, |syn| {
        syn.options.sack_permitted = syn.src.0.octets()[3] % 2 == 0
    });
    for i in 0..4 {
        arena.write(i);
    }
    for n in 0..4_000u32 {
        let i = (n % 4) as usize;
        let ack = arena.mine[i].segment(Flags::ACK);
        arena.fire(&ack);
        let info = arena.info(i);
        assert!(info.in_flight <= 60_000, "{info:?}");
    }
}

fn sack_options(arena: &mut Arena, i: usize) -> janus_wire::tcp::Options {
    let mut options = janus_wire::tcp::Options::NONE;
    for _ in 0..=arena.below(4) {
        let at = arena.mine[i].rcv;
        let (left, len) = match arena.below(7) {
            0 => (at + arena.below(60_000), 1),
            1 => (at + arena.below(60_000), arena.below(60_000)),
            2 => (at - arena.below(60_000), arena.below(60_000)),
            3 => (at + arena.below(60_000), arena.below(100).wrapping_neg()),
            4 => (at + (1 << 31), 1_400),
            5 => (at - 1_400, u32::MAX),
            _ => (at + 1_400 * arena.below(40), 1_400),
        };
        options.sack.push(left, left + len);
    }
    options
}

pub(crate) fn sack_lies(arena: &mut Arena) {
    arena.open_many(6, |syn| {
        syn.options.sack_permitted = true;
        syn.options.mss = Some(if syn.src.0.octets()[3] % 2 == 0 {
            48
        } else {
            1_400
        });
    });
    for n in 0..6_000u32 {
        let i = (n % 6) as usize;
        arena.write(i);
        let seen = arena.collect();
        if arena.below(4) == 0 {
            arena.mine[i].take(&seen);
        }
        let mut ack = arena.mine[i].segment(Flags::ACK);
        ack.options = sack_options(arena, i);
        arena.fire(&ack);
        let info = arena.info(i);
        assert!(info.in_flight <= 60_000 && info.cwnd >= 48, "{info:?}");
        if n % 60 == 0 {
            arena.wait(Duration::from_millis(500));
        }
    }
}

pub(crate) fn sack_reneging(arena: &mut Arena) {
    arena.open_many(6, |syn| syn.options.sack_permitted = true);
    for round in 0..30u32 {
        for i in 0..6 {
            arena.write(i);
            arena.collect();
            let peer = &arena.mine[i];
            let mut ack = peer.segment(Flags::ACK);
            for n in 0..30 {
                ack.options.sack = Default::default();
                let left = ack.ack + 1_400u32;
                ack.options.sack.push(left, left + 1_400 * (1 + n));
                arena.fire(&ack);
            }
            // And now as if nothing had been there.
            ack.options.sack = Default::default();
            arena.fire(&ack);
        }
        let seen = arena.wait(Duration::from_secs(1 + u64::from(round)));
        for peer in &mut arena.mine {
            peer.take(&seen);
        }
        let acks: Vec<Craft> = arena.mine.iter().map(|p| p.segment(Flags::ACK)).collect();
        for ack in &acks {
            arena.fire(ack);
        }
    }
}

pub(crate) fn opened_and_closed(arena: &mut Arena) {
    for n in 0..800 {
        let Some(i) = arena.open(&Craft::syn(Arena::stranger(n))) else {
            panic!("there is room");
        };
        let peer = arena.mine.remove(i);
        match n % 4 {
            // They close first, and end with a reset, a FIN, or never.
            0 => {
                arena.fire(&peer.segment(Flags::FIN | Flags::ACK));
                arena.host.close(peer.conn);
                arena.fire(&peer.segment(Flags::RST));
            }
            1 => {
                arena.fire(&peer.segment(Flags::RST));
                arena.host.close(peer.conn);
            }
            // We do.
            _ => {
                arena.host.close(peer.conn);
                arena.host.collect();
                let mut fin = peer.segment(Flags::FIN | Flags::ACK);
                fin.ack += 1u32;
                arena.fire(&fin);
            }
        }
        assert!(arena.host.most(Stack::in_time_wait) <= 64);
        if n % 200 == 199 {
            arena.witness.newcomers_are_served(&mut *arena.host);
            for _ in 0..30 {
                arena.wait(Duration::from_secs(60));
            }
        }
    }
}

pub(crate) fn half_closed(arena: &mut Arena) {
    for n in 0..800 {
        let Some(i) = arena.open(&Craft::syn(Arena::stranger(n))) else {
            panic!("there is room");
        };
        let peer = arena.mine.remove(i);
        arena.host.close(peer.conn);
        arena.host.collect();
        if n % 2 == 0 {
            let mut ack = peer.segment(Flags::ACK);
            ack.ack += 1u32;
            arena.fire(&ack);
        }
        assert!(arena.host.most(Stack::in_time_wait) <= 64);
        if n % 100 == 99 {
            for _ in 0..30 {
                arena.wait(Duration::from_secs(60));
            }
        }
    }
}

/// Whoever answers our FIN with what lies beyond a gap: an orphan can never deliver it.
pub(crate) fn early_fins(arena: &mut Arena) {
    for n in 0..800 {
        let Some(i) = arena.open(&Craft::syn(Arena::stranger(n))) else {
            panic!("there is room");
        };
        let peer = arena.mine.remove(i);
        if n % 3 == 0 {
            let told = arena.host.write(peer.conn, b"farewell");
            assert!(matches!(told, Ok(8) | Err(Error::WouldBlock)), "{told:?}");
        }
        arena.host.close(peer.conn);
        arena.collect();
        let mut early = peer.ahead(1 + arena.below(3_000), arena.below(3) as usize);
        early.ack += [0, 1, 9][arena.below(3) as usize];
        if early.payload.is_empty() || n % 2 == 0 {
            early.flags |= Flags::FIN;
        }
        arena.fire(&early);
    }
}

/// Windows of a piece of a segment, and silence when all buffers are taken: what is to be cut cannot be.
pub(crate) fn narrow_windows_left(arena: &mut Arena) {
    for _ in 0..2 {
        arena.open_many(350, |syn| {
            (syn.options.window_scale, syn.window) = (None, 100);
        });
        // Nobody asks the witnesses before it is over: they wait for buffers as everybody does.
        let mine = core::mem::take(&mut arena.mine);
        let conns: Vec<_> = mine.iter().map(|peer| peer.conn).collect();
        arena.host.write_and_close(&conns, &[0x5a; 60_000]);
        arena.collect();
        for _ in 0..30 {
            arena.wait(Duration::from_secs(60));
        }
        arena.look();
    }
}

pub(crate) fn silent_connections(arena: &mut Arena) {
    let room = 400 * arena.stacks() as u32;
    let mut refused = 0;
    for n in 0..room * 5 / 2 {
        refused += u32::from(arena.open(&Craft::syn(Arena::stranger(n))).is_none());
    }
    assert!(refused >= room * 3 / 2);
    assert!(arena.host.most(Stack::connections) <= 400);
    assert!(
        arena.host.sum(Stack::hot_in_use) <= 2,
        "silence costs no hot block"
    );
    // Those who are there can go on meanwhile.
    for _ in 0..10 {
        arena.witness.goes_on(&mut *arena.host);
    }
    for peer in core::mem::take(&mut arena.mine) {
        arena.host.abort(peer.conn);
    }
    arena.host.collect();
}

pub(crate) fn urgent_pointers(arena: &mut Arena) {
    arena.open_many(4, |_| {});
    for n in 0..4_000u32 {
        let i = (n % 4) as usize;
        let len = arena.below(4) as usize;
        let ahead = if n % 5 == 0 { arena.below(5_000) } else { 0 };
        let mut craft = arena.mine[i].ahead(ahead, len);
        craft.flags = Flags::ACK | Flags::URG;
        craft.urgent = arena.below(65_536) as u16;
        if craft.seq == arena.mine[i].snd {
            arena.mine[i].skip(len as u32);
        }
        craft.payload = bytes_at(n, len);
        arena.fire(&craft);
        if n % 100 < 4 {
            arena.read_all(i);
            let told = arena.host.write(arena.mine[i].conn, b"!");
            assert!(matches!(told, Ok(1) | Err(Error::WouldBlock)));
            arena.mine[i].listen(&mut *arena.host, true);
        }
    }
}

/// ECE and CWR in every combination, whether ECN was agreed upon or not.
pub(crate) fn congestion_echoes(arena: &mut Arena) {
    const ECE: u8 = 0x40;
    const CWR: u8 = 0x80;
    arena.open_many(4, |syn| {
        if syn.src.0.octets()[3] % 2 == 0 {
            syn.flags |= Flags(ECE | CWR);
        }
    });
    for n in 0..4_000u32 {
        let i = (n % 4) as usize;
        arena.write(i);
        let seen = arena.collect();
        arena.mine[i].take(&seen);
        let flags = Flags([0, ECE, CWR, ECE | CWR][arena.below(4) as usize] | Flags::ACK.0);
        let ack = arena.mine[i].segment(flags);
        arena.fire(&ack);
        let info = arena.info(i);
        assert!(info.cwnd >= u32::from(info.mss), "{info:?}");
    }
}
