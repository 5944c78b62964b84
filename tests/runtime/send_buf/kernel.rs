//! The kernel's TCP as the peer, over a TAP device in a namespace of the test's own, with the kernel's offloads: a large content
//! from buffers filled in place, and an echo of buffers that came in. Needs root; without it the test says so in one line.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream as KernelStream};
use std::path::Path;

use janus::BackendChoice;
use janus::net::TcpStream;
use janus_io::tap::{DEVICE, Tap};

use super::{serve_and_report, server_address};
use crate::support::content::content;
use crate::support::privileged::{in_own_space, skip};
use crate::support::reports::sum;
use crate::support::{ONE_COMBINED, PATIENCE, pattern};

const BYTES: usize = 8 << 20;

/// Answers `D` with the content, anything else with what comes.
async fn answer(stream: TcpStream) {
    let mut what = [0];
    if stream.read_exact(&mut what).await.is_err() {
        return;
    }
    if what != *b"D" {
        while let Some(piece) = stream.recv().await.unwrap() {
            stream.send_buf(piece).await.unwrap();
        }
        return;
    }
    let (bytes, mut at) = (content(BYTES, 3), 0);
    while at < bytes.len() {
        let mut buf = stream.alloc_buf().await.unwrap();
        at += buf.put(&bytes[at..]);
        stream.send_buf(buf).await.unwrap();
    }
}

fn connect(what: &[u8]) -> KernelStream {
    let mut stream = KernelStream::connect_timeout(&server_address(80), PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(what).unwrap();
    stream
}

fn exchange() {
    let tap = Tap::new("jsb0").with_kernel_address(Ipv4Addr::new(192, 0, 2, 2), 24);
    let taken = tap.counters();
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::Custom(Box::new(tap)))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, reports) = serve_and_report(builder, answer);

    let mut got = Vec::new();
    connect(b"D").read_to_end(&mut got).unwrap();
    assert!(got == content(BYTES, 3), "{} of {BYTES} bytes", got.len());
    let after = reports.fresh(1);
    let filled = sum(&after, |core| core.tcp.buffers_given);
    assert!(filled >= (BYTES / 1_460) as u64, "{filled} buffers");
    assert_eq!(sum(&after, |core| core.tcp.buffers_copied), 0);

    let mut stream = connect(b"E");
    let sent = pattern(BYTES, 5);
    let mut writing = stream.try_clone().unwrap();
    let text = sent.clone();
    let writer = std::thread::spawn(move || {
        writing.write_all(&text).unwrap();
        writing.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert!(back == sent, "{} of {BYTES} bytes came back", back.len());
    let tcp = reports.fresh(1)[0].tcp;
    println!(
        "{filled} buffers filled and sent, {} passed on, {} copied, {} cut; {} frames of several segments",
        tcp.buffers_given - filled,
        tcp.buffers_copied,
        tcp.segments_cut,
        taken.joined_out.get(),
    );
    assert!(tcp.buffers_given > filled);
    server.stop().unwrap();
}

#[test]
fn the_kernel_gets_what_buffers_hold() {
    if !Path::new(DEVICE).exists() {
        return skip("this machine has no /dev/net/tun");
    }
    if let Err(why) = in_own_space(exchange) {
        skip(&why);
    }
}
