//! The program under the lockstep world: it sends back what it was told to, closes first or last as it was told to, and
//! keeps what went wrong.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;

use crate::lockstep::peer::{HEADER, SERVER};
use crate::net::{AdoptError, Handler, Next, ServedStream, TcpListener, TcpStream};

/// Times that a connection goes on to the next core.
const ADOPTIONS: u32 = 3;

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
    let server = Server::new(ledger)?;
    let listener = listener().await?;
    loop {
        server.accepted(listener.accept().await?);
    }
}

/// Like [`serve`], where the last core has no handler: what is at rest elsewhere is not taken in there.
pub(super) async fn serve_unlike(ledger: Ledger, cores: usize) -> crate::Result {
    serve_by(Server::new(ledger)?, cores).await
}

/// Like [`serve_unlike`], where connections with tasks of their own are served by one core after another.
pub(super) async fn serve_in_turns(ledger: Ledger, cores: usize) -> crate::Result {
    let mut server = Server::new(ledger)?;
    server.goes_round = true;
    serve_by(server, cores).await
}

async fn serve_by(mut server: Server, cores: usize) -> crate::Result {
    if crate::core_id() == Some(cores - 1) {
        server.at_rest = None;
    }
    let listener = listener().await?;
    loop {
        server.accepted(listener.accept().await?);
    }
}

pub(super) async fn listener() -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, SERVER.1)).await
}

/// A core's way to serve its connections: every second in a task of its own, the others at rest whenever there is nothing to read.
pub(super) struct Server {
    ledger: Ledger,
    at_rest: Option<Handler>,
    /// Connections with a task of their own go from core to core.
    goes_round: bool,
}

impl Server {
    pub(super) fn new(ledger: Ledger) -> std::io::Result<Server> {
        let noting = ledger.clone();
        let at_rest = Handler::new(async move |stream: &ServedStream| {
            let peer = stream.peer_addr();
            let told = Told::of(stream).go_on(stream).await;
            if let Err(error) = &told {
                noting.failed(peer, error);
            }
            told
        })?;
        Ok(Server {
            ledger,
            at_rest: Some(at_rest),
            goes_round: false,
        })
    }

    /// One more connection.
    pub(super) fn accepted(&self, (stream, peer): (TcpStream, SocketAddr)) {
        self.ledger.0.borrow_mut().accepted += 1;
        if let Some(at_rest) = self.at_rest.as_ref().filter(|_| peer.port() % 2 == 0) {
            at_rest.rest(stream).expect("it is of this core");
            return;
        }
        let ledger = self.ledger.clone();
        let goes_round = self.goes_round;
        crate::spawn(async move {
            let served = match goes_round {
                true => echo_around(stream, (None, ADOPTIONS)).await,
                false => echo(&stream).await,
            };
            if let Err(error) = served {
                ledger.failed(Ok(peer), &error);
            }
        });
    }
}

impl Ledger {
    fn failed(&self, peer: std::io::Result<SocketAddr>, error: &std::io::Error) {
        // The repeat of a SYN came when its connection was over, and the number of the answer was that of its FIN, which the peer still
        // acknowledges: a connection that the peer knows nothing of. Had it one it would tell.
        if error.get_ref().is_some_and(|error| error.is::<Unheard>()) {
            return;
        }
        let text = format!("{peer:?} on core {:?}: {error}", crate::core_id());
        self.0.borrow_mut().errors.push(text);
    }

    /// Times that a core has taken over a connection from the one before, and that it could not.
    pub(super) fn adoptions() -> (u64, u64) {
        ADOPTED.take()
    }
}

