//! Looks at a connection and at the whole stack: the state as a socket interface asks for it before every answer, in a few
//! fields; all that [`Info`] says; and the audit.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use crate::rules::config::Config;
use crate::rules::error::Error;
use crate::stack::Stack;
use crate::stack::api::audit::{Queues, audit_cold, describe, owes};
use crate::stack::api::info::Info;
use crate::store::cold::{State, flag};
use crate::store::hot::{Hot, hot_flag};
use crate::store::keys::{ConnId, ConnSlot, HotId, Key};
use crate::store::rest::{REST_HANDLERS, Rest};
use crate::store::rto;
use crate::store::segment::seg_flag;
use crate::time::Instant;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Its state; a connection in TIME-WAIT is told as closed, since all it could do is done.
    pub state: State,
    /// Why it ended, if it ended badly.
    pub failure: Option<Error>,
    /// The peer's FIN has come, in order.
    pub peer_fin: bool,
    /// Bytes received and not read.
    pub unread: u32,
    /// Bytes written and not sent.
    pub unsent: u32,
    /// Bytes sent and not acknowledged.
    pub in_flight: u32,
    /// Our FIN is to be sent behind what is unsent.
    pub fin_unsent: bool,
    /// Our FIN is sent and not acknowledged.
    pub fin_in_flight: bool,
    /// There is room to write, and enough of it that a writer should be told.
    pub writable: bool,
    /// The last write, or the FIN, found no packet buffer: the writer is told when it is worth another try.
    pub starved: bool,
    /// The receive window is less than about a segment: the reader should make room, however little there is.
    pub window_low: bool,
}

impl Stack {
    /// Where the connection stands.
    #[inline]
    pub fn status(&self, id: ConnId) -> Result<Status, Error> {
        let conn = self.conn(id)?;
        let cold = &self.store.tcbs[conn];
        let hot = cold.hot().map(|id| &self.store.hot[id]);
        let closing = is_closing(cold.state);
        let tail = hot.and_then(|h| h.sender.unsent.tail);
        let fin_unsent = cold.has(flag::FIN_QUEUED)
            || closing && tail.is_some() && self.store.blocks.segments[tail].has(seg_flag::FIN);
        Ok(Status {
            state: cold.state,
            failure: cold.failure(),
            peer_fin: cold.has(flag::PEER_FIN),
            unread: hot.map_or(0, |h| h.receiver.inbox.bytes),
            unsent: hot.map_or(0, |h| h.sender.unsent.bytes),
            in_flight: hot.map_or(0, |h| h.sender.flight.bytes),
            fin_unsent,
            fin_in_flight: closing && !fin_unsent,
            writable: self.view(conn).is_none_or(|view| view.is_writable()),
            starved: hot.is_some_and(|h| h.has(hot_flag::STARVED)),
            window_low: cold.receive_window() <= u32::from(cold.mss),
        })
    }

