//! Janus's engine as the server of streams.

use super::super::far::{packet::connection, six};
use super::{Application, BURST, Dir, Ends, Server};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_tcp::{
    Config, ConnId, Error, Instant, Interface, IpCidr, ListenerId, Local, Piece, Secrets, Stack,
};
use std::net::IpAddr;

const BUFFERS: u32 = 32_768;

/// The engine, and the connections with their numbers.
pub struct Janus {
    pub stack: Stack,
    listener: ListenerId,
    conns: Vec<(ConnId, usize)>,
    out: Vec<Frame>,
    data: Vec<u8>,
    pieces: Vec<Piece>,
}

fn bytes_of(piece: &Piece) -> &[u8] {
    let (from, len) = (usize::from(piece.off), usize::from(piece.len));
    &piece.buf.bytes()[from..from + len]
}

impl Janus {
    pub fn new(ends: &Ends) -> Self {
        let interface = Interface {
            link: janus_wire::Link::Ethernet,
            mac: ends.server_mac,
            any_local: false,
            addresses: vec![IpCidr::new(ends.server_ip(), ends.server_prefix())],
            gateway: Some(ends.gateway_four()),
            gateway_v6: Some(six::address(ends.gateway_four())),
            ..Interface::ip(1_500)
        };
        let growth = Growth::Inline;
        let pool = Depot::new(BUFFERS, &growth).expect("memory").pool();
        let secrets = Secrets::from_seed(7);
        let mut stack =
            Stack::new(Config::default(), interface, secrets, pool, &growth).expect("memory");
        let listener = stack
            .listen(ends.listen_at(), 64)
            .expect("the port is free");
        Self {
            stack,
            listener,
            conns: Vec::new(),
            out: Vec::with_capacity(8 * BURST),
            data: vec![0; 1 << 16],
            pieces: Vec::new(),
        }
    }

    /// The engine's and the application's part of a turn; [`valgrind`](super::super::valgrind) counts it by its name.
    #[inline(never)]
    fn counted_turn(
        &mut self,
        now: Instant,
        work: Option<Dir>,
        frames: &mut Vec<Frame>,
        app: &mut Application,
    ) {
        self.stack.input(now, frames, &mut Local);
        while self.stack.pop_ready().is_some() {}
        if let Some(dir) = work {
            for i in 0..self.conns.len() {
                match dir {
                    Dir::Rx { lent } => self.take(now, i, lent, app),
                    Dir::Tx => self.write(now, i, app),
                }
            }
        }
        self.stack.advance(now);
        self.stack.transmit(now, &mut self.out, 4 * BURST);
    }

    /// Takes back what was sent; [`valgrind`](super::super::valgrind) counts it by its name.
    #[inline(never)]
    fn counted_end(&mut self) {
        for frame in self.out.drain(..) {
            if frame.is_lent() {
                self.stack.completed(frame);
            } else {
                self.stack.pool().free(frame.buf);
            }
        }
    }

    /// The application takes all there is.
    fn take(&mut self, now: Instant, i: usize, lent: bool, app: &mut Application) {
        let (id, conn) = self.conns[i];
        loop {
            if !lent {
                match self.stack.read(now, id, &mut self.data[..]) {
                    Ok(n @ 1..) => app.not_counted_compare(conn, [&self.data[..n]]),
                    Ok(_) | Err(Error::WouldBlock) => return,
                    Err(error) => panic!("{error:?}"),
                }
                continue;
            }
            match self.stack.recv(now, id) {
                Ok(Some(got)) => self.pieces.push(got),
                Ok(None) | Err(Error::WouldBlock) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        app.not_counted_compare(conn, self.pieces.iter().map(bytes_of));
        for piece in self.pieces.drain(..) {
            self.stack.pool().free(piece.buf);
        }
    }

    /// The application writes all it can.
    fn write(&mut self, now: Instant, i: usize, app: &mut Application) {
        let (id, conn) = self.conns[i];
        loop {
            match self.stack.write(now, id, app.to_write(conn)) {
                Ok(n) => app.wrote(conn, n),
                Err(Error::WouldBlock) => return,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

impl Server for Janus {
    fn pool(&mut self) -> &mut Pool {
        self.stack.pool()
    }

    fn turn(
        &mut self,
        now: Instant,
        work: Option<Dir>,
        frames: &mut Vec<Frame>,
        app: &mut Application,
    ) {
        self.counted_turn(now, work, frames, app);
    }

    fn sent(&self, each: &mut dyn FnMut(&[u8])) {
        self.out.iter().for_each(|frame| each(frame.data()));
    }

    fn end_turn(&mut self) {
        self.counted_end();
    }

    fn accept(&mut self) -> usize {
        while let Ok((id, peer)) = self.stack.accept(self.listener) {
            let address = match peer.ip() {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(address) => six::stands_for(address),
            };
            let conn = address.and_then(|address| connection(address.to_bits(), peer.port()));
            self.conns.push((id, conn.expect("one of ours") as usize));
        }
        self.conns.len()
    }
}
