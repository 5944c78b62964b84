//! A daemon whose device is the portal: members are reached by the kernel's programs, and reach them, without any privilege. The clients here
//! are the kernel's sockets.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener as Kernels, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::JoinHandle;

use janus::net::{TcpListener, UdpSocket};
use janus::{BackendChoice, Handle};
use janus_daemon::Counters;
use janus_shm::{Claim, Message, Share};
use rustix::io::Errno;

use crate::bare::Bare;
use crate::churn::in_time;
use crate::world::{Carrier, LONG, answers, daemon, member_builder, on, process, socket, start};

struct World {
    socket: PathBuf,
    daemon: Carrier,
}

struct Member {
    handle: Handle,
    thread: JoinHandle<()>,
}

/// A port that no program has, and no member for connections that it begins. Other runs of these tests begin at others.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 200) as u16 * 100;
    let ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed));
    let is_free = |port: &u16| Kernels::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
    ports.take(100).find(is_free).expect("a port")
}

fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(LONG))?;
    Ok(stream)
}

/// A connection whose member has said this name.
fn greeted(port: u16, name: &str) -> TcpStream {
    let mut stream = connect(port).expect("it is served");
    let mut greeting = vec![0; name.len() + 2];
    stream.read_exact(&mut greeting).expect("it is greeted");
    assert_eq!(greeting, format!("{name}: ").as_bytes());
    stream
}

fn echoes(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).expect("it is open");
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).expect("it is answered");
    assert!(answer == text.as_bytes());
}

/// All that a port says to a client that says this.
fn asks(port: u16, text: &str) -> Result<String> {
    let stream = connect(port)?;
    let mut all = String::new();
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            (&stream).write_all(text.as_bytes())?;
            stream.shutdown(Shutdown::Write)
        });
        (&stream).read_to_string(&mut all)?;
        writes.join().expect("no panic")
    })?;
    Ok(all)
}

fn has_ended(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0) | Err(_))
}

impl World {
    fn new(name: &str) -> World {
        World::at(socket(name))
    }

    fn at(socket: PathBuf) -> World {
        let daemon = daemon(socket.clone(), &[], None, BackendChoice::Portal);
        let daemon = Carrier::start(daemon);
        World { socket, daemon }
    }

    fn counters(&self) -> Arc<Counters> {
        self.daemon.counters.clone()
    }

    fn member(&self, group: &str) -> Member {
        let builder = member_builder(self.socket.clone(), group);
        let (handle, thread) = start(builder.build().expect("the daemon takes it in"));
        Member { handle, thread }
    }

    fn ends(self) {
        self.daemon.leaves_nothing(&self.socket, || {});
    }
}

impl Member {
    fn serves(
        &self,
        ip: impl Into<std::net::IpAddr>,
        port: u16,
        name: &'static str,
    ) -> Result<SocketAddr> {
        let at = SocketAddr::new(ip.into(), port);
        on(&self.handle, move || async move {
            let listener = TcpListener::bind(at).await?;
            let reachable = listener.reachable_at();
            drop(janus::spawn(answers(listener, name)));
            Ok(reachable)
        })
    }

    fn connections(&self) -> usize {
        on(&self.handle, || async {
            janus::report().expect("a core").connections
        })
    }

    /// All that is answered to it.
    fn asks(&self, to: SocketAddr, text: &'static str) -> Result<String> {
        on(&self.handle, move || async move {
            let stream = janus::net::TcpStream::connect(to).await?;
            stream.write_all(text.as_bytes()).await?;
            stream.shutdown(Shutdown::Write).await?;
            let (mut all, mut into) = (Vec::new(), [0; 64]);
            loop {
                match stream.read(&mut into).await? {
                    0 => return Ok(String::from_utf8_lossy(&all).into_owned()),
                    got => all.extend_from_slice(&into[..got]),
                }
            }
        })
    }

    fn ends(self) {
        self.handle.stop();
        self.thread.join().expect("an end");
    }
}

