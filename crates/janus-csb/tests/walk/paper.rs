//! The paper's protocol to the letter loses connections, each time in the way the trace says; ours goes through the
//! same trace and loses none.

use crate::stage::Kind::{Cookie, Data, Syn};
use crate::stage::{Lost, OTHER, Ours, Paper, Protocol, Stage, ring};

type End = Result<(), Lost>;

const A: u32 = 1;
const B: u32 = 2;

/// Both protocols play the trace, from a ring that gives the flows' key to `owners[0]` and the other key to
/// `owners[1]`. `wrong`: the shard to which a false positive of the filter leads, where the trace has one.
macro_rules! the_paper_loses_and_we_do_not {
    ($trace:ident, $owners:expr, $wrong:expr, $lost:expr) => {{
        let [owner, of_other]: [u8; 2] = $owners;
        let wrong: Option<u8> = $wrong;
        let mut paper = Stage::new(Paper::new(ring(owner, of_other), wrong.is_some()));
        assert_eq!($trace(&mut paper), Err($lost), "the paper's protocol");
        let mut ours = Stage::new(Ours::new(ring(owner, of_other), wrong));
        assert_eq!($trace(&mut ours), Ok(()), "ours");
    }};
}

/// A1. Two flows with one key, one from before the update and one begun in it: `Set_diff` holds the key twice.
fn collision(world: &mut Stage<impl Protocol>) -> End {
    world.send(0, Syn, A);
    world.drain()?;
    world.begin(ring(1, 1));
    world.hears(0);
    (0..3).for_each(|s| world.pass_one(s));
    world.send(0, Syn, B);
    world.drain()?;
    (0..3).for_each(|s| world.pass_two(s));
    world.swap();
    world.send(0, Data, B);
    world.send(0, Data, A);
    world.drain()
}

#[test]
fn a1_two_flows_with_one_key() {
    the_paper_loses_and_we_do_not!(collision, [0, 0], None, Lost::Reset);
}

/// A2. A duplicate of the SYN goes by the new ring.
fn duplicate_syn(world: &mut Stage<impl Protocol>) -> End {
    world.send(0, Syn, A);
    world.drain()?;
    world.begin(ring(1, 1));
    world.hears(0);
    world.send(0, Syn, A);
    world.drain()
}

#[test]
fn a2_a_duplicate_syn() {
    the_paper_loses_and_we_do_not!(duplicate_syn, [0, 0], None, Lost::Twice);
}

/// A3. The SYN waits in a ring while its shard makes its pass.
fn syn_in_a_ring(world: &mut Stage<impl Protocol>) -> End {
    world.send(0, Syn, A);
    a_packet_that_creates_waits(world)
}

fn a_packet_that_creates_waits(world: &mut Stage<impl Protocol>) -> End {
    world.begin(ring(1, 1));
    world.hears(0);
    world.pass_one(0);
    world.take(0)?;
    world.both_passes_and_swap();
    world.send(0, Data, A);
    world.drain()
}

#[test]
fn a3_a_syn_in_a_ring() {
    the_paper_loses_and_we_do_not!(syn_in_a_ring, [0, 0], None, Lost::Reset);
}

/// A4. The same with the ACK of a cookie, which no I/O core takes for the beginning of a flow.
fn cookie_in_a_ring(world: &mut Stage<impl Protocol>) -> End {
    world.send(0, Cookie, A);
    a_packet_that_creates_waits(world)
}

/// And when it comes while the update runs.
fn cookie_during_the_update(world: &mut Stage<impl Protocol>) -> End {
    world.begin(ring(1, 1));
    world.hears(0);
    world.pass_one(0);
    world.send(0, Cookie, A);
    world.take(0)?;
    world.both_passes_and_swap();
    world.send(0, Data, A);
    world.drain()
}

#[test]
fn a4_the_ack_of_a_cookie() {
    the_paper_loses_and_we_do_not!(cookie_in_a_ring, [0, 0], None, Lost::Reset);
    the_paper_loses_and_we_do_not!(cookie_during_the_update, [0, 0], None, Lost::Reset);
}

