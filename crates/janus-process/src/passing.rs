//! Descriptors that go from process to process, at most two with each message.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, UCred, recvmsg, sendmsg,
};

use crate::{Result, errno};

/// Sends a message, and these descriptors with it.
pub(crate) fn send(
    to: impl AsFd,
    text: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    sendmsg(to, &[IoSlice::new(text)], &mut control, flags).map_err(errno)?;
    Ok(())
}

/// Receives one: its length, and the descriptor that came with it.
pub(crate) fn receive(
    from: impl AsFd,
    text: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Option<OwnedFd>)> {
    let got = receive_all(from, text, flags)?;
    let [fd, _] = got.fds;
    Ok((got.len, fd))
}

/// A message.
pub(crate) struct Received {
    pub(crate) len: usize,
    /// Descriptors that came with it.
    pub(crate) fds: [Option<OwnedFd>; 2],
    /// The process that has sent it, where the kernel was asked to say so.
    pub(crate) sender: Option<UCred>,
}

/// [`receive`], and all that comes with it.
pub(crate) fn receive_all(from: impl AsFd, text: &mut [u8], flags: RecvFlags) -> Result<Received> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let into = &mut [IoSliceMut::new(text)];
    let got = recvmsg(from, into, &mut control, flags).map_err(errno)?;
    let mut received = Received {
        len: got.bytes,
        fds: [None, None],
        sender: None,
    };
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(mut fds) => received.fds = [fds.next(), fds.next()],
            RecvAncillaryMessage::ScmCredentials(whose) => received.sender = Some(whose),
            _ => {}
        }
    }
    Ok(received)
}
