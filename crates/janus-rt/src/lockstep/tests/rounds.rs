//! Rule 9: an update is over only when nothing that was sent under the ring before it waits anywhere. Here a shard has so
//! much waiting that it takes many turns, and no more turns than the others.

use std::net::Ipv4Addr;

use janus_csb::{Ring, ShardId};
use janus_mem::Frame;
use janus_wire::{SeqNum, ipv4, proto, tcp};

use super::{SPLIT, run, world};
use crate::lockstep::peer::SERVER;
use crate::lockstep::{Outside, World};

/// A reset for an unknown connection: a shard takes it, and it has no effect.
fn reset_of_nothing(i: u16) -> Vec<u8> {
    let mut bytes = vec![0; ipv4::LEN + tcp::LEN];
    let repr = ipv4::Repr {
        src: Ipv4Addr::new(10, 0, (i >> 8) as u8, i as u8),
        dst: Ipv4Addr::from(SERVER.0),
        proto: proto::TCP,
        payload_len: tcp::LEN as u16,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(&mut bytes, &repr);
    let header = tcp::Header {
        src_port: 1024 + i,
        dst_port: SERVER.1,
        seq: SeqNum(1),
        ack: SeqNum(0),
        flags: tcp::Flags::RST,
        window: 0,
        urgent: 0,
        header_len: tcp::LEN,
    };
    tcp::emit(
        &mut bytes[ipv4::LEN..],
        &header,
        &tcp::options::Options::NONE,
    );
    bytes
}

/// Everybody takes turns until an update to another ring is over; answers how many.
fn update(world: &mut World) -> usize {
    let ring = Ring::uniform(world.shards.len(), 32, 9);
    world.conductor.mailbox.want_ring(ring);
    assert!(world.conductor.step(), "it begins");
    for turns in 1..10_000 {
        for shard in &mut world.shards {
            let _entered = shard.enter();
            shard.turn();
        }
        for io_core in &mut world.io_cores {
            io_core.turn();
        }
        while world.conductor.step() {}
        if !world.conductor.is_busy() {
            return turns;
        }
    }
    panic!("the update does not end");
}

/// A world after some traffic, with nothing under way.
fn quiet(seed: u64) -> World {
    let (mut world, _) = world(seed, SPLIT);
    run(&mut world, 100);
    world.run_until(|world| !world.conductor.is_busy() && world.steps % 20_000 == 0);
    world
}

#[test]
fn an_update_waits_for_what_io_cores_have_sent() {
    let mut world = quiet(11);
    let idle = update(&mut world);
    for i in 0..2_400 {
        let now = world.now();
        world.peer.out.send(now, &reset_of_nothing(i));
    }
    while world.shards[0].port.depth() < 700 {
        let now = world.now();
        world.peer.turn(now);
        world.io_cores.iter_mut().for_each(|core| _ = core.turn());
        world.pass(1_000);
    }
    let loaded = update(&mut world);
    assert_eq!(world.shards[0].port.depth(), 0);
    assert!(loaded > idle + 5, "{loaded} turns, idle {idle}");
}

#[test]
fn an_update_waits_for_what_shards_have_passed_on() {
    let mut world = quiet(12);
    let idle = update(&mut world);
    let ctx = world.shards[1].ctx.clone();
    let (mut forwarder, mut pool) = (ctx.forwarder.borrow_mut(), ctx.pool.borrow_mut());
    for i in 0..3_000 {
        let packet = reset_of_nothing(i);
        let mut frame = Frame::new(pool.alloc().expect("a buffer"), packet.len() as u16);
        frame.data_mut().copy_from_slice(&packet);
        forwarder.forward(ShardId(0), frame, &mut pool);
    }
    drop((forwarder, pool));
    let loaded = update(&mut world);
    assert!(world.shards[0].forwarded.is_empty());
    assert!(loaded > idle + 5, "{loaded} turns, idle {idle}");
}
