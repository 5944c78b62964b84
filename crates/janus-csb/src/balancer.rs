//! The control side of an update: one writer, which proposes a layout, gathers what the shards find, builds the
//! exceptions, publishes, and sees to it that nothing of the old epoch is left before the next update begins. It never
//! waits: each [`Balancer::poll`] makes one step if it can be made.
//!
//! ```text
//!   begin ──► shards adopt, traverse, report ──► exceptions built, layout published
//!                                                             │
//!   idle ◄── older layouts forgotten ◄── rounds of draining ◄── every core has adopted it
//! ```
//!
//! **Why rounds.** When every core has adopted epoch n + 1, no core tags a packet with n any more, and rule 9 for the
//! update before says that nothing older than n exists. What is left of n waits in rings: as an I/O core sent it, or
//! passed on by a shard with stage n, which happens once, to a packet with a hint (the walk asks ring n first; a packet
//! without a hint goes on with n + 1). A shard that sees a round notes how far the producers of its rings have come,
//! and reports when it has taken everything up to there. So after the first round all that I/O cores sent under n is
//! taken, and what was passed on with stage n has been put into a ring; all shards note that, and take it, in the
//! second. Nothing tagged n is left, as rule 9 asks. But what was tagged n may now wait, once or twice passed on, under
//! n + 1, and the next update would pass it on once more; so there is a third round, and one for each superseded layout.
//! Then two hops are the most a packet makes. Shards count as cores, because one of them looks up what was put together
//! from fragments.

mod limits;
mod news;

#[cfg(test)]
mod tests;

pub use limits::{Limits, Phase, Refused, UpdateReport};

use std::sync::atomic::Ordering;

use crate::draft::Draft;
use crate::exceptions;
use crate::flow::{Diverged, Gone};
use crate::io_end::IoEnd;
use crate::publish::{Publisher, Reader};
use crate::reports::{Inbox, Stamps, channel};
use crate::ring::Ring;
use crate::shard::{ShardId, ShardSet};
use crate::shard_end::ShardEnd;
use crate::steering::{HISTORY, Steering};
use news::Known;

/// The writing end of the whole balancer.
#[derive(Debug)]
pub struct Balancer {
    publisher: Publisher,
    limits: Limits,
    shards: Vec<Member>,
    stage: Stage,
    last: UpdateReport,
    /// Of the update under way.
    passes: u32,
    overflows: u32,
    stamps: Stamps,
    /// The update under way is one that tells of moves.
    tidies: bool,
    /// Made of all that differs from the published layout, the lists of the shards are in order: news will do next time.
    known: Option<Known>,
    /// Moves that shards have told of.
    news: Vec<Gone>,
}

/// One shard, as the control side knows it.
#[derive(Debug)]
struct Member {
    inbox: Inbox,
    /// Flows that differ from the pending layout, as the shard has reported them in the current traversal, or before it.
    kept: Vec<Diverged>,
    finished: bool,
}

/// Where an update is; what of [`Phase`] must be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Traversing,
    Building,
    Publishing,
    /// This round of draining, counted from 1, has been asked for.
    Grace(u32),
}

impl Balancer {
    /// A balancer on this ring. Its shards are those that get an end by [`shard_end`](Balancer::shard_end).
    pub fn new(ring: Ring, limits: Limits) -> Balancer {
        Balancer {
            publisher: Publisher::new(Steering::new(ring)),
            limits,
            shards: Vec::new(),
            stage: Stage::Idle,
            last: UpdateReport::default(),
            passes: 0,
            overflows: 0,
            stamps: Stamps::default(),
            tidies: false,
            known: None,
            news: Vec::new(),
        }
    }

    /// The end of one more shard, for its thread. The shard gets flows once a ring names it.
    pub fn shard_end(&mut self, shard: ShardId) -> ShardEnd {
        let (outbox, inbox) = channel(shard, self.stamps.clone());
        self.shards.push(Member {
            inbox,
            kept: Vec::new(),
            finished: false,
        });
        ShardEnd::new(shard, self.publisher.reader(), outbox)
    }

    /// The end of one more core that polls a device, for its thread.
    pub fn io_end(&mut self) -> IoEnd {
        IoEnd::new(self.publisher.reader(), self.limits.pending_opens)
    }

    /// A reader that only looks on. It holds up updates like any other, so it must refresh.
    pub fn reader(&self) -> Reader {
        self.publisher.reader()
    }

    /// The steering as the writer last left it.
    pub fn current(&self) -> &Steering {
        self.publisher.current()
    }

    /// Returns the figures of the last published update.
    pub fn last(&self) -> &UpdateReport {
        &self.last
    }

    /// Flows held by all shards, as far as they have said.
    pub fn held(&self) -> usize {
        self.shards.iter().map(|member| member.inbox.held()).sum()
    }

