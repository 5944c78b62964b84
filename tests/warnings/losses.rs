//! Losses are counted and told of, each kind provoked as it happens in the field. That warnings keep their pauses is tried with a
//! clock of the test's in `control/alarms/tests.rs`; here nothing takes so long that a kind would come twice, or it is let off.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use janus::net::TcpListener;
use janus::{CoreReport, Handle, spawn_blocking};
use janus_io::wire::{self, End};
use janus_io::{Backend, Batch, Queue};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_wire::{Link, SeqNum, ipv4, proto, tcp};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use crate::support::program::Program;

/// Least time between two warnings of a kind.
const PAUSE: Duration = Duration::from_secs(10);
/// The port that a server in these tests has over a wire.
const PORT: u16 = 7007;
/// Says to a test that it is the child of itself, and what the parent tells it.
const CHILD: &str = "JANUS_TEST_LOSSES_CHILD";

/// A runtime whose warnings are heard.
struct Watched {
    running: Running,
    handle: Handle,
    hears: Receiver<Warning>,
    heard: Vec<Warning>,
    begin: Instant,
}

impl Watched {
    fn start<M, F>(builder: janus::Builder, main: M) -> Watched
    where
        M: Fn() -> F + Send + Sync + 'static,
        F: Future<Output: janus::MainResult> + 'static,
    {
        let (warn, hears) = channel();
        let warn = std::sync::Mutex::new(warn);
        // Only losses here: on a busy machine a task may keep its core.
        let builder = builder.warn_blocked(None);
        let runtime = builder.on_warning(move |warning| {
            let _ = warn.lock().expect("whole").send(warning.clone());
        });
        let runtime = runtime.build().expect("a runtime");
        Watched {
            handle: runtime.handle(),
            running: Running::start(runtime, main),
            hears,
            heard: Vec::new(),
            begin: Instant::now(),
        }
    }

    /// What core 0 says of itself.
    fn report(&self) -> CoreReport {
        let (tell, told) = channel();
        let ask = move || async move { tell.send(janus::report().expect("a core")) };
        drop(self.handle.spawn_on(0, ask));
        told.recv_timeout(PATIENCE).expect("it answers")
    }

    /// Waits until so much is counted.
    fn counts(&self, least: u64, count: impl Fn(&CoreReport) -> u64) {
        let begin = Instant::now();
        while count(&self.report()) < least {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.report());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the first warning of this name.
    fn hears(&mut self, name: &str) -> Warning {
        loop {
            let warning = self.hears.recv_timeout(PATIENCE).expect(name);
            self.heard.push(warning.clone());
            if warning.name() == name {
                return warning;
            }
        }
    }

    /// Ends it. Every kind came once, or after a pause, and no other than `names` came.
    fn ends(mut self, names: &[&str]) {
        self.running.stop().expect("it ends well");
        self.heard.extend(self.hears.try_iter());
        let most = 1 + (self.begin.elapsed().as_secs() / PAUSE.as_secs()) as usize;
        for warning in &self.heard {
            let name = warning.name();
            let came = self.heard.iter().filter(|w| w.name() == name).count();
            assert!(came <= most, "{name} came {came} times: {:?}", self.heard);
            assert!(names.contains(&name), "{warning}");
        }
    }
}

/// Whoever sends packets as they please: the far end of a server's wire.
struct Stranger {
    queue: Box<dyn Queue>,
    pool: Pool,
}

impl Stranger {
    fn at(end: End) -> Stranger {
        let depot = Depot::new(4096, &Growth::Inline).expect("memory");
        Stranger {
            queue: Box::new(end).open(1).expect("a queue").remove(0),
            pool: depot.pool(),
        }
    }

