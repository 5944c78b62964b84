//! The daemon, its members and the client.

use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv6Addr, Shutdown, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus::net::{TcpListener, TcpStream, UdpSocket};
use janus::{AbortHandle, BackendChoice, Builder, DaemonMemory, Handle, Placement, Runtime, wire};
use janus_daemon::{Counters, Daemon, Limit, Rule, Settings, Statistics, Stop};
use janus_mem::Depot;
use janus_wire::Link;

use crate::churn::in_time;
use crate::device::Device;

/// Says to a process what it is.
pub(crate) const MEMBER: &str = "DAEMON_TEST_MEMBER";
pub(crate) const OURS: &str = "192.0.2.1";
pub(crate) const OURS_6: &str = "2001:db8::1";
/// Of a member of a group.
pub(crate) const CORES: usize = 2;
/// Enough for a dozen members and more: the others bring memory of their own.
pub(crate) const LENDS: u32 = 32_768;
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) socket: PathBuf,
    limits: Vec<Limit>,
    patience: Option<Duration>,
    device: Device,
    daemon: Carrier,
    client: Handle,
    client_thread: JoinHandle<()>,
}

/// The daemon of the moment.
pub(crate) struct Carrier {
    stop: Stop,
    pub(crate) counters: Arc<Counters>,
    buffers: Arc<Depot>,
    thread: JoinHandle<()>,
}

/// A member in this process.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) handle: Handle,
    thread: JoinHandle<()>,
    /// On each of its cores.
    accepts: Vec<AbortHandle>,
}

/// A runtime on a thread, which waits to be told what to do.
pub(crate) fn start(runtime: Runtime) -> (Handle, JoinHandle<()>) {
    let handle = runtime.handle();
    let thread = std::thread::spawn(move || {
        runtime
            .run(std::future::pending::<()>)
            .expect("it is stopped");
    });
    (handle, thread)
}

/// Runs a future on a runtime, and waits for what it gives.
pub(crate) fn on<R, F>(handle: &Handle, make: impl FnOnce() -> F + Send + 'static) -> R
where
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    on_core(handle, 0, make)
}

pub(crate) fn on_core<R, F>(
    handle: &Handle,
    core: usize,
    make: impl FnOnce() -> F + Send + 'static,
) -> R
where
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    begin_on(handle, core, make)
        .recv_timeout(3 * LONG)
        .expect("an answer in time")
}

/// Begins a future on a runtime.
pub(crate) fn begin<R, F>(handle: &Handle, make: impl FnOnce() -> F + Send + 'static) -> Receiver<R>
where
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    begin_on(handle, 0, make)
}

fn begin_on<R, F>(
    handle: &Handle,
    core: usize,
    make: impl FnOnce() -> F + Send + 'static,
) -> Receiver<R>
where
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    let (tells, told) = channel();
    drop(handle.spawn_on(core, move || {
        let future = make();
        async move { drop(tells.send(future.await)) }
    }));
    told
}

/// The answer to a datagram, which is sent again while there is none; and how often it was sent.
async fn echoed(port: u16, text: String) -> Result<(String, u32)> {
    let socket = UdpSocket::bind("192.0.2.2:0").await?;
    let mut into = vec![0; 2_048];
    for sent in 1..=20 {
        socket.send_to(text.as_bytes(), (OURS, port)).await?;
        let answer = socket.recv_from(&mut into);
        if let Ok(got) = janus::time::timeout(Duration::from_millis(500), answer).await {
            let (len, _) = got?;
            let text = String::from_utf8(into[..len].to_vec());
            return Ok((text.map_err(Error::other)?, sent));
        }
    }
    Err(ErrorKind::TimedOut.into())
}

