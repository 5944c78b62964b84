//! The TCP engine alone behind the far end: no runtime, no tasks, one thread. What a benchmark measures here is the
//! floor for what the runtime can reach.

use super::clock::Clock;
use super::far::app::behind_echo;
use super::far::packet::Ends;
use super::far::plan::{Kind, Mode, Phase, Plan};
use super::far::{App, Far, six};
use super::served::OPEN_WINDOW;
use janus_mem::{Depot, Frame, Growth, MemError, Toucher};
use janus_tcp::{
    Config, ConnId, Error, Instant, Interface, IpCidr, ListenerId, Local, Secrets, Stack, Token,
};
use std::sync::Arc;

/// Frames exchanged at a time.
const BURST: usize = 64;
const LISTENER: Token = Token(u32::MAX - 1);

/// Memory that a thread of its own grows ahead of need.
pub fn ahead() -> Growth {
    Growth::Ahead(Toucher::spawn().expect("a thread"))
}

/// A connection's place in tables of ours: those of IPv6 are numbered from a high number on.
fn place(index: u32) -> usize {
    const SIX_FIRST: u32 = 1 << 29;
    (index % SIX_FIRST) as usize
}

/// A stack at the server's end, with so many packet buffers.
pub fn bare(config: Config, ends: &Ends, buffers: u32, growth: &Growth) -> Result<Stack, MemError> {
    let pool = Depot::new(buffers, growth)?.pool();
    let interface = Interface {
        link: janus_wire::Link::Ethernet,
        mac: janus_wire::MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        addresses: vec![IpCidr::new(ends.server_ip(), ends.server_prefix())],
        any_local: false,
        gateway: Some(ends.gateway_four()),
        gateway_v6: Some(six::address(ends.gateway_four())),
        routes: Vec::new(),
        tx_checksum: false,
        rx_checksum: false,
        answers: true,
        ports: None,
    };
    Stack::new(config, interface, Secrets::from_seed(7), pool, growth)
}

/// An echo server on a bare stack, and its far end.
pub struct Engine {
    pub stack: Stack,
    pub far: Far,
    listener: ListenerId,
    pub clock: Clock,
    generations: Vec<u32>,
    frames: Vec<Frame>,
    data: Box<[u8; 2048]>,
    /// What follows the echo in an answer.
    pub behind: &'static [u8],
    /// The server ends a connection with its first answer.
    pub ends_first: bool,
    /// Applied to each frame the server sends: how a test makes wrong answers.
    pub tamper: Option<fn(&mut [u8])>,
    /// Applied to each frame that comes to the server.
    pub tamper_in: Option<fn(&mut [u8])>,
}

impl Engine {
    /// With room for `held` connections that stay and as many short ones as a benchmark has at a time.
    pub fn start(held: u32) -> (Self, Arc<Plan>) {
        Self::start_at(Ends::default(), held)
    }

    /// Starts between these ends.
    pub fn start_at(ends: Ends, held: u32) -> (Self, Arc<Plan>) {
        Self::start_growing(ends, held, &ahead())
    }

    /// Starts with memory that grows in this way.
    pub fn start_growing(ends: Ends, held: u32, growth: &Growth) -> (Self, Arc<Plan>) {
        Self::start_answering(ends, App::Echo, held, growth)
    }

    /// Starts one that answers as `app` says, which is no HTTP.
    pub fn start_answering(ends: Ends, app: App, held: u32, growth: &Growth) -> (Self, Arc<Plan>) {
        let plan = Arc::new(Plan::new(1, held));
        let behind = match app {
            App::Sized(len) => behind_echo(len),
            App::Echo | App::Http { .. } => &[],
        };
        let far = Far::new(ends.clone(), app, Arc::clone(&plan), 0, held);
        let config = Config {
            max_connections: held + 65_536,
            ..Config::default()
        };
        let engine = Self::build(far, config, &ends, 65_536, growth);
        let mut engine = engine.expect("memory for the benchmark");
        engine.behind = behind;
        (engine, plan)
    }

    pub fn new(far: Far, config: Config, ends: &Ends, buffers: u32) -> Result<Self, MemError> {
        Self::build(far, config, ends, buffers, &ahead())
    }

    fn build(
        far: Far,
        config: Config,
        ends: &Ends,
        buffers: u32,
        growth: &Growth,
    ) -> Result<Self, MemError> {
        let mut stack = bare(config, ends, buffers, growth)?;
        let listener = stack
            .listen(ends.listen_at(), 4096)
            .expect("the port is free");
        stack.wait_accept(listener, Some(LISTENER));
        Ok(Self {
            stack,
            far,
            listener,
            clock: Clock::real(),
            generations: Vec::new(),
            frames: Vec::with_capacity(2 * BURST),
            data: Box::new([0; 2048]),
            behind: &[],
            ends_first: false,
            tamper: None,
            tamper_in: None,
        })
    }

