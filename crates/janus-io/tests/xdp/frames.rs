//! Frames there and back: by the driver and by the kernel, lent ones, copied ones, sleep, want of memory, several queues.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use janus_io::park::{Parker, Woken};
use janus_io::xdp::Mode;
use janus_io::{Backend, Batch, Queue};
use janus_mem::{Depot, Frame, Growth, LENT, Pool};
use janus_wire::{arp, ethernet, ipv4, proto};

use crate::veth::*;
use crate::*;

/// There and back over one queue while the kernel keeps what is its own; in the end everything is as before.
fn there_and_back(mode: Mode, name: &'static str) {
    in_veth(1, move |veth| {
        kernel_answers(veth);
        let depot = depot();
        let backend = Box::new(xdp(&depot).with_mode(mode));
        let counters = backend.counters();
        let mut queues = backend.open(1).unwrap();
        let queue = &mut *queues[0];
        assert!(is_attached());
        let caps = queue.caps().clone();
        assert_eq!((caps.mtu, caps.name.as_str()), (1500, name));
        assert!(!caps.tx_checksum && !caps.rx_checksum);
        let mut pool = depot.pool();
        let socket = far_socket(veth);
        let port = socket.local_addr().unwrap().port();
        socket.send_to(b"there", (OURS, 5000)).unwrap();
        let far = resolve(queue, &mut pool);
        let header = receive(queue, &mut pool, |header, payload| {
            let ip = ipv4::parse(payload).ok()?;
            (ip.proto == proto::UDP && ip.payload().ends_with(b"there")).then_some(header)
        });
        assert_eq!((header.dst, header.src), (caps.mac.unwrap(), far));

        let (header, packet) = datagram(far, caps.mac.unwrap(), port, b"hence");
        let answer = frame(&mut pool, header, &packet);
        send(queue, &mut pool, vec![answer]);
        let mut text = [0; 64];
        let (len, from) = socket.recv_from(&mut text).unwrap();
        assert_eq!(
            (&text[..len], from),
            (&b"hence"[..], (v4(OURS), 5000).into())
        );

        kernel_answers(veth);
        drop(queues);
        assert!(!is_attached());
        kernel_answers(veth);
        drop(pool);
        assert_eq!(depot.stats().outstanding, 0, "every buffer is home");
        for lost in [
            &counters.strange,
            &counters.send_errors,
            &counters.foreign_pool,
        ] {
            assert_eq!(lost.get(), 0, "{counters:?}");
        }
    });
}

#[test]
fn there_and_back_by_the_driver() {
    there_and_back(Mode::Auto, "xdp xnear (native, copy)");
}

#[test]
fn there_and_back_by_the_kernel_for_any_driver() {
    there_and_back(Mode::Generic, "xdp xnear (generic, copy)");
}

/// Where the driver refuses (a veth with fewer receive queues than its peer sends to), the kernel does it.
#[test]
fn generic_where_the_driver_refuses() {
    in_veth(2, |veth| {
        ip(&format!("link set {NEAR} down")).unwrap();
        run("ethtool --version").expect("ethtool, which makes the veth lopsided");
        run(&format!("ethtool -L {NEAR} rx 1 tx 1")).unwrap();
        ip(&format!("link set {NEAR} up")).unwrap();
        let depot = depot();
        let native = Box::new(xdp(&depot).with_mode(Mode::Native));
        let refused = native.open(1).err().unwrap().to_string();
        assert!(refused.contains("xdp_mode = \"generic\""), "{refused}");
        let mut queues = xdp(&depot).open(1).unwrap();
        assert_eq!(queues[0].caps().name, "xdp xnear (generic, copy)");
        let mut pool = depot.pool();
        far_socket(veth).send_to(b"there", (OURS, 5000)).unwrap();
        resolve(&mut *queues[0], &mut pool);
    });
}

