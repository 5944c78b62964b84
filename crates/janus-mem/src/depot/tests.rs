//! Promises of depot and pools together: every buffer has one owner, none is lost, and memory outlives its handles.

use super::*;
use crate::frame::{Frame, HEADROOM, PacketBuf};
use crate::growth::Toucher;
use crate::pool::RESERVE_MAX;
use crate::registry::orphaned_depots;
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;

fn depot(buffers: u32) -> Arc<Depot> {
    Depot::new(buffers, &Growth::Inline).unwrap()
}

#[test]
fn buffers_come_back_last_in_first_out() {
    let mut pool = depot(256).pool();
    let mut a = pool.alloc().unwrap();
    let b = pool.alloc().unwrap();
    assert_eq!(a.off(), HEADROOM);
    a.bytes_mut()[5] = 42;
    a.set_off(7);
    let place = a.bytes().as_ptr();
    pool.free(b);
    pool.free(a);
    let again = pool.alloc().unwrap();
    assert_eq!(again.bytes().as_ptr(), place);
    assert_eq!((again.bytes()[5], again.off()), (42, HEADROOM));
}

#[test]
fn all_buffers_are_distinct_and_the_capacity_is_kept() {
    let capacity = if cfg!(miri) { 200 } else { 5_000 };
    let depot = depot(capacity);
    let mut pool = depot.pool();
    let mut held = Vec::new();
    assert_eq!(pool.alloc_many(usize::MAX, &mut held), capacity as usize);
    assert!(pool.alloc().is_none());
    assert!(pool.refused() > 0);
    let places: HashSet<_> = held.iter().map(|b| b.bytes().as_ptr()).collect();
    assert_eq!(places.len(), capacity as usize);
    assert_eq!(depot.stats().outstanding, capacity as usize);
    for buf in held {
        pool.free(buf);
    }
    pool.flush();
    assert_eq!(depot.stats().free, capacity as usize);
    assert_eq!(depot.stats().strays, 0);
}

#[test]
fn the_reserve_is_only_for_those_who_ask_for_it() {
    let depot = depot(64);
    let mut pool = depot.pool();
    assert_eq!(pool.set_reserve(8), 8);
    let mut held = Vec::new();
    assert_eq!(pool.alloc_many(100, &mut held), 56);
    let mut reserved: Vec<_> = core::iter::from_fn(|| pool.alloc_reserved()).collect();
    assert_eq!(reserved.len(), 8);
    // Freed buffers fill the reserve first.
    pool.free(held.pop().unwrap());
    assert!(pool.alloc().is_none());
    pool.free(reserved.pop().unwrap());
    assert!(pool.alloc().is_none());
    assert!(pool.alloc_reserved().is_some());
}

#[test]
fn a_dropped_buffer_goes_home() {
    let depot = depot(64);
    let mut pool = depot.pool();
    let mut held = Vec::new();
    pool.alloc_many(64, &mut held);
    assert!(pool.alloc().is_none());
    drop(held);
    assert_eq!(depot.stats().strays, 64);
    let mut again = Vec::new();
    assert_eq!(pool.alloc_many(100, &mut again), 64);
    for buf in again {
        pool.free(buf);
    }
    drop(pool);
    assert_eq!(depot.stats().free, 64);
}

#[test]
fn a_foreign_buffer_goes_to_its_own_region() {
    let (one, two) = (depot(8), depot(8));
    let (mut p1, mut p2) = (one.pool(), two.pool());
    p2.free(p1.alloc().unwrap());
    p1.flush();
    p2.flush();
    assert_eq!(one.stats().free, 8);
    assert_eq!(two.stats().free, 8);
}

#[test]
fn handles_outlive_their_depot_without_dangling() {
    let depot = depot(64);
    let mut pool = depot.pool();
    let mut buf = pool.alloc().unwrap();
    let other = pool.alloc().unwrap();
    buf.bytes_mut()[2047] = 3;
    drop(pool);
    drop(depot);
    assert_eq!(buf.bytes()[2047], 3);
    assert!(orphaned_depots() >= 1);
    let foreign = thread::spawn(move || drop(other));
    foreign.join().unwrap();
    drop(buf);
}

#[test]
fn raw_numbers_carry_ownership_and_offset() {
    let depot = depot(8);
    let mut pool = depot.pool();
    let mut buf = pool.alloc().unwrap();
    buf.set_off(1999);
    let place = buf.bytes().as_ptr();
    let raw = buf.into_raw();
    // SAFETY: made by `into_raw` just above, turned back once.
    let buf = unsafe { PacketBuf::from_raw(raw) };
    assert_eq!((buf.off(), buf.bytes().as_ptr()), (1999, place));
    pool.free(buf);
    drop(pool);
    assert_eq!(depot.stats().free, 8);
}

