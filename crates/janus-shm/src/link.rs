//! The line between a member and the daemon: messages as datagrams of a connected Unix socket, and descriptors with them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::peer::{Peer, peer};
use crate::Message;
use crate::kept::Kept;
use crate::message::LEN_MAX;

/// Descriptors with one message.
const FDS_MAX: usize = 4;

/// One end of it.
#[derive(Debug)]
pub struct Link(Kept);

/// A message, or none.
#[derive(Debug)]
pub enum Received {
    /// A message, and what came with it.
    Message(Message, Vec<OwnedFd>),
    /// None of the messages; and what came with it.
    Strange(Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// The other side has ended.
    End,
}

impl Link {
    /// Of a connected SEQPACKET socket.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Link {
        Link(Kept::new(socket))
    }

    /// Process and user of the other side, as the kernel knew them when it connected.
    ///
    /// # Errors
    /// The system's.
    pub fn peer(&self) -> io::Result<Peer> {
        peer(self.0.as_fd())
    }

    /// Sends a message and descriptors, which stay open here.
    ///
    /// # Errors
    /// The system's: WouldBlock if the other side does not read.
    pub fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        assert!(fds.len() <= FDS_MAX, "at most {FDS_MAX} descriptors");
        let bytes = message.encode();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags)?;
        Ok(())
    }

    /// Hears a message, if there is one.
    ///
    /// # Errors
    /// The system's.
    pub fn receive(&self) -> io::Result<Received> {
        let mut bytes = [0; LEN_MAX];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let into = &mut [IoSliceMut::new(&mut bytes)];
        let mut got = recvmsg(&self.0, &mut *into, &mut control, flags);
        if matches!(got, Err(Errno::CONNRESET)) {
            // The other side has closed with something unread. All that it has said before is still there.
            got = recvmsg(&self.0, into, &mut control, flags);
        }
        let got = match got {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Received::Nothing);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Ok(Received::End);
            }
            Err(error) => return Err(error.into()),
        };
        // Taken whatever becomes of the message, so that none stays open.
        let fds: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        if got.bytes == 0 {
            return Ok(Received::End);
        }
        let whole = !got
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        match Message::decode(&bytes[..got.bytes]) {
            Ok(message) if whole => Ok(Received::Message(message, fds)),
            // Too long, or more descriptors than one may have, or no message.
            _ => Ok(Received::Strange(fds)),
        }
    }
}

/// Readable when there is something to hear.
impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Segment;
    use rustix::fd::AsRawFd;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, send, socketpair};

    fn pair() -> (Link, Link) {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (Link::new(one), Link::new(other))
    }

    #[test]
    fn last_words_of_one_that_has_not_heard_all_are_heard() {
        let (one, other) = pair();
        one.send(&Message::Ready, &[]).unwrap();
        let leaves = Message::Leave { keeps: false };
        other.send(&Message::Ready, &[]).unwrap();
        other.send(&leaves, &[]).unwrap();
        drop(other);
        for said in [Message::Ready, leaves] {
            match one.receive().unwrap() {
                Received::Message(heard, _) => assert_eq!(heard, said),
                other => panic!("{other:?} for {said:?}"),
            }
        }
        assert!(matches!(one.receive().unwrap(), Received::End));
    }

    #[test]
    fn a_segment_crosses_with_its_message() {
        let (one, other) = pair();
        assert!(matches!(other.receive().unwrap(), Received::Nothing));
        let ours = Segment::create("test", 4096).unwrap();
        ours.write(0, b"here").unwrap();
        let sent = Message::Memory {
            packets: 4096,
            rings: 0,
        };
        one.send(&sent, &[ours.as_fd()]).unwrap();
        let Received::Message(Message::Memory { packets: len, .. }, mut fds) =
            other.receive().unwrap()
        else {
            panic!("a region");
        };
        let theirs = Segment::open(fds.pop().unwrap(), len as usize).unwrap();
        let mut seen = [0; 4];
        theirs.read(0, &mut seen).unwrap();
        assert_eq!(&seen, b"here");
        assert!(fds.is_empty());
        let us = Peer {
            process: Some(rustix::process::getpid()),
            user: rustix::process::geteuid().as_raw(),
        };
        assert_eq!(other.peer().unwrap(), us);
        drop(one);
        assert!(matches!(other.receive().unwrap(), Received::End));
    }

    #[test]
    fn what_is_no_message_is_an_error_and_leaves_nothing_open() {
        let (one, other) = pair();
        send(&one, &[200, 1, 2], SendFlags::empty()).unwrap();
        assert!(matches!(other.receive().unwrap(), Received::Strange(_)));
        let mut long = Message::Ready.encode();
        long.resize(LEN_MAX + 1, 0);
        send(&one, &long, SendFlags::empty()).unwrap();
        assert!(matches!(other.receive().unwrap(), Received::Strange(_)));
        // More descriptors than a message may have.
        let many = [one.as_fd(); FDS_MAX + 3];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX + 3))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        let text = Message::Ready.encode();
        sendmsg(
            &one,
            &[IoSlice::new(&text)],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
        let before = open(&one);
        assert!(matches!(other.receive().unwrap(), Received::Strange(_)));
        assert_eq!(open(&one), before);
        one.send(&Message::Ready, &[]).unwrap();
        assert!(matches!(
            other.receive().unwrap(),
            Received::Message(Message::Ready, _)
        ));
    }

    /// Descriptors of this process for the socket of a line: other tests have some of their own at the same time.
    fn open(line: &Link) -> usize {
        let of = |name: &str| std::fs::read_link(format!("/proc/self/fd/{name}"));
        let wanted = of(&line.as_fd().as_raw_fd().to_string()).unwrap();
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let names = all.filter_map(|it| it.file_name().into_string().ok());
        names
            .filter(|it| of(it).is_ok_and(|to| to == wanted))
            .count()
    }

    #[test]
    fn a_side_that_does_not_read_is_told_of() {
        let (one, _other) = pair();
        let full = (0..100_000).find_map(|_| one.send(&Message::Ready, &[]).err());
        assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
    }
}