    /// Whether a connection whose FIN was asked for still has to get it acknowledged, also when its owner has let go of it.
    pub fn is_closing(&self, id: ConnId) -> bool {
        let cold = id.slot().and_then(|slot| self.store.tcbs.get(slot));
        cold.is_some_and(|cold| {
            let closing = is_closing(cold.state) || cold.has(flag::FIN_QUEUED);
            cold.generation == id.generation && closing
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        self.rules.config()
    }

    /// Address of the neighbor for which a frame was dropped last, as its hardware address did not become known in time
    /// (`Counters::dropped_no_neighbor`); `None` before the first.
    pub fn unanswered_neighbor(&self) -> Option<IpAddr> {
        self.host.unanswered()
    }

    /// Returns the largest charge of bytes that a connection may have written ahead.
    pub fn send_budget(&self, id: ConnId) -> Result<u32, Error> {
        let conn = self.conn(id)?;
        let view = self.view(conn);
        Ok(view.map_or(self.rules.config().send_buffer, |view| view.budget()))
    }

    /// A look at the connection.
    /// Keeps SHLD-9.
    pub fn info(&self, id: ConnId) -> Result<Info, Error> {
        let conn = self.conn(id)?;
        let tuned = self.view(conn).map(|view| view.receive_buffer());
        let cold = &self.store.tcbs[conn];
        let key = self.store.tcbs.key(conn);
        let options = cold.mss.saturating_sub(cold.payload_mss());
        let on_path = self
            .env
            .paths
            .size_on_path(key.peer(), cold.mss, self.env.now);
        let mss = on_path - options;
        let hot = cold.hot().map(|id| &self.store.hot[id]);
        let idle_cwnd = cold.idle_window() * u32::from(mss);
        let threshold = cold.idle_threshold();
        let idle_ssthresh = threshold.map_or(u32::MAX, |segments| segments * u32::from(mss));
        let backoff = hot.map_or_else(|| rto::kept_backoff(cold), |h| h.timers.backoff);
        let timeout = rto::timeout(cold, self.rules.waits(), backoff).as_micros();
        let marked = |flag: u8| hot.map_or(0, |hot| self.count_in_flight(hot, flag));
        let live = cold.state != State::Closed;
        Ok(Info {
            state: cold.state,
            srtt_us: cold.srtt_us(),
            rttvar_us: rto::variation(cold),
            rto_us: u32::try_from(timeout).unwrap_or(u32::MAX),
            backoff,
            retries: hot.map_or(0, |h| h.timers.retries),
            probes: hot.map_or(0, |h| h.timers.probes),
            cwnd: hot.map_or(idle_cwnd, |h| h.congestion.cwnd()),
            ssthresh: hot.map_or(idle_ssthresh, |h| h.congestion.ssthresh()),
            recovering: hot.is_some_and(|h| h.has(hot_flag::RECOVERY)),
            mss,
            receive_mss: self.rules.largest_segment(&key, cold.profile),
            path_mtu: on_path.saturating_add(if key.is_v6() { 60 } else { 40 }),
            unread: hot.map_or(0, |h| h.receiver.inbox.bytes),
            unsent: hot.map_or(0, |h| h.sender.unsent.bytes),
            in_flight: hot.map_or(0, |h| h.sender.flight.bytes),
            unacked_segments: hot.map_or(0, |h| h.sender.flight.count),
            sacked_segments: marked(seg_flag::SACKED),
            lost_segments: marked(seg_flag::LOST),
            resent_segments: marked(seg_flag::RESENT),
            timestamps: cold.has(flag::TIMESTAMPS),
            sack: live && cold.has(flag::SACK),
            window_scaling: cold.scales != 0,
            ecn: live && cold.has(flag::ECN),
            send_scale: cold.send_scale(),
            receive_scale: cold.receive_scale(),
            receive_window: cold.receive_window(),
            send_window: cold.snd_wnd(),
            receive_buffer: tuned.unwrap_or_else(|| {
                let rules = &self.rules;
                rules
                    .profiles()
                    .receive_buffer(cold.profile, rules.config())
            }),
            silent_ms: self.env.now_ms.wrapping_sub(cold.last_heard_ms),
            keepalive: self.rules.profiles().get(cold.profile).keepalive,
            user_timeout: cold.user_timeout(&self.rules),
            peer_user_timeout: cold.said_by_peer(&self.rules),
            hot: hot.is_some(),
        })
    }

    /// Segments in flight that have a mark. Goes over all of them: this is for those who look, not for the engine.
    fn count_in_flight(&self, hot: &Hot, flag: u8) -> u32 {
        let (mut at, mut count) = (hot.sender.flight.head, 0);
        while at.is_some() {
            count += u32::from(self.store.blocks.segments[at].has(flag));
            at = self.store.blocks.segments[at].next;
        }
        count
    }

    /// Checks that no connection is forgotten: one that owes something (data, a FIN, a SYN, an acknowledgement), one with a
    /// writer that waits for room, and one without an owner has a timer that is armed in time, or stands in a queue that
    /// [`Stack::transmit`] or [`Stack::advance`] serves. Also checks that flags, queues, timers and counts of rests agree, and that
    /// there is nothing for a connection at rest.
    ///
    /// Holds between any two calls of the stack's methods. Visits every connection: not for a server's loop.
    ///
    /// # Errors
    /// Describes the first connection that fails.
    pub fn audit(&self) -> Result<(), String> {
        let queues = self.queues()?;
        let (mut attached, mut resting) = (0, [0; REST_HANDLERS]);
        for conn in self.store.tcbs.places() {
            let cold = &self.store.tcbs[conn];
            let told = match cold.hot() {
                None => audit_cold(cold),
                Some(id) => {
                    attached += 1;
                    let queues = queues.get(&id).copied().unwrap_or_default();
                    self.audit_hot(conn, id, queues)
                }
            };
            let rest = Rest::of_word(cold.reader);
            resting[rest.map_or(0, |rest| usize::from(rest.handler()))] +=
                u32::from(rest.is_some());
            let told = told.and_then(|()| match rest {
                Some(_) if self.unread(self.store.tcbs.id_of(conn)) != Err(Error::WouldBlock) => {
                    Err("it is at rest, and something is there".into())
                }
                _ => Ok(()),
            });
            told.map_err(|fault| {
                let (key, state, flags) = (self.store.tcbs.key(conn), cold.state, cold.flags);
                format!("{fault}; {key:?} in {state:?}, flags {flags:#x}")
            })?;
        }
        if resting != *self.schedule.rests.resting() {
            return Err(format!("at rest, by handler: {resting:?}"));
        }
        let blocks = &self.store.blocks;
        let mut urgent = blocks.urgents.keys().map(|id| &self.store.hot[*id]);
        let mut doubted = blocks.doubts.keys().map(|id| &self.store.hot[*id]);
        if !urgent.all(|hot| hot.has(hot_flag::URGENT)) || !doubted.all(|hot| hot.doubted) {
            return Err("urgent data or a doubt of a block that does not know of it".into());
        }
        let left = queues
            .keys()
            .filter(|&&id| self.store.hot[id].conn.is_none());
        match self.store.hot.len() {
            len if len == attached + left.count() => Ok(()),
            len => Err(format!("{len} hot blocks for {attached} connections")),
        }
    }

    /// Finds which hot blocks stand in the output queue and among the starved.
    fn queues(&self) -> Result<HashMap<HotId, Queues>, String> {
        let mut queues = HashMap::<HotId, Queues>::new();
        let held = self.host.own_loop().held().iter().copied();
        for id in self.schedule.output.iter().flatten().chain(held) {
            match queues.entry(id) {
                Entry::Occupied(_) => return Err(format!("block {id:?} is queued twice")),
                Entry::Vacant(entry) => entry.insert(Queues::default()).output = true,
            };
        }
        for &id in &self.schedule.starved {
            let entry = queues.entry(id).or_default();
            if core::mem::replace(&mut entry.starved, true) {
                return Err(format!("block {id:?} is starved twice"));
            }
        }
        Ok(queues)
    }

    fn audit_hot(&self, conn: ConnSlot, id: HotId, queues: Queues) -> Result<(), String> {
        let (cold, hot) = (&self.store.tcbs[conn], &self.store.hot[id]);
        let fault = |what: &str| Err(format!("{what}; {}", describe(hot)));
        if hot.conn != Some(conn) {
            return fault("the hot block belongs to another");
        }
        if hot.has(hot_flag::QUEUED) != queues.output {
            return fault("the output queue and its flag disagree");
        }
        if hot.has(hot_flag::STARVED) != queues.starved {
            return fault("the queue of the starved and its flag disagree");
        }
        let deadline = hot.timers.soonest();
        let armed = hot.timers.timer.is_some_and(|timer| {
            hot.timers.timer_at <= deadline
                && self.schedule.wheel.payload_at(timer) == Some(id.index())
        });
        if deadline != Instant::NEVER && !armed && !queues.output {
            return fault("a deadline has no timer");
        }
        let driven = queues.output || deadline != Instant::NEVER;
        // One that needs no memory any more keeps its block until its turn in the queue comes.
        let contented = queues.starved && !hot.wants_memory(cold);
        if cold.has(flag::ORPHAN) && !driven && !contented {
            return fault("an orphan that no timer ends");
        }
        if let Some(what) = owes(cold, hot).filter(|_| !driven && !queues.starved) {
            return fault(what);
        }
        Ok(())
    }
}

/// Our FIN was asked for, and is not acknowledged.
fn is_closing(state: State) -> bool {
    matches!(state, State::FinWait1 | State::Closing | State::LastAck)
}