#[test]
fn a_frame_is_a_window_on_its_buffer() {
    let mut pool = depot(8).pool();
    let mut frame = Frame::new(pool.alloc().unwrap(), 3);
    frame.data_mut().copy_from_slice(b"abc");
    assert_eq!(frame.data(), b"abc");
    assert_eq!(&frame.buf.bytes()[HEADROOM as usize..][..3], b"abc");
    assert!(!frame.is_lent());
    pool.free(frame.buf);
}

#[test]
#[should_panic(expected = "out of range")]
fn a_frame_cannot_reach_past_its_slot() {
    let mut pool = depot(8).pool();
    let frame = Frame::new(pool.alloc().unwrap(), SLOT_SIZE as u16);
    let _ = frame.data();
}

#[test]
fn tiny_depots_can_be_shared_by_two_pools() {
    let depot = depot(16);
    let (mut a, mut b) = (depot.pool(), depot.pool());
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(a.alloc().unwrap());
        held.push(b.alloc().unwrap());
    }
    assert!(a.alloc().is_none() && b.alloc().is_none());
}

/// As with several cores: each has a pool for its stack and one for its device.
#[test]
fn what_threads_have_in_stock_is_a_small_part_of_a_small_depot() {
    for (capacity, threads) in [(256, 2), (512, 9), (1_024, 9), (4_096, 34)] {
        let depot = depot(capacity);
        let mut pools: Vec<Pool> = (0..threads).map(|_| depot.pool()).collect();
        let mut held = Vec::new();
        for _ in 0..3 {
            for pool in &mut pools {
                pool.set_reserve(32);
                pool.alloc_many(usize::MAX, &mut held);
            }
            assert!(held.len() >= capacity as usize * 3 / 4, "{}", held.len());
            // All come back, to whomever.
            for (at, buf) in held.drain(..).enumerate() {
                pools[at % threads].free(buf);
            }
            let stock: usize = pools.iter().map(Pool::cached).sum();
            assert_eq!(depot.in_use(), stock);
            assert!(stock <= capacity as usize / 4, "{stock} of {capacity}");
        }
    }
}

#[test]
fn what_devices_have_to_receive_into_is_no_sign_of_shortage() {
    let depot = depot(64);
    let mut pool = depot.pool();
    let mut held = Vec::new();
    pool.alloc_many(16, &mut held);
    let fill = |pool: &mut Pool| {
        pool.flush();
        let (used, all) = depot.fill();
        used * 32 / all
    };
    assert_eq!(fill(&mut pool), 8);
    let posted = depot.posted(16);
    assert_eq!(fill(&mut pool), 0);
    // A third of the rest.
    pool.alloc_many(16, &mut held);
    assert_eq!(fill(&mut pool), 32 / 3);
    let more = depot.posted(48);
    assert_eq!(fill(&mut pool), 0, "half is looked at, whatever is said");
    pool.alloc_many(64, &mut held);
    assert_eq!((held.len(), fill(&mut pool)), (64, 32));
    drop(more);
    assert_eq!(fill(&mut pool), 32);
    drop(posted);
    assert_eq!(fill(&mut pool), 32);
    held.drain(16..).for_each(|buf| pool.free(buf));
    assert_eq!(fill(&mut pool), 8);
}

#[test]
fn what_devices_lack_is_not_free() {
    let depot = depot(64);
    let mut posted = depot.posted(32);
    let mut pool = depot.pool();
    let mut held = Vec::new();
    pool.alloc_many(8, &mut held);
    pool.flush();
    posted.lacks(32);
    assert_eq!(
        depot.fill(),
        (8, 32),
        "24 are for others, 32 for the device"
    );
    posted.lacks(20);
    pool.alloc_many(12, &mut held);
    pool.flush();
    assert_eq!(depot.fill(), (8, 32));
    posted.lacks(40);
    assert_eq!(
        depot.fill(),
        (20, 32),
        "it cannot lack more than it should have"
    );
    posted.lacks(12);
    drop(posted);
    assert_eq!(depot.fill(), (20, 64));
    held.into_iter().for_each(|buf| pool.free(buf));
}

#[test]
fn a_stock_from_when_there_were_fewer_pools_becomes_smaller() {
    let depot = depot(1_024);
    let mut first = depot.pool();
    first.set_reserve(RESERVE_MAX);
    let mut held = Vec::new();
    first.alloc_many(usize::MAX, &mut held);
    held.into_iter().for_each(|buf| first.free(buf));
    assert!(first.cached() > RESERVE_MAX);
    let others: Vec<Pool> = (0..15).map(|_| depot.pool()).collect();
    // The first that it has to do with the depot again.
    let mut held = Vec::new();
    first.alloc_many(3 * MAGAZINE, &mut held);
    held.into_iter().for_each(|buf| first.free(buf));
    assert!(first.cached() <= 1_024 / 4 / 16, "{}", first.cached());
    drop(others);
    assert_eq!(first.set_reserve(RESERVE_MAX), RESERVE_MAX);
}