/// Has one connection with the member of this name, which answers what it is asked all the while; how many bytes.
pub(crate) async fn steady(port: u16, name: &'static str, stop: Arc<AtomicBool>) -> Result<u64> {
    let stream = TcpStream::connect((OURS, port)).await?;
    let mut greeting = vec![0; name.len() + 2];
    stream.read_exact(&mut greeting).await?;
    assert_eq!(greeting, format!("{name}: ").as_bytes());
    let mut bytes = 0;
    for round in 0_u64.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let asked = format!("{name} {round} ").repeat(1 + round as usize % 300);
        let mut answer = vec![0; asked.len()];
        let answered = async {
            stream.write_all(asked.as_bytes()).await?;
            stream.read_exact(&mut answer).await
        };
        let late = |_| Error::from(ErrorKind::TimedOut);
        janus::time::timeout(LONG, answered).await.map_err(late)??;
        assert!(answer == asked.as_bytes(), "{name}, round {round}");
        bytes += answer.len() as u64;
        janus::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(bytes)
}

/// Answers each connection with a name and what it says.
pub(crate) async fn answers(listener: TcpListener, name: &'static str) {
    while let Ok((stream, _)) = listener.accept().await {
        drop(janus::spawn(async move {
            let _: Result<()> = async {
                stream.write_all(format!("{name}: ").as_bytes()).await?;
                let mut into = vec![0; 16_384];
                loop {
                    let got = stream.read(&mut into).await?;
                    if got == 0 {
                        return stream.shutdown(Shutdown::Write).await;
                    }
                    stream.write_all(&into[..got]).await?;
                }
            }
            .await;
        }));
    }
}

/// What a port says to one who says this, and no more.
fn asks(handle: &Handle, port: u16, text: &str, within: Duration) -> Result<String> {
    let text = text.to_owned();
    on(handle, move || async move {
        let asked = async {
            let stream = TcpStream::connect((OURS, port)).await?;
            let (mut reader, mut writer) = stream.into_split();
            let writes = janus::spawn(async move {
                writer.write_all(text.as_bytes()).await?;
                writer.shutdown().await
            });
            let (mut all, mut into) = (Vec::new(), vec![0; 16_384]);
            loop {
                let got = reader.read(&mut into).await?;
                if got == 0 {
                    break;
                }
                all.extend_from_slice(&into[..got]);
            }
            writes.await.map_err(Error::other)??;
            String::from_utf8(all).map_err(Error::other)
        };
        let late = |_| Error::from(ErrorKind::TimedOut);
        janus::time::timeout(within, asked).await.map_err(late)?
    })
}

/// `group`: of no group if it is empty.
pub(crate) fn member_builder(socket: PathBuf, group: &str) -> Builder {
    let mut builder = Runtime::builder().ignore_environment().cores(1);
    if !group.is_empty() {
        // A segment that is turned back may have crossed from core to core before.
        builder = builder.daemon_group(group).cores(CORES);
    }
    let builder = builder.packet_buffers(4_096).max_connections(4_096);
    builder.backend(BackendChoice::Daemon { socket })
}

/// A process that is a member, for as long as it lives.
pub(crate) fn serve(
    socket: PathBuf,
    group: &str,
    port: u16,
    peers: Vec<SocketAddr>,
    name: &'static str,
) {
    let peers: Arc<[SocketAddr]> = peers.into();
    let main = move || {
        let peers = peers.clone();
        async move {
            let mut open = Vec::new();
            for peer in peers.iter() {
                open.push(TcpStream::connect(*peer).await.expect("a peer"));
            }
            let any = Ipv6Addr::UNSPECIFIED;
            let listener = TcpListener::bind((any, port)).await.expect("a port");
            answers(listener, name).await;
        }
    };
    let builder = member_builder(socket, group);
    // Those of a group elsewhere have a queue for each core.
    let builder = builder.placement(Placement::Split { io_cores: 1 });
    let runtime = builder.build().expect("the daemon takes it in");
    runtime.run(main).expect("it is killed");
}

