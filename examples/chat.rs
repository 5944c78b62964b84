//! A chat by lines: what one client writes, all get. `cargo run --release --example chat`, then the printed line in several
//! terminals. After `--` it takes another address than 0.0.0.0:7008.
//!
//! Clients are spread over the cores, and a stream can only be used on its own. So each core keeps a list of its
//! clients, and a line for all is sent to the cores, not to the clients: `spawn_on` runs a few statements on each.

use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use janus::AbortHandle;
use janus::net::{TcpListener, TcpStream};

/// Bytes of a line; a longer one is cut into several.
const LINE_MAX: usize = 1024;
/// Bytes that wait for one client. One that falls further behind is disconnected: keeping more would need memory without bound, waiting
/// would let the slowest reader hold up all, and leaving lines out would go unnoticed.
const BACKLOG: u32 = 64 * 1024;
/// Time between two goodbyes while the server ends: clients that the kernel had already accepted come later.
const LATECOMERS: Duration = Duration::from_millis(50);

/// One of this core's clients.
struct Client {
    stream: Rc<TcpStream>,
    /// Ends the task that listens to it.
    listening: AbortHandle,
}

thread_local! {
    /// The clients of this core, which is one thread.
    static CLIENTS: RefCell<Vec<Client>> = const { RefCell::new(Vec::new()) };
}

#[janus::main]
async fn main() -> janus::Result<()> {
    let at = std::env::args().nth(1);
    let listener = TcpListener::bind(at.as_deref().unwrap_or("0.0.0.0:7008")).await?;
    let at = listener.reachable_at();
    janus::once(|| println!("nc {} {}", at.ip(), at.port()));
    janus::spawn(say_goodbye());
    loop {
        let (stream, peer) = listener.accept().await?;
        janus::spawn(serve(stream, format!("guest {}", peer.port())));
    }
}

/// Has a client in the list for as long as somebody listens to it.
async fn serve(stream: TcpStream, name: String) -> io::Result<()> {
    stream.set_send_buffer_size(Some(BACKLOG))?;
    let stream = Rc::new(stream);
    let listening = janus::spawn(listen(stream.clone(), name.clone()));
    let client = Client {
        stream: stream.clone(),
        listening: listening.abort_handle(),
    };
    CLIENTS.with_borrow_mut(|clients| clients.push(client));
    tell_all(format!("* {name} is here\n")).await;
    // It has left, broken off, or was too slow: an error is its own affair, and so is a panic.
    let _ = listening.await;
    CLIENTS.with_borrow_mut(|clients| clients.retain(|it| !Rc::ptr_eq(&it.stream, &stream)));
    drop(stream);
    tell_all(format!("* {name} has left\n")).await;
    Ok(())
}

/// Tells all what a client writes, until it ends.
async fn listen(stream: Rc<TcpStream>, name: String) -> io::Result<()> {
    let mut line = Vec::new();
    while let Some(piece) = stream.recv().await? {
        for &byte in &*piece {
            if byte != b'\n' {
                line.push(byte);
            }
            if byte == b'\n' || line.len() == LINE_MAX {
                let mut text = String::from_utf8_lossy(&line).into_owned();
                // No client writes escape sequences to the terminals of the others.
                text.retain(|char| !char.is_control());
                line.clear();
                tell_all(format!("{name}: {text}\n")).await;
            }
        }
    }
    Ok(())
}

/// Writes a line to all clients. Every core has done so when this ends, so a client never has two lines under way: one that
/// writes faster than the cores deliver is read more slowly. Lines of two clients may come in another order on another core.
async fn tell_all(line: String) {
    let line: Arc<str> = line.into();
    let cores = 0..janus::cores().unwrap_or(0);
    let told: Vec<_> = cores
        .map(|core| {
            let line = line.clone();
            janus::spawn_on(core, move || async move { tell_here(&line) })
        })
        .collect();
    for core in told {
        // An error means that the core is ending, and its clients with it.
        let _ = core.await;
    }
}

/// Writes a line to the clients of this core, and waits for none of them.
fn tell_here(line: &str) {
    let write = |client: &Client| {
        // The queue of what waits for a client is its connection's send buffer.
        let whole = matches!(client.stream.try_write(line.as_bytes()), Ok(n) if n == line.len());
        if !whole {
            // The waiting bytes are of no use any more: when the last owner drops the stream, the connection is reset.
            let _ = client.stream.set_zero_linger();
            client.listening.abort();
        }
        whole
    };
    CLIENTS.with_borrow_mut(|clients| clients.retain(write));
}

/// Waits for SIGTERM or SIGINT, then tells this core's clients that it is over: what was written arrives, and then a FIN.
/// They have as long as `shutdown_ms` says to end their side.
async fn say_goodbye() {
    janus::shutting_down().await;
    loop {
        tell_here("* the server ends\n");
        for client in CLIENTS.take() {
            let _ = client.stream.shutdown(Shutdown::Write).await;
        }
        janus::time::sleep(LATECOMERS).await;
    }
}