#[test]
fn a_few_magazines_do_not_make_a_whole_huge_page_ready() {
    let batch = MAGAZINE as u32;
    // Five of the eight that are ready are taken: enough for now.
    assert!(ahead(8 * batch, batch) < 3 * batch);
    // From a huge page on as many again are made ready in time.
    assert_eq!(ahead(16 * batch, batch), 8 * batch);
    assert_eq!(ahead(1_024 * batch, batch), 128 * batch);
}

#[test]
fn growing_ahead_hands_out_every_buffer() {
    let capacity = if cfg!(miri) { 100 } else { 20_000 };
    let depot = Depot::new(capacity, &Growth::Ahead(Toucher::spawn().unwrap())).unwrap();
    let mut pool = depot.pool();
    pool.set_reserve(RESERVE_MAX.min(capacity as usize));
    let all: Vec<_> = core::iter::from_fn(|| pool.alloc_reserved()).collect();
    assert_eq!(all.len(), capacity as usize);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 64 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two threads allocate, stamp, pass on, free and drop at random. A buffer with two owners would show a foreign
    /// stamp; a lost one would be missing in the end.
    #[test]
    fn two_threads_account_for_every_buffer(
        capacity in 4u32..400,
        plans in prop::array::uniform2(prop::collection::vec(0u8..=255, 1..if cfg!(miri) { 60 } else { 600 })),
    ) {
        let depot = depot(capacity);
        let (to_a, from_b) = mpsc::channel();
        let (to_b, from_a) = mpsc::channel();
        let [plan_a, plan_b] = plans;
        let a = worker(depot.pool(), plan_a, 1, to_b, from_b);
        let b = worker(depot.pool(), plan_b, 2, to_a, from_a);
        a.join().unwrap();
        b.join().unwrap();
        let stats = depot.stats();
        prop_assert_eq!(stats.free, capacity as usize);
        prop_assert_eq!(stats.outstanding, 0);
        let mut pool = depot.pool();
        let mut all = Vec::new();
        prop_assert_eq!(pool.alloc_many(usize::MAX, &mut all), capacity as usize);
        let places: HashSet<_> = all.iter().map(|b| b.bytes().as_ptr()).collect();
        prop_assert_eq!(places.len(), capacity as usize);
        for buf in all {
            pool.free(buf);
        }
    }
}

fn worker(
    mut pool: Pool,
    plan: Vec<u8>,
    me: u64,
    to: mpsc::Sender<PacketBuf>,
    from: mpsc::Receiver<PacketBuf>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut held: Vec<(PacketBuf, u64)> = Vec::new();
        let mut stamp = me << 32;
        for step in plan {
            match step % 6 {
                0..=2 => {
                    if let Some(mut buf) = pool.alloc() {
                        stamp += 1;
                        buf.bytes_mut()[300..308].copy_from_slice(&stamp.to_ne_bytes());
                        held.push((buf, stamp));
                    }
                }
                _ if held.is_empty() => {}
                kind => {
                    let (buf, stamp) = held.swap_remove(step as usize % held.len());
                    assert_eq!(
                        buf.bytes()[300..308],
                        stamp.to_ne_bytes(),
                        "somebody else wrote here"
                    );
                    match kind {
                        3 => pool.free(buf),
                        4 => drop(buf),
                        _ => drop(to.send(buf)),
                    }
                }
            }
            while let Ok(buf) = from.try_recv() {
                pool.free(buf);
            }
        }
        drop(to);
        for buf in from {
            pool.free(buf);
        }
    })
}

#[test]
fn a_depot_made_ready_lies_slot_by_slot_where_it_says() {
    let depot = Depot::new(3000, &Growth::Inline).unwrap();
    let slots = depot.ready_all().unwrap();
    assert_eq!(slots.count, 3000);
    assert!(slots.len >= 3000 * SLOT_SIZE);
    assert!(depot.stats().committed_bytes >= 3000 * SLOT_SIZE);
    let mut pool = depot.pool();
    for _ in 0..3 * MAGAZINE {
        let buf = pool.alloc().unwrap();
        let at = buf.bytes().as_ptr() as usize - slots.base.as_ptr() as usize;
        let raw = buf.into_raw();
        assert_eq!(at, (raw as u32 as usize - 1) * SLOT_SIZE);
        assert_eq!((raw >> 32) as u16, slots.region);
        assert_eq!((raw >> 48) as u16, HEADROOM);
        // SAFETY: turned back once.
        pool.free(unsafe { PacketBuf::from_raw(raw) });
    }
    assert_eq!(depot.stats().late, 0);
}
