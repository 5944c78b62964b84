//! Ports of one switch, polled by the test.

use janus_mem::Pool;

use super::*;
use crate::testing::{self, frame};
use crate::wrap::faults::{Faults, FaultyBackend};

struct Bench {
    queues: Vec<Box<dyn Queue>>,
    pool: Pool,
    counters: Arc<SwitchCounters>,
}

impl Bench {
    fn new(ports: usize) -> Bench {
        let ports = switch(ports, Config::default()).unwrap();
        let counters = ports[0].switch_counters();
        let open = |port: Port| Box::new(port).open(1).unwrap().remove(0);
        let mut bench = Bench {
            queues: ports.into_iter().map(open).collect(),
            pool: testing::pool(8192),
            counters,
        };
        // Each shows its buffers.
        bench.heard();
        bench
    }

    fn mac(&self, port: usize) -> MacAddr {
        self.queues[port].caps().mac.unwrap()
    }

    fn send(&mut self, from: usize, src: MacAddr, dst: MacAddr, text: &[u8]) {
        let header = ethernet::Header {
            dst,
            src,
            ethertype: 0x88b5,
        };
        let bytes = [&header.to_bytes()[..], text].concat();
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        batch.push(frame(&mut self.pool, &bytes)).unwrap();
        self.queues[from].tx_burst(&mut self.pool, &mut batch, &mut done);
        assert!(batch.is_empty() && done.is_empty());
    }

    /// What each port has received since.
    fn heard(&mut self) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for queue in &mut self.queues {
            let mut texts = Vec::new();
            loop {
                let mut batch = Batch::new();
                queue.rx_burst(&mut self.pool, &mut batch);
                if batch.is_empty() {
                    break;
                }
                for frame in batch.pull() {
                    let text = &frame.data()[ethernet::LEN..];
                    texts.push(String::from_utf8(text.to_vec()).unwrap());
                    self.pool.free(frame.buf);
                }
            }
            all.push(texts);
        }
        all
    }
}

fn texts<const N: usize>(expected: [&[&str]; N]) -> Vec<Vec<String>> {
    let owned = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect();
    expected.iter().map(|texts| owned(texts)).collect()
}

#[test]
fn what_is_not_known_is_flooded_and_then_learned() {
    let mut bench = Bench::new(4);
    let (a, b) = (bench.mac(0), bench.mac(1));
    bench.send(0, a, b, b"who is there");
    let all: &[&str] = &["who is there"];
    assert_eq!(bench.heard(), texts([&[], all, all, all]));
    bench.send(1, b, a, b"me");
    bench.send(0, a, b, b"good");
    assert_eq!(bench.heard(), texts([&["me"], &["good"], &[], &[]]));
    bench.send(2, bench.mac(2), MacAddr::BROADCAST, b"all");
    assert_eq!(bench.heard(), texts([&["all"], &["all"], &[], &["all"]]));
    // It has moved, and two behind one port need no switch.
    bench.send(3, b, a, b"here now");
    bench.send(0, a, b, b"there");
    bench.send(3, bench.mac(3), b, b"neighbour");
    assert_eq!(bench.heard(), texts([&["here now"], &[], &[], &["there"]]));
    let counters = &bench.counters;
    assert_eq!((counters.flooded.get(), counters.filtered.get()), (2, 1));
    assert_eq!(counters.forwarded.get(), 4);
}

#[test]
fn who_sleeps_is_rung() {
    let mut bench = Bench::new(2);
    let (a, b) = (bench.mac(0), bench.mac(1));
    assert!(bench.queues[1].arm());
    let mut parker = crate::park::Parker::new().unwrap();
    bench.send(0, a, b, b"wake");
    let fds = [bench.queues[1].wait_fd().unwrap()];
    let patience = Some(std::time::Duration::from_secs(10));
    let woken = parker.park(&fds, patience, || false).unwrap();
    assert_eq!(woken, crate::park::Woken::Event);
    assert!(!bench.queues[1].arm(), "there is work");
}

#[test]
fn one_that_claims_a_group_is_not_believed() {
    let mut bench = Bench::new(3);
    let group = MacAddr([3, 0, 0, 0, 0, 1]);
    bench.send(0, group, MacAddr::BROADCAST, b"lie");
    bench.heard();
    bench.send(1, bench.mac(1), group, b"group");
    assert_eq!(bench.heard(), texts([&["group"], &[], &["group"]]));
}

