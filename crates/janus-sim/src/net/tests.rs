use super::*;

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
        jitter: Duration::from_millis(1),
        rate: Some(5_000_000),
        ..LinkModel::default()
    };
    let tally = exchange(&mut Network::new(5), model);
    assert!(
        tally.lost > 0 && tally.duplicated > 0 && tally.damaged > 0,
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
