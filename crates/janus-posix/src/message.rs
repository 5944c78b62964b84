//! `recvmsg` and `sendmsg`: what stands beside the bytes. Control messages have the layout of the C ABI (CMSG_ALIGN to a word).
//! There is one that TCP gives, TCP_CM_INQ, one in the error queue (`zero_copy`), and hardly any that it takes.

use janus_tcp::Instant;
use std::io::{IoSlice, IoSliceMut};

use crate::abi;
use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::transfer::Progress;

type Result<T> = std::result::Result<T, Errno>;

/// `struct cmsghdr`: its length and the two numbers.
const HEADER: usize = size_of::<usize>() + 8;

/// CMSG_ALIGN.
fn aligned(len: usize) -> usize {
    len.next_multiple_of(size_of::<usize>())
}

/// put_cmsg: what there is room for, and the mark that there was not enough.
pub(crate) fn put_control(
    control: &mut Vec<u8>,
    room: usize,
    (level, kind): (i32, i32),
    data: &[u8],
    flags: &mut i32,
) {
    let left = room.saturating_sub(control.len());
    let whole = HEADER + data.len();
    if left < HEADER {
        *flags |= abi::MSG_CTRUNC;
        return;
    }
    if left < whole {
        *flags |= abi::MSG_CTRUNC;
    }
    let len = whole.min(left);
    control.extend(len.to_ne_bytes());
    control.extend(level.to_ne_bytes());
    control.extend(kind.to_ne_bytes());
    control.extend(&data[..len - HEADER]);
    control.resize(control.len() + (aligned(whole).min(left) - len), 0);
}

/// sock_cmsg_send: messages of other levels are none of TCP's business, unknown ones of SOL_SOCKET are refused.
fn check_control(mut control: &[u8]) -> Result<()> {
    while control.len() >= HEADER {
        let word = |at: usize| {
            let bytes = control[at..at + 4].first_chunk();
            bytes.map_or(0, |bytes| i32::from_ne_bytes(*bytes))
        };
        let len = control
            .first_chunk()
            .map_or(0, |bytes| usize::from_ne_bytes(*bytes));
        let (level, kind) = (word(size_of::<usize>()), word(size_of::<usize>() + 4));
        if len < HEADER || len > control.len() {
            return Err(Errno::EINVAL);
        }
        // SCM_RIGHTS and SCM_CREDENTIALS are passed over, as the kernel does.
        let known = [abi::SO_MARK, abi::SCM_RIGHTS, abi::SCM_CREDENTIALS];
        if level == abi::SOL_SOCKET && !known.contains(&kind) {
            return Err(Errno::EINVAL);
        }
        control = control.get(aligned(len)..).unwrap_or(&[]);
    }
    Ok(())
}

impl Sockets<'_> {
    /// `recvmsg(2)`: as [`Sockets::receive`], and `control` gets the control messages, at most `control_room` bytes. Also gives
    /// `msg_flags`. TCP tells no name: `msg_namelen` is 0.
    #[allow(clippy::too_many_arguments)]
    pub fn receive_message(
        &mut self,
        now: Instant,
        fd: i32,
        into: &mut [IoSliceMut<'_>],
        flags: i32,
        control: &mut Vec<u8>,
        control_room: usize,
        done: usize,
    ) -> Result<(Progress, i32)> {
        control.clear();
        if flags & abi::MSG_ERRQUEUE != 0 {
            let msg_flags = self.take_told(fd, flags, control, control_room)?;
            return Ok((Progress::Done(0), msg_flags));
        }
        let progress = self.receive(now, fd, into, flags, done)?;
        let mut msg_flags = flags & abi::MSG_CMSG_CLOEXEC;
        if flags & abi::MSG_OOB != 0 {
            msg_flags |= self.urgent_flags(into, progress);
        }
        let socket = self.files.table.peek(fd)?;
        if socket.options.tell_unread
            && let Some(conn) = socket.state.connection()
        {
            let status = self.stack.status(conn)?;
            // tcp_inq_hint: the FIN counts, so that the end is asked for.
            let left = status.unread + u32::from(status.peer_fin);
            let what = (abi::SOL_TCP, abi::TCP_CM_INQ);
            put_control(
                control,
                control_room,
                what,
                &left.to_ne_bytes(),
                &mut msg_flags,
            );
        }
        Ok((progress, msg_flags))
    }

    /// `sendmsg(2)`: as [`Sockets::transmit`]. A name means nothing to a connected socket and is not asked for.
    pub fn transmit_message(
        &mut self,
        now: Instant,
        fd: i32,
        from: &[IoSlice<'_>],
        control: &[u8],
        flags: i32,
        done: usize,
    ) -> Result<Progress> {
        check_control(control)?;
        self.transmit(now, fd, from, flags, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_cut_to_the_room_there_is() {
        let whole = [
            20usize.to_ne_bytes().as_slice(),
            &6i32.to_ne_bytes(),
            &36i32.to_ne_bytes(),
            &7i32.to_ne_bytes(),
            &[0; 4],
        ]
        .concat();
        for (room, len, cut) in [
            (100, 24, false),
            (20, 20, false),
            (18, 18, true),
            (15, 0, true),
        ] {
            let (mut control, mut flags) = (Vec::new(), 0);
            put_control(&mut control, room, (6, 36), &7i32.to_ne_bytes(), &mut flags);
            assert_eq!(control.len(), len, "room {room}");
            assert_eq!(flags & abi::MSG_CTRUNC != 0, cut, "room {room}");
            if room >= 24 {
                assert_eq!(control, whole);
            }
        }
    }

    #[test]
    fn control_messages_for_sockets_are_looked_at() {
        let message = |len: usize, level: i32, kind: i32| {
            [
                len.to_ne_bytes().as_slice(),
                &level.to_ne_bytes(),
                &kind.to_ne_bytes(),
                &[0; 8],
            ]
            .concat()
        };
        assert_eq!(check_control(&[]), Ok(()));
        assert_eq!(check_control(&message(20, abi::SOL_TCP, 99)), Ok(()));
        let unknown = message(20, abi::SOL_SOCKET, 99);
        assert_eq!(check_control(&unknown), Err(Errno::EINVAL));
        let known = message(20, abi::SOL_SOCKET, abi::SO_MARK);
        assert_eq!(check_control(&known), Ok(()));
        let both = [known, unknown].concat();
        assert_eq!(check_control(&both), Err(Errno::EINVAL));
        assert_eq!(check_control(&message(3, 0, 0)), Err(Errno::EINVAL));
        assert_eq!(check_control(&message(400, 0, 0)), Err(Errno::EINVAL));
    }
}
