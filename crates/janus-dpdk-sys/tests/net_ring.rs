//! Frames through a DPDK port: the `net_ring` device gives back what it is sent, so every frame can be checked. Runs
//! without privileges, huge pages or a network card. One test, because DPDK can be started once in a process.

#![cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]

use std::ffi::{CString, c_char, c_int};

use janus_dpdk_sys::ffi::{self, jd_frame};
use janus_dpdk_sys::{Error, check};

const FRAMES: u64 = 10_000;
const BURST: u16 = 32;
const BUFFERS: u32 = 4095;
const FRAME_LEN: u16 = 64;

fn start() -> Result<(), Error> {
    let words = [
        "janus",
        "--no-huge",
        "--no-shconf",
        "--no-pci",
        "--no-telemetry",
        "-m",
        "64",
        "-l",
        "0",
        "--vdev=net_ring0",
    ];
    let words = words.map(|word| CString::new(word).unwrap());
    let mut pointers: Vec<*mut c_char> =
        words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    // SAFETY: as many zero-terminated strings as are counted. DPDK copies what it keeps and changes none.
    check(unsafe { ffi::jd_eal_init(pointers.len() as c_int, pointers.as_mut_ptr()) }).map(|_| ())
}

fn make_pool() -> Result<*mut ffi::rte_mempool, Error> {
    let mut error = 0;
    // SAFETY: the name is zero-terminated, `error` can be written.
    let pool = unsafe {
        ffi::jd_pool_create(
            c"frames".as_ptr(),
            BUFFERS,
            128,
            128 + 2048,
            -1,
            &raw mut error,
        )
    };
    check(error).map(|_| pool)
}

/// Makes the port with one queue each way and starts it.
fn open(pool: *mut ffi::rte_mempool) -> Result<u16, Error> {
    let mut port = u16::MAX;
    let config = ffi::jd_port_config {
        hash_key: std::ptr::null(),
        offloads: ffi::JD_OFFLOAD_TX_TSO | ffi::JD_OFFLOAD_RX_CHECKSUM,
        hash_key_len: 0,
        rx_queues: 1,
        tx_queues: 1,
        rx_descriptors: 1024,
        tx_descriptors: 1024,
        mtu: 0,
        promiscuous: 0,
        interrupts: 0,
        reserved: [0; 6],
    };
    let mut info = ffi::jd_port_info::default();
    let mut on = u32::MAX;
    // SAFETY: DPDK runs; every pointer is to a local value of the declared type, `pools` has one pool for one queue.
    unsafe {
        check(ffi::jd_port_by_name(c"net_ring0".as_ptr(), &raw mut port))?;
        check(ffi::jd_port_info(port, &raw mut info))?;
        assert!(info.driver.starts_with(b"net_ring\0"), "{info:?}");
        assert!(info.rx_queues_max >= 1 && info.mtu >= 1500, "{info:?}");
        let too_many = ffi::jd_port_config {
            rx_queues: info.rx_queues_max + 1,
            ..config
        };
        let refused = check(ffi::jd_port_setup(
            port,
            &raw const too_many,
            &raw const pool,
            &raw mut on,
        ));
        assert_eq!(
            refused.unwrap_err().to_string(),
            "Numerical result out of range"
        );
        check(ffi::jd_port_setup(
            port,
            &raw const config,
            &raw const pool,
            &raw mut on,
        ))?;
        assert_eq!(on & !info.offloads, 0, "an offload that the port has not");
        check(ffi::jd_port_start(port))?;
        let mut speed = 0;
        assert_eq!(
            check(ffi::jd_port_link(port, &raw mut speed))?,
            1,
            "the link is up"
        );
    }
    Ok(port)
}

