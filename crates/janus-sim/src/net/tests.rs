use super::*;
use std::net::{IpAddr, SocketAddrV4};

fn exchange(network: &mut Network, model: LinkModel) -> Tally {
    let mut pair = Pair::new(network, &Config::default(), model.clone(), model);
    pair.exchange(100_000, 50_000, pair::Parting::ShutdownBoth);
    pair.assert_clean();
    network.tally()
}

#[test]
fn a_perfect_network_loses_nothing() {
    let tally = exchange(&mut Network::new(1), LinkModel::default());
    assert_eq!(
        (tally.lost, tally.duplicated, tally.damaged, tally.sent),
        (0, 0, 0, tally.arrived)
    );
}

#[test]
fn the_same_seed_takes_the_same_course() {
    let model = LinkModel {
        loss: 50,
        reorder: 50,
        duplicate: 20,
        corrupt: 20,
        ..LinkModel::default()
    };
    let run = |seed| {
        let mut network = Network::new(seed);
        exchange(&mut network, model.clone());
        (network.pcapng(), network.now())
    };
    assert!(run(3) == run(3), "two runs with one seed differ");
    assert!(run(3) != run(4), "the seed changes nothing");
}

#[test]
fn every_kind_of_trouble_happens_and_is_survived() {
    let model = LinkModel {
        loss: 50,
        duplicate: 50,
        reorder: 50,
        corrupt: 50,
        split: 50,
        jitter: Duration::from_millis(1),
        rate: Some(5_000_000),
        ..LinkModel::default()
    };
    let tally = exchange(&mut Network::new(5), model);
    assert!(
        tally.lost > 0 && tally.duplicated > 0 && tally.damaged > 0 && tally.split > 0,
        "{tally:?}"
    );
}

#[test]
fn the_capture_holds_each_packet_twice_and_losses_once_more() {
    let mut network = Network::new(6);
    let tally = exchange(
        &mut network,
        LinkModel {
            loss: 30,
            ..LinkModel::default()
        },
    );
    let file = network.pcapng();
    // Blocks: type, length, body, length.
    let (mut at, mut packets) = (0, 0);
    while at < file.len() {
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
        packets += u64::from(word(at) == 6);
        at += word(at + 4) as usize;
    }
    assert_eq!(packets, tally.sent + tally.arrived + tally.lost);
}

#[test]
fn four_hosts_all_talk_to_each_other() {
    let mut network = Network::new(9);
    network.set_model(LinkModel {
        loss: 50,
        reorder: 50,
        duplicate: 20,
        ..LinkModel::default()
    });
    let hosts: Vec<HostId> = (0..4)
        .map(|_| network.add_host(&Config::default()))
        .collect();
    let any = |port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    let listeners: Vec<_> = hosts
        .iter()
        .map(|id| {
            network
                .host(*id)
                .stack
                .listen(any(80), 16)
                .expect("a free port")
        })
        .collect();
    let mut clients = Vec::new();
    for from in &hosts {
        for to in hosts.iter().filter(|to| *to != from) {
            let (now, remote) = (
                network.now(),
                SocketAddrV4::new(network.host(*to).address, 80),
            );
            let local = any(5_000 + to.0 as u16);
            clients.push((
                *from,
                network
                    .host(*from)
                    .stack
                    .connect(now, local, remote)
                    .expect("a connection"),
            ));
        }
    }
    let mut answered = vec![false; clients.len()];
    let mut servers = Vec::new();
    let done = network.run_until(Duration::from_secs(600), |network| {
        let now = network.now();
        for (host, listener) in hosts.iter().zip(&listeners) {
            while let Ok((conn, peer)) = network.host(*host).stack.accept(*listener) {
                // The server's answer says who it thinks the client is.
                let IpAddr::V4(ip) = peer.ip() else {
                    panic!("not IPv4: {peer}");
                };
                let hello = ip.octets();
                assert_eq!(network.host(*host).stack.write(now, conn, &hello), Ok(4));
                servers.push((*host, conn));
            }
        }
        for ((host, conn), answered) in clients.iter().zip(&mut answered) {
            let mut hello = [0; 16];
            let host = network.host(*host);
            if host.stack.read(now, *conn, &mut hello) == Ok(4) {
                assert_eq!(hello[..4], host.address.octets());
                *answered = true;
            }
        }
        answered.iter().all(|answered| *answered)
    });
    assert!(done, "{answered:?}");
    let now = network.now();
    for (host, conn) in clients.into_iter().chain(servers) {
        network.host(host).stack.close(now, conn);
    }
    network.run_for(Duration::from_secs(3_600));
    assert_eq!(network.leftovers(), Vec::<String>::new());
}

#[test]
fn a_partition_is_survived_when_it_ends() {
    let mut network = Network::new(11);
    let mut pair = Pair::new(
        &mut network,
        &Config::default(),
        LinkModel::default(),
        LinkModel::default(),
    );
    let from = pair.network.now() + Duration::from_millis(10);
    let hosts = vec![pair.client];
    pair.network.partition(Partition {
        hosts,
        during: from..from + Duration::from_secs(20),
        way: Way::Out,
    });
    pair.exchange(200_000, 200_000, pair::Parting::ShutdownBoth);
    pair.assert_clean();
    let now = network.now();
    assert!(network.tally().cut_off > 0 && now > from + Duration::from_secs(20));
}

#[test]
fn what_is_too_long_for_a_link_is_reported_or_vanishes() {
    struct Errors(Arc<std::sync::atomic::AtomicU64>);
    impl Observer for Errors {
        fn sent(&mut self, _now: Instant, _from: HostId, _packet: &[u8]) {}
        fn arrives(&mut self, _now: Instant, _to: HostId, packet: &[u8]) {
            let is_icmp = packet[9] == 1;
            self.0
                .fetch_add(u64::from(is_icmp), std::sync::atomic::Ordering::Relaxed);
        }
    }
    for black_hole in [false, true] {
        let mut network = Network::new(12);
        let model = LinkModel {
            mtu: 1_000,
            black_hole,
            ..LinkModel::default()
        };
        let errors = Arc::default();
        network.observe(Box::new(Errors(Arc::clone(&errors))));
        let mut pair = Pair::new(&mut network, &Config::default(), model.clone(), model);
        let (client, _) = pair.open();
        let (host, now) = (pair.client, pair.network.now());
        let written = pair
            .network
            .host(host)
            .stack
            .write(now, client, &[1; 2_000]);
        assert_eq!(written, Ok(2_000));
        network.run_for(Duration::from_millis(50));
        assert!(network.tally().too_big > 0);
        let told = errors.load(std::sync::atomic::Ordering::Relaxed) > 0;
        assert_eq!(told, !black_hole);
    }
}
