//! One connection as the script knows it and as the stack knows it, and the translation between the two: sequence
//! numbers relative to either side's initial one, timestamps relative to the first. SYN segments carry absolute
//! numbers in a script, as tcpdump prints them; all others relative ones.

use crate::script::Packet;
use crate::segment::{Flags, Segment, TcpOption};
use std::collections::HashMap;
use std::net::SocketAddr;

/// Bytes an application may have written through one script; the payload of what the stack sends is compared to them.
pub(super) const WRITTEN_MAX: usize = 16 << 20;

#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// The stack's end.
    pub(super) local: SocketAddr,
    /// The script's end.
    pub(super) remote: SocketAddr,
    /// The stack's initial sequence number: (as the script says, as the stack chose).
    local_isn: Option<(u32, u32)>,
    /// The script's own.
    remote_isn: Option<u32>,
    /// A SYN with another number: a new incarnation, should the stack answer it.
    next_remote_isn: Option<u32>,
    /// The first outbound TSval: (the script's, the stack's).
    first_timestamp: Option<(u32, u32)>,
    /// The stack's TSval for each that the script has named.
    timestamps: HashMap<u32, u32>,
    /// The flow label that the script named last, and the stack's.
    label: Option<(u32, u32)>,
    /// Bytes that the application has written.
    pub(super) written: Vec<u8>,
    /// Number of bytes that it has read.
    pub(super) read: u64,
}

impl Flow {
    pub(super) fn new(local: SocketAddr, remote: SocketAddr) -> Flow {
        Flow {
            local,
            remote,
            local_isn: None,
            remote_isn: None,
            next_remote_isn: None,
            first_timestamp: None,
            timestamps: HashMap::new(),
            label: None,
            written: Vec::new(),
            read: 0,
        }
    }

    /// Whether the stack sent this packet on this flow.
    pub(super) fn sent(&self, segment: &Segment) -> bool {
        let source = SocketAddr::new(segment.source, segment.source_port);
        let destination = SocketAddr::new(segment.destination, segment.destination_port);
        source == self.local && destination == self.remote
    }

    /// Learns the script's initial number from a packet it is about to send: the first one's, or where the stack opened
    /// the connection, the first SYN's.
    pub(super) fn learn_inbound(&mut self, packet: &Packet) {
        let syn = packet.flags.contains(Flags::SYN);
        let opened_here = self.local_isn.is_some();
        match self.remote_isn {
            None if opened_here && !syn => {}
            None => self.remote_isn = Some(packet.seq),
            Some(isn) if syn && packet.seq != isn => self.next_remote_isn = Some(packet.seq),
            Some(_) => {}
        }
    }

    /// Learns the stack's initial number from the SYN that the script expects and the one that came.
    pub(super) fn learn_outbound(&mut self, expected: &Packet, actual: &Segment) {
        let both = |flag| expected.flags.contains(flag) && actual.flags.contains(flag);
        if !both(Flags::SYN) {
            return;
        }
        let reopened = self
            .next_remote_isn
            .filter(|isn| expected.ack == Some(isn.wrapping_add(1)));
        if self.local_isn.is_none() || reopened.is_some() {
            self.local_isn = Some((expected.seq, actual.seq));
        }
        if let Some(isn) = reopened {
            self.remote_isn = Some(isn);
            self.next_remote_isn = None;
        }
    }

    /// Returns the offset to add to the script's numbers in the stack's sequence space.
    fn local_offset(&self, flags: Flags) -> u32 {
        let (script, live) = self.local_isn.unwrap_or((0, 0));
        if flags.contains(Flags::SYN) {
            live.wrapping_sub(script)
        } else {
            live
        }
    }

    /// The stack's number for one of the script's in its sequence space, once it is known.
    pub(super) fn live_seq(&self, seq: u32) -> Option<u32> {
        let (_, live) = self.local_isn?;
        Some(seq.wrapping_add(live))
    }

    /// Returns the offset to add to the script's numbers in its own sequence space.
    fn remote_offset(&self, flags: Flags) -> u32 {
        if flags.contains(Flags::SYN) {
            0
        } else {
            self.remote_isn.unwrap_or(0)
        }
    }

    /// The packet the script sends, in the stack's numbers. `scaled` lets an unknown TSecr be derived from the first.
    pub(super) fn to_live(&self, packet: &Packet, scaled: bool) -> Result<Segment, String> {
        let ack_offset = self.local_offset(packet.flags);
        let options = packet.options.iter().flatten().map(|option| match option {
            TcpOption::Sack(blocks) => Ok(TcpOption::Sack(
                blocks
                    .iter()
                    .map(|(l, r)| (l.wrapping_add(ack_offset), r.wrapping_add(ack_offset)))
                    .collect(),
            )),
            TcpOption::Timestamps { val, ecr } if packet.flags.contains(Flags::ACK) => {
                Ok(TcpOption::Timestamps {
                    val: *val,
                    ecr: self.live_timestamp(*ecr, scaled)?,
                })
            }
            other => Ok(other.clone()),
        });
        let options = options.collect::<Result<Vec<TcpOption>, String>>()?;
        // The stream's first byte is 1, whatever the SYN's own number is; what lies before it wraps around.
        let offset = if packet.flags.contains(Flags::SYN) {
            0
        } else {
            packet.seq.wrapping_sub(1)
        };
        let offsets = (0..u32::from(packet.len)).map(|byte| offset.wrapping_add(byte));
        let (source_port, destination_port) = packet
            .ports
            .unwrap_or((self.remote.port(), self.local.port()));
        Ok(Segment {
            source: self.remote.ip(),
            destination: self.local.ip(),
            tos: packet.ip.tos.map_or(0, super::compare::tos_byte),
            ttl: packet.ip.ttl.unwrap_or(64),
            flow_label: packet.ip.flow_label.unwrap_or(0),
            source_port,
            destination_port,
            seq: packet.seq.wrapping_add(self.remote_offset(packet.flags)),
            // Without the flag the field means nothing and goes as it is.
            ack: match packet.flags.contains(Flags::ACK) {
                true => packet.ack.unwrap_or(0).wrapping_add(ack_offset),
                false => packet.ack.unwrap_or(0),
            },
            flags: packet.flags,
            window: packet.window.unwrap_or(0),
            urgent: packet.urgent.unwrap_or(0),
            options,
            payload: offsets.map(|offset| inbound_byte(offset.into())).collect(),
        })
    }

