//! The portal beyond this machine: another host, whose kernel stands in a namespace of its own at the far end of a cable. Who is within
//! `portal_reach` is reached as by the kernel's own sockets, and is not told from them; nobody else hears a packet. And the other host
//! comes in where `portal_listen` says.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener as KernelListener};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::kernel::*;
use crate::support::privileged::{in_own_space, run, skip};
use crate::support::*;
use janus::net::TcpStream;
use janus::{BackendChoice, MainResult};

in_every_layout!(
    within_the_list_everything_is_as_on_this_machine,
    who_is_not_within_hears_nothing,
    what_the_network_says_is_passed_on,
    others_come_in_where_doors_are,
);

/// This machine's end of the cable and the other host's.
const NEAR: &str = "pnear";
const FAR: &str = "pfar";
const NEAR_V4: &str = "198.51.100.1";
const NEAR_V6: &str = "2001:db8:1::1";
const FAR_V4: &str = "198.51.100.2";
const FAR_V6: &str = "2001:db8:1::2";
/// A network behind the other host.
const BEHIND: &str = "203.0.113.1";
const LIST: &str = "198.51.100.0/24,2001:db8:1::/64";
/// This machine's addresses on the cable.
const LISTED: &str = "198.51.100.1,2001:db8:1::1";

type Job = Box<dyn FnOnce() + Send>;

/// The other host.
struct Far {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Far {
    fn new() -> Result<Far, String> {
        let (jobs, todo) = channel::<Job>();
        let (told, id) = channel();
        let thread = std::thread::spawn(move || {
            let outcome = in_own_space(move || {
                told.send(rustix::thread::gettid().as_raw_nonzero())
                    .unwrap();
                todo.iter().for_each(|job| job());
            });
            outcome.unwrap();
        });
        let id = id.recv().map_err(|_| "no second namespace")?;
        let far = Far {
            jobs: Some(jobs),
            thread: Some(thread),
        };
        run("ip link set lo up")?;
        run(&format!("ip link add {NEAR} type veth peer name {FAR}"))?;
        run(&format!("ip link set {FAR} netns {id}"))?;
        // An address that nobody has shall be found out soon.
        let wait = format!("/proc/sys/net/ipv4/neigh/{NEAR}/retrans_time_ms");
        std::fs::write(&wait, "50").map_err(|error| format!("{wait}: {error}"))?;
        set_up(NEAR, NEAR_V4, NEAR_V6)?;
        far.does(|| {
            run("ip link set lo up")?;
            run(&format!("ip address add {BEHIND}/32 dev lo"))?;
            set_up(FAR, FAR_V4, FAR_V6)
        })?;
        run(&format!("ip route add {BEHIND}/32 via {FAR_V4}"))?;
        Ok(far)
    }

    /// Does something there. Sockets made there stay there.
    fn does<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        self.begins(move || drop(done.send(job())));
        result.recv().expect("a job that does not panic")
    }

    /// The same without waiting for it.
    fn begins(&self, job: impl FnOnce() + Send + 'static) {
        let jobs = self.jobs.as_ref().expect("the other host");
        jobs.send(Box::new(job)).expect("the other host");
    }