#[test]
fn the_kernels_programs_reach_members_and_members_them() {
    let world = World::new("portal");
    let (one, two) = (world.member(""), world.member(""));
    let first = one.serves(Ipv4Addr::UNSPECIFIED, 0, "one").unwrap();
    let second = two.serves(Ipv4Addr::LOCALHOST, free_port(), "two").unwrap();
    assert!(first.ip().is_loopback(), "{first}");
    assert_eq!(asks(first.port(), "hello").unwrap(), "one: hello");
    let big = "0123456789abcdef".repeat(40_000);
    assert!(asks(second.port(), &big).unwrap() == format!("two: {big}"));

    assert_eq!(one.asks(second, "hello").unwrap(), "two: hello");
    assert_eq!(one.asks(first, "to itself").unwrap(), "one: to itself");
    let outside = Kernels::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = outside.local_addr().unwrap();
    let serves = std::thread::spawn(move || {
        let (mut client, _) = outside.accept().unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        client.write_all(format!("the kernel: {text}").as_bytes())
    });
    assert_eq!(two.asks(at, "hello").unwrap(), "the kernel: hello");
    serves.join().unwrap().unwrap();
    let refused = two.asks(at, "hello").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");

    // One that is there goes on while its port is closed.
    let mut stays = greeted(second.port(), "two");
    one.ends();
    in_time("its port is closed", || {
        connect(first.port()).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    echoes(&mut stays, "hello");
    two.ends();
    assert!(has_ended(&mut stays));
    world.ends();
}

#[test]
fn both_families_have_a_door_where_both_are_bound() {
    let Ok(probe) = Kernels::bind((Ipv6Addr::LOCALHOST, 0)) else {
        println!("skipped: the kernel has no IPv6 here");
        return;
    };
    drop(probe);
    let world = World::new("families");
    let (one, two) = (world.member("both"), world.member("both"));
    let port = free_port();
    one.serves(Ipv4Addr::UNSPECIFIED, port, "one").unwrap();
    let at_six = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    TcpStream::connect(at_six).expect_err("no member listens there");
    // A second one opens what is not open, and no door twice.
    two.serves(Ipv6Addr::UNSPECIFIED, port, "two").unwrap();
    drop(TcpStream::connect(at_six).expect("it is open now"));
    assert!(asks(port, "hello").unwrap().ends_with(": hello"));
    one.ends();
    assert_eq!(asks(port, "hello").unwrap(), "two: hello");
    two.ends();
    world.ends();
}

#[test]
fn what_cannot_be_had_is_refused_with_its_reason() {
    let world = World::new("refused");
    let member = world.member("");
    let kernels = Kernels::bind((Ipv4Addr::LOCALHOST, free_port())).unwrap();
    let port = kernels.local_addr().unwrap().port();
    let taken = member.serves(Ipv4Addr::UNSPECIFIED, port, "one");
    let taken = taken.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse, "{taken}");
    assert!(taken.to_string().contains("ss -ltnp"), "{taken}");
    drop(kernels);
    member.serves(Ipv4Addr::UNSPECIFIED, port, "one").unwrap();
    assert_eq!(asks(port, "hello").unwrap(), "one: hello");

    let udp = on(&member.handle, || async {
        UdpSocket::bind("127.0.0.1:0").await.err()
    });
    assert_eq!(udp.map(|error| error.kind()), Some(ErrorKind::Unsupported));
    let mut bare = Bare::new(&world.socket);
    bare.joins();
    for (number, udp, ip, errno) in [
        (1, true, Ipv4Addr::UNSPECIFIED, Errno::OPNOTSUPP),
        (2, false, Ipv4Addr::new(192, 0, 2, 1), Errno::ADDRNOTAVAIL),
    ] {
        let claim = Claim {
            number,
            udp,
            address: (ip, free_port()).into(),
            group: String::new(),
            share: Share::Alone,
            permit: None,
        };
        bare.says(&Message::Claim(claim), &[]);
        let Some(Message::Refused { errno: said, .. }) = bare.hears() else {
            panic!("{errno:?} is what is to be said");
        };
        assert_eq!(said, errno.raw_os_error());
    }
    bare.leaves();
    member.ends();
    world.ends();
}

#[test]
fn a_killed_members_clients_are_reset_and_others_go_on() {
    let world = World::new("killed");
    let port = free_port();
    let living = world.member("web");
    living
        .serves(Ipv6Addr::UNSPECIFIED, port, "living")
        .unwrap();
    let mut killed = process(&world.socket, "web", port, "");
    let (mut of_living, mut of_killed) = (Vec::new(), Vec::new());
    in_time("both serve", || {
        let mut stream = connect(port).expect("it is served");
        let mut greeting = [0; 8];
        stream.read_exact(&mut greeting).expect("it is greeted");
        match &greeting {
            b"living: " => of_living.push(stream),
            b"killed: " => of_killed.push(stream),
            other => panic!("{other:?} is no greeting"),
        }
        of_living.len() >= 4 && of_killed.len() >= 4
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    for stream in &mut of_killed {
        let reset = stream.read(&mut [0]).unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset, "{reset}");
    }
    for stream in &mut of_living {
        echoes(stream, "hello");
    }
    for _ in 0..16 {
        assert_eq!(asks(port, "hello").unwrap(), "living: hello");
    }
    drop(of_living);
    living.ends();
    world.ends();
}

/// For the moment in which a successor may come its clients wait.
#[test]
fn a_killed_members_port_waits_for_its_successor() {
    let world = World::new("successor");
    let port = free_port();
    let mut killed = process(&world.socket, "", port, "");
    in_time("it serves", || asks(port, "hello").is_ok());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let counters = world.counters();
    in_time("its death is known", || counters.died.get() == 1);
    let waits = std::thread::spawn(move || asks(port, "hello"));
    let successor = world.member("");
    successor
        .serves(Ipv6Addr::UNSPECIFIED, port, "successor")
        .unwrap();
    assert_eq!(waits.join().unwrap().unwrap(), "successor: hello");
    successor.ends();
    world.ends();
}

#[test]
fn connections_end_with_the_daemon_and_ports_come_back() {
    let world = World::new("restarted");
    let port = free_port();
    let member = world.member("");
    member.serves(Ipv4Addr::UNSPECIFIED, port, "one").unwrap();
    let mut client = greeted(port, "one");
    echoes(&mut client, "hello");
    assert_eq!(member.connections(), 1);
    let World { socket, daemon } = world;
    daemon.ends();
    let end = client.read(&mut [0]).unwrap_err();
    assert_eq!(
        end.kind(),
        ErrorKind::ConnectionReset,
        "not as if all had been said: {end}"
    );
    let world = World::at(socket);
    in_time("it serves again", || {
        asks(port, "hello").is_ok_and(|said| said == "one: hello")
    });
    in_time("nothing is left of what the daemon before carried", || {
        member.connections() == 0
    });
    member.ends();
    world.ends();
}

/// Packets from another's port, or from addresses that are not the portal's, are not passed on.
#[test]
fn a_member_cannot_speak_for_another() {
    let world = World::new("forged");
    let honest = world.member("");
    let port = honest
        .serves(Ipv4Addr::UNSPECIFIED, 0, "honest")
        .unwrap()
        .port();
    let mut client = greeted(port, "honest");
    let mut liar = Bare::new(&world.socket);
    liar.joins();
    let own = liar.welcome.as_ref().unwrap().ports.0;
    let mut tx = liar.ring(2);
    let counters = world.counters();
    let mut sends = |source: [u8; 4], from: u16| {
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
        packet.extend(source);
        packet.extend([127, 0, 0, 1]);
        packet.extend(from.to_be_bytes());
        packet.extend(client.local_addr().unwrap().port().to_be_bytes());
        // An RST.
        packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 4, 0, 0, 0, 0, 0, 0]);
        liar.sends(&mut tx, &packet);
    };
    for (refused, (source, from)) in (1..).zip([
        ([127, 0, 0, 1], port),
        ([192, 0, 2, 1], own),
        ([127, 0, 0, 2], own),
    ]) {
        sends(source, from);
        in_time("it is refused", || counters.refused.get() == refused);
    }
    let before = counters.from_members.get();
    sends([127, 0, 0, 1], own);
    in_time("its own is let through", || {
        counters.from_members.get() > before
    });
    assert_eq!(counters.refused.get(), 3);
    liar.leaves();
    echoes(&mut client, "hello");
    drop(client);
    honest.ends();
    world.ends();
}
