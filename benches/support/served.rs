//! The whole server behind the far end: a Janus runtime with its tasks, on a thread of its own. What the application
//! does with a connection is here; what is asked of it is the far end's.

use super::far::App;
use super::far::app::behind_echo;
use super::far::device::Device;
use super::far::pace::Sample;
use super::far::packet::Ends;
use super::far::plan::{Counts, Kind, Mode, Phase, Plan};
use super::meter::Series;
use super::witness::{Readings, Record};
use janus::net::{Next, TcpListener, TcpStream};
use janus::{BackendChoice, Builder, CoreReport, Handle, Placement, Runtime};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What every HTTP response carries.
pub const BODY: &[u8] = b"Hello from Janus!\n";
/// Limits of every HTTP connection: those there are by default, but for an idle time that is longer than opening ten million takes.
static LIMITS: janus_http::Options = janus_http::Options {
    idle_timeout: Some(Duration::from_secs(3_600)),
    ..janus_http::Options::DEFAULT
};
/// Connections being opened at a time. Each can have three packets on the way to the server, and all of them must fit
/// the ring between an I/O core and a shard: the far end has no retransmission.
pub const OPEN_WINDOW: u32 = 256;
/// Connections that may wait to be accepted: as many as are ever in progress.
const BACKLOG: usize = 4_096;
/// How often a core looks whether somebody wants its report.
const REPORT_EVERY: Duration = Duration::from_millis(5);
/// Time in which far ends hand in what they have measured.
const HAND_IN: Duration = Duration::from_secs(30);
/// How often a watcher looks whether a paced phase has begun.
const WATCH_EVERY: Duration = Duration::from_millis(1);

/// How a server is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub cores: usize,
    pub placement: Placement,
}

impl Layout {
    pub const COMBINED: Self = Self {
        cores: 1,
        placement: Placement::Combined,
    };
    pub const SPLIT: Self = Self {
        cores: 1,
        placement: Placement::Split { io_cores: 1 },
    };

    fn queues(self) -> usize {
        match self.placement {
            Placement::Combined => self.cores,
            Placement::Split { io_cores } => io_cores,
        }
    }

    /// Threads that poll.
    pub fn threads(self) -> usize {
        match self.placement {
            Placement::Combined => self.cores,
            Placement::Split { io_cores } => self.cores + io_cores,
        }
    }

    pub fn name(self) -> &'static str {
        match self.placement {
            Placement::Combined => "combined",
            Placement::Split { .. } => "split",
        }
    }
}

/// Reports of the cores, made when asked for.
struct Desk {
    asked: AtomicU64,
    answers: Mutex<Vec<(u64, CoreReport)>>,
}

/// A running server and the plan of its far ends.
pub struct Server {
    pub plan: Arc<Plan>,
    pub layout: Layout,
    desk: Arc<Desk>,
    handle: Handle,
    thread: JoinHandle<janus::Result>,
}

impl Server {
    /// Starts a server for `app` that can hold `held` connections.
    pub fn start(layout: Layout, app: App, held: u32) -> Self {
        Self::start_at(Ends::default(), layout, app, held)
    }

    /// Starts between these ends.
    pub fn start_at(ends: Ends, layout: Layout, app: App, held: u32) -> Self {
        let kind = app.clone();
        let begin = move |stream| begin(&kind, stream);
        Self::start_between(ends, layout, app, held, |builder| builder, begin)
    }

    /// Starts one whose connections rest between requests.
    pub fn start_resting(ends: Ends, layout: Layout, app: App, held: u32) -> Self {
        Self::start_resting_with(ends, layout, app, held, |builder| builder)
    }

    /// Starts such a one on a runtime that `configure` has a say in.
    pub fn start_resting_with(
        ends: Ends,
        layout: Layout,
        app: App,
        held: u32,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let kind = app.clone();
        let serve = async move |listener| at_rest(&kind, listener).await;
        Self::start_serving(ends, layout, app, held, configure, serve)
    }

