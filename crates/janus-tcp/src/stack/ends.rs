//! How a connection is over: what it held goes back, whoever waited learns why, and what the network may still bring for it
//! finds a compact record, or nothing. Who decides that it is over is elsewhere.

use core::time::Duration;
use std::net::IpAddr;

use janus_wire::{FlowKey, StampBase};

use crate::congestion::INITIAL_SEGMENTS;
use crate::conn::ended::varies;
use crate::conn::{Conn, Linger};
use crate::rules::profile::LINGER_MAX;
use crate::stack::Stack;
use crate::store::cold::{EndReason, NONE, State, Tcb, flag};
use crate::store::flows::Family;
use crate::store::keys::ConnSlot;
use crate::store::records::Record;
use crate::store::rto;
use crate::store::sharing::Facts;
use crate::store::time_wait::TimeWait;

impl Stack {
    /// The connection is over: no segment reaches it from now on. The application is told why.
    pub(crate) fn end(&mut self, conn: ConnSlot, why: EndReason) {
        let lent = Conn::of(&mut self.store, conn, &self.rules, &mut self.env);
        // Nearly all end when the owner has gone and all is said.
        if let Some(mut lent) = lent
            && why == EndReason::Orderly
            && lent.ends_unseen()
        {
            let hash = lent.flow().0.hash(&self.index.hash);
            let record = Record::Connection(conn).encode();
            self.index.table.remove(hash, record);
            let block = lent.vanish();
            self.store.hot.free(block);
            self.orphans -= 1;
            self.store.tcbs.free(conn);
            return;
        }
        self.end_with_care(conn, why);
    }

    /// Like [`Stack::end`], for a connection of which somebody may have to learn, or something be kept.
    #[inline(never)]
    fn end_with_care(&mut self, conn: ConnSlot, why: EndReason) {
        let why = match why {
            EndReason::TimedOut => self.complaint(conn).unwrap_or(why),
            _ => why,
        };
        if why == EndReason::Orderly {
            self.learn_path(conn);
        }
        if let Some((key, tcb)) = self.store.tcbs.with_key(conn)
            && tcb.state != State::Closed
        {
            let hash = key.hash(&self.index.hash);
            let record = Record::Connection(conn).encode();
            self.index.table.remove(hash, record);
        }
        self.after_end(conn, why);
    }

    /// A router's complaint. When the peer stopped answering after that, it is the better reason (RFC 1122 section
    /// 4.2.3.9).
    #[cold]
    fn complaint(&self, conn: ConnSlot) -> Option<EndReason> {
        let hot = self.store.tcbs[conn].hot()?;
        let complaint = self.store.hot[hot].path.soft_error;
        (complaint != EndReason::Orderly).then_some(complaint)
    }

    /// The flow has left the table; whoever waits learns it, and what is not needed any more goes.
    #[inline(always)]
    pub(crate) fn after_end(&mut self, conn: ConnSlot, why: EndReason) {
        let tcb = &mut self.store.tcbs[conn];
        tcb.close(why);
        let orphan = tcb.has(flag::ORPHAN);
        let reader = core::mem::replace(&mut tcb.reader, NONE);
        if reader != NONE {
            let whose = || self.store.tcbs.id_of(conn);
            self.schedule.wake_reader(reader, whose);
        }
        if !orphan {
            self.with(conn, |c| {
                c.drop_queues(false);
                c.wake_writer();
            });
            return;
        }
        match self.lend(conn) {
            Some(mut lent) => {
                if let Some(id) = lent.part() {
                    self.store.hot.free(id);
                    self.release(conn);
                }
            }
            None => self.release(conn),
        }
    }

    /// Gives the slot of an ended connection back.
    #[inline(always)]
    pub(crate) fn release(&mut self, conn: ConnSlot) {
        self.take_options(conn);
        self.orphans -= usize::from(self.store.tcbs[conn].has(flag::ORPHAN));
        let cold = &mut self.store.tcbs[conn];
        debug_assert!(cold.state == State::Closed && cold.hot().is_none());
        cold.vacate();
        self.store.tcbs.free(conn);
    }

    /// The flow goes on in a compact record: in TIME-WAIT, or orphaned in FIN-WAIT-2.
    pub(crate) fn linger(&mut self, conn: ConnSlot, how: Linger) {
        let fin_wait_2 = how == Linger::FinWait2;
        self.learn_path(conn);
        let cold = self.store.tcbs[conn];
        let (key, stamps) = (self.store.tcbs.key(conn), self.stamps_of(conn));
        let hash = self.index.hash.flow(&key);
        let old = Record::Connection(conn).encode();
        match self.file_time_wait((&key, stamps), &cold, fin_wait_2) {
            Some(id) => {
                self.index
                    .table
                    .replace(hash, old, Record::TimeWait(id).encode());
                self.moved(&key);
            }
            None => {
                self.index.table.remove(hash, old);
            }
        }
        self.after_end(conn, EndReason::Orderly);
    }