    fn live_timestamp(&self, ecr: u32, scaled: bool) -> Result<u32, String> {
        if let Some(live) = self.timestamps.get(&ecr) {
            return Ok(*live);
        }
        match self.first_timestamp {
            Some((script, live)) if scaled => Ok(ecr.wrapping_sub(script).wrapping_add(live)),
            _ => Err(format!(
                "no outbound packet before this one had `TS val {ecr}`, so `ecr {ecr}` cannot be told in the stack's \
                 clock (or say `--tcp_ts_ecr_scaled`)"
            )),
        }
    }

    /// A packet the stack sent, in the script's numbers. `expected` names TSval, which is learned from it.
    pub(super) fn to_script(&self, live: &Segment) -> Segment {
        let offsets = (
            self.local_offset(live.flags),
            self.remote_offset(live.flags),
        );
        renumbered(live, offsets, |val, _| {
            let (script, live) = self.first_timestamp.unwrap_or((*val, *val));
            *val = val.wrapping_sub(live).wrapping_add(script);
        })
    }

    /// A packet the script sent, back in its own numbers, for the report.
    pub(super) fn echo_of_inbound(&self, live: &Segment) -> Segment {
        let offsets = (
            self.remote_offset(live.flags),
            self.local_offset(live.flags),
        );
        renumbered(live, offsets, |_, ecr| {
            let named = self.timestamps.iter().find(|(_, live)| *live == ecr);
            *ecr = named.map_or(*ecr, |(script, _)| *script);
        })
    }

    /// Remembers which TSval of the stack stands for which of the script.
    pub(super) fn learn_timestamp(&mut self, expected: &Packet, live: &Segment) {
        let named = expected
            .options
            .iter()
            .flatten()
            .find_map(|option| match option {
                TcpOption::Timestamps { val, .. } => Some(*val),
                _ => None,
            });
        if let (Some(script), Some((live, _))) = (named, live.timestamps()) {
            self.first_timestamp.get_or_insert((script, live));
            self.timestamps.insert(script, live);
        }
    }

    /// Describes how an outbound packet's flow label is wrong: labels are random, so only a change from the label
    /// before, or its absence, can be checked.
    pub(super) fn label_difference(
        &mut self,
        expected: &Packet,
        actual: &Segment,
    ) -> Option<String> {
        let (script, live) = (expected.ip.flow_label?, actual.flow_label);
        let fits = match self.label {
            _ if live == 0 => return Some("flow label: the packet has none".into()),
            None => true,
            Some((before, live_before)) => (before == script) == (live_before == live),
        };
        let before = self.label.replace((script, live));
        let (_, live_before) = before.unwrap_or_default();
        (!fits).then(|| {
            format!("flow label: {live:#x} after {live_before:#x}, the script says {script:#x}")
        })
    }

    /// Returns the bytes that the application wrote at this place of the stream, if it wrote that much.
    pub(super) fn written_at(&self, script_seq: u32, len: usize) -> Option<&[u8]> {
        let from = script_seq.wrapping_sub(1) as usize;
        self.written.get(from..from.checked_add(len)?)
    }
}

/// A packet with the offsets of its two sequence spaces taken off, and TSval and TSecr as `stamps` leaves them.
fn renumbered(
    live: &Segment,
    (seq_offset, ack_offset): (u32, u32),
    stamps: impl Fn(&mut u32, &mut u32),
) -> Segment {
    let mut segment = live.clone();
    segment.seq = live.seq.wrapping_sub(seq_offset);
    // Without the flag the field means nothing and is as it is.
    if live.flags.contains(Flags::ACK) {
        segment.ack = live.ack.wrapping_sub(ack_offset);
    }
    for option in &mut segment.options {
        match option {
            TcpOption::Sack(blocks) => {
                for (left, right) in blocks {
                    *left = left.wrapping_sub(ack_offset);
                    *right = right.wrapping_sub(ack_offset);
                }
            }
            TcpOption::Timestamps { val, ecr } => stamps(val, ecr),
            _ => {}
        }
    }
    segment
}

/// The byte that inbound data holds at an offset of its stream: a repeated or missing piece shows.
pub(super) fn inbound_byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The byte an application writes at an offset of its stream.
pub(super) fn outbound_byte(offset: u64) -> u8 {
    !inbound_byte(offset ^ 0x5555)
}
