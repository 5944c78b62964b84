//! The program under the lockstep world: it sends back what it was told to, closes first or last as it was told to, and
//! keeps what went wrong.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use crate::lockstep::peer::{HEADER, SERVER};
use crate::net::{TcpListener, TcpStream};

/// Observations of the copies of `main`.
#[derive(Clone, Default)]
pub(super) struct Ledger(Rc<RefCell<Entries>>);

#[derive(Default)]
struct Entries {
    accepted: u64,
    errors: Vec<String>,
}

impl Ledger {
    pub(super) fn accepted(&self) -> u64 {
        self.0.borrow().accepted
    }

    pub(super) fn errors(&self) -> Vec<String> {
        self.0.borrow().errors.clone()
    }
}

pub(super) async fn serve(ledger: Ledger) -> crate::Result {
    let listener = listener().await?;
    loop {
        accepted(&ledger, listener.accept().await?);
    }
}

pub(super) async fn listener() -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, SERVER.1)).await
}

/// One more connection, to be served by a task of its own.
pub(super) fn accepted(ledger: &Ledger, (stream, peer): (TcpStream, SocketAddr)) {
    ledger.0.borrow_mut().accepted += 1;
    let ledger = ledger.clone();
    crate::spawn(async move {
        if let Err(error) = echo(&stream).await {
            let text = format!("{peer} on core {:?}: {error}", crate::core_id());
            ledger.0.borrow_mut().errors.push(text);
        }
    });
}

async fn echo(stream: &TcpStream) -> std::io::Result<()> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).await?;
    let [server_ends, len @ ..] = header;
    let mut left = u32::from_le_bytes(len) as usize;
    let mut buffer = [0; 1024];
    while left > 0 {
        let read = stream.read(&mut buffer[..left.min(1024)]).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        stream.write_all(&buffer[..read]).await?;
        left -= read;
    }
    if server_ends == 0 && stream.read(&mut buffer).await? != 0 {
        return Err(std::io::Error::other("more than was announced"));
    }
    Ok(())
}
