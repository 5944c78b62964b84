//! Helpers of this package's tests: a runtime on a thread of its own, and blocking clients. The package exists so that the libraries it is
//! tested with are dependencies of nothing else.
#![forbid(unsafe_code)]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus::net::TcpListener;
use janus::{BackendChoice, BoxError, Builder, Handle, MainResult, Placement, Runtime};
use janus_io::wire;

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A runtime of `cores` behind the portal.
pub fn portal(cores: usize) -> Builder {
    builder(cores).backend(BackendChoice::Portal)
}

/// A runtime of `cores`, as yet without a device.
pub fn builder(cores: usize) -> Builder {
    Runtime::builder()
        .ignore_environment()
        .cores(cores)
        .placement(Placement::Combined)
        .packet_buffers(16 * 1024)
}

/// A runtime on a thread of its own.
pub struct Running {
    handle: Handle,
    thread: JoinHandle<janus::Result>,
}

impl Running {
    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be built.
    pub fn start<M, F>(builder: Builder, main: M) -> Running
    where
        M: Fn() -> F + Send + Sync + 'static,
        F: Future<Output: MainResult> + 'static,
    {
        Running::run(builder.build().expect("a runtime"), main)
    }

    /// Starts one that is built.
    pub fn run<M, F>(runtime: Runtime, main: M) -> Running
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

    /// Stops it from outside, and waits for its end.
    ///
    /// # Panics
    /// When it ended with an error.
    pub fn stop(self) {
        self.handle.stop();
        self.join();
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// When it ended with an error, or does not end.
    pub fn join(self) {
        let begin = Instant::now();
        while !self.thread.is_finished() {
            assert!(begin.elapsed() < PATIENCE, "the runtime did not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.thread
            .join()
            .expect("the runtime's caller does not panic")
            .expect("the runtime ends well");
    }
}

/// Runs `main` on one core to its end.
///
/// # Panics
/// When it does not end well.
pub fn run<M, F>(main: M)
where
    M: Fn() -> F + Send + Sync + 'static,
    F: Future<Output: MainResult> + 'static,
{
    Running::start(portal(1), main).join();
}

/// A channel out of a runtime: its tasks tell a test what they saw.
#[must_use]
pub fn told<T>() -> (Sender<T>, Told<T>) {
    let (sender, receiver) = channel();
    (sender, Told(receiver))
}

/// Messages from a runtime's tasks.
pub struct Told<T>(Receiver<T>);

impl<T> Told<T> {
    /// The next that is told.
    ///
    /// # Panics
    /// When nothing is, for a long time.
    pub fn next(&self) -> T {
        self.0.recv_timeout(PATIENCE).expect("to be told")
    }
}

/// A connection of the kernel's to what listens behind the portal.
///
/// # Panics
/// When it is refused.
#[must_use]
pub fn dial(address: SocketAddr) -> std::net::TcpStream {
    let stream = std::net::TcpStream::connect(address).expect("the portal's door");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a time is set");
    stream
}

/// Two runtimes with a wire between them: the first is 192.0.2.1 and listens on port 80 on every core, the second has
/// one core and connects. Runs `client` to its end, then stops the other.
///
/// # Panics
/// When either does not end well.
pub fn over_a_wire<S, A, C, F>(cores: usize, serve: S, client: C)
where
    S: Fn(TcpListener) -> A + Send + Sync + 'static,
    A: Future<Output = ()> + 'static,
    C: Fn(SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + 'static,
{
    let (near, far) = wire::pair(wire::Config {
        queues: [cores, 1],
        ..wire::Config::default()
    })
    .expect("a wire");
    let server = builder(cores)
        .address("192.0.2.1/24".parse().unwrap())
        .backend(BackendChoice::wire(near));
    let (tell, told) = told();
    let serve = Arc::new(serve);
    let server = Running::start(server, move || {
        let (tell, serve) = (tell.clone(), serve.clone());
        async move {
            let listener = TcpListener::bind("0.0.0.0:80").await?;
            tell.send(())?;
            serve(listener).await;
            Ok::<(), BoxError>(())
        }
    });
    for _ in 0..cores {
        told.next();
    }
    let other = builder(1)
        .address("192.0.2.2/24".parse().unwrap())
        .backend(BackendChoice::wire(far));
    Running::start(other, move || {
        client(SocketAddr::from(([192, 0, 2, 1], 80)))
    })
    .join();
    server.stop();
}

/// The program in the document about time bounds.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/http.md")]
struct HowLongHttpWaits;

/// The programs in the document about tokio.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/tokio.md")]
struct LivingWithTokio;