    /// Keeps MUST-13.
    fn file_time_wait(
        &mut self,
        (key, stamps): (&FlowKey, StampBase),
        cold: &Tcb,
        fin_wait_2: bool,
    ) -> Option<u32> {
        if let Some(oldest) = self.index.time_wait.to_evict(self.env.now) {
            self.env.counters.time_wait_evicted += 1;
            self.drop_time_wait(oldest);
        }
        let own_time = match fin_wait_2 {
            true => self.fin_wait_2_time(cold),
            false => None,
        };
        let record = TimeWait {
            snd_nxt: cold.snd_nxt,
            rcv_nxt: cold.rcv_nxt,
            ts_recent: cold.ts_recent,
            stamps,
            window: cold.window_field(),
            scale: cold.receive_scale(),
            timestamps: cold.has(flag::TIMESTAMPS),
            fin_wait_2,
            own_time: own_time.is_some(),
            expires: self.env.now + own_time.unwrap_or(self.rules.config().time_wait),
            ..TimeWait::default()
        };
        self.index.time_wait.insert(key, record)
    }

    /// Returns the time that an orphan waits for the peer's FIN: never so short that a repeated FIN could not come (Linux:
    /// tcp_fin_time). `None`: as long as TIME-WAIT lasts.
    fn fin_wait_2_time(&self, cold: &Tcb) -> Option<Duration> {
        let wished = self.rules.profiles().get(cold.profile).fin_wait_2;
        let wait = wished.or(self.rules.config().fin_wait_2)?;
        let least = rto::timeout(cold, self.rules.waits(), 0) * 7 / 2;
        Some(wait.max(least).min(LINGER_MAX))
    }

    pub(crate) fn drop_time_wait(&mut self, id: u32) {
        let key = self.index.time_wait.key(id);
        self.index
            .table
            .remove(self.index.hash.flow(&key), Record::TimeWait(id).encode());
        self.index.time_wait.remove(id);
    }

    pub(crate) fn drop_half_open(&mut self, id: u32) {
        let listener = self.index.half_open.get(id).listener();
        let tries = self.index.half_open.get(id).tries;
        self.index.listeners.half_open_gone(listener, tries);
        let key = self.index.half_open.key(id);
        self.index
            .table
            .remove(self.index.hash.flow(&key), Record::HalfOpen(id).encode());
        self.index.half_open.remove(id);
    }

    /// Whether a connection that its owner has let go of, or that is in TIME-WAIT, still has the local port, at one of the
    /// addresses for which `counts` holds. Looks at all of them: for a `bind` that wants the port to itself, not for each packet.
    pub fn port_lingers(&self, port: u16, counts: impl Fn(IpAddr) -> bool) -> bool {
        let mut found = false;
        for family in [Family::V4, Family::V6] {
            let mut see = |key: &FlowKey| found |= key.local_port() == port && counts(key.local());
            let over = self.index.time_wait.store();
            over.see(family, (0, over.places_of(family)), |_| true, &mut see);
            if self.orphans > 0 {
                let all = (0, self.store.tcbs.places_of(family));
                let unowned = |cold: &Tcb| cold.has(flag::ORPHAN) && cold.state != State::Closed;
                self.store.tcbs.see(family, all, unowned, &mut see);
            }
        }
        found
    }

    /// The owner lets go of a connection that lives on. True when there are too many of these, and it is ended.
    pub(crate) fn orphan(&mut self, conn: ConnSlot) -> bool {
        if !self.store.tcbs[conn].has(flag::ORPHAN) {
            self.store.tcbs[conn].set(flag::ORPHAN);
            self.orphans += 1;
        }
        let live = self.store.tcbs[conn].state != State::Closed;
        if live && self.orphans > self.rules.config().max_orphans as usize {
            self.env.counters.orphans_aborted += 1;
            self.abort_conn(conn);
            return true;
        }
        false
    }

    /// A connection has come to a good end: what it knows of its path is kept, if that is worth it.
    #[inline(always)]
    pub(crate) fn learn_path(&mut self, conn: ConnSlot) {
        if !self.rules.config().share_path_facts {
            return;
        }
        let cold = &self.store.tcbs[conn];
        let hot = cold.hot().map(|id| &self.store.hot[id]);
        let (variation_us, threshold) = (rto::variation(cold), cold.threshold(hot));
        if threshold.is_some() || varies(variation_us, self.rules.waits()) {
            self.keep_path(conn, variation_us, threshold);
        } else if !self.env.paths.facts.is_empty() {
            let to = self.store.tcbs.key(conn).peer();
            self.env
                .paths
                .facts
                .forget(self.rules.secrets().table_key(), to);
        }
    }

    #[cold]
    fn keep_path(&mut self, conn: ConnSlot, variation_us: u32, threshold: Option<u32>) {
        let srtt_us = self.store.tcbs[conn].srtt_us();
        if srtt_us == 0 {
            return;
        }
        let facts = Facts {
            srtt_us,
            variation_us,
            // A connection that met a bad moment should not keep the next ones from their first window.
            threshold: threshold.map(|segments| segments.max(INITIAL_SEGMENTS)),
        };
        let to = self.store.tcbs.key(conn).peer();
        self.env.counters.paths_learned += 1;
        self.env
            .paths
            .facts
            .learn(self.rules.secrets().table_key(), to, facts, self.env.now);
    }
}
