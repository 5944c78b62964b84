//! Attackers who tell stories that fit: about what came, when it came, what the way said of it, and where the stream ends.
//! Each attack says which counter shows that it was noticed.

use core::time::Duration;

use janus_tcp::Stack;
use janus_wire::tcp::Flags;

use super::arena::Arena;
use super::support::{Craft, Seen, bytes_at};

const CWR: u8 = 0x80;
const CE: u8 = 3;

fn cwnd(arena: &mut Arena, i: usize) -> u32 {
    arena.info(i).cwnd
}

/// Timeouts are provoked, and then denied: what was sent once is said to have come (RFC 5682). The window is given back, and no
/// more than that.
pub(crate) fn timeouts_denied(arena: &mut Arena) {
    arena.open_many(4, |syn| syn.options.sack_permitted = true);
    // A window of 64,000 bytes, so that there is always more to send.
    for peer in &mut arena.mine {
        peer.window = 8_000;
    }
    for round in 0..90u32 {
        for i in 0..4 {
            arena.write(i);
            arena.collect();
        }
        let before: Vec<u32> = (0..4).map(|i| cwnd(arena, i)).collect();
        let timeouts = |arena: &mut Arena| arena.counted(|c| c.timeouts);
        let so_far = timeouts(arena);
        for _ in 0..200 {
            if timeouts(arena) >= so_far + 4 {
                break;
            }
            arena.wait(Duration::from_secs(1));
        }
        for (i, &before) in before.iter().enumerate() {
            let mut ack = arena.mine[i].segment(Flags::ACK);
            let end = arena.sent_to(i);
            if round % 2 == 0 && ack.ack + 2_800u32 != end {
                ack.options
                    .sack
                    .push(ack.ack + 1_400u32, ack.ack + 2_800u32);
            } else {
                ack.ack += ((end - ack.ack).max(0) as u32).min(1_400);
                arena.mine[i].rcv = ack.ack;
            }
            arena.fire(&ack);
            let most = before.max(10 * 1_400) + 2 * 1_400;
            let after = cwnd(arena, i);
            assert!(after <= most, "{before} grew to {after}");
            arena.mine[i].rcv = arena.sent_to(i);
            let all = arena.mine[i].segment(Flags::ACK);
            arena.fire(&all);
        }
    }
    let undone = arena.counted(|c| c.recoveries_undone);
    assert!(undone > 100, "{undone}");
}

/// D-SACKs for everything, whether it was sent again or not (RFC 2883): they open no window.
pub(crate) fn duplicates_claimed(arena: &mut Arena) {
    arena.open_many(4, |syn| syn.options.sack_permitted = true);
    let before = arena.counted(|c| c.dsacks_in);
    for n in 0..3_000u32 {
        let i = (n % 4) as usize;
        arena.write(i);
        arena.collect();
        let mut ack = arena.mine[i].segment(Flags::ACK);
        let back = 1 + arena.below(100_000);
        ack.options
            .sack
            .push(ack.ack - back, ack.ack - back + 1 + arena.below(back));
        if n % 3 == 0 {
            ack.options
                .sack
                .push(ack.ack + 1_400u32, ack.ack + 2_800u32);
        }
        arena.fire(&ack);
        let info = arena.info(i);
        assert!(info.in_flight <= 60_000, "{info:?}");
        if n % 50 == 0 {
            arena.wait(Duration::from_millis(400));
        }
    }
    assert!(arena.counted(|c| c.dsacks_in) > before + 100);
}

/// Timestamps that leap ahead and go round, and echoes of anything (RFC 7323): the timeout stays within its bounds.
pub(crate) fn clocks_that_leap(arena: &mut Arena) {
    arena.open_many(4, |syn| syn.options.timestamps = Some((u32::MAX - 10, 0)));
    let before = arena.counted(|c| c.dropped_paws);
    for n in 0..3_000u32 {
        let i = (n % 4) as usize;
        arena.write_some(i);
        let leap = [1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1_000_000][arena.below(5) as usize];
        let echo = match n % 3 {
            0 => 0,
            1 => arena.below(u32::MAX),
            _ => u32::MAX,
        };
        let old = arena.mine[i].clock.expect("it has one");
        let mut craft = arena.mine[i].ahead(0, 100);
        craft.options.timestamps = Some((old.wrapping_add(leap), echo));
        let passes = (leap as i32) >= 0;
        let seen = arena.ask(&craft);
        arena.mine[i].take(&seen);
        if passes {
            arena.mine[i].clock = Some(old.wrapping_add(leap));
            arena.mine[i].skip(100);
            arena.mine[i].expect_stream(&mut *arena.host);
        }
        let info = arena.info(i);
        let bounds = 200_000..=120_000_000;
        assert!(bounds.contains(&info.rto_us), "{info:?}");
        if n % 40 == 0 {
            arena.wait(Duration::from_millis(300));
        }
    }
    assert!(arena.counted(|c| c.dropped_paws) > before + 500);
}

