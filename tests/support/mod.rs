//! What the end-to-end tests share: the table of cases, a server on a thread of its own, a client runtime on the other
//! end of the wire. No test lives here.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod changing;
pub mod content;
pub mod daemon;
pub mod datagrams;
pub mod file;
pub mod fragile;
pub mod kernel;
pub mod privileged;
pub mod program;
pub mod reports;

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use janus::net::{Next, ServedStream, TcpListener, TcpStream};
use janus::{BackendChoice, Builder, Handle, MainResult, Placement, Runtime};
use janus_io::wire;

/// How long anything may take before a test gives up: what takes a second here may take a minute on a machine that has
/// twenty other things to do.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// One way to lay out a server.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub cores: usize,
    pub placement: Placement,
}

pub const ONE_COMBINED: Case = Case {
    cores: 1,
    placement: Placement::Combined,
};
pub const THREE_COMBINED: Case = Case {
    cores: 3,
    placement: Placement::Combined,
};
pub const ONE_SPLIT: Case = Case {
    cores: 1,
    placement: Placement::Split { io_cores: 1 },
};
pub const THREE_SPLIT: Case = Case {
    cores: 3,
    placement: Placement::Split { io_cores: 2 },
};

impl Case {
    /// How many queues this layout polls.
    pub fn queues(self) -> usize {
        match self.placement {
            Placement::Combined => self.cores,
            Placement::Split { io_cores } => io_cores,
        }
    }

    pub fn builder(self) -> Builder {
        Runtime::builder()
            .ignore_environment()
            .cores(self.cores)
            .placement(self.placement)
            .packet_buffers(16 * 1024)
    }
}

/// Makes a module of four tests, one for each layout, of each function named.
#[macro_export]
macro_rules! in_every_layout {
    ($($test:ident),+ $(,)?) => { $(
        mod $test {
            #[test]
            fn one_core_combined() { super::$test($crate::support::ONE_COMBINED) }
            #[test]
            fn three_cores_combined() { super::$test($crate::support::THREE_COMBINED) }
            #[test]
            fn one_core_split() { super::$test($crate::support::ONE_SPLIT) }
            #[test]
            fn three_cores_split() { super::$test($crate::support::THREE_SPLIT) }
        }
    )+ };
}

/// A runtime on a thread of its own.
pub struct Running {
    handle: Handle,
    thread: JoinHandle<janus::Result>,
}

impl Running {
    pub fn start<M, F>(runtime: Runtime, main: M) -> Running
    where
        M: Fn() -> F + Send + Sync + 'static,
        F: Future<Output: MainResult> + 'static,
    {
        let handle = runtime.handle();
        Running {
            handle,
            thread: std::thread::spawn(move || runtime.run(main)),
        }
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops it from outside and waits for its end.
    pub fn stop(self) -> janus::Result {
        self.handle.stop();
        self.join()
    }

    /// Waits until it ends by itself.
    pub fn join(self) -> janus::Result {
        self.join_within(PATIENCE)
    }

    /// The same, for what takes longer.
    pub fn join_within(self, limit: Duration) -> janus::Result {
        let begin = std::time::Instant::now();
        while !self.thread.is_finished() {
            assert!(begin.elapsed() < limit, "the runtime did not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.thread
            .join()
            .expect("the runtime's caller does not panic")
    }
}

/// Starts a server that calls `serve` for every connection on every core; answers where it listens and, later, which
/// cores accepted.
pub fn serve<S, F>(builder: Builder, port: u16, serve: S) -> (Running, SocketAddr, Receiver<usize>)
where
    S: Fn(TcpStream) -> F + Send + Sync + Copy + 'static,
    F: Future<Output = ()> + 'static,
{
    serve_on(builder.build().unwrap(), port, serve)
}

/// [`serve`] on a runtime that is built already.
pub fn serve_on<S, F>(
    runtime: Runtime,
    port: u16,
    serve: S,
) -> (Running, SocketAddr, Receiver<usize>)
where
    S: Fn(TcpStream) -> F + Send + Sync + Copy + 'static,
    F: Future<Output = ()> + 'static,
{
    serve_at(runtime, SocketAddr::from(([0, 0, 0, 0], port)), serve)
}

/// [`serve_on`] a certain address.
pub fn serve_at<S, F>(
    runtime: Runtime,
    at: SocketAddr,
    serve: S,
) -> (Running, SocketAddr, Receiver<usize>)
where
    S: Fn(TcpStream) -> F + Send + Sync + Copy + 'static,
    F: Future<Output = ()> + 'static,
{
    let (ready, address) = channel();
    let (accepted, cores) = channel();
    let server = Running::start(runtime, move || {
        accept_all(at, serve, ready.clone(), accepted.clone())
    });
    let address = address.recv_timeout(PATIENCE).expect("the server listens");
    (server, address, cores)
}

async fn accept_all<S, F>(
    at: SocketAddr,
    serve: S,
    ready: Sender<SocketAddr>,
    accepted: Sender<usize>,
) -> janus::Result
where
    S: Fn(TcpStream) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    let listener = TcpListener::bind(at).await?;
    let _ = ready.send(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = accepted.send(janus::core_id().unwrap());
        janus::spawn(serve(stream));
    }
}

/// Sends back what comes until the peer ends; keeps to itself when the peer breaks off.
pub async fn echo(stream: TcpStream) {
    while let Ok(Some(piece)) = stream.recv().await {
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
}

/// Sends back what is there, for connections that rest in between.
pub async fn echo_once(stream: &ServedStream) -> std::io::Result<Next> {
    let Some(piece) = stream.recv().await? else {
        return Ok(Next::Close);
    };
    stream.write_all(&piece).await?;
    Ok(Next::Rest)
}

/// Both ends of a wire whose first end suits `case` and whose second has one queue.
pub fn wire_for(case: Case) -> (wire::End, wire::End) {
    let config = wire::Config {
        queues: [case.queues(), 1],
        depth: 2048,
        ..wire::Config::default()
    };
    wire::pair(config).unwrap()
}

/// Runs `client` `count` times at once, each in a task, on a runtime of one core at the far end of the wire.
pub fn run_clients<C, F>(end: wire::End, count: usize, client: C)
where
    C: Fn(usize) -> F + Send + Sync + Copy + 'static,
    F: Future<Output = ()> + 'static,
{
    run_clients_on(BackendChoice::wire(end), count, client);
}

/// [`run_clients`] on any device.
pub fn run_clients_on<C, F>(device: BackendChoice, count: usize, client: C)
where
    C: Fn(usize) -> F + Send + Sync + Copy + 'static,
    F: Future<Output = ()> + 'static,
{
    let runtime = ONE_COMBINED
        .builder()
        .backend(device)
        .address("192.0.2.2/24".parse().unwrap())
        .build()
        .unwrap();
    let running = Running::start(runtime, move || async move {
        let left = Rc::new(Cell::new(count));
        for index in 0..count {
            let left = left.clone();
            janus::spawn(async move {
                client(index).await;
                left.set(left.get() - 1);
                if left.get() == 0 {
                    janus::handle().unwrap().stop();
                }
            });
        }
        std::future::pending::<()>().await;
    });
    running.join().unwrap();
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + i / 251 + seed * 7) as u8)
        .collect()
}
