//! Peers' deviations with timestamps: some send none, some echo values they never received.

use janus_wire::tcp::Flags;

/// Offset of TCP behind an IPv4 header without options.
const TCP: usize = 20;
const OPTIONS: usize = TCP + 20;

fn flags(packet: &[u8]) -> u8 {
    packet[TCP + 13] & (Flags::SYN.0 | Flags::ACK.0)
}

/// Sets the 16 bits at `at`, an even place of the segment, and corrects the checksum (RFC 1624).
fn set(packet: &mut [u8], at: usize, new: u16) {
    let word = |packet: &[u8], at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let sum = [!word(packet, TCP + 16), !word(packet, at), new];
    let mut sum: u32 = sum.into_iter().map(u32::from).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[at..at + 2].copy_from_slice(&new.to_be_bytes());
    packet[TCP + 16..TCP + 18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Replaces the timestamps option of a SYN by no-operations. Returns false if there was none.
pub(super) fn strip(packet: &mut [u8]) -> bool {
    let end = TCP + usize::from(packet[TCP + 12] >> 4) * 4;
    let mut at = OPTIONS;
    while flags(packet) == Flags::SYN.0 && at + 1 < end && packet[at] != 0 {
        match packet[at] {
            1 => at += 1,
            8 => {
                for place in at..at + 10 {
                    let even = place & !1;
                    let mut bytes = [packet[even], packet[even + 1]];
                    bytes[place & 1] = 1;
                    set(packet, even, u16::from_be_bytes(bytes));
                }
                return true;
            }
            _ => at += usize::from(packet[at + 1]).max(2),
        }
    }
    false
}

/// Changes the lowest bits of the echo. Returns false if there was none.
pub(super) fn lie(packet: &mut [u8], bits: u16) -> bool {
    let echoes = packet.len() >= OPTIONS + 12 && packet[OPTIONS..OPTIONS + 4] == [1, 1, 8, 10];
    if flags(packet) != Flags::ACK.0 || !echoes {
        return false;
    }
    let at = OPTIONS + 10;
    let said = u16::from_be_bytes([packet[at], packet[at + 1]]);
    set(packet, at, said ^ bits);
    true
}
