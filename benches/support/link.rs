//! What benchmarks of kernel devices need of the kernel: its command for interfaces, and a packet that costs it little.

use std::process::Command;

/// Runs `ip` with these words.
pub fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// A UDP datagram to 192.0.2.7, at a hardware address that nobody has: a kernel that gets it drops it at once.
pub fn datagram(len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..12].copy_from_slice(&[2, 9, 9, 9, 9, 9, 2, 8, 8, 8, 8, 8]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 9, 192, 0, 2, 7,
    ]);
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    // A backend that is told nothing of it looks at this itself.
    let sum = janus_wire::checksum::ipv4_header(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}