/// Runs this program again as such a member.
pub(crate) fn process(socket: &Path, group: &str, port: u16, peers: &str) -> Child {
    let this = std::env::current_exe().expect("a path");
    let text = format!("{} {port} {group} {peers}", socket.display());
    Command::new(this)
        .args(["--exact", "a_member_that_is_killed"])
        .env(MEMBER, text)
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs")
}

pub(crate) fn builder(addresses: &[&str], backend: BackendChoice) -> Builder {
    let builder = Runtime::builder().ignore_environment().cores(1);
    let builder = builder.packet_buffers(8_192).max_connections(4_096);
    let add = |builder: Builder, it: &&str| builder.address(it.parse().expect("an address"));
    addresses.iter().fold(builder, add).backend(backend)
}

/// A socket's path that no other test has.
pub(crate) fn socket(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = format!("janus-daemon-{}-{number}-{name}", std::process::id());
    std::env::temp_dir().join(folder).join("io.sock")
}

/// A daemon that any user may ask.
pub(crate) fn daemon(
    socket: PathBuf,
    limits: &[Limit],
    patience: Option<Duration>,
    device: BackendChoice,
) -> Daemon {
    let ports = 1..=u16::MAX;
    let settings = Settings {
        socket,
        allow: vec![Rule { user: None, ports }],
        limits: limits.to_vec(),
        lends: LENDS,
        patience,
        signals: false,
    };
    Daemon::open(
        builder(&["192.0.2.1/24", "2001:db8::1/64"], device),
        &settings,
    )
    .expect("a daemon")
}

/// The two ends of a wire such as daemons have.
pub(crate) fn ends_of_a_wire() -> (wire::End, wire::End) {
    let config = wire::Config {
        link: Link::Ethernet,
        ..wire::Config::default()
    };
    wire::pair(config).expect("a wire")
}

impl Carrier {
    fn on(
        socket: PathBuf,
        limits: &[Limit],
        patience: Option<Duration>,
        device: Device,
    ) -> Carrier {
        let device = BackendChoice::Custom(Box::new(device));
        Carrier::start(daemon(socket, limits, patience, device))
    }

    pub(crate) fn start(daemon: Daemon) -> Carrier {
        Carrier {
            stop: daemon.stop(),
            counters: daemon.counters(),
            buffers: daemon.buffers(),
            thread: std::thread::spawn(move || daemon.run().expect("it is stopped")),
        }
    }

    pub(crate) fn ends(self) -> (Arc<Counters>, Arc<Depot>) {
        self.stop.stop();
        self.thread.join().expect("an end");
        (self.counters, self.buffers)
    }

    /// It ends, then `others` do, and all is gone: what was lent, connections, buffers and files.
    pub(crate) fn leaves_nothing(self, socket: &Path, others: impl FnOnce()) -> Arc<Counters> {
        let counters = self.counters.clone();
        in_time("buffers that were lent come home", || {
            // One that was cut off and lives has them yet.
            counters.lent.get() == counters.returned.get() || counters.cut_off.get() > 0
        });
        in_time("no connection is left", || {
            counters.begun.get() == counters.ended.get()
        });
        let (counters, buffers) = self.ends();
        others();
        let stats = buffers.stats();
        assert_eq!(stats.outstanding, 0, "buffers are lost: {stats:?}");
        assert!(!socket.exists(), "the socket is left");
        let figures = Statistics::path_of(socket);
        assert!(!figures.exists(), "its figures are left");
        let _ = std::fs::remove_dir(socket.parent().expect("a folder"));
        counters
    }
}

impl World {
    pub(crate) fn new(name: &str) -> World {
        World::limited(name, &[])
    }

    /// One whose daemon lets members send no more than this.
    pub(crate) fn limited(name: &str, limits: &[Limit]) -> World {
        World::with(name, limits, None)
    }

    /// One whose daemon cuts off members that hang.
    pub(crate) fn patient(name: &str, patience: Duration) -> World {
        World::with(name, &[], Some(patience))
    }