    fn listen(&self, address: &str) -> KernelListener {
        let address: IpAddr = address.parse().unwrap();
        self.does(move || KernelListener::bind((address, 0)).unwrap())
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn set_up(name: &str, v4: &str, v6: &str) -> Result<(), String> {
    run(&format!("ip address add {v4}/24 dev {name}"))?;
    // Otherwise the kernel would first ask for a second whether somebody else has it.
    run(&format!("ip -6 address add {v6}/64 dev {name} nodad"))?;
    run(&format!("ip link set {name} up")).map(drop)
}

/// Runs a test with another host, on a thread in a namespace of its own; a visible line where that cannot be.
fn beside_another_host(test: impl FnOnce(&Far) + Send + 'static) {
    let outcome = in_own_space(move || {
        let far = Far::new()?;
        test(&far);
        Ok::<(), String>(())
    });
    if let Err(why) = outcome.and_then(|made| made) {
        skip(&why);
    }
}

/// Runs `client` as the main of every core of a runtime whose portal reaches so far, to its end.
fn on_every_core<M, F>(case: Case, reach: &str, client: M)
where
    M: Fn() -> F + Send + Sync + 'static,
    F: Future<Output: MainResult> + 'static,
{
    let builder = case.builder().backend(BackendChoice::Portal);
    let runtime = builder
        .portal_reach(reach.parse().unwrap())
        .build()
        .unwrap();
    Running::start(runtime, client).join().unwrap();
}

fn within_the_list_everything_is_as_on_this_machine(case: Case) {
    beside_another_host(move |far| {
        for (address, near) in [(FAR_V4, NEAR_V4), (FAR_V6, NEAR_V6)] {
            there_and_back(case, far, address, near);
            resets_arrive(case, far, address);
        }
    });
}

/// Much both ways, their end first, then ours; the other host sees this machine's address.
fn there_and_back(case: Case, far: &Far, address: &str, near: &str) {
    const LEN: usize = 1 << 20;
    let listener = far.listen(address);
    let at = listener.local_addr().unwrap();
    let server = kernel_server(listener, case.cores, |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
        stream.peer_addr().unwrap().ip()
    });
    on_every_core(case, LIST, move || async move {
        let stream = TcpStream::connect(at).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), at);
        let sent = pattern(LEN, janus::core_id().unwrap());
        stream.write_all(&sent).await.unwrap();
        stream.shutdown(Shutdown::Write).await.unwrap();
        assert!(read_to_end(&stream).await.unwrap() == sent);
    });
    let near: IpAddr = near.parse().unwrap();
    assert_eq!(server.join().unwrap(), vec![near; case.cores]);
}

/// Theirs is one for us, ours is one for them.
fn resets_arrive(case: Case, far: &Far, address: &str) {
    let listener = far.listen(address);
    let at = listener.local_addr().unwrap();
    let server = kernel_server(listener, case.cores, resets);
    on_every_core(case, LIST, move || meets_a_reset(at));
    server.join().unwrap();

    let listener = far.listen(address);
    let at = listener.local_addr().unwrap();
    let server = kernel_server(listener, case.cores, is_reset);
    on_every_core(case, LIST, move || resets_itself(at));
    server.join().unwrap();
}

/// `any` reaches what is behind; the list and the default do not, and there nobody is so much as asked.
fn who_is_not_within_hears_nothing(case: Case) {
    beside_another_host(move |far| {
        for (reach, address, within) in [
            ("loopback", FAR_V4, false),
            ("loopback", FAR_V6, false),
            (LIST, BEHIND, false),
            ("::/0", FAR_V4, false),
            ("203.0.113.1", BEHIND, true),
            ("any", BEHIND, true),
            ("any", FAR_V6, true),
        ] {
            let listener = far.listen(address);
            let at = listener.local_addr().unwrap();
            on_every_core(case, reach, move || async move {
                let attempt = TcpStream::connect(at).await.map(drop);
                let refused = Err(ErrorKind::NetworkUnreachable);
                let expected = if within { Ok(()) } else { refused };
                assert_eq!(attempt.map_err(|error| error.kind()), expected);
            });
            listener.set_nonblocking(true).unwrap();
            let came = std::iter::from_fn(|| listener.accept().ok()).count();
            let expected = if within { case.cores } else { 0 };
            assert_eq!(came, expected, "{address} with `{reach}`");
        }
    });
}

