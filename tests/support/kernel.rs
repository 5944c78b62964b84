//! Servers on the kernel's sockets, each connection with patience and in turn, and what a Janus client sees of their resets.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::thread::JoinHandle;

use janus::net::{SocketOptions, TcpStream};

use super::PATIENCE;

/// Serves `count` connections; what `serve` gave for each.
pub fn kernel_server<R: Send + 'static>(
    listener: KernelListener,
    count: usize,
    serve: impl Fn(KernelStream) -> R + Send + 'static,
) -> JoinHandle<Vec<R>> {
    std::thread::spawn(move || {
        let one = |_| {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            serve(stream)
        };
        (0..count).map(one).collect()
    })
}

pub async fn read_to_end(stream: &TcpStream) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(piece) = stream.recv().await? {
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

/// Resets a connection of [`meets_a_reset`].
pub fn resets(mut stream: KernelStream) {
    stream.read_exact(&mut [0; 4]).unwrap();
    // Unread bytes make a reset of the close.
    stream.peek(&mut [0; 1]).unwrap();
    stream.write_all(b"no").unwrap();
}

pub async fn meets_a_reset(at: SocketAddr) {
    let stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(b"ping and more").await.unwrap();
    let error = read_to_end(&stream).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// Sees a connection of [`resets_itself`] reset.
pub fn is_reset(mut stream: KernelStream) {
    stream.write_all(b"welcome").unwrap();
    let error = stream.read(&mut [0; 4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

pub async fn resets_itself(at: SocketAddr) {
    let stream = TcpStream::connect(at).await.unwrap();
    stream.read_exact(&mut [0; 7]).await.unwrap();
    let options = SocketOptions {
        reset_on_close: true,
        ..SocketOptions::default()
    };
    stream.set_options(&options).unwrap();
}
