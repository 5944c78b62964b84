use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use janus_io::park::Parker;
use janus_io::wire::{self, Config as WireConfig};
use janus_io::{Backend, Batch, Queue};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_tcp::{Config, ConnId, Error, Interface, ListenerId, Local, Secrets, Stack};

use super::*;
use crate::clock::Clock;
use crate::control::mailbox::ControlMailbox;

const TIMEOUT: Duration = Duration::from_secs(120);

fn small() -> Config {
    Config {
        max_connections: 1024,
        max_hot: 1024,
        max_half_open: 256,
        max_time_wait: 256,
        max_segments: 8192,
        ..Config::default()
    }
}

/// Of a runtime with one core and without a control thread.
pub(super) fn mailbox() -> Arc<ControlMailbox> {
    let parker = Parker::new().unwrap();
    Arc::new(ControlMailbox::new(1, 0, parker.unparker()))
}

fn stack(pool: Pool, seed: u64) -> Stack {
    Stack::new(
        small(),
        Interface::ip(1500),
        Secrets::from_seed(seed),
        pool,
        &Growth::Inline,
    )
    .unwrap()
}

/// The server's side: a bare stack polled by the test itself, in place of the shards.
struct Server {
    stack: Stack,
    queue: Box<dyn Queue>,
    pool: Pool,
    clock: Clock,
    portal: Portal,
    leaving: Batch,
    done: Batch,
    frames: Vec<Frame>,
}

impl Server {
    fn new() -> Server {
        let depot = Depot::new(4096, &Growth::Inline).unwrap();
        let (near, far) = wire::pair(WireConfig::default()).unwrap();
        let open = |end: wire::End| Box::new(end).open(1).unwrap();
        let clock = Clock::start();
        let inner = Inner {
            queues: open(far),
            stack: stack(depot.pool(), 1),
            pool: depot.pool(),
            clock,
            reach: PortalReach::Loopback,
            mailbox: mailbox(),
        };
        Server {
            stack: stack(depot.pool(), 2),
            queue: open(near).remove(0),
            pool: depot.pool(),
            clock,
            portal: Portal::start(inner, PortalListen::Loopback).unwrap(),
            leaving: Batch::new(),
            done: Batch::new(),
            frames: Vec::new(),
        }
    }

    fn listen(&mut self) -> (ListenerId, SocketAddr) {
        let port = self.portal.open((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
        let id = self
            .stack
            .listen((Ipv4Addr::UNSPECIFIED, port).into_v4(), 16)
            .unwrap();
        self.portal.serve(port);
        (id, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        let mut arrived = Batch::new();
        self.queue.rx_burst(&mut self.pool, &mut arrived);
        self.frames.extend(arrived.pull());
        self.stack.input(now, &mut self.frames, &mut Local);
        self.stack.advance(now);
        self.stack
            .transmit(now, &mut self.frames, self.leaving.room());
        self.leaving.extend(self.frames.drain(..));
        self.queue
            .tx_burst(&mut self.pool, &mut self.leaving, &mut self.done);
        for frame in self.done.pull() {
            self.stack.completed(frame);
        }
    }

    /// Turns until `ready` says something else than "would block".
    fn until<R>(
        &mut self,
        mut ready: impl FnMut(&mut Stack, janus_tcp::Instant) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let begin = std::time::Instant::now();
        while begin.elapsed() < TIMEOUT {
            self.turn();
            match ready(&mut self.stack, self.clock.now()) {
                Err(Error::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
                done => return done,
            }
        }
        panic!("nothing came within {TIMEOUT:?}");
    }

    fn accept(&mut self, id: ListenerId) -> (ConnId, SocketAddr) {
        self.until(|stack, _| stack.accept(id)).unwrap()
    }

    fn read_some(&mut self, conn: ConnId) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; 64 * 1024];
        let n = self.until(|stack, now| stack.read(now, conn, &mut bytes))?;
        bytes.truncate(n);
        Ok(bytes)
    }

    fn read_to_end(&mut self, conn: ConnId) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let some = self.read_some(conn).unwrap();
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }

    fn write_all(&mut self, conn: ConnId, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let n = self
                .until(|stack, now| stack.write(now, conn, bytes))
                .unwrap();
            bytes = &bytes[n..];
        }
    }
}

