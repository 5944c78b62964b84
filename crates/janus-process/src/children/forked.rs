//! A forked child, as its parent sees it: what is held for it, and its words.

use std::os::fd::{AsRawFd, OwnedFd};

use janus_posix::abi;
use rustix::net::{RecvFlags, Shutdown, UCred, shutdown};

use super::{NEW, Word, made};
use crate::legacy::{self, Legacy};
use crate::own::{self, Own};
use crate::poll::Polled;
use crate::process::Process;
use crate::pump::Connecting;
use crate::{Errno, passing};

/// Bytes of a message: the socket and the word, and what these need.
const MESSAGE_MAX: usize = 8 + legacy::TEXT_MAX;

/// A child, as its parent sees it.
pub(crate) struct Forked {
    pub(super) channel: OwnedFd,
    /// Held for it: a name more of each.
    pub(crate) held: Vec<i32>,
    /// Those among them that it accepts from.
    pub(super) accepts: Vec<i32>,
}

/// Its word.
pub(crate) enum Told {
    Nothing,
    /// It has closed one that it had not used, or said what does not concern it.
    LetGo,
    /// A socket, and one end of the pair that is to be carried.
    Claimed(i32, OwnedFd),
    /// A socket that is to be accepted from for it.
    Accepts(i32),
    /// A socket that is to listen, with this backlog, and where that is answered.
    Listens(i32, i32, Own),
    /// One that is to be made and bound, for this process, likewise.
    Binds(Legacy, Option<UCred>, Own),
    /// One that is to be connected, there already or not.
    Connects(Option<i32>, Legacy, OwnedFd, Connecting),
    /// A socket that another program, which the child becomes, is to have too, and the other end of its mark.
    Leaves(i32, OwnedFd),
    /// The child has ended, or has become another program.
    Gone,
}

impl Forked {
    pub(crate) fn polled(&self) -> Polled {
        Polled {
            fd: self.channel.as_raw_fd(),
            events: abi::POLLIN as i16,
            revents: 0,
        }
    }

    /// Hears one message.
    pub(crate) fn told(&mut self, process: &Process) -> Told {
        let mut text = [0; MESSAGE_MAX];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = match passing::receive_all(&self.channel, &mut text, flags) {
            Ok(got) => got,
            Err(Errno::EAGAIN) => return Told::Nothing,
            Err(_) => return Told::Gone,
        };
        let Some((head, more)) = text[..got.len].split_first_chunk() else {
            return Told::Gone;
        };
        let head = i64::from_le_bytes(*head);
        let (socket, word) = ((head >> 8) as i32, head as u8);
        let is = |it: Word| it as u8 == word;
        // A child says nothing of what it was not given.
        let is_new = socket == NEW && (is(Word::Binds) || is(Word::Connects));
        if !is_new && !self.held.contains(&socket) {
            return Told::LetGo;
        }
        match got.fds {
            [Some(end), Some(answer)] if is(Word::Connects) => {
                made::connects(socket, more, end, answer)
            }
            [Some(answer), _] if is(Word::Binds) => made::binds(more, got.sender, answer),
            [Some(answer), _] if is(Word::Listens) => {
                let backlog = more.try_into().map_or(0, i32::from_ne_bytes);
                Told::Listens(socket, backlog, Own::new(own::keep(answer)))
            }
            [Some(end), _] if is(Word::Leaves) => {
                self.accepts.retain(|it| *it != socket);
                Told::Leaves(socket, own::keep(end))
            }
            [Some(end), _] if is(Word::Uses) => Told::Claimed(socket, own::keep(end)),
            _ if is(Word::Accepts) => {
                self.accepts.push(socket);
                Told::Accepts(socket)
            }
            _ if is_new => Told::LetGo,
            _ => {
                let held = self.held.iter().position(|held| *held == socket);
                held.map(|at| self.held.swap_remove(at));
                let held = &self.held;
                self.accepts.retain(|it| held.contains(it));
                process.core.let_go(&[socket]);
                Told::LetGo
            }
        }
    }

    /// It has a socket listen, and accepts there from now on.
    pub(crate) fn listens(&mut self, socket: i32) {
        self.accepts.push(socket);
    }

    /// A socket was made for it.
    pub(crate) fn has(&mut self, socket: i32) {
        self.held.push(socket);
    }

    pub(crate) fn accepts(&self, socket: i32) -> bool {
        self.accepts.contains(&socket)
    }

    /// All that it holds of a socket.
    pub(crate) fn lets_go(&mut self, process: &Process, socket: i32) {
        let (gone, left): (Vec<_>, Vec<_>) = self.held.iter().partition(|held| **held == socket);
        self.held = left;
        let gone: Vec<i32> = gone;
        process.core.let_go(&gone);
    }

    /// Its parent is about to end, and leaves it what listens.
    pub(crate) fn is_left(&self, process: &Process) {
        process.leaves_to_children(&self.held);
        // One that has ended first need not know.
        let _ = shutdown(&self.channel, Shutdown::Write);
    }

    pub(crate) fn end(self, process: &Process) {
        own::forget(self.channel.as_raw_fd());
        process.core.let_go(&self.held);
    }
}
