//! Clients of a server in virtual time: each connection begins at a moment that was fixed before, sends how much work it asks for, and is
//! over when the server has answered and closed. A slow server is not waited for. Never here: what the server does.

// Each benchmark uses a part of this.
#![allow(dead_code, unreachable_pub)]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use janus::lockstep::Outside;
use janus_io::{Backend, Batch, Queue, wire};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_seeds::Random;
use janus_tcp::{Config, ConnId, Instant, Interface, Local, Secrets, Stack, Token};

/// The server's address.
pub const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 80);
/// Clients' addresses begin here; each has the ports from this one on.
const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 16);
const ADDRESSES: u32 = 200;
const FIRST_PORT: u16 = 2_000;
/// Frames in a turn.
const FRAMES: usize = 64;

/// A connection that has been served.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// The moment at which it was to begin.
    pub meant: Instant,
    pub connected: Instant,
    pub ended: Instant,
}

/// How the next connection comes about.
pub trait Plan {
    /// Time from one connection's beginning to the next one's, and the work that this one asks for.
    fn next(&mut self, random: &mut Random) -> (Duration, Duration);

    /// Whether a connection from here is wanted.
    fn wants(&mut self, from: SocketAddr, random: &mut Random) -> bool;
}

struct Client {
    conn: ConnId,
    meant: Instant,
    connected: Option<Instant>,
    work: Duration,
}

/// All clients, on one stack.
pub struct Crowd<P> {
    stack: Stack,
    pool: Pool,
    queue: Box<dyn Queue>,
    frames: Vec<Frame>,
    random: Random,
    plan: P,
    /// When the next connection begins, and the work that it asks for.
    next: (Instant, Duration),
    /// Nothing begins after this.
    until: Instant,
    /// Most batches each way in a turn.
    pub bursts: usize,
    tuple: u64,
    /// By their tokens; those in `free` are taken again.
    clients: Vec<Option<Client>>,
    free: Vec<u32>,
    pub served: Vec<Served>,
    /// Connections that failed.
    pub failed: u64,
}

impl<P: Plan> Crowd<P> {
    /// Nothing begins before that is said.
    pub fn new(seed: u64, end: wire::End, plan: P) -> Self {
        let depot = Depot::new(32 * 1024, &Growth::Inline).expect("memory");
        let config = Config {
            time_wait: Duration::from_millis(10),
            ..Config::default()
        };
        let (secrets, interface) = (Secrets::from_seed(seed), Interface::ip(1500));
        let stack = Stack::new(config, interface, secrets, depot.pool(), &Growth::Inline);
        Self {
            stack: stack.expect("a stack"),
            pool: depot.pool(),
            queue: Box::new(end).open(1).expect("one queue").remove(0),
            frames: Vec::new(),
            random: Random::new(seed),
            plan,
            next: (Instant::ZERO, Duration::ZERO),
            until: Instant::ZERO,
            bursts: 1,
            tuple: 0,
            clients: Vec::new(),
            free: Vec::new(),
            served: Vec::new(),
            failed: 0,
        }
    }

    /// Has connections begin between these moments.
    pub fn begins(&mut self, from: Instant, until: Instant) {
        (self.next, self.until) = ((from, Duration::ZERO), until);
    }

    pub fn plan(&mut self) -> &mut P {
        &mut self.plan
    }

    /// Connections that are being served, or wait.
    pub fn live(&self) -> usize {
        self.clients.len() - self.free.len()
    }

    fn next_tuple(&mut self) -> SocketAddr {
        loop {
            self.tuple += 1;
            let address = FIRST.to_bits() + (self.tuple % u64::from(ADDRESSES)) as u32;
            let ports = u64::from(u16::MAX - FIRST_PORT);
            let port = FIRST_PORT + (self.tuple / u64::from(ADDRESSES) % ports) as u16;
            let from = SocketAddr::from((Ipv4Addr::from_bits(address), port));
            if self.plan.wants(from, &mut self.random) {
                return from;
            }
        }
    }

    fn begin(&mut self, now: Instant) -> bool {
        let mut begun = false;
        while self.next.0 <= now && self.next.0 < self.until {
            let (meant, work) = self.next;
            let (gap, work_then) = self.plan.next(&mut self.random);
            self.next = (meant + gap, work_then);
            let from = self.next_tuple();
            let Ok(conn) = self.stack.connect(now, from, SERVER) else {
                self.failed += 1;
                continue;
            };
            let client = Client {
                conn,
                meant,
                connected: None,
                work,
            };
            let token = self.free.pop().unwrap_or_else(|| {
                self.clients.push(None);
                self.clients.len() as u32 - 1
            });
            self.stack.wait_read(conn, Some(Token(token)));
            self.clients[token as usize] = Some(client);
            begun = true;
        }
        begun
    }

    /// Goes on with the client of a token.
    fn go_on(&mut self, token: u32, now: Instant) {
        let Some(client) = &mut self.clients[token as usize] else {
            return;
        };
        let (stack, conn) = (&mut self.stack, client.conn);
        let mut failed = false;
        if client.connected.is_none() {
            match stack.is_connected(conn) {
                Ok(true) => {
                    client.connected = Some(now);
                    let asks = (client.work.as_nanos() as u64).to_le_bytes();
                    failed = stack.write(now, conn, &asks).is_err();
                }
                Ok(false) => {}
                Err(_) => failed = true,
            }
        }
        let mut into = [0; 16];
        let mut over = false;
        while !failed && !over {
            match stack.read(now, conn, &mut into) {
                Ok(read) => over = read == 0,
                Err(janus_tcp::Error::WouldBlock) => break,
                Err(_) => failed = true,
            }
        }
        if !failed && !over {
            return stack.wait_read(conn, Some(Token(token)));
        }
        stack.close(now, conn);
        match client.connected.filter(|_| !failed) {
            Some(connected) => self.served.push(Served {
                meant: client.meant,
                connected,
                ended: now,
            }),
            None => self.failed += 1,
        }
        self.clients[token as usize] = None;
        self.free.push(token);
    }

    fn receive(&mut self, now: Instant) -> bool {
        let mut batch = Batch::new();
        self.queue.rx_burst(&mut self.pool, &mut batch);
        batch.append_to(&mut self.frames);
        let any = !self.frames.is_empty();
        self.stack.input(now, &mut self.frames, &mut Local);
        any
    }

    fn send(&mut self, now: Instant) -> bool {
        self.stack.transmit(now, &mut self.frames, FRAMES);
        let any = !self.frames.is_empty();
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        for frame in self.frames.drain(..) {
            let _ = batch.push(frame);
        }
        self.queue.tx_burst(&mut self.pool, &mut batch, &mut done);
        for frame in batch.pull().chain(done.pull()) {
            if frame.is_lent() {
                self.stack.completed(frame);
            } else {
                self.pool.free(frame.buf);
            }
        }
        any
    }
}

impl<P: Plan> Outside for Crowd<P> {
    fn turn(&mut self, now: Instant) -> bool {
        let received = (0..self.bursts).take_while(|_| self.receive(now)).count();
        let mut worked = received > 0;
        worked |= self.begin(now);
        while let Some(Token(token)) = self.stack.pop_ready() {
            self.go_on(token, now);
            worked = true;
        }
        self.stack.advance(now);
        let sent = (0..self.bursts).take_while(|_| self.send(now)).count();
        worked | (sent > 0)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let begins = Some(self.next.0).filter(|at| *at < self.until);
        begins.into_iter().chain(self.stack.next_deadline()).min()
    }
}