/// Every segment carries a router's mark, or says that the peer has lowered its window, or both.
pub(crate) fn marks_on_everything(arena: &mut Arena) {
    arena.open_many(4, |syn| syn.flags |= Flags(0xc0));
    let before = arena.counted(|c| c.marks_in);
    for n in 0..3_000u32 {
        let i = (n % 4) as usize;
        let len = 1 + arena.below(50);
        let mut craft = arena.mine[i].ahead(0, len as usize);
        craft.ecn = if arena.below(3) > 0 { CE } else { 2 };
        if arena.below(2) == 0 {
            craft.flags |= Flags(CWR);
        }
        let seen = arena.ask(&craft);
        arena.mine[i].skip(len);
        arena.mine[i].take(&seen);
        arena.mine[i].expect_stream(&mut *arena.host);
    }
    assert!(arena.counted(|c| c.marks_in) > before + 1_000);
}

/// An ICMP error of any kind that quotes what is really in flight, after each repeat (RFC 6069, RFC 5927): the connection lives,
/// and repeats come no faster than the first timeout says.
pub(crate) fn complaints_that_quote_well(arena: &mut Arena) {
    arena.open_many(2, |_| {});
    let taken_back = |arena: &mut Arena| arena.counted(|c| c.backoffs_taken_back);
    let before = taken_back(arena);
    for i in 0..2 {
        let conn = arena.mine[i].conn;
        assert_eq!(arena.host.write(conn, &[7; 500]), Ok(500));
        arena.collect();
        let mut repeats = 0;
        for n in 0..300u32 {
            let seen = arena.wait(Duration::from_millis(200));
            repeats += seen.iter().filter(|s| s.to == arena.mine[i].at).count();
            let code = [0, 1, 5, 13][(n % 4) as usize];
            let quoted = super::packets::quoting(arena, i);
            arena.fire_packet(&super::packets::unreachable(code, &quoted));
        }
        assert!(
            (3..=305).contains(&repeats),
            "{repeats} repeats in a minute"
        );
        arena.mine[i].rcv = arena.sent_to(i);
        let ack = arena.mine[i].segment(Flags::ACK);
        arena.fire(&ack);
        arena.mine[i].expect_unharmed(&mut *arena.host);
    }
    assert!(taken_back(arena) > before);
}

/// A handshake that is never simple: the SYN again with other numbers and options, acknowledgements of nothing, resets beside
/// the window, text ahead; and then the proper end.
pub(crate) fn restless_handshakes(arena: &mut Arena) {
    for n in 0..200u32 {
        let syn = Craft::syn(Arena::stranger(n));
        let seen = arena.ask(&syn);
        let answer = seen.iter().find(|s| s.to == syn.src).expect("a SYN-ACK");
        let (ours, theirs) = (answer.end(), syn.seq + 1u32);
        for change in 0..6 {
            let mut odd = Craft::new(syn.src, Flags::ACK);
            (odd.seq, odd.ack) = (theirs, ours);
            match change {
                0 => {
                    odd.flags = Flags::SYN;
                    odd.seq = syn.seq + arena.below(1 << 30) + 70_000;
                }
                1 => odd.seq += 70_000 + arena.below(1 << 30),
                2 => {
                    odd.flags = Flags::RST;
                    odd.seq += 1 + arena.below(1_000);
                }
                3 => odd.flags = Flags(0),
                4 => odd.flags = Flags::FIN,
                _ => {
                    odd.flags = Flags::SYN;
                    odd.seq = syn.seq;
                    odd.options.mss = Some(1);
                    odd.options.window_scale = Some(14);
                }
            }
            arena.fire(&odd);
        }
        let mut ack = Craft::new(syn.src, Flags::ACK);
        (ack.seq, ack.ack) = (theirs, ours);
        arena.host.send(&ack);
        let (conn, _) = arena.host.accept().expect("open");
        let mss = arena.host.info(conn).mss;
        assert_eq!(mss, 1_400, "the first SYN counts");
        arena.host.abort(conn);
        arena.host.collect();
    }
    assert!(arena.counted(|c| c.challenge_acks) > 0);
}

