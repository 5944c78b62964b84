//! Every shard connects to the runtime's own addresses while rings and listeners change, and some connections go from core to core: each is
//! served, none of its packets gets to the wire, and nothing is left a silent day later.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use janus_io::IoCore;
use janus_tcp::Config;

use super::server::{Served, on_next_core};
use super::updates::{Changes, held_twice, not_found, seeds};
use super::{COMBINED, Layout, SPLIT};
use crate::lockstep::World;
use crate::lockstep::rng::Rng;
use crate::net::{TcpListener, TcpStream};
use crate::shard::hops;
use crate::time::sleep;

/// Connections made in a run.
const CONNECTIONS: u64 = 600;
/// Tasks that connect, on each shard.
const TASKS: u64 = 4;
const OWN: [&str; 2] = ["192.0.2.1", "2001:db8::1"];

#[derive(Default)]
struct Ledger {
    closing: bool,
    running: u64,
    served: u64,
    errors: Vec<String>,
}

type Shared = Rc<RefCell<Ledger>>;

async fn connect_again_and_again(ledger: Shared, seed: u64) {
    let mut rng = Rng::new(seed);
    ledger.borrow_mut().running += 1;
    while !ledger.borrow().closing {
        let own: IpAddr = OWN[rng.below(2) as usize].parse().expect("an address");
        match talk(SocketAddr::new(own, 80), &mut rng).await {
            Ok(()) => ledger.borrow_mut().served += 1,
            Err(error) => {
                let text = format!("to {own}, core {:?}: {error}", crate::core_id());
                ledger.borrow_mut().errors.push(text);
            }
        }
        sleep(Duration::from_micros(rng.below(500))).await;
    }
    ledger.borrow_mut().running -= 1;
}

async fn talk(to: SocketAddr, rng: &mut Rng) -> io::Result<()> {
    let stream = TcpStream::connect(to).await?;
    let (words, seed) = (1 + rng.below(4), rng.next());
    match rng.one_in(3) {
        true => on_next_core(stream, (words, seed), say).await,
        false => say(stream, (words, seed)).await,
    }
}

fn say(stream: TcpStream, (words, seed): (u64, u64)) -> Served {
    Box::pin(say_all(stream, words, Rng::new(seed)))
}

async fn say_all(stream: TcpStream, words: u64, mut rng: Rng) -> io::Result<()> {
    for _ in 0..words {
        let says: Vec<u8> = (0..1 + rng.below(9_000))
            .map(|_| rng.next() as u8)
            .collect();
        stream.write_all(&says).await?;
        let mut hears = vec![0; says.len()];
        stream.read_exact(&mut hears).await?;
        if hears != says {
            return Err(io::Error::other("heard what was not said"));
        }
        sleep(Duration::from_micros(rng.below(800))).await;
    }
    stream.shutdown(Shutdown::Write).await?;
    match stream.read(&mut [0]).await? {
        0 => Ok(()),
        _ => Err(io::Error::other("heard more than was said")),
    }
}

async fn serve_and_connect(ledger: Shared, seed: u64) -> crate::Result {
    let listener = TcpListener::bind("[::]:80").await?;
    let core = crate::core_id().unwrap_or_default() as u64;
    for task in 0..TASKS {
        let seed = seed << 8 | core << 4 | task;
        crate::spawn(connect_again_and_again(ledger.clone(), seed));
    }
    loop {
        let (stream, _) = listener.accept().await?;
        crate::spawn(async move {
            while let Ok(Some(piece)) = stream.recv().await {
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Packet buffers that are neither in the depot nor in a core's stock.
fn buffers_in_use(world: &mut World) -> usize {
    for shard in &world.shards {
        shard.ctx.pool.borrow_mut().flush();
        shard.ctx.stack.borrow_mut().pool().flush();
    }
    world.io_cores.iter_mut().for_each(IoCore::give_stock_back);
    let depot = world.shards[0].ctx.shared.depot.upgrade();
    depot.expect("the runtime lives").stats().outstanding
}

fn world(layout: Layout, seed: u64, ledger: &Shared) -> World {
    let tcp = Config {
        time_wait: Duration::from_millis(4),
        ..Config::default()
    };
    let v6 = "2001:db8::1/64".parse().expect("an address");
    World::new(
        seed,
        layout,
        |builder| builder.tcp(tcp).address(v6),
        || serve_and_connect(ledger.clone(), seed),
    )
}

/// Packet buffers in use where no core connects: those that the device holds.
fn buffers_at_rest(layout: Layout) -> usize {
    let ledger = Shared::default();
    ledger.borrow_mut().closing = true;
    let mut world = world(layout, 1, &ledger);
    world.end();
    buffers_in_use(&mut world)
}

fn hold(layout: Layout, seed: u64) {
    let at_rest = buffers_at_rest(layout);
    let ledger = Shared::default();
    hops::take();
    let mut world = world(layout, seed, &ledger);
    for shard in &mut world.shards {
        (shard.work.update.places, shard.work.update.places_max) = (2, 2);
    }
    let mut changes = Changes::new(seed ^ 0x5eed);
    let mut problems = Vec::new();
    world.run_until(|world| {
        if world.steps % 499 == 0 {
            problems.extend(held_twice(world));
            problems.extend(not_found(world));
        }
        changes.go_on(world);
        let mut ledger = ledger.borrow_mut();
        ledger.closing |= ledger.served >= CONNECTIONS || !ledger.errors.is_empty();
        ledger.closing && ledger.running == 0
    });
    world.run_until(|world| !world.conductor.is_busy());
    world.end();
    assert_eq!(buffers_in_use(&mut world), at_rest, "seed {seed}");
    let sum = |of: fn(&janus_tcp::Counters) -> u64| -> u64 {
        let stacks = world.shards.iter();
        stacks
            .map(|shard| of(shard.ctx.stack.borrow().counters()))
            .sum()
    };
    let (looped, timeouts) = (sum(|tcp| tcp.looped), sum(|tcp| tcp.timeouts));
    let (hops, forwards) = hops::take();
    let (ledger, updates) = (ledger.borrow(), world.conductor.mailbox.done().updates);
    println!(
        "{layout:?}, seed {seed}: {} served, {looped} packets came back in, {forwards} of them over, {hops} hops at most, {updates} updates, \
         {timeouts} timeouts",
        ledger.served
    );
    assert_eq!(ledger.errors, Vec::<String>::new(), "seed {seed}");
    assert_eq!(problems, Vec::<String>::new(), "seed {seed}");
    assert_eq!(sum(|tcp| tcp.frames_out), 0, "seed {seed}");
    // One by what is looked up, and the two of the walk.
    assert!(hops <= 3, "seed {seed}: {hops} hops");
    let lost = |shard: &crate::shard::Shard| {
        let forwards = shard.ctx.forwarder.borrow().counters;
        forwards.dropped_full + forwards.dropped_syn_room + forwards.dropped_expired
    };
    let lost = world.shards.iter().map(lost).sum::<u64>();
    assert_eq!((lost, timeouts), (0, 0), "seed {seed}");
    assert!(looped > 10 * CONNECTIONS && forwards > 1_000 && updates > 20);
}

#[test]
fn own_addresses_are_reached_whatever_changes() {
    for seed in seeds(900, 2) {
        hold(SPLIT, seed);
        hold(COMBINED, seed + 50);
    }
}
