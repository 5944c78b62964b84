//! Every segment with data reaches the server in IP fragments, in every layout: they meet at one shard, and what they
//! make goes to the one that has the connection.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::support::{Case, echo, pattern, run_clients_on, serve, wire_for};
use janus::BackendChoice;
use janus::net::TcpStream;
use janus_io::{BURST, Backend, Batch, Caps, Queue};
use janus_mem::{Frame, HEADROOM, Pool};
use janus_wire::{ipv4, proto};

in_every_layout!(connections_in_pieces_echo);

fn connections_in_pieces_echo(case: Case) {
    const CONNECTIONS: usize = 40;
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, cores) = serve(builder, 80, echo);
    let far = BackendChoice::Custom(Box::new(Shredder(Box::new(far))));
    run_clients_on(far, CONNECTIONS, |index| async move {
        let to = SocketAddr::from(([192, 0, 2, 1], 80));
        let stream = TcpStream::connect(to).await.unwrap();
        for round in 0..3 {
            let sent = pattern(200 + (index * 37 + round * 1000) % 4000, index);
            stream.write_all(&sent).await.unwrap();
            let mut got = vec![0; sent.len()];
            stream.read_exact(&mut got).await.unwrap();
            assert!(got == sent, "connection {index}, round {round}");
        }
    });
    server.stop().unwrap();
    let mut accepted = vec![0; case.cores];
    cores.iter().for_each(|core| accepted[core] += 1);
    assert!(accepted.iter().all(|count| *count > 0), "{accepted:?}");
}

/// A device that cuts what it sends.
struct Shredder(Box<dyn Backend>);

impl Backend for Shredder {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let wrap = |inner| -> Box<dyn Queue> {
            Box::new(Shreds {
                inner,
                waiting: VecDeque::new(),
                id: 0,
            })
        };
        Ok(self.0.open(queues)?.into_iter().map(wrap).collect())
    }
}

struct Shreds {
    inner: Box<dyn Queue>,
    waiting: VecDeque<Frame>,
    id: u16,
}

impl Shreds {
    /// A segment with data becomes three fragments, the last first; anything else stays whole.
    fn cut(&mut self, frame: Frame, pool: &mut Pool, done: &mut Batch) {
        let ip = ipv4::parse(frame.data()).unwrap();
        let payload = ip.payload();
        if ip.proto != proto::TCP || payload.len() < 200 {
            self.waiting.push_back(frame);
            return;
        }
        self.id = self.id.wrapping_add(1);
        let step = payload.len().div_ceil(3).next_multiple_of(8);
        for (i, part) in payload.chunks(step).enumerate().rev() {
            let repr = ipv4::Repr {
                src: ip.src,
                dst: ip.dst,
                proto: ip.proto,
                payload_len: part.len() as u16,
                ttl: ip.ttl,
                tos: ip.tos,
                id: self.id,
                dont_fragment: false,
            };
            let mut buf = pool.alloc().expect("plenty of buffers");
            let out = &mut buf.bytes_mut()[usize::from(HEADROOM)..];
            let more = (i + 1) * step < payload.len();
            let at = ipv4::emit_fragment(out, &repr, (i * step) as u16, more);
            out[at..at + part.len()].copy_from_slice(part);
            let piece = Frame::new(buf, (at + part.len()) as u16);
            self.waiting.push_back(piece);
        }
        if frame.is_lent() {
            assert!(done.push(frame).is_ok());
        } else {
            pool.free(frame.buf);
        }
    }
}

impl Queue for Shreds {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        self.inner.rx_burst(pool, out);
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        // What is cut and what is sent must both fit `done`.
        let room = (BURST - done.len()) / 2;
        for frame in frames.pull().take(room) {
            self.cut(frame, pool, done);
        }
        let mut batch = Batch::new();
        while batch.len() < room.max(1)
            && let Some(frame) = self.waiting.pop_front()
        {
            assert!(batch.push(frame).is_ok());
        }
        self.inner.tx_burst(pool, &mut batch, done);
        let left: Vec<Frame> = batch.pull().collect();
        for frame in left.into_iter().rev() {
            self.waiting.push_front(frame);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        // Nobody calls again for what waits here.
        self.waiting.is_empty() && self.inner.arm()
    }
}
