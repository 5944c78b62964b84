//! tokio's traits: what tokio's own helpers do with a stream.

use janus::net::TcpStream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, copy};

use super::between;
use crate::support::pattern;

/// An echo out of tokio's parts.
async fn echo(mut stream: TcpStream) {
    let (mut reading, mut writing) = stream.split();
    copy(&mut reading, &mut writing).await.unwrap();
    AsyncWriteExt::shutdown(&mut writing).await.unwrap();
}

#[test]
fn copy_echoes_and_shuts_down() {
    between(echo, |stream| async move {
        let (mut reading, mut writing) = stream.into_split();
        let sent = pattern(400_000, 5);
        let bytes = sent.clone();
        let writer = janus::spawn(async move {
            AsyncWriteExt::write_all(&mut writing, &bytes)
                .await
                .unwrap();
            AsyncWriteExt::shutdown(&mut writing).await.unwrap();
        });
        // `read_to_end` reads into memory that is not initialised.
        let mut got = Vec::new();
        AsyncReadExt::read_to_end(&mut reading, &mut got)
            .await
            .unwrap();
        assert!(got == sent, "{} of {}", got.len(), sent.len());
        writer.await.unwrap();
    });
}

#[test]
fn lines_come_out_of_a_buffered_stream_wherever_packets_end() {
    between(echo, |stream| async move {
        stream.set_nodelay(true).unwrap();
        let mut buffered = stream.buffered();
        let line = "x".repeat(3_000);
        for part in ["first\nsec", "ond\n", &line, "\nlast"] {
            buffered.write_all(part.as_bytes()).await.unwrap();
        }
        buffered.flush().await.unwrap();
        buffered.shutdown().await.unwrap();
        let mut lines = buffered.lines();
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            all.push(line);
        }
        assert_eq!(all, ["first", "second", &line, "last"]);
    });
}

#[test]
fn vectored_writes_are_one_write_and_an_empty_read_waits_for_nothing() {
    between(echo, |mut stream| async move {
        assert!(tokio::io::AsyncWrite::is_write_vectored(&stream));
        let slices = [
            std::io::IoSlice::new(b"one "),
            std::io::IoSlice::new(b"two"),
        ];
        let taken = AsyncWriteExt::write_vectored(&mut stream, &slices).await;
        assert_eq!(taken.unwrap(), 7);
        assert_eq!(AsyncReadExt::read(&mut stream, &mut []).await.unwrap(), 0);
        let mut got = [0; 7];
        AsyncReadExt::read_exact(&mut stream, &mut got)
            .await
            .unwrap();
        assert_eq!(&got, b"one two");
    });
}