/// What frame `number` holds: made up from its number, so that a mix-up cannot go unseen.
fn content(number: u64) -> [u8; FRAME_LEN as usize] {
    let mut bytes = [0; FRAME_LEN as usize];
    for (word, place) in bytes.chunks_exact_mut(8).enumerate() {
        let value = if word == 0 {
            number
        } else {
            number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word as u64
        };
        place.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn send(pool: *mut ffi::rte_mempool, port: u16, from: u64, count: u16) -> u16 {
    let mut frames = [jd_frame::NONE; BURST as usize];
    // SAFETY: DPDK runs, and `frames` holds `count` places.
    check(unsafe { ffi::jd_frames_alloc(pool, frames.as_mut_ptr(), count) }).expect("buffers");
    for (number, frame) in (from..).zip(&mut frames[..usize::from(count)]) {
        assert!(frame.room >= 2048);
        frame.len = FRAME_LEN;
        // SAFETY: the frame is ours and has at least `room` bytes from `data` on.
        unsafe {
            std::ptr::copy_nonoverlapping(
                content(number).as_ptr(),
                frame.data,
                usize::from(FRAME_LEN),
            )
        };
    }
    // SAFETY: the port is started, this is the only thread, the frames are ours; those not sent stay so and are freed.
    unsafe {
        let sent = ffi::jd_tx_burst(port, 0, frames.as_ptr(), count);
        ffi::jd_frames_free(frames[usize::from(sent)..].as_ptr(), count - sent);
        sent
    }
}

/// Receives a burst and checks each frame against its number.
fn receive(port: u16, expected: u64) -> u16 {
    let mut frames = [jd_frame::NONE; BURST as usize];
    // SAFETY: the port is started, this is the only thread, `frames` holds `BURST` places.
    let got = unsafe { ffi::jd_rx_burst(port, 0, frames.as_mut_ptr(), BURST) };
    let frames = &frames[..usize::from(got)];
    for (number, frame) in (expected..).zip(frames) {
        assert_eq!(
            (frame.len, frame.flags & ffi::JD_RX_CHAINED),
            (FRAME_LEN, 0)
        );
        // SAFETY: a received frame has `len` bytes at `data`, and is ours until freed.
        let bytes = unsafe { std::slice::from_raw_parts(frame.data, usize::from(frame.len)) };
        assert_eq!(bytes, content(number), "frame {number}");
    }
    // SAFETY: these frames were received just now and are given back once.
    unsafe { ffi::jd_frames_free(frames.as_ptr(), got) };
    got
}

#[test]
fn ten_thousand_numbered_frames_come_back_in_order() {
    janus_dpdk_sys::load().expect("the shim");
    start().expect("DPDK starts");
    let pool = make_pool().expect("a pool");
    let port = open(pool).expect("a port");
    let (mut sent, mut received) = (0, 0);
    let started = std::time::Instant::now();
    // Uneven bursts, so that the ring fills and empties. Every turn sends or receives something.
    while received < FRAMES {
        let before = sent + received;
        let wanted = (FRAMES - sent).min(1 + sent % u64::from(BURST)) as u16;
        if wanted > 0 {
            sent += u64::from(send(pool, port, sent, wanted));
        }
        if sent % 3 == 0 || sent == FRAMES || sent - received > 500 {
            received += u64::from(receive(port, received));
        }
        assert_ne!(
            sent + received,
            before,
            "stuck at {sent} sent, {received} received"
        );
    }
    println!(
        "{:.0} ns a frame",
        started.elapsed().as_nanos() as f64 / FRAMES as f64
    );
    assert_eq!(receive(port, FRAMES), 0, "nothing comes twice");

    let mut stats = ffi::jd_stats::default();
    // SAFETY: DPDK runs, `stats` can be written; the port is stopped before it is closed, and the pool freed last, when
    // all of its buffers are back.
    unsafe {
        check(ffi::jd_port_stats(port, &raw mut stats)).expect("statistics");
        assert_eq!(
            (stats.rx_packets, stats.tx_packets),
            (FRAMES, FRAMES),
            "{stats:?}"
        );
        assert_eq!(ffi::jd_pool_in_use(pool), 0, "every buffer is back");
        assert_eq!(ffi::jd_pool_available(pool), BUFFERS);
        check(ffi::jd_port_stop(port)).expect("stop");
        check(ffi::jd_port_close(port)).expect("close");
        ffi::jd_pool_free(pool);
        check(ffi::jd_eal_cleanup()).expect("cleanup");
    }
}