thread_local! {
    static ADOPTED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

async fn echo(stream: &TcpStream) -> std::io::Result<()> {
    let mut told = Told::read(stream).await?;
    let mut buffer = [0; 1024];
    while told.left > 0 {
        let read = stream.read(&mut buffer[..told.left.min(1024)]).await?;
        told.send(stream, &buffer[..read]).await?;
    }
    if !told.ends_first && stream.read(&mut buffer).await? != 0 {
        return Err(more());
    }
    Ok(())
}

/// A connection's service, on some core.
pub(super) type Served = Pin<Box<dyn Future<Output = std::io::Result<()>>>>;

/// Like [`echo`], and the next core goes on after each piece, so many times.
fn echo_around(stream: TcpStream, (told, adoptions): (Option<Told>, u32)) -> Served {
    Box::pin(async move {
        let mut told = match told {
            Some(told) => told,
            None => Told::read(&stream).await?,
        };
        let mut buffer = [0; 1024];
        while told.left > 0 {
            let read = stream.read(&mut buffer[..told.left.min(1024)]).await?;
            told.send(&stream, &buffer[..read]).await?;
            if adoptions > 0 {
                let with = (Some(told), adoptions - 1);
                return on_next_core(stream, with, echo_around).await;
            }
        }
        if !told.ends_first && stream.read(&mut buffer).await? != 0 {
            return Err(more());
        }
        Ok(())
    })
}

/// Has the next core take the connection over and go on, or this one where it has to stay.
pub(super) async fn on_next_core<T: Send + 'static>(
    stream: TcpStream,
    with: T,
    go_on: fn(TcpStream, T) -> Served,
) -> std::io::Result<()> {
    let core = crate::core_id().expect("a core");
    let next = (core + 1) % crate::cores().expect("a core");
    let there = crate::spawn_on(next, move || async move {
        let adopted = stream.adopt_here().await;
        let (there, here) = ADOPTED.get();
        match adopted {
            Ok(stream) => {
                ADOPTED.set((there + 1, here));
                go_on(stream, with).await
            }
            Err(AdoptError {
                stream: Some(stream),
                ..
            }) => {
                ADOPTED.set((there, here + 1));
                crate::spawn_on(core, move || go_on(stream, with)).await?
            }
            Err(over) => Err(over.into()),
        }
    });
    there.await?
}

/// The peer has reset a connection on which nothing had come.
#[derive(Debug)]
struct Unheard;

impl std::fmt::Display for Unheard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nothing was heard")
    }
}

impl std::error::Error for Unheard {}

/// Orders of a connection that are still to be carried out.
struct Told {
    /// Not read yet.
    unknown: bool,
    ends_first: bool,
    left: usize,
}

impl Told {
    const KNOWN: u16 = 1 << 15;
    const ENDS_FIRST: u16 = 1 << 14;

    /// As a connection at rest carries it.
    fn of(stream: &ServedStream) -> Told {
        let carried = stream.carried();
        Told {
            unknown: carried & Told::KNOWN == 0,
            ends_first: carried & Told::ENDS_FIRST != 0,
            left: usize::from(carried & (Told::ENDS_FIRST - 1)),
        }
    }

    fn carried(&self) -> u16 {
        let left = u16::try_from(self.left).expect("a peer says little");
        assert!(left < Told::ENDS_FIRST);
        Told::KNOWN | if self.ends_first { Told::ENDS_FIRST } else { 0 } | left
    }

    async fn read(stream: &TcpStream) -> std::io::Result<Told> {
        let mut header = [0; HEADER];
        let first = stream.read(&mut header).await;
        let first = first.map_err(|error| match error.kind() {
            ErrorKind::ConnectionReset => std::io::Error::other(Unheard),
            _ => error,
        })?;
        if first == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        stream.read_exact(&mut header[first..]).await?;
        let [ends_first, len @ ..] = header;
        Ok(Told {
            unknown: false,
            ends_first: ends_first != 0,
            left: u32::from_le_bytes(len) as usize,
        })
    }

    /// Sends back as much as there is.
    async fn go_on(mut self, stream: &ServedStream) -> std::io::Result<Next> {
        if self.unknown {
            self = Told::read(stream).await?;
        }
        let mut buffer = [0; 1024];
        while self.left > 0 {
            match stream.try_read(&mut buffer[..self.left.min(1024)]) {
                Ok(read) => self.send(stream, &buffer[..read]).await?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Next::RestWith(self.carried()));
                }
                Err(error) => return Err(error),
            }
        }
        if self.ends_first {
            return Ok(Next::Close);
        }
        match stream.try_read(&mut buffer) {
            Ok(0) => Ok(Next::Close),
            Ok(_) => Err(more()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Ok(Next::RestWith(self.carried()))
            }
            Err(error) => Err(error),
        }
    }

    async fn send(&mut self, stream: &TcpStream, bytes: &[u8]) -> std::io::Result<()> {
        if bytes.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.left -= bytes.len();
        stream.write_all(bytes).await
    }
}

fn more() -> std::io::Error {
    std::io::Error::other("more than was announced")
}
