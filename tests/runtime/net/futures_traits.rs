//! The traits of `futures-io`: what the helpers of `futures` do with a stream.

use futures::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, copy};
use janus::net::TcpStream;

use super::between;
use crate::support::pattern;

/// An echo out of two references to one stream.
async fn echo(stream: TcpStream) {
    copy(&stream, &mut &stream).await.unwrap();
    (&stream).close().await.unwrap();
}

#[test]
fn copy_echoes_over_shared_references() {
    between(echo, |stream| async move {
        let (mut reading, mut writing) = stream.into_split();
        let sent = pattern(400_000, 6);
        let bytes = sent.clone();
        let writer = janus::spawn(async move {
            AsyncWriteExt::write_all(&mut writing, &bytes)
                .await
                .unwrap();
            AsyncWriteExt::close(&mut writing).await.unwrap();
        });
        let mut got = Vec::new();
        AsyncReadExt::read_to_end(&mut reading, &mut got)
            .await
            .unwrap();
        assert!(got == sent, "{} of {}", got.len(), sent.len());
        writer.await.unwrap();
    });
}

#[test]
fn slices_are_filled_one_after_the_other() {
    between(echo, |mut stream| async move {
        let sent = pattern(4_000, 7);
        AsyncWriteExt::write_all(&mut stream, &sent).await.unwrap();
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let (mut first, mut second) = ([0; 700], [0; 1_100]);
            let mut into = [
                std::io::IoSliceMut::new(&mut first),
                std::io::IoSliceMut::new(&mut []),
                std::io::IoSliceMut::new(&mut second),
            ];
            let count = AsyncReadExt::read_vectored(&mut stream, &mut into)
                .await
                .unwrap();
            got.extend_from_slice(&[&first[..], &second[..]].concat()[..count]);
        }
        assert!(got == sent);
    });
}

#[test]
fn a_line_is_read_wherever_packets_end() {
    between(echo, |stream| async move {
        let mut buffered = stream.buffered();
        let line = "y".repeat(5_000) + "\n";
        AsyncWriteExt::write_all(&mut buffered, line.as_bytes())
            .await
            .unwrap();
        AsyncWriteExt::close(&mut buffered).await.unwrap();
        let mut got = String::new();
        buffered.read_line(&mut got).await.unwrap();
        assert_eq!(got, line);
        assert_eq!(buffered.read_line(&mut got).await.unwrap(), 0);
    });
}
