//! The daemon's answer to a program that presents itself: a welcome, or a refusal. A daemon whose device has no address yet says so first.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use janus_shm::{Link, Message, Network, Received, Welcome};

use super::addresses::of_welcome;
use super::line::{ANSWER_WITHIN, Refusal, wait};

/// How long a daemon may say that it waits for an address.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// The daemon's answer to a hello, with the addresses that its device has. One that waits for an address says so first.
pub(super) fn welcomed(link: &Link, path: &Path) -> io::Result<(Welcome, Network, Vec<OwnedFd>)> {
    let strange = |what: &str| {
        let text = format!("what answers at {} is no daemon: {what}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let (mut until, mut told) = (Instant::now() + ANSWER_WITHIN, None);
    while wait(link, Some(until.saturating_duration_since(Instant::now()))) {
        match link.receive()? {
            Received::Message(Message::Welcome(welcome), fds) => {
                let network = told.unwrap_or_else(|| of_welcome(&welcome));
                return Ok((welcome, network, fds));
            }
            Received::Message(Message::Network(network), _) => {
                let more = Duration::from_millis(network.wait_ms.into()).min(WAIT_MAX);
                until = Instant::now() + ANSWER_WITHIN + more;
                told = Some(network);
            }
            Received::Message(Message::Refused { errno, why, .. }, _) => {
                return Err(Refusal { errno, why }.into());
            }
            Received::Message(..) | Received::Strange(_) => {
                return Err(strange("it says something else"));
            }
            Received::Nothing => {}
            Received::End => return Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
    let text = match told {
        Some(it) if it.addresses.is_empty() => "has no address yet",
        _ => "does not answer",
    };
    let text = format!("the daemon at {} {text}", path.display());
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}
