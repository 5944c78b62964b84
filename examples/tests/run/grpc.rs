//! The gRPC example, asked by tonic's client over the kernel's sockets: calls side by side, a stream, an error, and an end in the
//! middle of a stream.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use crate::process::{PATIENCE, Server};
use count::counter_client::CounterClient;
use count::{Count, Text};

#[path = "../../grpc/count.rs"]
mod count;

/// Enough numbers that they last longer than a connection is kept for a further call when the server ends.
const LAST: u64 = 100;

/// Runs `client` on a runtime of tokio's, connected to the example.
fn with_client<F: Future<Output = ()>>(
    at: SocketAddr,
    client: impl FnOnce(CounterClient<Channel>) -> F,
) {
    let url = format!("http://{at}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let channel = Endpoint::from_shared(url).unwrap().timeout(PATIENCE);
        client(CounterClient::new(channel.connect().await.unwrap())).await;
    });
}

#[test]
fn calls_and_streams() {
    let server = Server::start("grpc", |_| {});
    // Connections of their own, so that both cores have some.
    for _ in 0..6 {
        with_client(server.at, |mut client| async move {
            let calls = (0..10).map(|number| {
                let mut client = client.clone();
                async move {
                    let text = "word ".repeat(number);
                    let answer = client.words(Text { text }).await.unwrap();
                    assert_eq!(
                        answer.into_inner(),
                        Count {
                            number: number as u64
                        }
                    );
                }
            });
            futures_util::future::join_all(calls).await;

            let asked = client.up_to(Count { number: 5 }).await.unwrap();
            let mut numbers = asked.into_inner();
            for number in 1..=5 {
                assert_eq!(numbers.message().await.unwrap(), Some(Count { number }));
            }
            assert_eq!(numbers.message().await.unwrap(), None);

            let status = client.up_to(Count { number: 1_001 }).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert_eq!(status.message(), "no more than 1000 numbers");

            let text = "x".repeat(4 << 20);
            let status = client.words(Text { text }).await.unwrap_err();
            assert_eq!(status.code(), Code::OutOfRange, "{status}");
        });
    }
    server.ends_well();
}

#[test]
fn a_stream_that_was_begun_is_finished() {
    let server = Server::start("grpc", |_| {});
    with_client(server.at, |mut client| async move {
        let asked = client.up_to(Request::new(Count { number: LAST })).await;
        let mut numbers = asked.unwrap().into_inner();
        for number in 1..=LAST {
            assert_eq!(numbers.message().await.unwrap(), Some(Count { number }));
            if number == 5 {
                server.terminate();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        assert_eq!(numbers.message().await.unwrap(), None);
        // The server has said GOAWAY meanwhile, and takes no further call.
        assert!(client.words(Text::default()).await.is_err());
        assert_eq!(server.end().code(), Some(0));
    });
}

/// A call that the server took is answered. One that finds no connection was never sent, and one that crossed the server's
/// last GOAWAY was turned away whole: each error says so.
#[test]
fn it_ends_under_load() {
    let server = Server::start("grpc", |_| {});
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let answers = runtime.block_on(async {
        let calling = (0..16).map(|_| call_until_the_end(server.at));
        let end = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.terminate();
        };
        let all = futures_util::future::join_all(calling);
        futures_util::future::join(all, end).await.0
    });
    assert!(answers.iter().all(|answers| *answers > 0), "{answers:?}");
    assert_eq!(server.end().code(), Some(0));
}

/// Calls until the server refuses connections; how many answers came.
async fn call_until_the_end(at: SocketAddr) -> u64 {
    let channel = Endpoint::from_shared(format!("http://{at}")).unwrap();
    let mut client = CounterClient::new(channel.timeout(PATIENCE).connect().await.unwrap());
    for answers in 0.. {
        let text = "one two three".to_owned();
        match client.words(Text { text }).await {
            Ok(answer) => assert_eq!(answer.into_inner().number, 3),
            Err(status) if was_turned_away(&status) => {}
            Err(status) => {
                assert!(was_refused(&status), "{answers} answers, then {status:?}");
                return answers;
            }
        }
    }
    unreachable!("the server ends");
}

/// The client's `h2` answers the ping that follows the first GOAWAY before it sends the calls it has begun, and the server's
/// last GOAWAY names only those it has seen by then. A call that was lost after that has another error: that the connection
/// ended.
fn was_turned_away(status: &tonic::Status) -> bool {
    is_caused_by(status, |error: &h2::Error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
    })
}

#[test]
fn a_call_that_was_turned_away_is_told_from_one_that_was_lost() {
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY_BEFORE_THE_FIRST_CALL: &[u8] =
        &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for last_words in [GOAWAY_BEFORE_THE_FIRST_CALL, &[]] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(SETTINGS).unwrap();
            let mut asked = Vec::new();
            while !asked.windows(5).any(|bytes| bytes == b"three") {
                let mut piece = [0; 4096];
                let len = stream.read(&mut piece).unwrap();
                asked.extend_from_slice(&piece[..len]);
            }
            stream.write_all(last_words).unwrap();
        });
        with_client(at, |mut client| async move {
            let text = "one two three".to_owned();
            let status = client.words(Text { text }).await.unwrap_err();
            let turned_away = !last_words.is_empty();
            assert_eq!(was_turned_away(&status), turned_away, "{status:?}");
        });
        server.join().unwrap();
    }
}

fn was_refused(status: &tonic::Status) -> bool {
    is_caused_by(status, |error: &io::Error| {
        error.kind() == io::ErrorKind::ConnectionRefused
    })
}

fn is_caused_by<E: Error + 'static>(status: &tonic::Status, is_it: impl Fn(&E) -> bool) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(&is_it) {
            return true;
        }
        cause = error.source();
    }
    false
}
