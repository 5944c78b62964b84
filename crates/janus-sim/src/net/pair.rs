//! Two hosts, one of which listens: the harness of most tests, with an application at each end that writes, reads and
//! checks every byte.

use super::{HostId, LinkModel, Network};
use janus_tcp::{Config, ConnId, Error, Instant, ListenerId, SocketOptions};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Where the server listens.
const PORT: u16 = 80;
/// First port of the client.
const FIRST_PORT: u16 = 40_000;
/// Virtual time after which whatever is waited for will not come.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// After so many of a thousand reads an application reads nothing for a while, and its peer's window fills.
const PAUSES: u16 = 100;
/// How long such a pause lasts at most.
const PAUSE_MICROS_MAX: u64 = 3_000_000;
/// The most an application reads or writes at once.
const CHUNK_MAX: u64 = 5_000;

/// A client and a server.
pub struct Pair<'n> {
    /// The network they are in.
    pub network: &'n mut Network,
    /// Host that connects.
    pub client: HostId,
    /// Host that listens.
    pub server: HostId,
    listener: ListenerId,
    next_port: u16,
}

/// An application's end of a connection: what it sends, how far it has come.
struct End {
    host: HostId,
    conn: ConnId,
    sends: Vec<u8>,
    written: usize,
    received: Vec<u8>,
    expects: usize,
    shut: bool,
    ended: bool,
    /// Reads nothing until then.
    pauses_until: Instant,
}

/// How the two ends part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parting {
    /// Each shuts its sending side when it has written all, and closes at the peer's end.
    ShutdownBoth,
    /// The client shuts; the server sends all it has only after reading to the end.
    ClientFirst,
    /// The server shuts; the client sends all it has only after reading to the end.
    ServerFirst,
}

