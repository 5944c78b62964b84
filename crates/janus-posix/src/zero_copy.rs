//! SO_ZEROCOPY and MSG_ZEROCOPY (Linux: `msg_zerocopy.rst`). The bytes of a call are copied before it returns, as Linux copies them
//! where a route cannot gather: each call is told to be over at once, and that its bytes were copied. Such a message waits in the
//! socket's error queue, which nothing else is put into. Messages that follow each other become one, so the queue holds one at most.

use crate::abi;
use crate::errno::Errno;
use crate::message::put_control;
use crate::sockets::Sockets;
use crate::table::{Socket, slot_of};
use crate::transfer::Progress;

/// Calls of one socket, numbered from 0 in the order in which they began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ZeroCopy {
    /// The number of the next.
    next: u32,
    /// The first and the last that are over and not told.
    over: Option<(u32, u32)>,
    /// The latest has sent something and is not over: its caller is asleep.
    under_way: bool,
}

impl ZeroCopy {
    /// Returns true if a call that came so far is over now. `again`: it was tried before, and had sent something.
    fn came_to(&mut self, progress: Progress, again: bool) -> bool {
        // Of one whose caller gave up waiting nothing else would be heard.
        let given_up = self.under_way && !again;
        if given_up {
            self.end(self.next.wrapping_sub(1));
        }
        let (sent, over) = match progress {
            Progress::Done(sent) => (sent, true),
            Progress::Blocked(sent) => (sent, false),
        };
        if sent > 0 {
            self.next = self.next.wrapping_add(u32::from(!self.under_way));
            self.under_way = true;
        }
        let ends = over && self.under_way;
        if ends {
            self.end(self.next.wrapping_sub(1));
        }
        ends || given_up
    }

    /// skb_zerocopy_notify_extend.
    fn end(&mut self, number: u32) {
        self.under_way = false;
        let first = self.over.map_or(number, |(first, _)| first);
        self.over = Some((first, number));
    }
}

impl Socket {
    /// Returns true if there is something in its error queue.
    pub(crate) fn has_told(&self) -> bool {
        self.zero_copy
            .as_ref()
            .is_some_and(|sent| sent.over.is_some())
    }
}

impl Sockets<'_> {
    /// Notes how far a call with MSG_ZEROCOPY came, of which `done` bytes were sent by earlier tries.
    pub(crate) fn note_zero_copy(
        &mut self,
        fd: i32,
        progress: Progress,
        done: usize,
    ) -> Result<(), Errno> {
        let mut told = false;
        self.change(fd, |socket| {
            // Without the option the flag is ignored (tcp_sendmsg_locked).
            if socket.options.zero_copy {
                let sent = socket.zero_copy.get_or_insert_default();
                told = sent.came_to(progress, done > 0);
            }
        })?;
        if told {
            self.happened(slot_of(fd)?, abi::EPOLLERR as u32);
        }
        Ok(())
    }

    /// Takes what is in the error queue, as a control message with the data of `struct sock_extended_err` and no offender
    /// (ip_recv_error, ipv6_recv_error). Gives `msg_flags`.
    pub(crate) fn take_told(
        &mut self,
        fd: i32,
        flags: i32,
        control: &mut Vec<u8>,
        room: usize,
    ) -> Result<i32, Errno> {
        let mut over = None;
        let v6 = self.files.table.peek(fd)?.family.v6;
        self.change(fd, |socket| {
            over = socket.zero_copy.as_mut().and_then(|sent| sent.over.take());
        })?;
        let (first, last) = over.ok_or(Errno::EAGAIN)?;
        let (what, offender) = match v6 {
            false => ((abi::SOL_IP, abi::IP_RECVERR), 16),
            true => ((abi::SOL_IPV6, abi::IPV6_RECVERR), 28),
        };
        let mut data = vec![
            0,
            0,
            0,
            0,
            abi::SO_EE_ORIGIN_ZEROCOPY as u8,
            0,
            abi::SO_EE_CODE_ZEROCOPY_COPIED as u8,
            0,
        ];
        data.extend(first.to_ne_bytes());
        data.extend(last.to_ne_bytes());
        data.resize(data.len() + offender, 0);
        let mut msg_flags = flags & abi::MSG_CMSG_CLOEXEC | abi::MSG_ERRQUEUE;
        put_control(control, room, what, &data, &mut msg_flags);
        Ok(msg_flags)
    }
}
