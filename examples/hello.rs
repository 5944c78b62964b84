//! An HTTP server that says hello. `cargo run --release --example hello`, then the printed line. After `--` it takes another
//! address than 0.0.0.0:8080.
//!
//! By default it stands behind the portal: any program on this machine reaches it, without any privilege. As root,
//! `JANUS_BACKEND=tap JANUS_ADDRESS=192.0.2.1/24` makes it a host of its own behind a TAP interface instead.

use janus::net::TcpListener;

#[janus::main]
async fn main() -> janus::Result<()> {
    let at = std::env::args().nth(1);
    let listener = TcpListener::bind(at.as_deref().unwrap_or("0.0.0.0:8080")).await?;
    janus::once(|| println!("curl http://{}/", listener.reachable_at()));
    // Each connection rests between two requests: it has no task then.
    let serving = janus_http::serve_listener(listener, async |_, response| {
        response.ok().send("hello from Janus\n").await
    });
    Ok(serving.await?)
}
