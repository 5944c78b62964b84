//! Sockets that a process has bound and that its forked children let listen, as varnish has them. They listen in the process that has bound them,
//! which a child asks for it and waits for.

use std::os::fd::{AsFd, RawFd};

use rustix::io::{read, retry_on_intr, write};
use rustix::pipe::{PipeFlags, pipe_with};

use super::{Child, Kind, Word};
use crate::own::Own;
use crate::process::Process;
use crate::{Errno, Result, errno};

/// Bytes of an answer: an error's number or 0, and what a program that listens there itself has to know.
const ANSWER_MAX: usize = 4_096;

impl Child {
    /// `listen(2)` at what the parent has bound, once it is claimed. `None`: it is nothing of that kind.
    pub fn listens(&mut self, fd: RawFd, backlog: i32) -> Option<Result<()>> {
        let socket = self.inherited.iter().find(|it| it.fd == fd)?.socket;
        Some(self.listen(socket, backlog))
    }

    fn listen(&mut self, socket: i32, backlog: i32) -> Result<()> {
        let (hears, says) = pipe_with(PipeFlags::CLOEXEC).map_err(errno)?;
        self.tell_more(
            socket,
            Word::Listens,
            &backlog.to_ne_bytes(),
            &[says.as_fd()],
        )?;
        drop(says);
        let mut answer = [0; ANSWER_MAX];
        let len = retry_on_intr(|| read(&hears, &mut answer)).map_err(errno)?;
        // A parent that is gone says nothing.
        let (error, text) = answer[..len].split_first_chunk().ok_or(Errno::EINVAL)?;
        let error = i32::from_le_bytes(*error);
        if error != 0 {
            return Err(Errno(error));
        }
        if !text.is_empty() {
            self.legacies.insert(socket, text.into());
        }
        for it in self.inherited.iter_mut().filter(|it| it.socket == socket) {
            if let Kind::Bound(takes) = it.kind {
                it.kind = Kind::Listener(takes);
            }
        }
        Ok(())
    }

    /// Whether a descriptor is of a socket that does not listen yet.
    pub fn is_bound_only(&self, fd: RawFd) -> bool {
        let mut inherited = self.inherited.iter();
        inherited.any(|it| it.fd == fd && matches!(it.kind, Kind::Bound(_)))
    }
}

impl Process {
    /// Listens at a socket for a child, which is answered. Whether it listens.
    pub(crate) fn listens_for_child(&self, socket: i32, backlog: i32, child: Own) -> bool {
        let listens = self.name_of_our_own(socket).and_then(|fd| {
            let listens = self.listen(fd, backlog);
            self.close_name_of_our_own(fd);
            listens
        });
        let mut answer = Vec::from(listens.err().map_or(0, |error| error.0).to_le_bytes());
        if listens.is_ok() {
            let legacy = self.core.lock().legacy(socket);
            answer.extend(legacy.unwrap_or_default());
        }
        // One that has ended first need not know.
        let _ = write(child, &answer);
        listens.is_ok()
    }
}