#[test]
fn order_is_kept_and_what_does_not_fit_is_counted() {
    let ports = switch(
        3,
        Config {
            depth: 16,
            ..Config::default()
        },
    )
    .unwrap();
    let lost = ports[0].counters();
    let mut bench = Bench {
        counters: ports[0].switch_counters(),
        queues: Vec::new(),
        pool: testing::pool(4096),
    };
    for port in ports {
        bench.queues.push(Box::new(port).open(1).unwrap().remove(0));
    }
    bench.heard();
    let (a, b) = (bench.mac(0), bench.mac(1));
    bench.send(1, b, a, b"known");
    bench.heard();
    for number in 0..40 {
        bench.send(0, a, b, number.to_string().as_bytes());
    }
    let heard = bench.heard();
    let expected: Vec<String> = (0..heard[1].len())
        .map(|number| number.to_string())
        .collect();
    assert!(heard[2].is_empty() && heard[1] == expected && expected.len() >= 8);
    assert_eq!(lost[0].lost_no_buffer.get() as usize + expected.len(), 40);
}

#[test]
fn what_is_no_frame_for_this_link_is_counted() {
    let ports = switch(2, Config::default()).unwrap();
    let (counters, mut queues) = (ports[0].counters(), Vec::new());
    let whole = ports[0].switch_counters();
    for port in ports {
        queues.push(Box::new(port).open(1).unwrap().remove(0));
    }
    let mut pool = testing::pool(64);
    let (mut batch, mut done) = (Batch::new(), Batch::new());
    batch.push(frame(&mut pool, &[0; 1515])).unwrap();
    batch.push(frame(&mut pool, &[0; 13])).unwrap();
    queues[0].tx_burst(&mut pool, &mut batch, &mut done);
    assert_eq!(
        (counters[0].lost_too_long.get(), whole.dropped_runt.get()),
        (1, 1)
    );
}

#[test]
fn a_port_that_is_not_open_loses_what_is_for_it() {
    let mut ports = switch(3, Config::default()).unwrap();
    ports.pop();
    let counters = ports[0].counters();
    let mut bench = Bench {
        counters: ports[0].switch_counters(),
        queues: Vec::new(),
        pool: testing::pool(1024),
    };
    for port in ports {
        bench.queues.push(Box::new(port).open(1).unwrap().remove(0));
    }
    bench.send(0, bench.mac(0), MacAddr::BROADCAST, b"all");
    assert_eq!(bench.heard(), texts([&[], &["all"]]));
    assert_eq!(counters[0].lost_no_link.get(), 1);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    for (ports, queues, mtu) in [
        (0, 1, 1500),
        (65, 1, 1500),
        (9, 8, 1500),
        (2, 1, 60),
        (2, 0, 1500),
    ] {
        let config = Config {
            queues,
            mtu,
            ..Config::default()
        };
        assert!(switch(ports, config).is_err(), "{ports} {queues} {mtu}");
    }
    let mut ports = switch(
        2,
        Config {
            queues: 2,
            ..Config::default()
        },
    )
    .unwrap();
    let port = ports.remove(0);
    assert_eq!(port.caps().link, Link::Ethernet);
    assert!(Box::new(port).open(3).is_err());
}

#[test]
fn faults_go_around_a_port_as_around_any_device() {
    let faults = Faults {
        seed: 3,
        loss: 100,
        duplicate: 100,
        reorder: 0,
        distance: 0,
        ..Faults::default()
    };
    let mut ports = switch(2, Config::default()).unwrap().into_iter();
    let (near, far) = (ports.next().unwrap(), ports.next().unwrap());
    let mut bench = Bench {
        counters: near.switch_counters(),
        queues: Vec::new(),
        pool: testing::pool(4096),
    };
    let faulty = FaultyBackend::new(Box::new(near), faults);
    let counters = faulty.counters();
    bench
        .queues
        .push(Box::new(faulty).open(1).unwrap().remove(0));
    bench.queues.push(Box::new(far).open(1).unwrap().remove(0));
    bench.heard();
    let (a, b) = (bench.mac(0), bench.mac(1));
    let mut got = 0;
    for number in 0..1000 {
        bench.send(0, a, b, number.to_string().as_bytes());
        got += bench.heard()[1].len() as u64;
    }
    let sent = &counters.sent;
    assert_eq!(got, sent.passed.get() + sent.duplicated.get());
    assert!(sent.lost.get() > 20 && sent.duplicated.get() > 20);
}