    /// Opens connections up to `held`, one request on each.
    pub fn open(&mut self, plan: &Plan, held: u32) {
        let more = held.saturating_sub(plan.held_begun());
        if more == 0 {
            return;
        }
        let before = plan.counts().get(Kind::Ended);
        plan.set(Phase {
            mode: Mode::Open,
            window: OPEN_WINDOW,
            held,
        });
        let all = |_: &Self| plan.counts().get(Kind::Ended) - before >= u64::from(more);
        let opened = self.run(std::time::Duration::from_secs(900), all);
        assert!(
            opened,
            "held connections opened: {:?} {:?}",
            plan.counts(),
            self.stack.counters()
        );
    }

    /// Begins nothing more and lets end what is in progress; what never ended.
    pub fn quiesce(&mut self, plan: &Plan, held: u32) -> u64 {
        plan.set(Phase {
            mode: Mode::Idle,
            window: 0,
            held,
        });
        self.run(std::time::Duration::from_secs(5), |_| {
            plan.counts().in_progress() == 0
        });
        plan.counts().in_progress()
    }

    /// One turn of the loop: in, application, timers, out.
    pub fn turn(&mut self) {
        let frames = &mut self.frames;
        self.far
            .give(self.stack.pool(), BURST, |frame| frames.push(frame));
        if let Some(tamper) = self.tamper_in {
            self.frames
                .iter_mut()
                .for_each(|frame| tamper(frame.data_mut()));
        }
        self.counted_turn();
        if let Some(tamper) = self.tamper {
            self.frames
                .iter_mut()
                .for_each(|frame| tamper(frame.data_mut()));
        }
        self.far.take(self.frames.iter().map(Frame::data));
        self.counted_end();
    }

    /// The engine's and the application's part of a turn; [`valgrind`](super::valgrind) counts it by its name.
    #[inline(never)]
    fn counted_turn(&mut self) {
        let now = self.clock.turn();
        self.stack.input(now, &mut self.frames, &mut Local);
        while let Some(token) = self.stack.pop_ready() {
            if token == LISTENER {
                self.accept(now);
            } else {
                let id = ConnId {
                    index: token.0,
                    generation: self.generations[place(token.0)],
                };
                self.serve(now, id);
            }
        }
        self.stack.advance(now);
        self.stack.transmit(now, &mut self.frames, 2 * BURST);
    }

    /// What was sent comes home.
    #[inline(never)]
    fn counted_end(&mut self) {
        for frame in self.frames.drain(..) {
            if frame.is_lent() {
                self.stack.completed(frame);
            } else {
                self.stack.pool().free(frame.buf);
            }
        }
    }

    /// The connections it has accepted, over IPv4.
    pub fn connections(&self) -> impl Iterator<Item = ConnId> + use<> {
        let generations = self.generations.clone();
        let numbered = (0..).zip(generations);
        numbered.map(|(index, generation)| ConnId { index, generation })
    }

    /// Bytes of what stands for tasks here: the generation of each connection.
    pub fn task_bytes(&self) -> usize {
        self.generations.len() * size_of::<u32>()
    }

    fn accept(&mut self, now: Instant) {
        while let Ok((id, _)) = self.stack.accept(self.listener) {
            let at = place(id.index);
            if at >= self.generations.len() {
                self.generations.resize(at + 1, 0);
            }
            self.generations[at] = id.generation;
            self.serve(now, id);
        }
        self.stack.wait_accept(self.listener, Some(LISTENER));
    }

    /// Echoes what is there; closes when the peer has.
    fn serve(&mut self, now: Instant, id: ConnId) {
        loop {
            match self.stack.read(now, id, &mut *self.data) {
                Ok(0) => return self.stack.close(now, id),
                Ok(n) => {
                    if self.stack.write(now, id, &self.data[..n]) != Ok(n) {
                        return self.stack.abort(now, id);
                    }
                    let behind = self.behind;
                    if !behind.is_empty() && self.stack.write(now, id, behind) != Ok(behind.len()) {
                        return self.stack.abort(now, id);
                    }
                    if self.ends_first {
                        return self.stack.close(now, id);
                    }
                }
                Err(Error::WouldBlock) => return self.stack.wait_read(id, Some(Token(id.index))),
                Err(_) => return self.stack.close(now, id),
            }
        }
    }

    /// Turns until `done` says so, at most `limit`.
    pub fn run(&mut self, limit: std::time::Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let start = std::time::Instant::now();
        while !done(self) {
            for _ in 0..16 {
                self.turn();
            }
            if start.elapsed() > limit {
                return false;
            }
        }
        true
    }
}