    /// Sends packets, and drops what came back.
    fn send(&mut self, packets: impl IntoIterator<Item = Vec<u8>>) {
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        for packet in packets {
            let mut frame = Frame::new(self.pool.alloc().expect("a buffer"), packet.len() as u16);
            frame.data_mut().copy_from_slice(&packet);
            assert!(batch.push(frame).is_ok());
            self.queue.tx_burst(&mut self.pool, &mut batch, &mut done);
            self.queue.rx_burst(&mut self.pool, &mut batch);
            batch.pull().for_each(|frame| self.pool.free(frame.buf));
        }
    }
}

/// A SYN from one of many clients.
fn syn(number: u16) -> Vec<u8> {
    let (from, to) = (Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(192, 0, 2, 1));
    let mut segment = vec![0; tcp::LEN];
    let header = tcp::Header {
        src_port: 1_024 + number,
        dst_port: PORT,
        seq: SeqNum(number.into()),
        ack: SeqNum(0),
        flags: tcp::Flags::SYN,
        window: 0xffff,
        urgent: 0,
        header_len: tcp::LEN,
    };
    tcp::emit(&mut segment, &header, &tcp::Options::NONE);
    tcp::fill_checksum_v4(&mut segment, from, to);
    let mut packet = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src: from,
        dst: to,
        proto: proto::TCP,
        payload_len: segment.len() as u16,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(&mut packet, &repr);
    packet.extend(segment);
    packet
}

/// A server that listens and accepts nobody, with a stranger at the other end of its wire.
fn listens(
    case: Case,
    configure: impl FnOnce(janus::Builder) -> janus::Builder,
) -> (Watched, Stranger) {
    let (near, far) = wire_for(case);
    let stranger = Stranger::at(far);
    let builder = case.builder().backend(BackendChoice::wire(near));
    let (ready, is_ready) = channel();
    let main = move || {
        let ready = ready.clone();
        async move {
            let _listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
            let _ = ready.send(());
            std::future::pending::<janus::Result>().await
        }
    };
    let watched = Watched::start(
        configure(builder.address("192.0.2.1/24".parse().unwrap())),
        main,
    );
    for _ in 0..case.cores {
        is_ready.recv_timeout(PATIENCE).expect("it listens");
    }
    (watched, stranger)
}

in_every_layout!(frames_with_bad_checksums, a_flood_of_syns);

pub(super) fn frames_with_bad_checksums(case: Case) {
    let (mut server, mut stranger) = listens(case, |builder| builder);
    let bent = |number| {
        let mut packet = syn(number);
        packet[ipv4::LEN + 7] ^= 1;
        packet
    };
    stranger.send([bent(1)]);
    let Warning::BadChecksums { core, count } = server.hears("bad_checksums") else {
        panic!("{:?}", server.heard);
    };
    assert!(core.is_some_and(|core| core < case.cores) && count == 1);
    stranger.send((2..200).map(bent));
    if case.cores == 1 {
        server.counts(199, |report| report.tcp.dropped_checksum);
    }
    server.ends(&["bad_checksums"]);
}

pub(super) fn a_flood_of_syns(case: Case) {
    let tcp = janus_tcp::Config {
        max_half_open: 8,
        ..janus_tcp::Config::default()
    };
    let (mut server, mut stranger) = listens(case, |builder| builder.tcp(tcp));
    stranger.send((0..200).map(syn));
    let warning = server.hears("syn_flood");
    assert!(warning.count().is_some_and(|count| count > 0), "{warning}");
    if case.cores == 1 {
        server.counts(150, |report| report.tcp.cookies_sent);
    }
    server.ends(&["syn_flood"]);
}

/// A core that takes nothing for a while, and more SYNs than the ring to it holds.
#[test]
fn a_core_that_is_overrun() {
    let (mut server, mut stranger) = listens(ONE_SPLIT, |builder| builder);
    let (go, wait) = channel::<()>();
    let blocks = move || async move { _ = wait.recv() };
    drop(server.handle.spawn_on(0, blocks));
    let io = server.handle.io_counters()[0].clone();
    let begin = Instant::now();
    while io.dropped_full.get() + io.dropped_syn_room.get() == 0 {
        assert!(begin.elapsed() < PATIENCE, "{io:?}");
        stranger.send((0..1000).map(syn));
    }
    let warning = server.hears("core_overrun");
    assert!(warning.count().is_some_and(|count| count > 0), "{warning}");
    go.send(()).expect("it waits");
    server.ends(&["core_overrun", "syn_flood", "accept_queue_full"]);
}

/// A server behind the portal, and where its clients find it.
fn behind_the_portal<M, F>(
    configure: impl FnOnce(janus::Builder) -> janus::Builder,
    serve: M,
) -> (Watched, SocketAddr)
where
    M: Fn(TcpListener) -> F + Send + Sync + Copy + 'static,
    F: Future<Output = janus::Result> + 'static,
{
    let builder = ONE_COMBINED.builder().backend(BackendChoice::Portal);
    let (tell, told) = channel();
    let main = move || {
        let tell = tell.clone();
        async move {
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            let _ = tell.send(listener.reachable_at());
            serve(listener).await
        }
    };
    let watched = Watched::start(configure(builder), main);
    let at = told.recv_timeout(PATIENCE).expect("it listens");
    (watched, at)
}

async fn accepts_nobody(_listener: TcpListener) -> janus::Result {
    std::future::pending().await
}

async fn echoes(listener: TcpListener) -> janus::Result {
    loop {
        janus::spawn(echo(listener.accept().await?.0));
    }
}

#[test]
fn an_accept_queue_that_is_full() {
    let (mut server, at) = behind_the_portal(|builder| builder.backlog(1), accepts_nobody);
    let _clients: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(at).unwrap()).collect();
    let warning = server.hears("accept_queue_full");
    assert!(warning.count().is_some_and(|count| count > 0), "{warning}");
    assert_eq!(warning.core(), Some(0));
    assert!(server.report().tcp.dropped_accept_full > 0);
    // With the backlog full, the others' SYNs come again.
    server.ends(&["accept_queue_full", "syn_flood"]);
}

