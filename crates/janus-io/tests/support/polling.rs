//! Frames between a queue and the kernel at its other end: looked for among what comes, made of header and payload, and the
//! kernel's question for our link address.

use janus_io::{Batch, Queue};
use janus_mem::{Frame, Pool};
use janus_wire::{MacAddr, arp, ethernet};

/// What `wanted` makes of a frame that the queue has now.
pub(crate) fn look<T>(
    queue: &mut dyn Queue,
    pool: &mut Pool,
    wanted: impl Fn(ethernet::Header, &[u8]) -> Option<T>,
) -> Option<T> {
    let mut batch = Batch::new();
    queue.rx_burst(pool, &mut batch);
    let found = batch.iter().find_map(|frame| {
        let (header, payload) = ethernet::Header::parse(frame.data()).unwrap();
        wanted(header, payload)
    });
    batch.pull().for_each(|frame| pool.free(frame.buf));
    found
}

pub(crate) fn frame(pool: &mut Pool, header: ethernet::Header, payload: &[u8]) -> Frame {
    let len = ethernet::LEN + payload.len();
    let mut frame = Frame::new(pool.alloc().unwrap(), len as u16);
    header.emit(frame.data_mut());
    frame.data_mut()[ethernet::LEN..].copy_from_slice(payload);
    frame
}

pub(crate) fn arp_packet(header: ethernet::Header, payload: &[u8]) -> Option<arp::Packet> {
    let is_arp = header.ethertype == ethernet::ethertype::ARP;
    is_arp.then(|| arp::Packet::parse(payload).unwrap())
}

/// That the address asked for is at `mac`.
pub(crate) fn answer(pool: &mut Pool, question: &arp::Packet, mac: MacAddr) -> Frame {
    let mut bytes = [0; arp::LEN];
    question.reply(mac).emit(&mut bytes);
    let header = ethernet::Header {
        dst: question.sender_mac,
        src: mac,
        ethertype: ethernet::ethertype::ARP,
    };
    frame(pool, header, &bytes)
}
