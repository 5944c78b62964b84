//! The AF_XDP backend on a pair of veth interfaces, in namespaces of its own. Needs root: it says `skipped: …` where it has
//! not, and fails instead with JANUS_PRIVILEGED=1. What the tests share is here; frames and their buffers are `frames.rs`, what
//! is refused and which rights are enough `rules.rs`, how it ends `ends.rs`.

mod ends;
mod frames;
#[path = "../support/polling.rs"]
mod polling;
mod rules;
#[path = "../support/veth.rs"]
mod veth;

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use janus_io::xdp::Xdp;
use janus_io::{Batch, Queue};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_wire::{MacAddr, arp, ethernet, ipv4, proto};
use polling::{answer, arp_packet, frame, look};
use veth::*;

const BUFFERS: u32 = 4096;
const PATIENCE: Duration = Duration::from_secs(120);

fn depot() -> Arc<Depot> {
    Depot::new(BUFFERS, &Growth::Inline).unwrap()
}

fn xdp(depot: &Arc<Depot>) -> Box<Xdp> {
    let both = [OURS, OURS_V6].map(|address| address.parse().unwrap());
    let xdp = Xdp::new(NEAR, depot.clone());
    Box::new(both.into_iter().fold(xdp, Xdp::with_address))
}

fn v4(text: &str) -> std::net::Ipv4Addr {
    text.parse().unwrap()
}

/// Polls until a frame comes that `wanted` makes something of.
fn receive<T>(
    queue: &mut dyn Queue,
    pool: &mut Pool,
    wanted: impl Fn(ethernet::Header, &[u8]) -> Option<T>,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(found) = look(queue, pool, &wanted) {
            return found;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("nothing like it came");
}

/// Sends frames; what was LENT and came back.
fn send(queue: &mut dyn Queue, pool: &mut Pool, frames: Vec<Frame>) -> Vec<Frame> {
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    let mut back = Vec::new();
    let lent = frames.iter().filter(|frame| frame.is_lent()).count();
    let mut frames = frames.into_iter();
    let deadline = Instant::now() + PATIENCE;
    loop {
        batch.extend(frames.by_ref().take(batch.room()));
        queue.tx_burst(pool, &mut batch, &mut done);
        back.extend(done.pull());
        if batch.is_empty() && frames.len() == 0 && back.len() >= lent {
            return back;
        }
        if Instant::now() > deadline {
            let counts = ip(&format!("-s link show {NEAR}")).unwrap_or_default();
            let softirqs = std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
            let left = batch.len() + frames.len();
            panic!(
                "{} of {lent} back, {left} not taken\n{counts}\n{softirqs}",
                back.len()
            );
        }
    }
}

/// The far kernel's question for our address, answered.
fn resolve(queue: &mut dyn Queue, pool: &mut Pool) -> MacAddr {
    let mac = queue.caps().mac.unwrap();
    let question = receive(queue, pool, |header, payload| {
        let asks =
            |packet: &arp::Packet| packet.op == arp::Op::Request && packet.target_ip == v4(OURS);
        arp_packet(header, payload).filter(asks)
    });
    let answer = answer(pool, &question, mac);
    send(queue, pool, vec![answer]);
    question.sender_mac
}

/// A datagram of `port` to the far kernel, without a checksum, and its header.
fn datagram(to: MacAddr, from: MacAddr, port: u16, text: &[u8]) -> (ethernet::Header, Vec<u8>) {
    let mut packet = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src: v4(OURS),
        dst: v4(FAR_KERNEL),
        proto: proto::UDP,
        payload_len: 8 + text.len() as u16,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(&mut packet, &repr);
    packet.extend(5000_u16.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend((8 + text.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(text);
    let header = ethernet::Header {
        dst: to,
        src: from,
        ethertype: ethernet::ethertype::IPV4,
    };
    (header, packet)
}

fn far_socket(veth: &Veth) -> UdpSocket {
    let socket = veth.far(|| UdpSocket::bind((FAR_KERNEL, 0)).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Whether the kernel at the near end still answers on its own address of the same interface.
fn kernel_answers(veth: &Veth) {
    let server = UdpSocket::bind((NEAR_KERNEL, 0)).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = far_socket(veth);
    client
        .send_to(b"are you there", server.local_addr().unwrap())
        .unwrap();
    let mut buf = [0; 64];
    let (len, from) = server.recv_from(&mut buf).expect("the kernel's packet");
    server.send_to(&buf[..len], from).unwrap();
    let (len, _) = client.recv_from(&mut buf).expect("the kernel's answer");
    assert_eq!(&buf[..len], b"are you there");
}
