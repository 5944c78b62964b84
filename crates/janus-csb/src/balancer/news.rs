//! Lists of what differs from a layout, from one update to the next: where an update changes no layout only moves since the last one are told,
//! and entered here. A flow that has ended stays in the lists, which is right and costs a hop: where a hint leads to a shard that does not
//! know the flow, the walk goes on to the ring's owner, at which all that is not told of begins. So the lists are made anew after a while.

use crate::flow::{Diverged, Gone};
use crate::shard::ShardId;

/// Flows that may have been told of since the lists were made anew, beyond as many as there were.
const WORN: usize = 1 << 16;
/// Stamps after which what is later can not be told any more: half of what it is told by.
const OLD: u32 = 1 << 30;

/// When the lists were made anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    flows: usize,
    stamp: u32,
}

impl Known {
    pub(super) fn new(flows: usize, stamp: u32) -> Known {
        Known { flows, stamp }
    }

    /// Whether news will do, where there are so many flows by now.
    pub(super) fn is_fresh(&self, flows: usize, stamp: u32) -> bool {
        flows <= 2 * self.flows + WORN && stamp.wrapping_sub(self.stamp) < OLD
    }
}

/// Leaves of each flow the last word, in the order of the lists.
pub(super) fn in_order(mut news: Vec<Gone>) -> Vec<Gone> {
    news.sort_unstable_by_key(|gone| gone.flow.place());
    news.dedup_by(|next, kept| {
        let same = next.flow.place() == kept.flow.place();
        if same && next.flow.is_later(&kept.flow) {
            *kept = *next;
        }
        same
    });
    news
}

/// The list of one shard after `news`, which is in order as the list is.
pub(super) fn entered(list: &[Diverged], news: &[Gone], shard: ShardId) -> Vec<Diverged> {
    let mut after = Vec::with_capacity(list.len());
    let enter = |after: &mut Vec<Diverged>, gone: &Gone| {
        if gone.at == shard && !gone.home {
            after.push(gone.flow);
        }
    };
    let mut news = news.iter().peekable();
    for old in list {
        while let Some(gone) = news.next_if(|gone| gone.flow.place() < old.place()) {
            enter(&mut after, gone);
        }
        match news.next_if(|gone| gone.flow.place() == old.place()) {
            Some(gone) if !old.is_later(&gone.flow) => enter(&mut after, gone),
            _ => after.push(*old),
        }
    }
    news.for_each(|gone| enter(&mut after, gone));
    after
}

#[cfg(test)]
mod tests;