fn what_the_network_says_is_passed_on(case: Case) {
    beside_another_host(move |far| {
        let closed = far.listen(FAR_V4).local_addr().unwrap();
        let closed_v6 = far.listen(FAR_V6).local_addr().unwrap();
        // Nobody has the second and third address, and no route leads to the last.
        let outcomes: [(SocketAddr, ErrorKind); 5] = [
            (closed, ErrorKind::ConnectionRefused),
            (closed_v6, ErrorKind::ConnectionRefused),
            (at("198.51.100.77:80"), ErrorKind::HostUnreachable),
            (at("192.0.2.7:80"), ErrorKind::NetworkUnreachable),
            (at("[2001:db8:2::7]:80"), ErrorKind::NetworkUnreachable),
        ];
        on_every_core(case, "any", move || async move {
            for (address, expected) in outcomes {
                let error = TcpStream::connect(address).await.unwrap_err();
                assert_eq!(error.kind(), expected, "{address}: {error}");
            }
        });
        the_cable_is_out_for_a_while(case, far);
    });
}

/// What is under way when the cable is pulled arrives when it is back.
fn the_cable_is_out_for_a_while(case: Case, far: &Far) {
    const LEN: usize = 1 << 20;
    let listener = far.listen(FAR_V4);
    let at = listener.local_addr().unwrap();
    let (begun, under_way) = channel();
    far.begins(move || {
        under_way.recv().unwrap();
        run(&format!("ip link set {FAR} down")).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        run(&format!("ip link set {FAR} up")).unwrap();
    });
    let server = kernel_server(listener, case.cores, move |mut stream| {
        let mut all = vec![0; LEN];
        stream.read_exact(&mut all[..1000]).unwrap();
        // The first one's word counts; nobody waits for that of the others.
        let _ = begun.send(());
        stream.read_exact(&mut all[1000..]).unwrap();
        stream.write_all(&all).unwrap();
    });
    on_every_core(case, LIST, move || async move {
        let stream = TcpStream::connect(at).await.unwrap();
        let sent = pattern(LEN, 5);
        stream.write_all(&sent).await.unwrap();
        stream.shutdown(Shutdown::Write).await.unwrap();
        assert!(read_to_end(&stream).await.unwrap() == sent);
    });
    server.join().unwrap();
}

/// From the other host to each of this one's addresses; a low port too, which root may have.
fn others_come_in_where_doors_are(case: Case) {
    /// Says who the client is, by the server's knowledge, and echoes.
    async fn greet(stream: TcpStream) {
        let peer = stream.peer_addr().unwrap().ip().to_string();
        stream
            .write_all(format!("{peer}\n").as_bytes())
            .await
            .unwrap();
        echo(stream).await;
    }
    beside_another_host(move |far| {
        for (listen, bound, port, v4, v6) in [
            ("any", "0.0.0.0", 8_080, true, false),
            ("any", "::", 80, true, true),
            ("any", "127.0.0.1", 8_080, false, false),
            ("loopback", "::", 8_080, false, false),
            (NEAR_V4, "::", 8_080, true, false),
            (LISTED, "::", 8_080, true, true),
        ] {
            let builder = case.builder().backend(BackendChoice::Portal);
            let runtime = builder
                .portal_listen(listen.parse().unwrap())
                .build()
                .unwrap();
            let bound = SocketAddr::new(bound.parse().unwrap(), port);
            let (server, _, _) = serve_at(runtime, bound, greet);
            for (near, peer, open) in [(NEAR_V4, FAR_V4, v4), (NEAR_V6, FAR_V6, v6)] {
                let to = SocketAddr::new(near.parse().unwrap(), port);
                let came = far.does(move || said_and_heard(to));
                let expected = open.then(|| format!("{peer}\nhello"));
                let expected = expected.ok_or(ErrorKind::ConnectionRefused);
                assert_eq!(came, expected, "{to}, bound on {bound}, with `{listen}`");
            }
            server.stop().unwrap();
        }
    });
}

/// Says hello, and gives all that comes.
fn said_and_heard(to: SocketAddr) -> Result<String, ErrorKind> {
    let connected = std::net::TcpStream::connect(to);
    let mut stream = connected.map_err(|error| error.kind())?;
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).unwrap();
    Ok(heard)
}

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}
