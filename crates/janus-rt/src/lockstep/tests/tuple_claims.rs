//! Rule 11: connections from a few fixed tuples, which all shards want at once, while rings and listeners change. A connection has its
//! tuple to itself, receives its data, and no stub outlives its connection.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use janus_tcp::Config;

use super::server::{self, Served, on_next_core};
use super::updates::{Changes, held_twice, seeds};
use super::{COMBINED, Layout, SPLIT};
use crate::lockstep::World;
use crate::lockstep::rng::Rng;
use crate::net::{TcpListener, TcpSocket, TcpStream};
use crate::shard::hops;
use crate::time::sleep;

/// Where the peer sends back what it gets.
const ECHO: u16 = 7;
/// Tuples that all shards share.
const TUPLES: u64 = 12;
/// Connections made in a run.
const CONNECTIONS: u64 = 600;

#[derive(Default)]
struct Ledger {
    closing: bool,
    running: u32,
    opened: u64,
    in_use: u64,
    errors: Vec<String>,
}

type Shared = Rc<RefCell<Ledger>>;

/// One of the tuples: ours and the peer's end.
fn tuple(which: u64) -> (SocketAddr, SocketAddr) {
    let local = ([192, 0, 2, 1], 5_000 + (which % 3) as u16);
    let remote = ([10, 1, 0, which as u8], ECHO);
    (local.into(), remote.into())
}

async fn open_again_and_again(ledger: Shared, seed: u64) {
    let mut rng = Rng::new(seed);
    ledger.borrow_mut().running += 1;
    while !ledger.borrow().closing {
        let which = rng.below(TUPLES);
        match talk(which, &mut rng).await {
            Ok(()) => ledger.borrow_mut().opened += 1,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                ledger.borrow_mut().in_use += 1;
            }
            Err(error) => {
                let text = format!("tuple {which}, core {:?}: {error}", crate::core_id());
                ledger.borrow_mut().errors.push(text);
            }
        }
        sleep(Duration::from_micros(rng.below(500))).await;
    }
    ledger.borrow_mut().running -= 1;
}

async fn talk(which: u64, rng: &mut Rng) -> io::Result<()> {
    let (local, remote) = tuple(which);
    let mut socket = TcpSocket::new_v4()?;
    socket.bind(local)?;
    let stream = socket.connect(remote).await?;
    assert_eq!(stream.local_addr()?, local);
    let (words, seed) = (1 + rng.below(4), rng.next());
    match rng.one_in(2) {
        true => say(stream, (words, seed)).await,
        false => on_next_core(stream, (words, seed), say).await,
    }
}

fn say(stream: TcpStream, (words, seed): (u64, u64)) -> Served {
    Box::pin(say_all(stream, words, Rng::new(seed)))
}

async fn say_all(stream: TcpStream, words: u64, mut rng: Rng) -> io::Result<()> {
    for _ in 0..words {
        let says: Vec<u8> = (0..1 + rng.below(900)).map(|_| rng.next() as u8).collect();
        stream.write_all(&says).await?;
        let mut hears = vec![0; says.len()];
        stream.read_exact(&mut hears).await?;
        if hears != says {
            return Err(io::Error::other("heard what was not said"));
        }
        sleep(Duration::from_micros(rng.below(800))).await;
    }
    Ok(())
}

fn hold(layout: Layout, seed: u64) {
    let ledger = Shared::default();
    let tcp = Config {
        time_wait: Duration::from_millis(4),
        ..Config::default()
    };
    hops::take();
    let main = || {
        let ledger = ledger.clone();
        async move {
            // For sets of listeners that change.
            let _listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 80)).await?;
            let core = crate::core_id().unwrap_or_default() as u64;
            for task in 0..3 {
                crate::spawn(open_again_and_again(
                    ledger.clone(),
                    seed << 8 | core << 4 | task,
                ));
            }
            std::future::pending::<crate::Result>().await
        }
    };
    let mut world = World::new(seed, layout, |builder| builder.tcp(tcp), main);
    world.peer.serve(ECHO);
    for shard in &mut world.shards {
        (shard.work.update.places, shard.work.update.places_max) = (2, 2);
    }
    let mut changes = Changes::new(seed ^ 0x5eed);
    let (mut stubs, mut problems) = (0, Vec::new());
    let count_stubs = |world: &World| -> usize {
        let of = |shard: &crate::shard::Shard| shard.ctx.stack.borrow().stubs();
        world.shards.iter().map(of).sum()
    };
    world.run_until(|world| {
        if world.steps % 499 == 0 {
            problems.extend(held_twice(world));
            stubs = stubs.max(count_stubs(world));
        }
        changes.go_on(world);
        let mut ledger = ledger.borrow_mut();
        ledger.closing |= ledger.opened >= CONNECTIONS || !ledger.errors.is_empty();
        ledger.closing && ledger.running == 0
    });
    world.run_until(|world| !world.conductor.is_busy() && count_stubs(world) == 0);
    world.end();
    let sum = |of: fn(&janus_tcp::Counters) -> u64| -> u64 {
        let stacks = world.shards.iter();
        stacks
            .map(|shard| of(shard.ctx.stack.borrow().counters()))
            .sum()
    };
    let (ledger, updates) = (ledger.borrow(), world.conductor.mailbox.done().updates);
    let redirected = sum(|counters| counters.redirected);
    let (adopted, stayed) = server::Ledger::adoptions();
    println!(
        "{layout:?}, seed {seed}: {} opened, {} taken, {stubs} stubs at a time, {redirected} packets redirected, \
         {updates} updates, {:?} hops, {adopted} taken over, {stayed} not",
        ledger.opened,
        ledger.in_use,
        hops::take()
    );
    assert!(adopted > 0 && stayed > 50);
    assert_eq!(ledger.errors, Vec::<String>::new(), "seed {seed}");
    assert_eq!(problems, Vec::<String>::new(), "seed {seed}");
    assert!(ledger.in_use > 100 && stubs > 2 && redirected > 1_000);
    assert!(updates > 20, "{updates}");
}

#[test]
fn a_fixed_tuple_is_one_shards_at_a_time_and_hears_its_packets() {
    for seed in seeds(700, 2) {
        hold(SPLIT, seed);
        hold(COMBINED, seed + 50);
    }
}
