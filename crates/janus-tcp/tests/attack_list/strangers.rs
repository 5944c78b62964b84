//! Attackers who have no connection: they flood, and they forge what they cannot see.

use core::time::Duration;

use janus_tcp::Stack;
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

use super::arena::Arena;
use super::support::{Craft, HERE, PORT, bytes_at};

/// Offsets from what is expected that a guesser may hit, never the exact one, and never further in the window than data
/// of this length reaches unnoticed.
fn guess(arena: &mut Arena) -> u32 {
    match arena.below(6) {
        0 => 1 + arena.below(40_000),
        1 => 1 + arena.below(3),
        2 => (1 + arena.below(3)).wrapping_neg(),
        3 => 1 << 31,
        4 => 100_000 + arena.below(1 << 30),
        _ => (100 + arena.below(1 << 30)).wrapping_neg(),
    }
}

pub(crate) fn syn_flood(arena: &mut Arena) {
    for i in 0..4_000 {
        let mut syn = Craft::syn(Arena::stranger(i));
        if i % 2 == 0 {
            syn.options.timestamps = Some((i, 0));
            syn.options.sack_permitted = true;
        }
        arena.fire(&syn);
        assert!(arena.host.most(Stack::half_open) <= 64);
        if i % 500 == 499 {
            arena.witness.newcomers_are_served(&mut *arena.host);
            arena.wait(Duration::from_secs(1));
        }
    }
}

pub(crate) fn syn_flood_from_one_address(arena: &mut Arena) {
    let address = Arena::stranger(7).0;
    for i in 0..4_000u16 {
        arena.fire(&Craft::syn((address, 1_000 + i)));
        assert!(arena.host.most(Stack::half_open) <= 64);
    }
    arena.witness.newcomers_are_served(&mut *arena.host);
}

pub(crate) fn forged_cookies(arena: &mut Arena) {
    for i in 0..4_000 {
        if i % 2 == 0 {
            arena.fire(&Craft::syn(Arena::stranger(i)));
        }
        let mut ack = Craft::new(Arena::stranger(50_000 + i), Flags::ACK);
        (ack.seq, ack.ack) = (SeqNum(1), SeqNum(arena.below(u32::MAX)));
        ack.payload = bytes_at(0, (i % 3) as usize);
        arena.fire(&ack);
    }
    let open = arena.host.sum(Stack::connections);
    assert_eq!(open, 2, "none but the witnesses' connections");
}

pub(crate) fn segments_for_nobody(arena: &mut Arena) {
    for i in 0..6_000 {
        let flags = Flags(arena.below(64) as u8 & !Flags::SYN.0);
        let mut craft = Craft::new(Arena::stranger(i), flags);
        (craft.seq, craft.ack) = (SeqNum(i * 77), SeqNum(i * 99));
        craft.dst.1 = if i % 2 == 0 { PORT } else { 1_000 + i as u16 };
        craft.payload = bytes_at(0, (i % 100) as usize);
        arena.fire(&craft);
    }
}

pub(crate) fn blind_resets(arena: &mut Arena) {
    for i in 0..3_000 {
        let offset = guess(arena);
        let mut rst = arena.victim().segment(Flags::RST);
        if i % 2 == 0 {
            rst.flags = Flags::RST | Flags::ACK;
        }
        rst.seq += offset;
        arena.fire(&rst);
        if i % 10 == 0 {
            arena.wait(Duration::from_millis(100));
        }
    }
}

pub(crate) fn blind_syns(arena: &mut Arena) {
    for i in 0..3_000 {
        let offset = if i % 7 == 0 { 0 } else { guess(arena) };
        let mut syn = arena.victim().segment(Flags::SYN);
        if i % 2 == 0 {
            syn.flags = Flags::SYN | Flags::ACK;
        }
        syn.seq += offset;
        syn.options.mss = Some(100);
        syn.options.window_scale = Some(0);
        arena.fire(&syn);
        if i % 10 == 0 {
            arena.wait(Duration::from_millis(100));
        }
    }
}

pub(crate) fn blind_data(arena: &mut Arena) {
    for i in 0..3_000u32 {
        let offset = if i % 7 == 0 { 0 } else { guess(arena) };
        let beyond = 1 + arena.below(1 << 30);
        let mut data = arena.victim().segment(Flags::ACK | Flags::PSH);
        if i % 5 == 0 {
            data.flags |= Flags::FIN;
        }
        data.seq += offset;
        // Nobody who cannot see the connection knows what to acknowledge.
        data.ack += beyond;
        data.payload = vec![0xee; 1 + (i % 500) as usize];
        arena.fire(&data);
        if i % 10 == 0 {
            arena.wait(Duration::from_millis(100));
        }
    }
}

pub(crate) fn blind_acknowledgements(arena: &mut Arena) {
    for i in 0..3_000 {
        let offset = guess(arena);
        let mut ack = arena.victim().segment(Flags::ACK);
        ack.ack += 1 + arena.below(1 << 31);
        if i % 2 == 0 {
            ack.seq += offset;
        }
        ack.window = 0;
        arena.fire(&ack);
        if i % 10 == 0 {
            arena.wait(Duration::from_millis(100));
        }
    }
}

pub(crate) fn forged_timestamps(arena: &mut Arena) {
    for i in 0..3_000u32 {
        let offset = if i % 3 == 0 { 0 } else { guess(arena) };
        let beyond = 1 + arena.below(1 << 30);
        let flags = [Flags::ACK, Flags::SYN, Flags::RST, Flags(0), Flags::FIN][i as usize % 5];
        let mut craft = arena.victim().segment(flags);
        craft.seq += offset;
        if flags == Flags::RST && offset == 0 {
            craft.seq += 1u32;
        }
        craft.ack += beyond;
        let (value, _) = craft.options.timestamps.expect("the witness has them");
        craft.options.timestamps = Some((value.wrapping_add(arena.below(1 << 31)), 0));
        craft.payload = bytes_at(0, (i % 3 * 50) as usize);
        arena.fire(&craft);
        if i % 10 == 0 {
            arena.wait(Duration::from_millis(100));
        }
    }
}

pub(crate) fn challenges_used_up(arena: &mut Arena) {
    for _ in 0..4 {
        // On connections of one's own, as many as it takes.
        for i in 0..200 {
            let _ = arena.open(&Craft::syn(Arena::stranger(i)));
        }
        for _ in 0..8 {
            for i in 0..arena.mine.len() {
                let mut rst = arena.mine[i].segment(Flags::RST);
                rst.seq += 1u32;
                arena.fire(&rst);
            }
        }
        // One who asks whether we are alive is answered nevertheless.
        let mut keepalive = arena.victim().segment(Flags::ACK);
        keepalive.seq = keepalive.seq - 1;
        arena.collect();
        assert_eq!(arena.ask(&keepalive).len(), 1);
        for peer in core::mem::take(&mut arena.mine) {
            arena.host.abort(peer.conn);
        }
        arena.host.collect();
        arena.wait(Duration::from_secs(1));
    }
}

pub(crate) fn land(arena: &mut Arena) {
    for i in 0..2_000u32 {
        let flags = Flags(arena.below(64) as u8);
        let mut craft = Craft::new((HERE, PORT), flags);
        (craft.seq, craft.ack) = (SeqNum(i), SeqNum(i * 3));
        craft.payload = bytes_at(0, (i % 20) as usize);
        arena.fire(&craft);
    }
    assert_eq!(arena.host.most(Stack::half_open), 0);
    assert_eq!(arena.counted(|c| c.dropped_address), 2_000);
}