    fn with(name: &str, limits: &[Limit], patience: Option<Duration>) -> World {
        let socket = socket(name);
        let (near, far) = ends_of_a_wire();
        let device = Device::new(near);
        let daemon = Carrier::on(socket.clone(), limits, patience, device.clone());
        let client = builder(
            &["192.0.2.2/24", "2001:db8::2/64"],
            BackendChoice::wire(far),
        );
        let (client, client_thread) = start(client.build().expect("a client"));
        World {
            socket,
            limits: limits.to_vec(),
            patience,
            device,
            daemon,
            client,
            client_thread,
        }
    }

    /// The daemon ends while it has members, and another follows.
    pub(crate) fn restart(self) -> World {
        self.restart_after(|| {})
    }

    /// In between this is done.
    pub(crate) fn restart_after(self, meanwhile: impl FnOnce()) -> World {
        self.daemon.ends();
        assert!(self.socket.exists(), "the next is to know");
        meanwhile();
        let (socket, device) = (self.socket.clone(), self.device.clone());
        let daemon = Carrier::on(socket, &self.limits, self.patience, device);
        World { daemon, ..self }
    }

    /// A member that serves a port.
    pub(crate) fn try_member(&self, port: u16, name: &'static str) -> Result<Member> {
        self.try_member_of("", port, name)
    }

    /// A member that serves a port with others of its group.
    pub(crate) fn try_member_of(
        &self,
        group: &str,
        port: u16,
        name: &'static str,
    ) -> Result<Member> {
        let builder = member_builder(self.socket.clone(), group);
        let cores = if group.is_empty() { 1 } else { CORES };
        self.serves(builder, cores, port, name)
    }

    fn serves(
        &self,
        builder: Builder,
        cores: usize,
        port: u16,
        name: &'static str,
    ) -> Result<Member> {
        let (handle, thread) = start(builder.build().expect("the daemon takes it in"));
        let mut member = Member {
            handle,
            thread,
            accepts: Vec::new(),
        };
        let listens = |core| {
            on_core(&member.handle, core, move || async move {
                let listener = TcpListener::bind((OURS, port)).await?;
                Ok(janus::spawn(answers(listener, name)).abort_handle())
            })
        };
        let bound: Result<Vec<_>> = (0..cores).map(listens).collect();
        match bound {
            Ok(accepts) => {
                member.accepts = accepts;
                Ok(member)
            }
            Err(error) => {
                member.ends();
                Err(error)
            }
        }
    }

    /// A member that serves a port, with packets in this memory.
    pub(crate) fn member_with(
        &self,
        port: u16,
        name: &'static str,
        memory: DaemonMemory,
    ) -> Member {
        let builder = member_builder(self.socket.clone(), "").daemon_memory(memory);
        self.serves(builder, 1, port, name).expect("its port")
    }

    pub(crate) fn member(&self, port: u16, name: &'static str) -> Member {
        self.try_member(port, name).expect("its port")
    }

    pub(crate) fn member_of(&self, group: &str, port: u16, name: &'static str) -> Member {
        self.try_member_of(group, port, name).expect("its port")
    }

    /// A member that is a process, and serves.
    pub(crate) fn process(&self, port: u16) -> Child {
        let child = self.process_of("", port);
        let begin = Instant::now();
        while self.asks_for(port, "", Duration::from_millis(200)).is_err() {
            assert!(begin.elapsed() < LONG, "it does not serve");
        }
        child
    }

    /// One that serves soon with others of its group.
    pub(crate) fn process_of(&self, group: &str, port: u16) -> Child {
        self.process_to(group, port, "")
    }

    /// One that has connections to these peers before it serves.
    pub(crate) fn process_to(&self, group: &str, port: u16, peers: &str) -> Child {
        process(&self.socket, group, port, peers)
    }

    /// What is answered at a port.
    pub(crate) fn asks(&self, port: u16, text: &str) -> Result<String> {
        self.asks_for(port, text, LONG)
    }