/// Holds every packet buffer that it can get.
async fn holds_all(listener: TcpListener) -> janus::Result {
    let (stream, _) = listener.accept().await?;
    let mut held = Vec::new();
    loop {
        held.push(stream.alloc_buf().await?);
    }
}

#[test]
fn packet_buffers_that_are_used_up() {
    let (mut server, at) = behind_the_portal(|builder| builder.packet_buffers(1024), holds_all);
    let _client = TcpStream::connect(at).unwrap();
    let warning = server.hears("no_packet_buffers");
    assert!(warning.count().is_some_and(|count| count > 0), "{warning}");
    let report = server.report();
    let tcp = report.tcp;
    let counted = [tcp.dropped_no_buffer, tcp.dropped_pressure, tcp.starved];
    let counted = counted.iter().sum::<u64>() + report.device.no_buffer;
    assert!(counted > 0, "{report:?}");
    server.ends(&["no_packet_buffers"]);
}

#[test]
fn a_neighbor_that_does_not_answer() {
    // Nobody is at the other end. The second that a packet waits for an answer passes at once.
    let (near, _far) = wire::pair(wire::Config {
        link: Link::Ethernet,
        ..wire::Config::default()
    })
    .unwrap();
    let builder = ONE_COMBINED.builder().backend(BackendChoice::wire(near));
    let builder = builder
        .address("192.0.2.1/24".parse().unwrap())
        .start_paused(true);
    let main = || async {
        let connect = janus::net::TcpStream::connect("192.0.2.9:7");
        let found = janus::time::timeout(Duration::from_secs(5), connect).await;
        assert!(!matches!(found, Ok(Ok(_))), "there is nobody");
        std::future::pending::<janus::Result>().await
    };
    let mut server = Watched::start(builder, main);
    let Warning::UnknownNeighbor { core, address, .. } = server.hears("unknown_neighbor") else {
        panic!("{:?}", server.heard);
    };
    assert_eq!((core, address), (Some(0), "192.0.2.9".parse().ok()));
    assert!(server.report().tcp.dropped_no_neighbor > 0);
    server.ends(&["unknown_neighbor"]);
}

#[test]
fn a_trace_whose_disk_is_full() {
    let (mut server, at) = behind_the_portal(|builder| builder.trace("/dev/full"), echoes);
    let mut client = TcpStream::connect(at).unwrap();
    client.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    let Warning::TraceGap { count, error } = server.hears("trace_gap") else {
        panic!("{:?}", server.heard);
    };
    assert_eq!(error, Some(std::io::ErrorKind::StorageFull));
    let counted = server.report().shortages.trace_bursts;
    assert!((1..=counted).contains(&count), "{count} of {counted}");
    server.ends(&["trace_gap"]);
}

/// Runs the named test of this program again as a process of its own, which may be short of something.
fn child(test: &str, told: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("losses::{test}"), "--nocapture"])
        .env(CHILD, told)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test can be started again")
}

/// What the parent told this process; `None`: it is the parent.
fn child_of() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Lines that the child says to its parent, past what the test runner says.
fn says(what: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@{what}")
        .and_then(|()| out.flush())
        .expect("the parent listens");
}

