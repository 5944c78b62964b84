//! An HTTP server that says hello. `cargo run --release --example hello`, then the printed line.
//!
//! By default it stands behind the portal: any program on this machine reaches it, without any privilege. As root,
//! `JANUS_BACKEND=tap JANUS_ADDRESS=192.0.2.1/24` makes it a host of its own behind a TAP interface instead.

use janus::net::TcpListener;

const PORT: u16 = 8080;

#[janus::main]
async fn main() -> janus::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    janus::once(|| println!("curl http://{}/", listener.reachable_at()));
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(janus_http::serve(stream, async |_, response| {
            response.ok().send("hello from Janus\n").await
        }));
    }
}
