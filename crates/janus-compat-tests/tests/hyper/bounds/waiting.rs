//! Connections that wait for a request: new ones, and ones that are kept.

use super::*;

/// A new connection may be silent for twenty seconds.
async fn silent(_: Kind) {
    let mut peer = Peer::open().await;
    sleep(19 * SECOND).await;
    peer.ask().await;
    let (text, took) = Peer::open().await.rest().await;
    assert_eq!(text, "", "nothing was asked");
    assert_bounded(took, 20 * SECOND);
}

#[test]
fn a_new_connection_that_says_nothing_is_closed() {
    with_both(silent);
}

/// A kept connection may be silent for a minute, counted from each answer.
async fn kept(_: Kind) {
    let mut peer = Peer::open().await;
    for _ in 0..5 {
        peer.ask().await;
        sleep(58 * SECOND).await;
    }
    peer.ask().await;
    let (text, took) = peer.rest().await;
    assert_eq!(text, "");
    assert_bounded(took, 60 * SECOND);
}

#[test]
fn a_kept_connection_that_asks_nothing_more_is_closed() {
    with_both(kept);
}

/// Nor does it last longer for who sends what is no request, or no byte at all.
async fn wordless(kind: Kind) {
    let mut peer = Peer::open().await;
    let said = peer.drip(&"\r\n".repeat(1_000), 5 * SECOND).await;
    let (_, took) = peer.rest().await;
    assert!(took <= 26 * SECOND, "{kind:?}: {said} bytes in {took:?}");

    let mut peer = Peer::open().await;
    peer.ask().await;
    peer.stream.set_keepalive(Some(7 * SECOND)).unwrap();
    let (text, took) = peer.rest().await;
    assert_eq!(text, "");
    assert!(
        took >= 60 * SECOND && took <= 121 * SECOND,
        "{kind:?}: {took:?}"
    );
}

#[test]
fn empty_lines_and_keep_alive_segments_put_nothing_off() {
    with_both(wordless);
}

/// A thousand silent connections, half of which have asked before: nothing is left of them.
async fn thousand(kind: Kind) {
    let before = held().await;
    let mut peers = Vec::new();
    for number in 0..1_000 {
        let mut peer = Peer::open().await;
        if number % 2 == 0 {
            peer.ask().await;
        }
        peers.push(peer);
    }
    assert_eq!(held().await.0, before.0 + 1_000);
    sleep(69 * SECOND).await;
    for peer in &mut peers {
        let (text, took) = peer.rest().await;
        assert!(text.is_empty() && took < 70 * SECOND, "{text} {took:?}");
    }
    drop(peers);
    sleep(HOUR).await;
    assert_eq!(held().await, before, "{kind:?}");
}

#[test]
fn of_a_thousand_silent_connections_nothing_is_left() {
    with_both(thousand);
}

async fn stays(_: Kind) {
    let mut silent = Peer::open().await;
    let mut kept = Peer::open().await;
    kept.ask().await;
    let mut slow = Peer::open().await;
    slow.say("POST /count HTTP/1.1\r\nhost: a\r\nconte").await;
    sleep(HOUR).await;
    slow.say("nt-length: 2\r\n\r\nx").await;
    sleep(HOUR).await;
    slow.say("y").await;
    assert!(slow.hear("2").await.starts_with("HTTP/1.1 200 "));
    silent.ask().await;
    kept.ask().await;
}

#[test]
fn without_bounds_all_may_wait_for_hours() {
    for kind in BOTH {
        with(kind, &UNBOUNDED, stays);
    }
}