/// A5. The flow's key does not move; another does, and the filter takes the one for the other.
fn false_positive(world: &mut Stage<impl Protocol>) -> End {
    world.send(0, Syn, OTHER);
    world.drain()?;
    world.send(0, Syn, A);
    world.begin(ring(0, 0));
    world.hears(0);
    (0..3).for_each(|s| world.pass_one(s));
    (0..3).for_each(|s| world.pass_two(s));
    world.drain()?;
    world.swap();
    world.send(0, Data, A);
    world.drain()
}

#[test]
fn a5_a_false_positive_though_no_key_of_the_flow_moves() {
    the_paper_loses_and_we_do_not!(false_positive, [0, 1], Some(1), Lost::Reset);
}

/// A6. One I/O core places the SYN by the new ring, data come through another that has not heard of it.
fn two_io_cores(world: &mut Stage<impl Protocol>) -> End {
    world.begin(ring(1, 1));
    (0..3).for_each(|s| world.pass_one(s));
    world.hears(0);
    world.send(0, Syn, A);
    world.drain()?;
    world.send(1, Data, A);
    world.drain()
}

#[test]
fn a6_two_io_cores() {
    the_paper_loses_and_we_do_not!(two_io_cores, [0, 0], None, Lost::Reset);
}

/// A7. The flow stays in `Set_fly` after the first update, since a false positive would lead it astray; the second
/// looks the entry up in its own ring.
fn two_updates(world: &mut Stage<impl Protocol>) -> End {
    world.send(0, Syn, OTHER);
    world.drain()?;
    world.begin(ring(1, 1));
    world.hears(0);
    world.send(0, Syn, A);
    (0..3).for_each(|s| world.pass_one(s));
    (0..3).for_each(|s| world.pass_two(s));
    world.drain()?;
    world.swap();
    world.send(0, Data, A);
    world.drain()?;
    world.begin(ring(2, 1));
    world.hears(0);
    world.send(0, Data, A);
    world.drain()
}

#[test]
fn a7_two_updates() {
    the_paper_loses_and_we_do_not!(two_updates, [0, 0], Some(0), Lost::Reset);
}

/// A8. A shard opens a connection after its first pass, from a port whose packets come to it at that moment.
fn active_open(world: &mut Stage<impl Protocol>) -> End {
    world.begin(ring(1, 1));
    world.hears(0);
    world.pass_one(0);
    let opened = world.open(0, A)?;
    world.both_passes_and_swap();
    if opened {
        world.send(0, Data, A);
    }
    world.drain()
}

#[test]
fn a8_an_active_open() {
    the_paper_loses_and_we_do_not!(active_open, [0, 0], None, Lost::Reset);
    // Ours goes through because it refuses; where the rings agree it must not.
    let mut ours = Stage::new(Ours::new(ring(0, 0), None));
    ours.begin(ring(0, 1));
    ours.pass_one(0);
    assert_eq!(ours.open(0, A), Ok(true));
}

/// A9. A shard asks the filter before another has put its keys in, and does not see its false positive.
fn a_filter_not_yet_whole(world: &mut Stage<impl Protocol>) -> End {
    world.send(0, Syn, OTHER);
    world.send(0, Syn, A);
    world.drain()?;
    world.begin(ring(0, 0));
    world.hears(0);
    world.pass_one(0);
    world.pass_two(0);
    world.pass_one(1);
    world.pass_two(1);
    world.swap();
    world.send(0, Data, A);
    world.drain()
}

#[test]
fn a9_the_filter_is_asked_before_it_is_whole() {
    the_paper_loses_and_we_do_not!(a_filter_not_yet_whole, [0, 1], Some(1), Lost::Reset);
}

/// What is the same in both: an update while nothing happens.
fn nothing_happens(world: &mut Stage<impl Protocol>) -> End {
    world.send(0, Syn, A);
    world.send(1, Syn, B);
    world.send(0, Syn, OTHER);
    world.drain()?;
    world.begin(ring(1, 2));
    world.hears(0);
    world.hears(1);
    world.both_passes_and_swap();
    for flow in [A, B, OTHER] {
        world.send(0, Data, flow);
        world.send(1, Data, flow);
    }
    world.drain()
}

#[test]
fn a_quiet_update_is_no_trouble_to_either() {
    let mut paper = Stage::new(Paper::new(ring(0, 0), false));
    assert_eq!(nothing_happens(&mut paper), Ok(()));
    let mut ours = Stage::new(Ours::new(ring(0, 0), None));
    assert_eq!(nothing_happens(&mut ours), Ok(()));
}
