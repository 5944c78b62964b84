//! Whole packets into and out of a stack, as bytes: what a device's DMA does, without the device.
//! What never lives here: a decision about what happens to a packet in between.

use crate::offload;
use janus_mem::{Frame, HEADROOM, PacketBuf, SLOT_SIZE};
use janus_tcp::{Instant, Local, Stack};

/// Frames taken from a stack at once.
const BURST: usize = 64;
/// Bursts a stack may hand out at one moment. A stack that has more to say says it for ever.
const BURSTS_MAX: usize = 100_000;
/// The largest packet that fits a buffer.
pub const PACKET_MAX: usize = SLOT_SIZE - HEADROOM as usize;

/// Hands `packet` to the stack. False when no buffer is free or it fits none: as on a real device, it is lost. What comes
/// in one packet and fits several is handed over at once.
pub fn deliver(stack: &mut Stack, now: Instant, packet: &[u8]) -> bool {
    deliver_in(stack, now, packet, |stack| stack.pool().alloc())
}

/// Does what [`deliver`] does, in buffers that `alloc` finds: those of a device, for instance.
pub fn deliver_in(
    stack: &mut Stack,
    now: Instant,
    packet: &[u8],
    alloc: impl FnMut(&mut Stack) -> Option<PacketBuf>,
) -> bool {
    if packet.len() <= PACKET_MAX {
        return input(stack, now, &[packet], alloc);
    }
    offload::cut(packet, PACKET_MAX).is_some_and(|parts| input(stack, now, &parts, alloc))
}

fn input(
    stack: &mut Stack,
    now: Instant,
    packets: &[impl AsRef<[u8]>],
    mut alloc: impl FnMut(&mut Stack) -> Option<PacketBuf>,
) -> bool {
    let mut frames = Vec::with_capacity(packets.len());
    for packet in packets {
        let packet = packet.as_ref();
        let Some(mut buf) = alloc(stack) else {
            break;
        };
        let at = usize::from(buf.off());
        buf.bytes_mut()[at..at + packet.len()].copy_from_slice(packet);
        frames.push(Frame::new(buf, packet.len() as u16));
    }
    let all = frames.len() == packets.len();
    stack.input(now, &mut frames, &mut Local);
    all
}

/// Takes all that the stack has to send now. Buffers that are lent go home at once.
pub fn collect(stack: &mut Stack, now: Instant, mut each: impl FnMut(&[u8])) {
    let mut frames = Vec::with_capacity(BURST);
    for _ in 0..BURSTS_MAX {
        if !stack.wants_transmit() {
            return;
        }
        stack.transmit(now, &mut frames, BURST);
        for frame in frames.drain(..) {
            each(frame.data());
            if frame.is_lent() {
                stack.completed(frame);
            } else {
                stack.pool().free(frame.buf);
            }
        }
    }
    panic!(
        "the stack wants to send without end, at {} ns",
        now.as_nanos()
    );
}