#[test]
fn lent_frames_come_back_once_each_and_as_they_were() {
    in_veth(1, |veth| {
        let depot = depot();
        let mut queues = xdp(&depot).open(1).unwrap();
        let queue = &mut *queues[0];
        let mut pool = depot.pool();
        let socket = far_socket(veth);
        let port = socket.local_addr().unwrap().port();
        socket.send_to(b"there", (OURS, 5000)).unwrap();
        let far = resolve(queue, &mut pool);
        let mac = queue.caps().mac.unwrap();
        // Not more at a time than the far socket's buffer holds, as nobody reads there meanwhile.
        let mut seen = 0_u32;
        for round in 0..40_u32 {
            let frames = (0..100).map(|n| {
                let key = round * 100 + n;
                let (header, packet) = datagram(far, mac, port, &key.to_be_bytes());
                let mut frame = frame(&mut pool, header, &packet);
                frame.key = key;
                frame.tag = if n % 3 == 0 { 0 } else { LENT | 5 << 8 };
                frame
            });
            let frames: Vec<Frame> = frames.collect();
            let back = send(queue, &mut pool, frames);
            let mut keys: Vec<u32> = back.iter().map(|frame| frame.key).collect();
            keys.sort_unstable();
            let lent = (round * 100..round * 100 + 100).filter(|key| key % 100 % 3 != 0);
            assert_eq!(keys, lent.collect::<Vec<u32>>());
            for frame in back {
                assert_eq!(frame.tag, LENT | 5 << 8);
                assert!(frame.data().ends_with(&frame.key.to_be_bytes()));
                pool.free(frame.buf);
            }
            for _ in 0..100 {
                let mut text = [0; 16];
                let (len, _) = socket.recv_from(&mut text).expect("each arrives");
                assert_eq!(text[..len], seen.to_be_bytes(), "in order");
                seen += 1;
            }
        }
        drop((queues, pool));
        assert_eq!(depot.stats().outstanding, 0);
    });
}

/// Frames in memory that the kernel was not told of still get there, by a copy that is counted.
#[test]
fn frames_of_another_depot_are_copied() {
    in_veth(1, |veth| {
        let (depot, other) = (depot(), depot());
        let backend = xdp(&depot);
        let counters = backend.counters();
        let mut queues = backend.open(1).unwrap();
        let (mut pool, mut strange) = (depot.pool(), other.pool());
        let socket = far_socket(veth);
        let port = socket.local_addr().unwrap().port();
        socket.send_to(b"there", (OURS, 5000)).unwrap();
        let far = resolve(&mut *queues[0], &mut pool);
        let mac = queues[0].caps().mac.unwrap();
        let (header, packet) = datagram(far, mac, port, b"hence");
        let mut lent = frame(&mut strange, header, &packet);
        lent.tag = LENT;
        assert_eq!(send(&mut *queues[0], &mut pool, vec![lent]).len(), 1);
        let mut text = [0; 16];
        assert_eq!(socket.recv_from(&mut text).unwrap().0, 5);
        assert_eq!(counters.copied.get(), 1);
        drop((queues, pool, strange));
        assert_eq!(
            (depot.stats().outstanding, other.stats().outstanding),
            (0, 0)
        );
    });
}

#[test]
fn the_descriptor_wakes_a_sleeper_and_arm_sees_what_is_there() {
    in_veth(1, |veth| {
        let depot = depot();
        let mut queues = xdp(&depot).open(1).unwrap();
        let queue = &mut *queues[0];
        let mut pool = depot.pool();
        let mut parker = Parker::new().unwrap();
        let socket = far_socket(veth);
        for _ in 0..20 {
            // Whatever chatter there is, until nothing is left.
            while !queue.arm() {
                let mut batch = Batch::new();
                queue.rx_burst(&mut pool, &mut batch);
                batch.pull().for_each(|frame| pool.free(frame.buf));
            }
            let fds = [queue.wait_fd().unwrap()];
            let sender = socket.try_clone().unwrap();
            let sending = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(2));
                sender.send_to(b"wake", (OURS, 5000)).unwrap();
            });
            let woken = parker.park(&fds, Some(PATIENCE), || false).unwrap();
            assert_eq!(woken, Woken::Event);
            sending.join().unwrap();
            assert!(!queue.arm(), "what woke it is still there");
            // Once the far kernel knows the way each datagram arrives.
            resolve_if_asked(queue, &mut pool);
        }
        // A copy of what was slept on, as a shard keeps one, keeps nothing open: the queue is free for the next.
        let _copy = queue.wait_fd().unwrap().try_clone_to_owned().unwrap();
        drop(queues);
        drop(xdp(&depot).open(1).unwrap());
    });
}

fn resolve_if_asked(queue: &mut dyn Queue, pool: &mut Pool) {
    let mut batch = Batch::new();
    queue.rx_burst(pool, &mut batch);
    for frame in batch.pull() {
        let (header, payload) = ethernet::Header::parse(frame.data()).unwrap();
        if header.ethertype == ethernet::ethertype::ARP {
            let packet = arp::Packet::parse(payload).unwrap();
            let mut bytes = [0; arp::LEN];
            packet.reply(queue.caps().mac.unwrap()).emit(&mut bytes);
            let header = ethernet::Header {
                dst: header.src,
                src: queue.caps().mac.unwrap(),
                ethertype: header.ethertype,
            };
            let answer = self::frame(pool, header, &bytes);
            send(queue, pool, vec![answer]);
        }
        pool.free(frame.buf);
    }
}