    /// Begins an update to another layout. Refused while the last one is not over, and when more flows might differ
    /// than the limits allow: a refused update has published nothing and asked no shard for anything.
    pub fn begin(&mut self, change: impl FnOnce(&mut Draft)) -> Result<(), Refused> {
        if self.stage != Stage::Idle {
            return Err(Refused::Busy);
        }
        let next = self.next(change)?;
        let moved = self
            .current()
            .newest()
            .ring()
            .moved_to(next.newest().ring());
        let expected =
            ((self.held() as u128 * u128::from(moved)) >> 32) as usize + self.last.diverged;
        if expected > self.limits.diverged {
            return Err(Refused::Capacity {
                expected,
                limit: self.limits.diverged,
            });
        }
        self.begin_with(next, false);
        Ok(())
    }

    fn begin_with(&mut self, next: Steering, tidies: bool) {
        (self.passes, self.overflows, self.tidies) = (0, 0, tidies);
        self.traverse(next);
    }

    /// Begins an update to the same layout, by which all learn of moves (rule 14). Where the last update was one of these too, shards tell only of
    /// what has moved since; else, and from time to time, they look through all that they hold.
    pub fn tidy(&mut self) -> Result<(), Refused> {
        if self.stage != Stage::Idle {
            return Err(Refused::Busy);
        }
        let next = self.next(|_| {})?;
        let (kept, stamp) = (self.kept(), self.stamps.load(Ordering::Relaxed));
        let news = self.known.is_some_and(|known| known.is_fresh(kept, stamp));
        self.begin_with(if news { next.for_news() } else { next }, true);
        Ok(())
    }

    /// Flows that shards have told of.
    fn kept(&self) -> usize {
        self.shards.iter().map(|member| member.kept.len()).sum()
    }

    /// Takes up another layout in the place of the pending one, which the walk goes on to include (rule 8): a pending
    /// layout is never rolled back.
    pub fn supersede(&mut self, change: impl FnOnce(&mut Draft)) -> Result<(), Refused> {
        // One place is kept for the layout that is taken up when too many flows differ.
        if !self.current().is_pending() || self.current().history_len() + 1 >= HISTORY {
            return Err(Refused::NotPending);
        }
        let next = self.next(change)?;
        self.traverse(next);
        Ok(())
    }

    /// Publishes a change at once. Right where no flow can be in the way: at the start, and for a port on which no
    /// shard listened before. The ring stays as it is once flows differ from it.
    pub fn start(&mut self, change: impl FnOnce(&mut Draft)) -> Result<(), Refused> {
        if self.current().is_pending() {
            return Err(Refused::Busy);
        }
        let next = self.next(change)?;
        let moved = self
            .current()
            .newest()
            .ring()
            .moved_to(next.newest().ring());
        if moved > 0 && self.current().exceptions().is_some() {
            return Err(Refused::Flows);
        }
        self.forget_known();
        self.publisher.replace(next.swapped_as_it_is());
        self.stage = Stage::Publishing;
        Ok(())
    }

    fn next(&self, change: impl FnOnce(&mut Draft)) -> Result<Steering, Refused> {
        let mut draft = self.current().draft();
        change(&mut draft);
        let next = self.current().proposed(draft)?;
        let there: ShardSet = self.living().map(|member| member.inbox.shard).collect();
        let mut named = next.newest().ring().members().iter();
        match named.find(|&shard| !there.contains(shard)) {
            Some(missing) => Err(Refused::NoShard(missing)),
            None => {
                drop(named);
                Ok(next)
            }
        }
    }

    fn living(&self) -> impl Iterator<Item = &Member> {
        self.shards.iter().filter(|member| !member.inbox.is_gone())
    }

    /// Every shard traverses, by the newest layout of `next`.
    fn traverse(&mut self, next: Steering) {
        if !next.tells_news() {
            self.forget_known();
        }
        self.news.clear();
        for member in &mut self.shards {
            member.finished = false;
        }
        self.passes += 1;
        self.publisher.replace(next);
        self.stage = Stage::Traversing;
    }

    fn forget_known(&mut self) {
        self.known = None;
        for member in &mut self.shards {
            member.kept = Vec::new();
        }
    }

    /// Makes one step of the update if it can be made, and says where it is then. Never waits.
    pub fn poll(&mut self) -> Phase {
        match self.stage {
            Stage::Idle => {}
            Stage::Traversing => self.gather(),
            Stage::Building => self.publish(),
            Stage::Publishing if self.publisher.settled() => self.drain(1),
            Stage::Publishing => {}
            Stage::Grace(round) if self.is_drained() => {
                if round as usize <= self.current().history_len() {
                    self.drain(round + 1);
                } else {
                    self.publisher.replace(self.current().trimmed());
                    self.stage = Stage::Idle;
                }
            }
            Stage::Grace(_) => {}
        }
        self.phase()
    }

    /// Where the update is.
    pub fn phase(&self) -> Phase {
        match self.stage {
            Stage::Idle => Phase::Idle,
            Stage::Traversing if !self.publisher.settled() => Phase::Proposed,
            Stage::Traversing => Phase::Traversing,
            Stage::Building => Phase::Building,
            Stage::Publishing => Phase::Publishing,
            Stage::Grace(round) => Phase::Grace(round),
        }
    }

