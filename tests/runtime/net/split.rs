//! A stream in two halves, borrowed and owned.

use std::net::Shutdown;

use futures::join;
use janus::net::TcpStream;

use super::between;
use crate::support::{echo, pattern};

#[test]
fn borrowed_halves_read_and_write_at_a_time() {
    between(echo, |mut stream| async move {
        let sent = pattern(1 << 20, 1);
        let (mut reading, mut writing) = stream.split();
        let write = async {
            writing.write_all(&sent).await.unwrap();
            writing.shutdown().await.unwrap();
        };
        let read = async {
            let mut got = Vec::new();
            while let Some(piece) = reading.recv().await.unwrap() {
                got.extend_from_slice(&piece);
            }
            got
        };
        let ((), got) = join!(write, read);
        assert!(got == sent, "{} of {}", got.len(), sent.len());
    });
}

#[test]
fn owned_halves_live_in_two_tasks_and_dropping_the_writing_one_is_the_end() {
    between(echo, |stream| async move {
        let peer = stream.peer_addr().unwrap();
        let (mut reading, mut writing) = stream.into_split();
        assert_eq!(writing.peer_addr().unwrap(), peer);
        let sent = pattern(300_000, 2);
        let bytes = sent.clone();
        let writer = janus::spawn(async move { writing.write_all(&bytes).await });
        let mut got = vec![0; sent.len()];
        reading.read_exact(&mut got).await.unwrap();
        assert!(got == sent);
        writer.await.unwrap().unwrap();
        // The task ended, its half is gone: the echo has seen our end, and we see its.
        assert_eq!(reading.read(&mut [0]).await.unwrap(), 0);
    });
}

#[test]
fn halves_of_one_stream_become_it_again_and_others_do_not() {
    between(echo, |stream| async move {
        let other = TcpStream::connect(stream.peer_addr().unwrap())
            .await
            .unwrap();
        let (reading, writing) = stream.into_split();
        let (other_reading, other_writing) = other.into_split();
        let refused = reading.reunite(other_writing).unwrap_err();
        assert!(refused.to_string().contains("not of one stream"));
        let stream = writing.reunite(refused.0).unwrap();
        let other = other_reading.reunite(refused.1).unwrap();
        // Neither was ended by being split.
        for stream in [stream, other] {
            stream.write_all(b"still here").await.unwrap();
            let mut got = [0; 10];
            stream.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, b"still here");
        }
    });
}

#[test]
fn a_forgotten_half_says_nothing() {
    // The server tells what it saw: "more" or the end.
    between(
        |stream| async move {
            let mut first = [0; 1];
            stream.read_exact(&mut first).await.unwrap();
            stream.write_all(b"1").await.unwrap();
            let more = stream.read(&mut first).await.unwrap();
            stream.write_all(&[b'0' + more as u8]).await.unwrap();
        },
        |stream| async move {
            let (mut reading, mut writing) = stream.into_split();
            writing.write_all(b"a").await.unwrap();
            writing.forget();
            let mut got = [0; 1];
            reading.read_exact(&mut got).await.unwrap();
            // Through the other half's stream, which no end was said for.
            reading.as_ref().write_all(b"b").await.unwrap();
            reading.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, b"1");
        },
    );
}

#[test]
fn a_writing_half_dropped_on_another_thread_is_an_end_too() {
    between(echo, |stream| async move {
        let (mut reading, mut writing) = stream.into_split();
        writing.write_all(b"x").await.unwrap();
        std::thread::spawn(move || drop(writing)).join().unwrap();
        let mut got = Vec::new();
        while let Some(piece) = reading.recv().await.unwrap() {
            got.extend_from_slice(&piece);
        }
        assert_eq!(got, b"x");
    });
}

#[test]
fn only_writing_can_be_shut() {
    between(echo, |stream| async move {
        let refused = stream.shutdown(Shutdown::Read).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
        stream.shutdown(Shutdown::Both).await.unwrap();
        let refused = stream.write(b"x").await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::BrokenPipe);
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    });
}