trait IntoV4 {
    fn into_v4(self) -> std::net::SocketAddrV4;
}

impl IntoV4 for (Ipv4Addr, u16) {
    fn into_v4(self) -> std::net::SocketAddrV4 {
        std::net::SocketAddrV4::new(self.0, self.1)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn bytes_and_half_closes_pass_both_ways() {
    let mut server = Server::new();
    let (listener, address) = server.listen();
    let client = std::thread::spawn(move || {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"ping").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        (client.local_addr().unwrap(), answer)
    });
    let (conn, peer) = server.accept(listener);
    assert_eq!(server.read_to_end(conn), b"ping");
    // The client has ended its way; ours is still open.
    server.write_all(conn, b"pong");
    let now = server.clock.now();
    server.stack.close(now, conn);
    server
        .until(|stack, _| {
            if stack.connections() == 0 {
                Ok(())
            } else {
                Err(Error::WouldBlock)
            }
        })
        .unwrap();
    let (local, answer) = client.join().unwrap();
    assert_eq!(answer, b"pong");
    assert_eq!(
        peer, local,
        "the server sees the client's own address and port"
    );
}

/// A listener on `[::]` is offered at both loopback addresses, and sees clients of either family.
#[test]
fn a_door_for_each_family() {
    let mut server = Server::new();
    let port = match server.portal.open((Ipv6Addr::UNSPECIFIED, 0).into()) {
        Ok(port) => port,
        Err(error) => panic!("{error}"),
    };
    let listener = server.stack.listen((Ipv6Addr::UNSPECIFIED, port), 16);
    let listener = listener.unwrap();
    server.portal.serve(port);
    let mut doors = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    // A machine may have no IPv6.
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        doors.push(SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
    }
    for door in doors {
        let client = std::thread::spawn(move || {
            let mut client = TcpStream::connect(door).unwrap();
            client.write_all(b"ping").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client.local_addr().unwrap()
        });
        let (conn, peer) = server.accept(listener);
        assert_eq!(server.read_to_end(conn), b"ping");
        assert_eq!(peer, client.join().unwrap(), "its own address and port");
    }
}

#[test]
fn a_reset_inside_is_a_reset_outside() {
    let mut server = Server::new();
    let (listener, address) = server.listen();
    let client = std::thread::spawn(move || {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"x").unwrap();
        client.read(&mut [0; 8]).map_err(|error| error.kind())
    });
    let (conn, _) = server.accept(listener);
    server.read_some(conn).unwrap();
    let now = server.clock.now();
    server.stack.abort(now, conn);
    for _ in 0..100 {
        server.turn();
    }
    assert_eq!(client.join().unwrap(), Err(io::ErrorKind::ConnectionReset));
}

#[test]
fn a_reset_outside_is_a_reset_inside() {
    let mut server = Server::new();
    let (listener, address) = server.listen();
    let client = TcpStream::connect(address).unwrap();
    let (conn, _) = server.accept(listener);
    bridge::reset_on_drop(&client);
    drop(client);
    assert_eq!(server.read_some(conn), Err(Error::ConnectionReset));
}

#[test]
fn a_slow_reader_holds_the_writer_back_and_loses_nothing() {
    let mut server = Server::new();
    let (listener, address) = server.listen();
    let sent = pattern(8 << 20);
    let expected = sent.clone();
    let client = std::thread::spawn(move || {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        assert!(all == expected, "{} of {} bytes", all.len(), expected.len());
        // And the other way, with the server as the slow one.
        client.write_all(&expected)
    });
    let (conn, _) = server.accept(listener);
    server.write_all(conn, &sent);
    let now = server.clock.now();
    server.stack.shutdown_write(now, conn).unwrap();
    for _ in 0..200 {
        server.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(server.read_to_end(conn) == sent);
    client.join().unwrap().unwrap();
}

#[test]
fn a_closed_door_refuses() {
    let mut server = Server::new();
    let (_, address) = server.listen();
    server.portal.close(address.port());
    let begin = std::time::Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(begin.elapsed() < TIMEOUT, "still open");
        std::thread::sleep(Duration::from_millis(1));
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = server.portal.open(taken.local_addr().unwrap()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
