//! The calls that read and change socket options: of a connection, and of a listener, whose options those that it
//! accepts begin with. How sets of options are kept is in `profile`.

use core::time::Duration;

use crate::rules::buffer_sizes::BufferSizes;
use crate::rules::error::Error;
use crate::rules::profile::{DEFAULT, SocketOptions};
use crate::stack::Stack;
use crate::store::cold::flag;
use crate::store::half_open::MAX_TRIES;
use crate::store::keys::{ConnId, ConnSlot};
use crate::store::listener::ListenerId;
use crate::time::Instant;

impl Stack {
    /// A connection's options.
    pub fn options(&self, id: ConnId) -> Result<SocketOptions, Error> {
        let cold = &self.store.tcbs[self.conn(id)?];
        Ok(SocketOptions {
            nodelay: cold.has(flag::NODELAY),
            ..*self.rules.profiles().get(cold.profile)
        })
    }

    /// Changes a connection's options. What counts in the handshake only (`max_segment`, `syn_retries`, `congestion`
    /// while something is in flight) changes nothing afterwards.
    /// Keeps MUST-24, MUST-27, MUST-48, MUST-49, SHLD-21.
    pub fn set_options(
        &mut self,
        now: Instant,
        id: ConnId,
        options: &SocketOptions,
    ) -> Result<(), Error> {
        self.env.set_now(now);
        let conn = self.conn(id)?;
        let pushes = options.nodelay && !self.store.tcbs[conn].has(flag::NODELAY);
        self.give_options(conn, options)?;
        // The time that keep-alive and idleness wait begins with the wish.
        if options.wants_sweep() {
            self.store.tcbs[conn].last_heard_ms = self.env.now_ms;
        }
        self.with(conn, |c| c.options_changed(options.quick_ack, pushes));
        Ok(())
    }

    /// Changes [`SocketOptions::wake_reader`] alone, by a shorter way than [`set_options`](Self::set_options).
    pub fn set_wake_reader(
        &mut self,
        now: Instant,
        id: ConnId,
        silence: Option<Duration>,
    ) -> Result<(), Error> {
        self.env.set_now(now);
        let conn = self.conn(id)?;
        let before = self.store.tcbs[conn].profile;
        let profile = self
            .rules
            .profiles_mut()
            .with_wake_reader(before, silence)?;
        self.take_options(conn);
        self.join(conn, profile);
        if self.rules.profiles().get(profile).wants_sweep() {
            self.store.tcbs[conn].last_heard_ms = self.env.now_ms;
        }
        Ok(())
    }

    /// The options that a listener's connections begin with.
    pub fn listener_options(&mut self, id: ListenerId) -> Result<SocketOptions, Error> {
        let listener = self.index.listeners.get(id).ok_or(Error::Stale)?;
        Ok(SocketOptions {
            nodelay: listener.nodelay,
            ..*self.rules.profiles().get(listener.profile)
        })
    }

    /// Changes the options that a listener's connections begin with; those that it has made already keep theirs.
    pub fn set_listener_options(
        &mut self,
        id: ListenerId,
        options: &SocketOptions,
    ) -> Result<(), Error> {
        self.index.listeners.get(id).ok_or(Error::Stale)?;
        let profile = self.rules.profiles_mut().intern(options)?;
        if let Some(listener) = self.index.listeners.get(id) {
            listener.nodelay = options.nodelay;
            let old = core::mem::replace(&mut listener.profile, profile);
            self.rules.profiles_mut().let_go(old);
        }
        Ok(())
    }

    /// A listener gets to see a connection only when its first data is there, or after about this time, a minute at most
    /// (Linux: TCP_DEFER_ACCEPT). `None`: as soon as the handshake is done.
    pub fn set_defer_accept(
        &mut self,
        id: ListenerId,
        time: Option<Duration>,
    ) -> Result<(), Error> {
        let listener = self.index.listeners.get(id).ok_or(Error::Stale)?;
        let tries = time.map_or(0, |time| {
            tries_within(time, self.rules.config().rto_initial)
        });
        listener.defer_tries = tries.min(MAX_TRIES as u8 - 1);
        Ok(())
    }

    /// A connection has these options from now on, and not those it had.
    pub(crate) fn give_options(
        &mut self,
        conn: ConnSlot,
        options: &SocketOptions,
    ) -> Result<(), Error> {
        let profile = self.rules.profiles_mut().intern(options)?;
        let told = self.rules.timeout_option(self.store.tcbs[conn].profile);
        self.take_options(conn);
        self.join(conn, profile);
        let cold = &mut self.store.tcbs[conn];
        if options.nodelay {
            cold.set(flag::NODELAY);
        } else {
            cold.clear(flag::NODELAY);
        }
        cold.timeout_options_changed(&self.rules, told);
        Ok(())
    }

    /// A connection that has the defaults has this set from now on, which is held for it already.
    pub(crate) fn join(&mut self, conn: ConnSlot, profile: u8) {
        self.store.tcbs[conn].profile = profile;
        self.rules.profiles_mut().joined(profile);
        self.sweep_soon(conn);
    }

    /// A connection has this set of its listener's.
    pub(crate) fn inherit_options(&mut self, conn: ConnSlot, profile: u8) {
        self.rules.profiles_mut().hold(profile);
        self.join(conn, profile);
    }

    /// A connection has the defaults from now on.
    pub(crate) fn take_options(&mut self, conn: ConnSlot) {
        let cold = &mut self.store.tcbs[conn];
        let profile = core::mem::take(&mut cold.profile);
        if profile != DEFAULT {
            self.rules.profiles_mut().left(profile);
            self.rules.profiles_mut().let_go(profile);
        }
    }

    /// Whether the connection does not count on answers to carry its acknowledgements (Linux: TCP_QUICKACK, as read).
    pub fn quick_ack(&self, id: ConnId) -> Result<bool, Error> {
        Ok(!self.store.tcbs[self.conn(id)?].is_interactive())
    }

    /// Has acknowledgements go at once, or wait for answers, until the connection's own use shows otherwise (Linux:
    /// TCP_QUICKACK, as set). For good: [`crate::SocketOptions::quick_ack`].
    pub fn set_quick_ack(&mut self, id: ConnId, quick: bool) -> Result<(), Error> {
        let conn = self.conn(id)?;
        self.store.tcbs[conn].set_interactive(!quick);
        if quick {
            self.with(conn, |c| c.acknowledge_what_was_read());
        }
        Ok(())
    }

    /// From now on buffers are of these sizes, those of open connections too. A window that was offered stands, and one that
    /// [cannot be offered](BufferSizes::can_follow) is offered as far as it can.
    pub fn resize_buffers(&mut self, sizes: BufferSizes) {
        self.rules.resize_buffers(sizes);
    }
}

/// How many SYN-ACKs are sent in `time`, the first included (Linux: secs_to_retrans).
fn tries_within(time: Duration, first_wait: Duration) -> u8 {
    let (mut tries, mut wait, mut end) = (1u8, first_wait, first_wait);
    while end < time && tries < u8::MAX {
        wait = wait.saturating_mul(2);
        end = end.saturating_add(wait);
        tries += 1;
    }
    tries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_tries_as_in_linux() {
        let second = Duration::from_secs(1);
        for (time, tries) in [(1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (1_000, 10)] {
            assert_eq!(tries_within(second * time, second), tries, "{time} s");
        }
    }
}