/// A stream whose end is said to be here, and then there; with text beyond it and before it.
pub(crate) fn ends_that_move(arena: &mut Arena) {
    arena.open_many(20, |syn| {
        syn.options.sack_permitted = syn.src.0.octets()[3] % 2 == 0
    });
    for i in 0..20 {
        for n in 0..40u32 {
            let (from, len) = (1 + arena.below(2_000), arena.below(100));
            let mut part = arena.mine[i].ahead(from, len as usize);
            if n % 3 > 0 {
                part.flags |= Flags::FIN;
            }
            arena.fire(&part);
        }
        // The first end that was heard of counts: no byte behind it is delivered, and none twice.
        let mut into = [0; 4_096];
        for at in 0..25 {
            let fill = arena.mine[i].ahead(at * 100, 100);
            arena.fire(&fill);
        }
        let (host, conn) = (&mut *arena.host, arena.mine[i].conn);
        let mut read = 0;
        while let Ok(len @ 1..) = host.read(conn, &mut into) {
            assert_eq!(into[..len], bytes_at(read, len));
            read += len as u32;
        }
        assert!(read <= 2_500, "{read} bytes");
    }
    assert!(arena.counted(|c| c.dropped_window) > 0);
}

/// Windows that shrink behind what is in flight, to any size, with every part of it acknowledged or not.
pub(crate) fn shrinking_windows(arena: &mut Arena) {
    arena.open_many(6, |syn| {
        syn.options.sack_permitted = syn.src.0.octets()[3] % 2 == 0
    });
    for n in 0..3_000u32 {
        let i = (n % 6) as usize;
        arena.write(i);
        let seen = arena.collect();
        let flight = (arena.sent_to(i) - arena.mine[i].rcv).max(0) as u32;
        let take = arena.below(flight + 1);
        arena.mine[i].rcv += take;
        arena.mine[i].window = (flight - take).saturating_sub(arena.below(3_000)) as u16 >> 3;
        let ack = arena.mine[i].segment(Flags::ACK);
        let more: Vec<Seen> = arena.ask(&ack);
        assert!(seen.len() + more.len() < 200, "a storm");
        if n % 60 < 6 {
            arena.wait(Duration::from_millis(700));
            arena.mine[i].window = 0xffff;
        }
    }
}

/// Over and over into TIME-WAIT, and there everything that may come: old and new SYNs, the FIN again, text, resets.
pub(crate) fn stirred_time_wait(arena: &mut Arena) {
    for n in 0..150 * arena.stacks() as u32 {
        let Some(i) = arena.open(&Craft::syn(Arena::stranger(n))) else {
            panic!("there is room");
        };
        let mut peer = arena.mine.remove(i);
        arena.host.close(peer.conn);
        let seen = arena.collect();
        peer.take(&seen);
        arena.fire(&peer.segment(Flags::FIN | Flags::ACK));
        peer.snd += 1u32;
        for _ in 0..10 {
            let offset = match arena.below(4) {
                0 => 0,
                1 => arena.below(60_000),
                2 => arena.below(60_000).wrapping_neg(),
                _ => 1 << 31,
            };
            let flags = [
                Flags::ACK,
                Flags::RST,
                Flags::FIN,
                Flags(0),
                Flags::SYN | Flags::ACK,
            ];
            let mut stray = peer.segment(flags[arena.below(5) as usize]);
            stray.seq += offset;
            stray.payload = bytes_at(0, arena.below(3) as usize * 10);
            arena.fire(&stray);
        }
        assert!(arena.host.most(Stack::in_time_wait) <= 64);
    }
    assert!(arena.counted(|c| c.time_wait_evicted) > 0);
}