    pub(crate) fn asks_for(&self, port: u16, text: &str, within: Duration) -> Result<String> {
        asks(&self.client, port, text, within)
    }

    pub(crate) fn client(&self) -> &Handle {
        &self.client
    }

    /// Begins to ask for a datagram back.
    pub(crate) fn echoed(&self, port: u16, text: &str) -> Receiver<Result<(String, u32)>> {
        let text = text.to_owned();
        begin(&self.client, move || echoed(port, text))
    }

    /// Sends datagrams there until it is told to stop.
    pub(crate) fn floods(&self, port: u16, text: &'static str) -> Arc<AtomicBool> {
        let stop = Arc::new(AtomicBool::new(false));
        let stops = stop.clone();
        drop(begin(&self.client, move || async move {
            let socket = UdpSocket::bind("192.0.2.2:0").await.expect("a port");
            while !stops.load(Ordering::Acquire) {
                // Where the device is full, it goes on.
                let _ = socket.send_to(text.as_bytes(), (OURS, port)).await;
                janus::yield_now().await;
            }
        }));
        stop
    }

    /// Buffers of the daemon's.
    pub(crate) fn buffers(&self) -> &Depot {
        &self.daemon.buffers
    }

    /// Begins a connection on which the member of this name is asked until it is to stop.
    pub(crate) fn steady(
        &self,
        port: u16,
        name: &'static str,
        stop: &Arc<AtomicBool>,
    ) -> Receiver<Result<u64>> {
        let stop = stop.clone();
        begin(&self.client, move || steady(port, name, stop))
    }

    /// The client takes connections, and closes them.
    pub(crate) fn client_listens(&self) -> u16 {
        on(&self.client, || async {
            let listener = TcpListener::bind("192.0.2.2:0").await.expect("a port");
            let port = listener.local_addr().expect("it is bound").port();
            drop(janus::spawn(async move {
                while listener.accept().await.is_ok() {}
            }));
            port
        })
    }

    /// What the daemon's file shows, once that is so.
    pub(crate) fn shows(&self, is_so: impl Fn(&Statistics) -> bool) -> Statistics {
        let path = Statistics::path_of(&self.socket);
        let begin = Instant::now();
        loop {
            let shown = Statistics::open(&path).expect("the daemon lives");
            if is_so(&shown) {
                return shown;
            }
            assert!(begin.elapsed() < LONG, "{shown:#?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.daemon.counters
    }

    pub(crate) fn daemon_counters(&self) -> Arc<Counters> {
        self.daemon.counters.clone()
    }

    pub(crate) fn ends(self) -> Arc<Counters> {
        self.daemon.leaves_nothing(&self.socket, || {
            self.client.stop();
            self.client_thread.join().expect("an end");
            // It has some buffers yet, and the client had.
            self.device.ends();
        })
    }
}

impl Member {
    /// A connection to the client: the port that it has.
    pub(crate) fn connects(&self, port: u16) -> u16 {
        on(&self.handle, move || async move {
            let stream = TcpStream::connect(("192.0.2.2", port)).await;
            let stream = stream.expect("the client takes it");
            stream.local_addr().expect("it is connected").port()
        })
    }

    pub(crate) fn asks(&self, port: u16, text: &str) -> Result<String> {
        asks(&self.handle, port, text, LONG)
    }

    pub(crate) fn binds_udp(&self, port: u16) -> Result<()> {
        on(&self.handle, move || async move {
            let socket = UdpSocket::bind((OURS, port)).await?;
            // For as long as the member lives.
            std::mem::forget(socket);
            Ok(())
        })
    }

    /// It closes its listener, and keeps its connections.
    pub(crate) fn listens_no_more(&self) {
        self.accepts.iter().for_each(AbortHandle::abort);
    }

    pub(crate) fn ends(self) {
        self.handle.stop();
        self.thread.join().expect("an end");
    }
}
