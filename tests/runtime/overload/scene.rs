//! The server of these tests: an echo, for the others, beside whatever is overloaded; and a gate behind which the
//! trouble ends.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use janus::net::{TcpListener, TcpStream};
use janus::{BackendChoice, Builder, CoreReport, Runtime};

use janus_io::wire;

use super::others;
use crate::support::reports::Reports;
use crate::support::{Case, ONE_COMBINED, PATIENCE, Running, content, echo};

/// Where the others' echo is.
pub(crate) const ECHO: u16 = 7;
/// Where each connection is written a content of [`WRITTEN`] bytes: this port and the next ones, as a client has some sixteen
/// thousand connections to each.
pub(crate) const WRITER: u16 = 200;
pub(crate) const WRITERS: u16 = 8;
/// Where all that comes is read once the gate is open, and hashed.
pub(crate) const READER: u16 = 101;
/// Where nobody accepts until the gate is open.
pub(crate) const DESERTED: u16 = 102;
/// What [`WRITER`] writes.
pub(crate) const WRITTEN: usize = 128 << 10;
/// In pieces of so many.
const PIECE: usize = 4 << 10;

/// Packet buffers that a core may have in stock.
const STOCK: usize = 512;
/// How often a script looks at the reports.
const LOOK: Duration = Duration::from_millis(5);

/// Shut at first. Who waits for it is woken, and does not look: a hundred thousand who looked would be all that their core
/// does.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Mutex<Option<Vec<Waker>>>>);

impl Default for Gate {
    fn default() -> Self {
        Gate(Arc::new(Mutex::new(Some(Vec::new()))))
    }
}

impl Gate {
    pub(crate) fn open(&self) {
        let waiting = self.0.lock().unwrap().take();
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    pub(crate) async fn opened(&self) {
        poll_fn(|context| match &mut *self.0.lock().unwrap() {
            Some(waiting) => {
                waiting.push(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        })
        .await;
    }
}

pub(crate) fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

/// What the clients know of the server.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) cores: usize,
    pub(crate) reports: Reports,
    pub(crate) gate: Gate,
}

impl Stage {
    /// Waits, among the clients, until the cores' reports of what is from now on are such.
    pub(crate) async fn until(&self, what: &str, such: impl Fn(&[CoreReport]) -> bool) {
        let begin = Instant::now();
        loop {
            let last = self.reports.since(begin);
            if last.len() == self.cores && such(&last) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{what} never: {last:?}");
            janus::time::sleep(LOOK).await;
        }
    }

    /// Serves the others once, and says how many packet buffers are in use then.
    pub(crate) async fn warm_up(&self) -> usize {
        others::are_served().await;
        self.until("an idle server", |cores| {
            cores.iter().all(|core| core.connections == 0)
        })
        .await;
        self.reports.last()[0].buffers.outstanding
    }

    /// All is as before: no connection, nothing half done, and the packet buffers are where they were, but for what
    /// threads have in stock.
    pub(crate) async fn recovers(&self, outstanding: usize) {
        let stock = STOCK * self.cores;
        self.until("a server as before the trouble", |cores| {
            cores.iter().all(|core| {
                core.connections == 0
                    && core.half_open == 0
                    && core.hot_in_use == 0
                    && core.buffers.outstanding <= outstanding + stock
            })
        })
        .await;
        others::are_served().await;
    }
}

/// A running server.
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    running: Running,
}

impl Scene {
    pub(crate) fn start(case: Case, runtime: Runtime) -> Scene {
        let (ready, listens) = channel();
        let stage = Stage {
            cores: case.cores,
            reports: Reports::default(),
            gate: Gate::default(),
        };
        let of_server = stage.clone();
        let running = Running::start(runtime, move || {
            let (ready, stage) = (ready.clone(), of_server.clone());
            async move {
                let bind = |port| TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port)));
                let deserted = bind(DESERTED).await?;
                for port in WRITER..WRITER + WRITERS {
                    accept(bind(port).await?, write);
                }
                accept(bind(READER).await?, read_behind(stage.gate.clone()));
                accept(bind(ECHO).await?, echo);
                ready.send(())?;
                janus::spawn(stage.reports.keep());
                stage.gate.opened().await;
                accept(deserted, echo);
                std::future::pending::<janus::Result>().await
            }
        });
        for _ in 0..case.cores {
            listens.recv_timeout(PATIENCE).expect("every core listens");
        }
        Scene { stage, running }
    }

    /// Runs the clients' script at the other end to its end, and stops the server. Gives the last reports.
    pub(crate) fn play<F>(
        self,
        clients: Builder,
        script: impl Fn(Stage) -> F + Send + Sync + 'static,
    ) -> Vec<CoreReport>
    where
        F: Future<Output = ()> + 'static,
    {
        let clients = clients
            .address("192.0.2.2/24".parse().unwrap())
            .build()
            .unwrap();
        let stage = self.stage.clone();
        let clients = Running::start(clients, move || {
            let play = script(stage.clone());
            async move {
                play.await;
                std::io::Result::Ok(())
            }
        });
        clients.join_within(8 * PATIENCE).unwrap();
        let reports = self.stage.reports.fresh(self.stage.cores);
        self.running.stop().unwrap();
        reports
    }
}

/// Serves every connection in a task of its own.
fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    janus::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            janus::spawn(serve(stream));
        }
    });
}

/// The content that the first byte names.
async fn write(stream: TcpStream) {
    let mut seed = [0; 8];
    if stream.read_exact(&mut seed).await.is_ok() {
        // Piece by piece: of a hundred thousand writers none has all its text at hand.
        for from in (0..WRITTEN).step_by(PIECE) {
            let text = content::stretch(from..from + PIECE, u64::from_le_bytes(seed));
            if stream.write_all(&text).await.is_err() {
                return;
            }
        }
    }
}

/// Reads nothing until the gate is open, then all; answers its hash.
fn read_behind(gate: Gate) -> impl Fn(TcpStream) -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
    let gate = Rc::new(gate);
    move |stream| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.opened().await;
            let mut all = Vec::new();
            while let Ok(Some(piece)) = stream.recv().await {
                all.extend_from_slice(&piece);
            }
            let _ = stream.write_all(&content::hash(&all).to_le_bytes()).await;
        })
    }
}

/// Server and clients, on a wire of this depth.
pub(crate) fn builders(case: Case, depth: u32) -> (Builder, Builder) {
    let (near, far) = wire::pair(wire::Config {
        queues: [case.queues(), 1],
        depth,
        ..wire::Config::default()
    })
    .unwrap();
    let server = case.builder().address("192.0.2.1/24".parse().unwrap());
    (
        server.backend(BackendChoice::wire(near)),
        ONE_COMBINED.builder().backend(BackendChoice::wire(far)),
    )
}
