//! Requests that come slowly.

use super::*;

const HALF: &str = "GET / HTTP/1.1\r\nhos";

/// The head of a request for `/count` with so long a body.
fn count(length: usize) -> String {
    format!("POST /count HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n")
}

/// A head may take ten seconds, in however many pieces.
async fn head(_: Kind) {
    let mut peer = Peer::open().await;
    for _ in 0..3 {
        peer.say(HALF).await;
        sleep(SECOND * 99 / 10).await;
        peer.say("t: a\r\n\r\n").await;
        assert!(peer.hear("ok").await.starts_with("HTTP/1.1 200 "));
        sleep(30 * SECOND).await;
    }
    peer.say(HALF).await;
    let (text, took) = peer.rest().await;
    assert_408(&text);
    assert_bounded(took, 10 * SECOND);

    let mut peer = Peer::open().await;
    let said = peer
        .drip(&format!("{HALF}t: {}", "a".repeat(100)), SECOND)
        .await;
    assert!((10..=12).contains(&said), "{said}");
    assert_408(&peer.rest().await.0);
}

#[test]
fn a_head_that_does_not_end_is_answered_with_408() {
    with_both(head);
}

/// A complete request is answered at once, and the rest of the received bytes has its own time.
async fn behind_others(_: Kind) {
    let mut peer = Peer::open().await;
    peer.say(&format!("{GET}{GET}{HALF}")).await;
    let begun = peer.since;
    assert_eq!(peer.hear("ok").await.matches(" 200 ").count() % 2, 0);
    assert_eq!(now(), begun);
    sleep(9 * SECOND).await;
    peer.say("t: a\r\n\r\n").await;
    assert!(peer.hear("ok").await.starts_with("HTTP/1.1 200 "));

    let mut peer = Peer::open().await;
    peer.say(&format!("{GET}{}abc", count(10))).await;
    assert!(peer.hear("ok").await.starts_with("HTTP/1.1 200 "));
    let (text, took) = peer.rest().await;
    assert_408(&text);
    assert_bounded(took, 20 * SECOND);
}

#[test]
fn requests_behind_others_have_their_own_time() {
    with_both(behind_others);
}

/// A body may pause for twenty seconds.
async fn silent_body(_: Kind) {
    for chunked in [false, true] {
        let head = match chunked {
            false => count(12_000),
            true => "POST /count HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1770\r\n"
                .into(),
        };
        let half = "b".repeat(6_000);
        let mut peer = Peer::open().await;
        peer.say(&head).await;
        sleep(19 * SECOND).await;
        peer.say(&half).await;
        sleep(19 * SECOND).await;
        if chunked {
            peer.say("\r\n1770\r\n").await;
        }
        peer.say(&half).await;
        if chunked {
            peer.say("\r\n0\r\n\r\n").await;
        }
        assert!(peer.hear("12000").await.starts_with("HTTP/1.1 200 "));

        let mut peer = Peer::open().await;
        peer.say(&format!("{head}bbb")).await;
        let (text, took) = peer.rest().await;
        assert_408(&text);
        assert_bounded(took, 20 * SECOND);
    }
}

#[test]
fn a_body_that_stops_is_answered_with_408() {
    with_both(silent_body);
}

/// A body has 240 bytes a second to come with, and half a minute to be behind that.
async fn slow_body(kind: Kind) {
    let mut peer = Peer::open().await;
    peer.say(&count(3_000 * 60)).await;
    for _ in 0..60 {
        sleep(10 * SECOND).await;
        peer.say(&"b".repeat(3_000)).await;
    }
    assert!(peer.hear("180000").await.starts_with("HTTP/1.1 200 "));

    for every in [SECOND / 20, SECOND, 9 * SECOND] {
        let mut peer = Peer::open().await;
        peer.say(&count(100_000)).await;
        peer.drip(&"b".repeat(100_000), every).await;
        let (text, took) = peer.rest().await;
        assert_408(&text);
        assert!(
            took >= 29 * SECOND && took <= 34 * SECOND,
            "{kind:?}, {every:?}: {took:?}"
        );
    }

    // Fast bytes add no time for later.
    let mut peer = Peer::open().await;
    peer.say(&format!("{}{}", count(100_000), "b".repeat(90_000)))
        .await;
    peer.drip(&"b".repeat(10_000), SECOND).await;
    let (text, took) = peer.rest().await;
    assert_408(&text);
    assert!(took <= 32 * SECOND, "{kind:?}: {took:?}");
}

#[test]
fn a_body_that_drips_is_answered_with_408() {
    with_both(slow_body);
}

/// A service that gives a status of its own for a body it could not read.
#[test]
fn what_a_service_of_hypers_says_of_a_late_body_is_408() {
    with(Kind::Hypers, &DEFAULT, |_| async {
        let mut peer = Peer::open().await;
        peer.say("POST /count-or-400 HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nb")
            .await;
        let (text, took) = peer.rest().await;
        assert_408(&text);
        assert_bounded(took, 20 * SECOND);
        // One that comes in time and is wrong is the service's matter.
        let mut peer = Peer::open().await;
        peer.say(
            "POST /count-or-400 HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nno\r\n",
        )
        .await;
        assert!(peer.rest().await.0.starts_with("HTTP/1.1 400 "));
    });
}

/// A handler's time is not the client's.
async fn thoughts(_: Kind) {
    let mut peer = Peer::open().await;
    peer.say(&GET.replace(" / ", " /think ")).await;
    assert!(peer.hear("ok").await.starts_with("HTTP/1.1 200 "));
    assert!(now().saturating_since(peer.since) >= HOUR);
    peer.ask().await;
    peer.say(&GET.replace(" / ", " /ticks ")).await;
    for _ in 0..3 {
        peer.hear("tick\r\n").await;
    }
    peer.hear("0\r\n\r\n").await;
    assert!(now().saturating_since(peer.since) >= 3 * HOUR);
    peer.ask().await;
}

#[test]
fn a_handler_may_think_for_hours() {
    with_both(thoughts);
}
