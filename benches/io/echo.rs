//! An echo on Janus without a timer of its own.

use janus::net::TcpListener;

pub(crate) async fn echo(port: u16) -> janus::Result {
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        drop(janus::spawn(async move {
            loop {
                let Ok(Some(piece)) = stream.recv().await else {
                    return;
                };
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
            }
        }));
    }
}