fn next_word(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> String {
    lines
        .find_map(|line| line.expect("text").strip_prefix('@').map(str::to_owned))
        .expect("the child says something")
}

/// Leaves this process so many descriptors, and holds the others.
fn leave_descriptors(count: usize) -> Vec<std::fs::File> {
    let limit = Rlimit {
        current: Some(256),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut held: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    held.truncate(held.len() - count);
    held
}

/// Whether a client is served; it is told, one way or the other.
fn is_served(at: SocketAddr) -> Option<TcpStream> {
    let mut client = TcpStream::connect(at).expect("the kernel takes it in");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = client.write_all(b"x");
    match sent.and_then(|()| client.read(&mut [0])) {
        Ok(1) => Some(client),
        Ok(_) => panic!("it was ended in order, unserved"),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it hangs"),
        Err(_reset) => None,
    }
}

fn short_of_descriptors(outside: SocketAddr) {
    let (mut server, at) = behind_the_portal(|builder| builder, echoes);
    let _held = leave_descriptors(4);
    says(at);
    let warning = server.hears("no_descriptors");
    // The hosts file may say what nobody else knows: without it there is no answer.
    let (tell, told) = channel();
    let look = move || async move {
        let found = janus::net::lookup_host("host.example:80").await;
        tell.send(found.map(|_| ()).unwrap_err().to_string())
    };
    drop(server.handle.spawn_on(0, look));
    let error = told.recv_timeout(PATIENCE).unwrap();
    assert!(error.contains("/etc/hosts cannot be read"), "{error}");
    says(&warning);
    // A connection that is opened stands as soon as there is a descriptor for it. No client wants one meanwhile.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let (mut before, mut last) = (server.report().shortages.descriptors, 0);
    while before != last {
        std::thread::sleep(Duration::from_millis(20));
        (before, last) = (server.report().shortages.descriptors, before);
    }
    let (tell, told) = channel();
    let connect = move || async move {
        let connected = janus::net::TcpStream::connect(outside).await;
        tell.send(connected.map(drop))
    };
    drop(server.handle.spawn_on(0, connect));
    server.counts(before + 1, |report| report.shortages.descriptors);
    says("asked");
    told.recv_timeout(PATIENCE).unwrap().expect("it stands");
    std::io::stdin().read_line(&mut line).unwrap();
    says(server.report().shortages.clients_reset);
    server.ends(&["no_descriptors"]);
}

/// Clients are served as long as descriptors last, reset when there are none, and served again when there are.
#[test]
fn descriptors_that_are_used_up() {
    if let Some(outside) = child_of() {
        return short_of_descriptors(outside.parse().unwrap());
    }
    let outside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let told = outside.local_addr().unwrap().to_string();
    let mut child = Program(child("descriptors_that_are_used_up", &told));
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let at: SocketAddr = next_word(&mut lines).parse().unwrap();
    let clients: Vec<Option<TcpStream>> = (0..16).map(|_| is_served(at)).collect();
    let served = clients.iter().flatten().count();
    assert!((1..16).contains(&served), "{served}");
    let warning = next_word(&mut lines);
    assert!(warning.contains("LimitNOFILE"), "{warning}");
    let mut through = child.0.stdin.take().unwrap();
    writeln!(through, "all are through").unwrap();
    assert_eq!(next_word(&mut lines), "asked");
    drop(clients);
    let begin = Instant::now();
    let mut reset = 16 - served;
    while is_served(at).is_none() {
        assert!(begin.elapsed() < PATIENCE, "descriptors are free again");
        reset += 1;
    }
    drop(through);
    let counted: usize = next_word(&mut lines).parse().unwrap();
    assert_eq!(counted, reset);
    assert!(child.0.wait().unwrap().success());
}

/// Lets this process have no room for another thread's stack, for as long as `call` takes.
fn without_room_for_threads<R>(call: impl FnOnce() -> R) -> R {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kilobytes: u64 = size
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    let before = getrlimit(Resource::As);
    let limit = Rlimit {
        current: Some((kilobytes + 512) * 1024),
        ..before
    };
    setrlimit(Resource::As, limit).unwrap();
    let result = call();
    setrlimit(Resource::As, before).unwrap();
    result
}

fn short_of_threads() {
    let (tell, told) = channel();
    let main = move || {
        let tell = tell.clone();
        async move {
            let refused = without_room_for_threads(|| spawn_blocking(|| 1));
            let refused = refused.await.is_err();
            let done = spawn_blocking(|| 2).await.ok();
            let _ = tell.send((refused, done));
            std::future::pending::<janus::Result>().await
        }
    };
    let builder = ONE_COMBINED.builder().backend(BackendChoice::Portal);
    let mut server = Watched::start(builder, main);
    let told = told.recv_timeout(PATIENCE).expect("main goes on");
    assert_eq!(told, (true, Some(2)), "refused, and then not");
    let warning = server.hears("no_threads");
    assert_eq!(warning, Warning::NoThreads { count: 1 });
    let report = server.report().blocking;
    assert_eq!((report.threads_refused, report.refused), (1, 1));
    server.ends(&["no_threads"]);
    says("done");
}

#[test]
fn threads_that_cannot_be_started() {
    if child_of().is_some() {
        return short_of_threads();
    }
    let mut child = Program(child("threads_that_cannot_be_started", ""));
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert_eq!(next_word(&mut lines), "done");
    assert!(child.0.wait().unwrap().success());
}
