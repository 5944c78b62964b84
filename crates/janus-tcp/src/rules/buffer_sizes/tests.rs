//! Sizes that change while connections are being opened, and while they are open.

use core::time::Duration;

use super::BufferSizes;
use crate::testing::Pair;
use crate::{Config, SynCookies};

fn sizes(receive: u32, send: u32) -> BufferSizes {
    BufferSizes {
        receive,
        receive_max: 0,
        send,
        send_max: 0,
    }
}

fn with(receive: u32, send: u32) -> Config {
    Config::default().with_buffer_sizes(sizes(receive, send))
}

#[test]
fn whatever_moment_they_change_at_both_ends_count_windows_alike() {
    for syn_cookies in [SynCookies::Never, SynCookies::Always] {
        let config = Config {
            syn_cookies,
            ..with(1 << 20, 1 << 20)
        };
        for (to, before) in
            [4_000, 1 << 22]
                .into_iter()
                .zip(0..6)
                .chain([(100, 1), (1 << 22, 1), (1 << 24, 2)])
        {
            let mut pair = Pair::new(&config, 11);
            let a = pair.connect(40_000);
            pair.steps(before);
            pair.a.stack.resize_buffers(sizes(to, 1 << 20));
            pair.b.stack.resize_buffers(sizes(to, 1 << 20));
            let mut b = None;
            while b.is_none() {
                pair.step();
                b = pair.b.stack.accept(pair.listener).ok();
            }
            pair.steps(5);
            let (b, _) = b.expect("accepted");
            let (at_a, at_b) = (pair.a.stack.info(a).unwrap(), pair.b.stack.info(b).unwrap());
            let scales = [
                at_a.receive_scale,
                at_b.send_scale,
                at_b.receive_scale,
                at_a.send_scale,
            ];
            assert_eq!(scales, [5; 4], "{to} after {before} steps, {syn_cookies:?}");
        }
    }
}

#[test]
fn an_open_connection_takes_more_when_it_may_and_loses_nothing_when_less() {
    let mut pair = Pair::new(&with(4_000, 10_000), 3);
    let (a, b) = pair.open(40_000);
    let unread = |pair: &Pair| pair.b.stack.info(b).unwrap().unread;
    let mut sent = pair.a.stack.write(pair.now, a, &[7; 100_000]).unwrap();
    assert_eq!(sent, 10_000);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(unread(&pair), 4_000);
    pair.a.stack.resize_buffers(sizes(4_000, 60_000));
    sent += pair.a.stack.write(pair.now, a, &[7; 100_000]).unwrap();
    assert!(sent > 50_000, "{sent}");
    // Probes of the closed window learn that it is open.
    pair.b.stack.resize_buffers(sizes(30_000, 10_000));
    pair.run_for(Duration::from_secs(60));
    assert_eq!(unread(&pair), 30_000);
    pair.b.stack.resize_buffers(sizes(2_000, 10_000));
    let (mut got, mut chunk) = (0, [0; 1_000]);
    while got < sent {
        got += pair.b.stack.read(pair.now, b, &mut chunk).unwrap_or(0);
        // What was offered before may still come.
        assert!(unread(&pair) <= 30_000);
        pair.step();
    }
    pair.run_for(Duration::from_secs(60));
    let rest = pair.a.stack.write(pair.now, a, &[7; 10_000]).unwrap();
    pair.run_for(Duration::from_secs(60));
    assert_eq!(rest, 10_000);
    // The window moves in steps worth a segment.
    assert!((1_000..=2_000).contains(&unread(&pair)));
}

#[test]
fn a_window_that_its_unit_cannot_name_cannot_be_offered() {
    let first = Config::default().buffer_sizes();
    assert_eq!(first.receive_max, 6 << 20);
    let with_max = |receive_max| BufferSizes {
        receive_max,
        ..first
    };
    assert!(with_max((8 << 20) - 1).can_follow(&first));
    assert!(with_max(0).can_follow(&first));
    assert!(!with_max(8 << 20).can_follow(&first));
    assert!(with_max(8 << 20).can_follow(&with_max(9 << 20)));
}
