//! Readiness and the calls that do not wait: what is ready now, never what was.

use std::io::ErrorKind;
use std::time::Duration;

use futures::FutureExt;
use janus::net::{Interest, TcpStream};
use janus::time::timeout;

use super::between;
use crate::support::{PATIENCE, echo, pattern};

#[test]
fn readable_when_something_came_and_not_after_it_was_read() {
    between(echo, |stream| async move {
        let mut into = [0; 8];
        let nothing = stream.try_read(&mut into).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        assert!(stream.readable().now_or_never().is_none());
        stream.write_all(b"abc").await.unwrap();
        timeout(PATIENCE, stream.readable()).await.unwrap().unwrap();
        assert_eq!(stream.try_peek(&mut into).unwrap(), 3);
        assert_eq!(stream.try_read(&mut into[..2]).unwrap(), 2);
        // One byte is left: still readable, without a wait.
        assert!(stream.readable().now_or_never().is_some());
        assert_eq!(stream.try_read(&mut into).unwrap(), 1);
        assert!(stream.readable().now_or_never().is_none());
        assert!(stream.try_recv().is_err());
    });
}

#[test]
fn writable_until_the_buffer_is_full_and_again_when_the_peer_has_read() {
    /// Reads nothing before it is told to.
    async fn slow(stream: TcpStream) {
        janus::time::sleep(Duration::from_millis(50)).await;
        while let Ok(Some(piece)) = stream.recv().await {
            drop(piece);
        }
    }
    between(slow, |stream| async move {
        timeout(PATIENCE, stream.writable()).await.unwrap().unwrap();
        let piece = pattern(10_000, 1);
        let mut taken = 0;
        loop {
            match stream.try_write(&piece) {
                Ok(count) => taken += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        assert!(taken > 0);
        assert!(stream.writable().now_or_never().is_none());
        timeout(PATIENCE, stream.writable()).await.unwrap().unwrap();
        assert!(stream.try_write(&piece).unwrap() > 0);
    });
}

#[test]
fn ready_says_for_what() {
    between(echo, |stream| async move {
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = stream.ready(both).await.unwrap();
        assert!(ready.is_writable() && !ready.is_readable());
        stream.write_all(b"x").await.unwrap();
        let ready = timeout(PATIENCE, stream.ready(Interest::READABLE)).await;
        let ready = ready.unwrap().unwrap();
        assert!(ready.is_readable() && !ready.is_read_closed() && !ready.is_writable());
        stream.try_read(&mut [0]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).await.unwrap();
        let ready = timeout(PATIENCE, stream.ready(Interest::READABLE)).await;
        assert!(ready.unwrap().unwrap().is_read_closed());
        let ready = stream.ready(both).await.unwrap();
        assert!(ready.is_write_closed() && !ready.is_error());
        assert!(stream.take_error().unwrap().is_none());
    });
}

#[test]
fn a_reset_is_an_error_for_who_waits_for_errors_only() {
    /// Answers the first byte, then breaks off.
    async fn breaks_off(stream: TcpStream) {
        stream.read_exact(&mut [0]).await.unwrap();
        stream.write_all(b"y").await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
        stream.set_linger(Some(Duration::ZERO)).unwrap();
    }
    between(breaks_off, |stream| async move {
        stream.write_all(b"x").await.unwrap();
        timeout(PATIENCE, stream.readable()).await.unwrap().unwrap();
        // Something to read is no error.
        assert!(stream.ready(Interest::ERROR).now_or_never().is_none());
        stream.try_read(&mut [0]).unwrap();
        stream.write_all(b"x").await.unwrap();
        let ready = timeout(PATIENCE, stream.ready(Interest::ERROR)).await;
        assert!(ready.unwrap().unwrap().is_error());
        let broken = stream.take_error().unwrap().unwrap();
        assert_eq!(broken.kind(), ErrorKind::ConnectionReset);
        // Asked twice it says the same.
        assert!(stream.take_error().unwrap().is_some());
    });
}

#[test]
fn io_by_readiness_tries_until_it_succeeds() {
    between(echo, |stream| async move {
        let mut calls = 0;
        let reading = stream.async_io(Interest::READABLE, || {
            calls += 1;
            if calls == 1 {
                // Of a wrapper that finds half a record.
                return Err(ErrorKind::WouldBlock.into());
            }
            stream.try_read(&mut [0; 8])
        });
        stream.write_all(b"abc").await.unwrap();
        assert_eq!(timeout(PATIENCE, reading).await.unwrap().unwrap(), 3);
        assert!(calls >= 2);
        let refused = stream.try_io(Interest::READABLE, || stream.try_read(&mut [0; 8]));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}