    /// Takes what the shards have reported.
    fn gather(&mut self) {
        // The flows of a shard that is gone are gone with it.
        self.shards.retain(|member| !member.inbox.is_gone());
        let (pass, news) = (self.current().pass(), self.current().tells_news());
        let limit = self.limits.diverged;
        let (mut taken, mut gone) = (self.news.len(), Vec::new());
        for member in &mut self.shards {
            let known = if news { 0 } else { member.kept.len() };
            taken += known;
            // No more than the limit and a chunk is ever taken in.
            while taken <= limit
                && let Some(chunk) = member.inbox.take()
            {
                if Some(chunk.pass) == pass {
                    taken += chunk.kept.len() + chunk.gone.len();
                    member.kept.extend(chunk.kept);
                    gone.extend(chunk.gone);
                    member.finished |= chunk.last;
                }
            }
        }
        if news {
            self.news.append(&mut gone);
        }
        for Gone { at, flow, .. } in gone {
            let mut members = self.shards.iter_mut();
            if let Some(member) = members.find(|member| member.inbox.shard == at) {
                member.kept.push(flow);
            }
        }
        let finished = self.living().all(|member| member.finished);
        if taken > limit || finished && self.news_are_too_many() {
            self.overflow();
        } else if finished {
            self.stage = Stage::Building;
        }
    }

    /// Whether more would differ than may, once they are entered.
    fn news_are_too_many(&self) -> bool {
        let away = self.news.iter().filter(|gone| !gone.home).count();
        away > 0 && self.kept() + away > self.limits.diverged
    }

    /// Too many flows differ. The published ring is taken up again: only what was created since the update began can
    /// differ from it beside what differed before. Where even that is too much the shards traverse until enough of
    /// those flows have ended; I/O cores keep to the published layout meanwhile, and the walk repairs.
    fn overflow(&mut self) {
        self.overflows += 1;
        let again = self.current().draft_of_published();
        let next = match self.overflows {
            1 => self.current().proposed(again).ok(),
            _ => None,
        };
        let next = next.unwrap_or_else(|| self.current().passed_again());
        self.traverse(next);
    }

    /// Rule 7: every shard has finished.
    fn publish(&mut self) {
        let news = self.current().tells_news();
        let told = match news {
            true => self.enter_news(),
            false => self.kept(),
        };
        let diverged = self.kept();
        let shards = self.shards.iter();
        let reports: Vec<_> = shards
            .map(|member| (member.inbox.shard, &member.kept[..]))
            .collect();
        let (exceptions, keys) = exceptions::build(&reports, self.limits.seed);
        let held = self.held();
        self.last = UpdateReport {
            updates: self.last.updates + 1,
            of_news: self.last.of_news + u64::from(news),
            held,
            told,
            diverged,
            keys: keys.len(),
            transient_bytes: diverged * (size_of::<Diverged>() + size_of::<u64>())
                + keys.len() * size_of::<u32>(),
            passes: self.passes,
            overflows: self.overflows,
            ..UpdateReport::default()
        };
        if let Some(made) = &exceptions {
            self.last.exact = made.exact_len();
            self.last.runs = made.runs();
            self.last.diff_bytes = made.diff_bytes();
            self.last.filter_bytes = made.filter_bytes();
            self.last.exact_bytes = made.exact_bytes();
        }
        let next = self.current().swapped(exceptions, &keys);
        (self.last.marked_cells, self.last.cells) = next.published().ring().marks();
        self.publisher.replace(next);
        self.stage = Stage::Publishing;
        match self.tidies {
            true => self.keep_known(),
            false => self.forget_known(),
        }
    }

    /// Enters what has moved into what is known. Returns how much that is.
    fn enter_news(&mut self) -> usize {
        let news = news::in_order(std::mem::take(&mut self.news));
        for member in &mut self.shards {
            member.kept = news::entered(&member.kept, &news, member.inbox.shard);
        }
        news.len()
    }

    /// More such updates may follow.
    fn keep_known(&mut self) {
        if self.known.is_some() {
            return;
        }
        for member in &mut self.shards {
            member.kept.sort_unstable_by_key(Diverged::place);
        }
        let stamp = self.stamps.load(Ordering::Relaxed);
        self.known = Some(Known::new(self.kept(), stamp));
    }

    fn drain(&mut self, round: u32) {
        self.publisher.replace(self.current().drained_again());
        self.stage = Stage::Grace(round);
    }

    fn is_drained(&self) -> bool {
        let round = self.current().round();
        self.living().all(|member| member.inbox.drained() == round)
    }

    /// Rule 12: whether a shard that a ring has left out may go. It holds no flow that anybody is led to, and no packet
    /// is on its way there. If it still held flows when the last update was published, another one is needed that
    /// finds none: an update may change nothing (`begin(|_| {})`).
    pub fn may_go(&self, shard: ShardId) -> bool {
        let steering = self.current();
        self.stage == Stage::Idle
            && steering.history_len() == 1
            && !steering.published().ring().members().contains(shard)
            && !steering
                .exceptions()
                .is_some_and(|made| made.holders().contains(shard))
    }
}
