//! Table of the process's descriptors and the objects they stand for. They are real ones, of an otherwise unused event
//! counter: the tool closes the descriptors that a script left open by the C library's `close`, and wants to find one
//! there.

use super::pipe::{End, Pipe};
use janus_posix::Errno;
use std::collections::BTreeMap;

/// Object that a descriptor stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A socket, or an epoll instance: the number in [`janus_posix::Sockets`].
    Socket(i32),
    /// The reading end of a pipe.
    PipeOut(usize),
    /// The writing end.
    PipeIn(usize),
}

#[derive(Default)]
pub(super) struct Descriptors {
    open: BTreeMap<i32, Kind>,
    /// As many as a script ever made.
    pipes: Vec<Pipe>,
}

impl Descriptors {
    /// A new descriptor. What had the same number and was closed behind our back is given back.
    pub(super) fn add(&mut self, kind: Kind) -> Result<(i32, Option<Kind>), Errno> {
        let fd = reserve()?;
        Ok((fd, self.open.insert(fd, kind)))
    }

    pub(super) fn get(&self, fd: i32) -> Result<Kind, Errno> {
        self.open.get(&fd).copied().ok_or(Errno::EBADF)
    }

    /// The socket behind a descriptor.
    pub(super) fn socket(&self, fd: i32) -> Result<i32, Errno> {
        match self.get(fd)? {
            Kind::Socket(socket) => Ok(socket),
            Kind::PipeOut(_) | Kind::PipeIn(_) => Err(Errno::ENOTSOCK),
        }
    }

    /// Closes it.
    pub(super) fn remove(&mut self, fd: i32) -> Result<Kind, Errno> {
        let kind = self.open.remove(&fd).ok_or(Errno::EBADF)?;
        // SAFETY: it was made here, and is given to no caller after this. If it was closed already the call says so.
        unsafe { libc::close(fd) };
        Ok(kind)
    }

    /// A pipe that has no ends yet.
    pub(super) fn new_pipe(&mut self) -> usize {
        self.pipes.push(Pipe::default());
        self.pipes.len() - 1
    }

    pub(super) fn pipe(&mut self, pipe: usize) -> &mut Pipe {
        &mut self.pipes[pipe]
    }

    /// The end of a pipe that a descriptor is.
    pub(super) fn end(&mut self, kind: Kind) -> Option<&mut End> {
        match kind {
            Kind::Socket(_) => None,
            Kind::PipeOut(pipe) => Some(&mut self.pipes[pipe].reader),
            Kind::PipeIn(pipe) => Some(&mut self.pipes[pipe].writer),
        }
    }
}

/// A number that nothing else in the process has.
fn reserve() -> Result<i32, Errno> {
    // SAFETY: the call takes no memory; who gets the number owns it.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(Errno::EMFILE);
    }
    Ok(fd)
}