    /// Starts one on a runtime that `configure` has a say in; what the application does with a connection is `begin`'s.
    pub fn start_with(
        layout: Layout,
        app: App,
        held: u32,
        configure: impl FnOnce(Builder) -> Builder,
        begin: impl Fn(TcpStream) + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::start_between(Ends::default(), layout, app, held, configure, begin)
    }

    /// Like [`start_with`](Self::start_with), between these ends.
    pub fn start_between(
        ends: Ends,
        layout: Layout,
        app: App,
        held: u32,
        configure: impl FnOnce(Builder) -> Builder,
        begin: impl Fn(TcpStream) + Clone + Send + Sync + 'static,
    ) -> Self {
        let serve = async move |listener: TcpListener| loop {
            let (stream, _) = listener.accept().await?;
            begin(stream);
        };
        Self::start_serving(ends, layout, app, held, configure, serve)
    }

    /// Starts one whose cores do with their listeners what `serve` does.
    fn start_serving(
        ends: Ends,
        layout: Layout,
        app: App,
        held: u32,
        configure: impl FnOnce(Builder) -> Builder,
        serve: impl AsyncFn(TcpListener) -> std::io::Result<()> + Clone + Send + Sync + 'static,
    ) -> Self {
        let (builder, plan) = builder(&ends, layout, app, held);
        let built = configure(builder).build();
        let runtime = built.expect("a runtime for the benchmark");
        Self::on(runtime, plan, ends, layout, serve)
    }

    /// Starts one on a runtime that is there, behind far ends of this plan.
    pub fn on(
        runtime: Runtime,
        plan: Arc<Plan>,
        ends: Ends,
        layout: Layout,
        serve: impl AsyncFn(TcpListener) -> std::io::Result<()> + Clone + Send + Sync + 'static,
    ) -> Self {
        let handle = runtime.handle();
        let desk = Arc::new(Desk {
            asked: AtomicU64::new(0),
            answers: Mutex::new(Vec::new()),
        });
        let at_desk = Arc::clone(&desk);
        let main = move || main(serve.clone(), ends.listen_at(), Arc::clone(&at_desk));
        let thread = std::thread::spawn(move || runtime.run(main));
        let server = Self {
            plan,
            layout,
            desk,
            handle,
            thread,
        };
        // Every core answers once its main has begun, and binds before it answers.
        server.reports();
        server
    }

    /// From now on, a task on every core reads the clock in each turn of a paced phase. It costs a turn a fraction of a
    /// microsecond, and is needed only where no far end is called in a shard's turn.
    pub fn watch_shards(&self) {
        for core in 0..self.layout.cores {
            let plan = Arc::clone(&self.plan);
            plan.watchers.fetch_add(1, Ordering::Relaxed);
            drop(self.handle.spawn_on(core, move || watch(core, plan)));
        }
    }

