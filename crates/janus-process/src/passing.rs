//! Descriptors that go from process to process, at most two with each message.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
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
    let (len, [fd, _]) = receive_two(from, text, flags)?;
    Ok((len, fd))
}

/// [`receive`] of one that may have two.
pub(crate) fn receive_two(
    from: impl AsFd,
    text: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, [Option<OwnedFd>; 2])> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let into = &mut [IoSliceMut::new(text)];
    let got = recvmsg(from, into, &mut control, flags).map_err(errno)?;
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut fds = fds.next().into_iter().flatten();
    Ok((got.bytes, [fds.next(), fds.next()]))
}
