//! All sockets of a process go to another stack, with every flow of the old one: listeners are made anew, connections move as parcels. For
//! tests of what a parcel carries; programs see nothing of it.

use janus_tcp::{Detached, Error, Instant, Parcel, Refused, Stack};

use crate::errno::Errno;
use crate::sockets::Sockets;
use crate::table::{State, slot_of};

/// Number of the one stack there is after a move.
const THE_OTHER: u16 = 1;
/// Flows looked at in one go; a host has few.
const ALL: usize = usize::MAX >> 1;

/// Why a move ended half done.
#[derive(Debug)]
pub enum Stranded {
    /// The new stack did not listen.
    Listener(Error),
    /// It did not take a parcel.
    Refused(Box<Refused>),
}

impl Sockets<'_> {
    /// Moves everything to `new`, whose clock shows `now` when the old one's shows `then`; parcels go `through` what carries them.
    pub(crate) fn move_to(
        &mut self,
        (then, now): (Instant, Instant),
        new: Stack,
        mut through: impl FnMut(Parcel) -> Parcel,
    ) -> Result<(), Stranded> {
        // Wake-ups of before are told by the old stack.
        self.gather();
        let mut old = std::mem::replace(self.stack, new);
        let mut listeners = Vec::new();
        for fd in self.files.table.open().collect::<Vec<_>>() {
            if let Ok(State::Listening(id)) = self.files.table.peek(fd).map(|socket| socket.state) {
                self.listen_anew(fd, old.backlog(id))
                    .map_err(Stranded::Listener)?;
                listeners.push(id);
            }
        }
        let mut adopt = |stack: &mut Stack, detached: Detached| {
            let mut parcel = through(detached.parcel);
            parcel.rebase(now);
            let adopted = stack.adopt(now, parcel).map_err(Stranded::Refused)?;
            if let Some(id) = adopted {
                stack.wait_read(id, detached.reader);
                if detached.writer.is_some() {
                    stack.wait_write(now, id, detached.writer);
                }
            }
            Ok(adopted)
        };
        for fd in self.files.table.open().collect::<Vec<_>>() {
            let state = self.files.table.peek(fd).map(|socket| socket.state);
            let conn = state.ok().and_then(State::connection);
            let Some(detached) = conn.and_then(|id| old.detach(then, id, THE_OTHER).ok()) else {
                continue;
            };
            let adopted = adopt(self.stack, detached)?;
            if let (Some(id), Ok(socket)) = (adopted, self.files.table.get(fd)) {
                socket.state = match socket.state {
                    State::Connecting(_) => State::Connecting(id),
                    _ => State::Connected(id),
                };
            }
        }
        for id in listeners {
            while let Ok(detached) = old.detach_waiting(then, id, THE_OTHER) {
                adopt(self.stack, detached)?;
            }
        }
        let mut flows = Vec::new();
        old.visit_flows(0, ALL, |flow| flows.push(*flow));
        for flow in flows {
            if let Ok(detached) = old.detach_flow(then, &flow, THE_OTHER) {
                adopt(self.stack, detached)?;
            }
        }
        Ok(())
    }

    fn listen_anew(&mut self, fd: i32, backlog: usize) -> Result<(), Error> {
        let Ok(socket) = self.files.table.get(fd) else {
            return Ok(());
        };
        let (family, options) = (socket.family, socket.options.clone());
        let local = socket.bound.as_deref().copied();
        let local = local.ok_or(Error::AddrNotAvailable)?;
        let id = self
            .stack
            .listen_as(local, family.v6_only, options.reuse_port, backlog)?;
        socket.state = State::Listening(id);
        self.stack.set_listener_options(id, &options.tcp)?;
        // Its time was good enough for the old stack.
        let deferred: Result<(), Errno> = self.apply_deferral(fd);
        debug_assert!(deferred.is_ok());
        if let Ok(slot) = slot_of(fd) {
            self.arm(slot);
        }
        Ok(())
    }
}