    /// The runtime's handle.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// A report of every core.
    pub fn reports(&self) -> Vec<CoreReport> {
        let number = self.desk.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let start = Instant::now();
        loop {
            std::thread::sleep(Duration::from_millis(1));
            let answers = self.desk.answers.lock().expect("no holder panics");
            let mine: Vec<CoreReport> = answers
                .iter()
                .filter(|(n, _)| *n == number)
                .map(|(_, report)| *report)
                .collect();
            if mine.len() == self.layout.cores {
                return mine;
            }
            assert!(!self.thread.is_finished(), "the server ended");
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "a core does not answer"
            );
        }
    }

    /// Waits until the counts satisfy `done`, at most `limit`. Whether they did.
    pub fn wait(&self, limit: Duration, done: impl Fn(&Counts) -> bool) -> bool {
        let start = Instant::now();
        while !done(&self.plan.counts()) {
            if start.elapsed() > limit || self.thread.is_finished() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Opens connections up to `held`, one request on each.
    pub fn open(&self, held: u32) {
        let more = u64::from(held.saturating_sub(self.plan.held_begun()));
        if more == 0 {
            return;
        }
        let before = self.plan.counts().get(Kind::Ended);
        if self.plan.held_begun() == 0 {
            self.open_first();
        }
        self.plan.set(Phase {
            mode: Mode::Open,
            window: OPEN_WINDOW,
            held,
        });
        let mut opened = 0;
        while opened < more {
            let further = |counts: &Counts| counts.get(Kind::Ended) - before > opened;
            // A lost packet is never sent again: what is not answered now never will be.
            let goes_on = self.wait(Duration::from_secs(5), further);
            opened = self.plan.counts().get(Kind::Ended) - before;
            assert!(
                goes_on,
                "{opened} of {more} opened: {:?} {:?}",
                self.plan.counts(),
                self.reports()
            );
        }
    }

    /// Opens the first connection alone: the far end learns from it what a response looks like.
    pub fn open_first(&self) {
        let before = self.plan.counts().get(Kind::Ended);
        self.plan.set(Phase {
            mode: Mode::Open,
            window: 1,
            held: 1,
        });
        self.wait(Duration::from_secs(5), |counts| {
            counts.get(Kind::Ended) > before
        });
    }

    /// Begins nothing more and waits for what is in progress; what never ended.
    pub fn quiesce(&self, held: u32) -> u64 {
        self.plan.set(Phase {
            mode: Mode::Idle,
            window: 0,
            held,
        });
        self.wait(Duration::from_secs(5), |counts| counts.in_progress() == 0);
        self.plan.counts().in_progress()
    }

    /// Ends a paced phase; what was measured in it.
    pub fn end_pace(&self, held: u32) -> (Vec<Sample>, Vec<Record>) {
        self.plan.set_rate(0.0, Duration::ZERO);
        self.quiesce(held);
        self.plan.take_samples(HAND_IN)
    }

    /// Opens what the phase holds, runs it, measures it once, and stops.
    pub fn measure(self, phase: Phase, warm: Duration, run_time: Duration) -> Series {
        self.open(phase.held);
        self.plan.set(phase);
        std::thread::sleep(warm);
        let threads = self.layout.threads();
        let series = Series::take(&self.plan, threads, 1, || std::thread::sleep(run_time));
        let unfinished = self.quiesce(phase.held);
        assert_eq!(self.plan.counts().bad() + unfinished, 0, "wrong answers");
        self.stop();
        series
    }

    pub fn stop(self) {
        self.handle.stop();
        if let Err(error) = self
            .thread
            .join()
            .expect("the runtime's caller does not panic")
        {
            eprintln!("the server ended with: {error}");
        }
    }
}

/// The settings of a server with far ends, and the plan of these.
pub fn builder(ends: &Ends, layout: Layout, app: App, held: u32) -> (Builder, Arc<Plan>) {
    let plan = Arc::new(Plan::new(layout.queues(), held));
    let device = Device {
        ends: ends.clone(),
        app,
        plan: Arc::clone(&plan),
        held,
    };
    // A shard's share is not exactly its part; what is not used costs addresses only.
    let each = held / layout.cores as u32 * 5 / 4 + 65_536;
    let address = format!("{}/{}", ends.server_ip(), ends.server_prefix());
    let builder = Runtime::builder()
        .ignore_environment()
        .cores(layout.cores)
        .placement(layout.placement)
        .backend(BackendChoice::Custom(Box::new(device)))
        .address(address.parse().expect("an address and a prefix"))
        .gateway(ends.gateway())
        .max_connections(each)
        .packet_buffers(65_536)
        .backlog(BACKLOG)
        .seed(7)
        .close_time(Duration::ZERO);
    (builder, plan)
}

/// The main of every core.
async fn main(
    serve: impl AsyncFn(TcpListener) -> std::io::Result<()>,
    at: SocketAddr,
    desk: Arc<Desk>,
) -> janus::Result {
    let listener = TcpListener::bind(at).await?;
    janus::spawn(answer_reports(desk));
    Ok(serve(listener).await?)
}

/// Serves connections that rest between requests.
pub async fn at_rest(app: &App, listener: TcpListener) -> std::io::Result<()> {
    match app {
        App::Echo => {
            janus::net::serve(listener, async |stream| {
                let Some(piece) = stream.recv().await? else {
                    return Ok(Next::Close);
                };
                stream.write_all(&piece).await?;
                Ok(Next::Rest)
            })
            .await
        }
        App::Sized(len) => {
            let behind = behind_echo(*len);
            janus::net::serve(listener, async move |stream| {
                let Some(piece) = stream.recv().await? else {
                    return Ok(Next::Close);
                };
                stream.write_all(&piece).await?;
                stream.write_all(behind).await?;
                Ok(Next::Rest)
            })
            .await
        }
        App::Http { .. } => {
            janus_http::serve_listener_with(&LIMITS, listener, async |_, response| {
                response.ok().send(BODY).await
            })
            .await
        }
    }
}

/// Begins the task of a connection.
pub fn begin(app: &App, stream: TcpStream) {
    match app {
        App::Echo => drop(janus::spawn(async move {
            // Inline, and with `else` instead of `while let`: what a `while let` matches lives as long as its body.
            loop {
                let Ok(Some(piece)) = stream.recv().await else {
                    return;
                };
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
            }
        })),
        App::Sized(len) => {
            let behind = behind_echo(*len);
            drop(janus::spawn(async move {
                loop {
                    let Ok(Some(piece)) = stream.recv().await else {
                        return;
                    };
                    if stream.write_all(&piece).await.is_err()
                        || stream.write_all(behind).await.is_err()
                    {
                        return;
                    }
                }
            }));
        }
        App::Http { .. } => {
            drop(janus::spawn(janus_http::serve_with(
                &LIMITS,
                stream,
                async |_, response| response.ok().send(BODY).await,
            )));
        }
    }
}

/// Begins the task of a connection that ends with the first answer.
pub fn begin_once(stream: TcpStream) {
    drop(janus::spawn(async move {
        if let Ok(Some(piece)) = stream.recv().await {
            let _ = stream.write_all(&piece).await;
        }
    }));
}

async fn watch(core: usize, plan: Arc<Plan>) {
    let mut epoch = 0;
    loop {
        if plan.epoch() == epoch {
            janus::time::sleep(WATCH_EVERY).await;
            continue;
        }
        epoch = plan.epoch();
        if plan.phase().mode == Mode::Short && plan.rate() > 0.0 {
            read_clock(core, epoch, Arc::clone(&plan), Readings::new(plan.origin));
        }
    }
}

/// Reads the clock once, and again in the next turn of that core: what is sent by the inbox comes then, while a task that only
/// yields would be polled many times in the same.
fn read_clock(core: usize, epoch: u64, plan: Arc<Plan>, mut readings: Readings) {
    let now = Instant::now();
    readings.enters(now);
    readings.leaves(now, now, 0);
    if plan.epoch() == epoch {
        drop(janus::spawn_on(core, move || async move {
            read_clock(core, epoch, plan, readings);
        }));
    } else {
        plan.hand_in(Vec::new(), readings.finish());
    }
}

async fn answer_reports(desk: Arc<Desk>) {
    let mut answered = 0;
    loop {
        let asked = desk.asked.load(Ordering::Relaxed);
        if asked != answered {
            answered = asked;
            let report = janus::report().expect("this is a core");
            let mut answers = desk.answers.lock().expect("no holder panics");
            answers.retain(|(number, _)| number + 1 >= asked);
            answers.push((asked, report));
        }
        janus::time::sleep(REPORT_EVERY).await;
    }
}
