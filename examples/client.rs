//! Asks servers, many questions at a time. With the example `hello` or `echo` running in another terminal:
//!
//! ```sh
//! cargo run --release --example client -- http 127.0.0.1:8080 / /a /b
//! cargo run --release --example client -- tcp 127.0.0.1:7007 one two three
//! ```
//!
//! Connections go out through the portal: the kernel makes them, so any server on this machine can be asked. Those elsewhere
//! need `JANUS_PORTAL_REACH=any`, as a program should not reach further than was said.

use std::net::Shutdown;
use std::time::Duration;

use janus::net::TcpStream;
use janus::time::timeout;
use janus::{BoxError, JoinSet};

/// Time for one question, from connecting to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Questions under way at a time.
const AT_ONCE: usize = 8;
/// Bytes of an answer that are taken. A server decides how much it sends, not how much is kept here.
const ANSWER_MAX: usize = 1 << 20;
const USAGE: &str = "client http HOST:PORT PATH... | client tcp HOST:PORT TEXT...";

/// One core: on every further one, main would run once more and ask all of it again.
#[janus::main(cores = 1)]
async fn main() -> janus::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (kind, server) = match (arguments.next(), arguments.next()) {
        (Some(kind), Some(server)) if kind == "http" || kind == "tcp" => (kind, server),
        _ => return Err(USAGE.into()),
    };
    // Tasks on this core, joined in the order in which they end. What is left in a set when it is dropped is ended.
    let mut tasks = JoinSet::new();
    let mut failed = 0;
    for question in arguments {
        if tasks.len() == AT_ONCE {
            failed += usize::from(!joined(&mut tasks).await);
        }
        let (is_http, server) = (kind == "http", server.clone());
        tasks.spawn(async move {
            let answer = async {
                if is_http {
                    fetch(&server, &question).await
                } else {
                    exchange(&server, &question).await
                }
            };
            // A future that takes too long is dropped where it waits, and its connection with it.
            let answer = match timeout(PATIENCE, answer).await {
                Ok(answer) => answer,
                Err(elapsed) => Err(elapsed.into()),
            };
            (question, answer)
        });
    }
    while !tasks.is_empty() {
        failed += usize::from(!joined(&mut tasks).await);
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} without an answer").into()),
    }
}

/// Prints the next answer that is there; false when it is none.
async fn joined(tasks: &mut JoinSet<(String, Result<String, BoxError>)>) -> bool {
    // An error here would be a task that panicked or was aborted.
    let Some(Ok((question, answer))) = tasks.join_next().await else {
        return false;
    };
    match &answer {
        Ok(text) => println!("{question}: {}", text.trim_end()),
        Err(error) => println!("{question}: failed: {error}"),
    }
    answer.is_ok()
}

/// Fetches `path` over HTTP/1.1. `get` may be called again on a connection while it `is_open`.
async fn fetch(server: &str, path: &str) -> Result<String, BoxError> {
    let mut connection = janus_http::Connection::connect(server).await?;
    let mut response = connection.get(server, path).await?;
    let status = response.status();
    let mut body = Vec::new();
    // Each piece is lent from the packet it came in.
    while let Some(piece) = response.next().await? {
        keep(&mut body, piece)?;
    }
    Ok(format!("{status} {}", String::from_utf8_lossy(&body)))
}

/// Sends `text` and reads until the server, which is told that this was all, ends too.
async fn exchange(server: &str, text: &str) -> Result<String, BoxError> {
    let stream = TcpStream::connect(server).await?;
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown(Shutdown::Write).await?;
    let mut answer = Vec::new();
    while let Some(piece) = stream.recv().await? {
        keep(&mut answer, &piece)?;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn keep(answer: &mut Vec<u8>, piece: &[u8]) -> Result<(), BoxError> {
    if answer.len() + piece.len() > ANSWER_MAX {
        return Err(format!("an answer of more than {ANSWER_MAX} bytes").into());
    }
    answer.extend_from_slice(piece);
    Ok(())
}
