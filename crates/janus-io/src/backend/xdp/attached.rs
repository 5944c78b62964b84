//! The program on the interface, and what it needs: loaded, attached, taken off. It stands as long as somebody polls all of
//! its queues; the kernel takes it off by itself when the process is gone, however it went.

use std::sync::Arc;

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use super::Mode;
use super::bpf::{self, Attach};
use super::program::{Maps, Rules, filter};
use super::questions::Questions;
use super::refusal::Refusal;

pub(super) struct Attached {
    link: OwnedFd,
    sockets: OwnedFd,
    questions: Arc<Questions>,
    attach: Attach,
    /// Holds the memberships of multicast groups.
    _groups: Option<OwnedFd>,
}

impl Attached {
    /// Loads the filter and puts it onto the interface. From here on packets that are ours and find no socket are the
    /// kernel's still.
    pub(super) fn new(
        rules: &Rules,
        interface: u32,
        queues: u32,
        mode: Mode,
        groups: Option<OwnedFd>,
        name: &str,
    ) -> std::io::Result<Self> {
        let map = |errno| Refusal::Map(errno).on(name);
        let sockets = bpf::socket_map(queues).map_err(map)?;
        let questions = Questions::new().map_err(map)?;
        let maps = Maps {
            sockets: sockets.as_raw_fd(),
            questions: questions.map().as_raw_fd(),
        };
        let program = bpf::load(&filter(rules, maps))
            .map_err(|(errno, said)| Refusal::Program(errno, &said).on(name))?;
        let link = |attach| bpf::link(&program, interface, attach).map(|link| (link, attach));
        let (link, attach) = match mode {
            Mode::Native => link(Attach::Native).map_err(|errno| (errno, Attach::Native)),
            Mode::Generic => link(Attach::Generic).map_err(|errno| (errno, Attach::Generic)),
            Mode::Auto => match link(Attach::Native) {
                Ok(done) => Ok(done),
                // These would refuse the other way too.
                Err(errno @ (Errno::BUSY | Errno::EXIST | Errno::PERM)) => {
                    Err((errno, Attach::Native))
                }
                Err(_) => link(Attach::Generic).map_err(|errno| (errno, Attach::Generic)),
            },
        }
        .map_err(|(errno, attach)| Refusal::Attach(errno, attach).on(name))?;
        Ok(Self {
            link,
            sockets,
            questions: Arc::new(questions),
            attach,
            _groups: groups,
        })
    }

    pub(super) fn attach(&self) -> Attach {
        self.attach
    }

    pub(super) fn questions(&self) -> Arc<Questions> {
        self.questions.clone()
    }

    /// From here on what is ours and comes to this queue goes to the socket.
    pub(super) fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        bpf::put(
            &self.sockets,
            &queue.to_ne_bytes(),
            socket.as_raw_fd() as u32,
        )
    }

    /// Takes the program off. Not waited for the last queue: without one of them packets would be lost anyway.
    pub(super) fn detach(&self) {
        // A second time it is off already; when it fails, closing the link does it.
        let _ = bpf::detach(&self.link);
    }
}