/// The byte at an offset of a stream: by place and stream, so that a misplaced piece shows.
pub(crate) fn stream_byte(stream: u64, offset: usize) -> u8 {
    ((offset as u64 ^ stream << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl End {
    fn new(host: HostId, conn: ConnId, stream: u64, sends: usize, expects: usize) -> End {
        let sends = (0..sends)
            .map(|offset| stream_byte(stream, offset))
            .collect();
        End {
            host,
            conn,
            sends,
            written: 0,
            received: Vec::new(),
            expects,
            shut: false,
            ended: false,
            pauses_until: Instant::ZERO,
        }
    }

    /// Reads all there is, in random pieces, unless the application pauses.
    fn read_all(&mut self, network: &mut Network) {
        if network.now() >= self.pauses_until {
            while self.read(network) {}
        }
    }

    /// Writes all that goes, in random pieces, and says when it was the last.
    fn write_all(&mut self, network: &mut Network) {
        while self.write(network) {}
        if self.written == self.sends.len() && !self.shut {
            let now = network.now();
            let stack = &mut network.host(self.host).stack;
            stack
                .shutdown_write(now, self.conn)
                .expect("an open connection");
            self.shut = true;
        }
    }

    fn is_done(&self) -> bool {
        self.shut && self.ended
    }

    /// Reads a piece. True when there may be more.
    fn read(&mut self, network: &mut Network) -> bool {
        let (now, size) = (
            network.now(),
            network.random().within(1..CHUNK_MAX) as usize,
        );
        let mut chunk = vec![0; size];
        match network
            .host(self.host)
            .stack
            .read(now, self.conn, &mut chunk)
        {
            Ok(0) => self.ended = true,
            Ok(n) => self.received.extend_from_slice(&chunk[..n]),
            Err(Error::WouldBlock) => return false,
            Err(error) => panic!("read: {error}"),
        }
        if network.random().chance(PAUSES) {
            self.pauses_until =
                now + Duration::from_micros(network.random().within(1..PAUSE_MICROS_MAX));
            network.set_alarm(self.pauses_until);
            return false;
        }
        !self.ended
    }

    /// Writes a piece. True when more may go.
    fn write(&mut self, network: &mut Network) -> bool {
        let (now, size) = (
            network.now(),
            network.random().within(1..CHUNK_MAX) as usize,
        );
        let rest = &self.sends[self.written..];
        if rest.is_empty() {
            return false;
        }
        match network
            .host(self.host)
            .stack
            .write(now, self.conn, &rest[..size.min(rest.len())])
        {
            Ok(n) => self.written += n,
            Err(Error::WouldBlock) => return false,
            Err(error) => panic!("write: {error}"),
        }
        true
    }

    fn check(&self, stream: u64) {
        assert_eq!(self.received.len(), self.expects, "bytes received");
        let wrong = self
            .received
            .iter()
            .enumerate()
            .find(|(offset, got)| **got != stream_byte(stream, *offset));
        assert_eq!(wrong, None, "first wrong byte");
    }
}

impl<'n> Pair<'n> {
    /// Two hosts with this configuration; `there` is the link to the server, `back` the one to the client.
    pub fn new(
        network: &'n mut Network,
        config: &Config,
        there: LinkModel,
        back: LinkModel,
    ) -> Pair<'n> {
        let (client, server) = (network.add_host(config), network.add_host(config));
        network.set_link(client, server, there);
        network.set_link(server, client, back);
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
        let listener = network
            .host(server)
            .stack
            .listen(local, 128)
            .expect("a free port");
        Pair {
            network,
            client,
            server,
            listener,
            next_port: FIRST_PORT,
        }
    }

    /// Begins to connect.
    pub fn connect(&mut self) -> ConnId {
        self.connect_with(&SocketOptions::default())
    }

    fn connect_with(&mut self, options: &SocketOptions) -> ConnId {
        let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, self.next_port);
        self.next_port += 1;
        let remote = SocketAddrV4::new(self.network.host(self.server).address, PORT);
        let now = self.network.now();
        self.network
            .host(self.client)
            .stack
            .connect_with(now, local, remote, options)
            .expect("a connection")
    }

    /// An established connection: the client's end and the server's. The server may accept only once the client's
    /// acknowledgement or first data has come, so the client is established first.
    pub fn open(&mut self) -> (ConnId, ConnId) {
        self.open_with(&SocketOptions::default())
    }

    /// Like [`open`](Pair::open), but with the client's socket options.
    pub fn open_with(&mut self, options: &SocketOptions) -> (ConnId, ConnId) {
        let conn = self.connect_with(options);
        let (client, server, listener) = (self.client, self.server, self.listener);
        let mut accepted = None;
        let opened = self.network.run_until(PATIENCE, |network| {
            accepted = accepted.or_else(|| network.host(server).stack.accept(listener).ok());
            let connected = network
                .host(client)
                .stack
                .is_connected(conn)
                .expect("an attempt that succeeds");
            // A lost acknowledgement is made good by the repeated SYN-ACK.
            connected && accepted.is_some()
        });
        assert!(opened, "no connection within {PATIENCE:?}");
        (conn, accepted.expect("an accepted connection").0)
    }

    /// Sends so many bytes each way over one connection, in random pieces and with random pauses, checks that exactly
    /// they arrive, and closes.
    pub fn exchange(&mut self, there: usize, back: usize, parting: Parting) {
        let (client, server) = self.open();
        let mut client = End::new(self.client, client, 1, there, back);
        let mut server = End::new(self.server, server, 2, back, there);
        let done = self.network.run_until(PATIENCE, |network| {
            client.read_all(network);
            server.read_all(network);
            if parting != Parting::ServerFirst || client.ended {
                client.write_all(network);
            }
            if parting != Parting::ClientFirst || server.ended {
                server.write_all(network);
            }
            client.is_done() && server.is_done()
        });
        assert!(
            done,
            "not done within {PATIENCE:?}: {} of {there} there, {} of {back} back",
            server.received.len(),
            client.received.len()
        );
        client.check(2);
        server.check(1);
        let now = self.network.now();
        self.network.host(client.host).stack.close(now, client.conn);
        self.network.host(server.host).stack.close(now, server.conn);
    }

    /// Lets all timers run down and asserts that neither host holds anything any more.
    pub fn assert_clean(&mut self) {
        self.network.run_for(PATIENCE);
        let left = self.network.leftovers();
        assert!(left.is_empty(), "left behind: {}", left.join(", "));
    }
}
