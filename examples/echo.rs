//! Sends back what it gets. `cargo run --release --example echo`, then the printed line. After `--` it takes another
//! address than 0.0.0.0:7007.

use janus::net::{TcpListener, TcpStream};

#[janus::main]
async fn main() -> janus::Result<()> {
    let at = std::env::args().nth(1);
    let listener = TcpListener::bind(at.as_deref().unwrap_or("0.0.0.0:7007")).await?;
    let at = listener.reachable_at();
    janus::once(|| println!("nc {} {}", at.ip(), at.port()));
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(echo(stream));
    }
}

/// Ends when the peer does, or breaks off.
async fn echo(stream: TcpStream) -> std::io::Result<()> {
    loop {
        // Received bytes are sent from the buffer they arrived in; an idle connection holds no buffer. With `while let`, the task would
        // keep the piece a second time.
        let Some(piece) = stream.recv().await? else {
            return Ok(());
        };
        stream.send_buf(piece).await?;
    }
}