/// Spares the far kernel the question for our address.
fn far_knows(veth: &Veth, queue: &dyn Queue) {
    let mac = queue.caps().mac.unwrap();
    let command = format!("ip neighbour add {OURS} lladdr {mac} dev {FAR}");
    veth.far_run(&command).unwrap();
}

/// With every buffer in use elsewhere the kernel has none to receive into, so nothing would wake a sleeper: there is no
/// sleep then, and packets come again as soon as there are buffers.
#[test]
fn memory_that_runs_out_leaves_nobody_deaf() {
    in_veth(1, |veth| {
        let depot = Depot::new(512, &Growth::Inline).unwrap();
        let backend = xdp(&depot);
        let counters = backend.counters();
        let mut queues = backend.open(1).unwrap();
        let queue = &mut *queues[0];
        far_knows(veth, queue);
        let mut pool = depot.pool();
        let mut hoard: Vec<_> = std::iter::from_fn(|| pool.alloc_reserved()).collect();
        assert!(queue.arm(), "it has its buffers still");
        let socket = far_socket(veth);
        let mut held: Vec<Frame> = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while queue.arm() || counters.no_buffer.get() == 0 {
            assert!(Instant::now() < deadline, "{} taken", held.len());
            socket.send_to(b"more", (OURS, 5000)).unwrap();
            let mut batch = Batch::new();
            queue.rx_burst(&mut pool, &mut batch);
            held.extend(batch.pull());
        }
        hoard.drain(..).for_each(|buf| pool.free(buf));
        held.drain(..).for_each(|frame| pool.free(frame.buf));
        let deadline = Instant::now() + PATIENCE;
        while !queue.arm() {
            assert!(Instant::now() < deadline, "{counters:?}");
            let mut batch = Batch::new();
            queue.rx_burst(&mut pool, &mut batch);
            batch.pull().for_each(|frame| pool.free(frame.buf));
        }
        socket.send_to(b"again", (OURS, 5000)).unwrap();
        let is_it = |_, packet: &[u8]| packet.ends_with(b"again").then_some(());
        receive(queue, &mut pool, is_it);
        drop((queues, pool));
        assert_eq!(depot.stats().outstanding, 0);
    });
}

/// Two queues with one memory: each gets a share of the flows, and a buffer received by one is sent by the other.
#[test]
fn two_queues_share_the_memory() {
    in_veth(2, |veth| {
        let depot = depot();
        let mut queues = xdp(&depot).open(2).unwrap();
        let mut pool = depot.pool();
        far_knows(veth, &*queues[0]);
        let sockets: Vec<UdpSocket> = (0..64).map(|_| far_socket(veth)).collect();
        for socket in &sockets {
            socket.send_to(b"there", (OURS, 5000)).unwrap();
        }
        let (mut counts, deadline) = ([0; 2], Instant::now() + PATIENCE);
        let mut held = Vec::new();
        while counts[0] + counts[1] < 64 {
            assert!(Instant::now() < deadline, "{counts:?}");
            for (queue, count) in queues.iter_mut().zip(&mut counts) {
                let mut batch = Batch::new();
                queue.rx_burst(&mut pool, &mut batch);
                for frame in batch.pull() {
                    if frame.data().ends_with(b"there") {
                        *count += 1;
                        held.push(frame);
                    } else {
                        pool.free(frame.buf);
                    }
                }
            }
        }
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        // Turned round in place, with no checksum, and back by the other queue.
        for (n, mut frame) in held.into_iter().enumerate() {
            let bytes = frame.data_mut();
            let (dst, rest) = bytes.split_at_mut(6);
            dst.swap_with_slice(&mut rest[..6]);
            let (src, dst) = bytes[26..34].split_at_mut(4);
            src.swap_with_slice(dst);
            let (from, to) = bytes[34..38].split_at_mut(2);
            from.swap_with_slice(to);
            bytes[40..42].fill(0);
            send(&mut *queues[n % 2], &mut pool, vec![frame]);
        }
        for socket in &sockets {
            let mut text = [0; 16];
            assert_eq!(socket.recv_from(&mut text).unwrap().0, 5);
        }
        drop((queues, pool));
        assert_eq!(depot.stats().outstanding, 0);
    });
}
