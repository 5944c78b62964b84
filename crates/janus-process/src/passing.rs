//! Descriptors that go from process to process, one with each message.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::{Result, errno};

/// Sends a message, and a descriptor with it if there is one.
pub(crate) fn send(
    to: impl AsFd,
    text: &[u8],
    fd: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if let Some(fd) = &fd {
        control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd)));
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
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let into = &mut [IoSliceMut::new(text)];
    let got = recvmsg(from, into, &mut control, flags).map_err(errno)?;
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((got.bytes, fd))
}
