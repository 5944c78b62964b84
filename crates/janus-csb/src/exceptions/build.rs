//! From the shards' reports to the exceptions of a layout: sort the keys, tell the contested ones, compress the rest.

use std::collections::HashMap;

use super::Exceptions;
use super::diff::{Runs, Whose};
use super::filter::Cells;
use crate::flow::{Diverged, FlowId};
use crate::shard::ShardId;

mod radix;

/// Builds the exceptions from the reports of all shards, each with its shard; also returns the differing keys, each
/// once and rising. No exceptions when nothing differs.
///
/// A flow may be reported twice (visited, and then moved): that changes nothing.
pub(crate) fn build(
    reports: &[(ShardId, &[Diverged])],
    seed: u64,
) -> (Option<Exceptions>, Vec<u32>) {
    let mut sorted = Vec::with_capacity(reports.iter().map(|(_, kept)| kept.len()).sum());
    for (shard, kept) in reports {
        sorted.extend(kept.iter().map(|flow| radix::entry(flow.key, *shard)));
    }
    if sorted.is_empty() {
        return (None, Vec::new());
    }
    let sorted = radix::sort(sorted);
    let mut runs = Runs::default();
    let mut contested = Vec::new();
    let mut keys = Vec::with_capacity(sorted.len());
    for same in sorted.chunk_by(|&a, &b| radix::key(a) == radix::key(b)) {
        let (key, shard) = (radix::key(same[0]), radix::shard(same[0]));
        keys.push(key);
        if same.iter().all(|&entry| radix::shard(entry) == shard) {
            runs.push(key, Whose::Shard(shard));
        } else {
            runs.push(key, Whose::Contested);
            contested.push(key);
        }
    }
    let exceptions = Exceptions {
        filter: Cells::of(&keys, seed),
        diff: runs.finish(),
        exact: exact(reports, &contested),
        holders: reports
            .iter()
            .filter(|(_, kept)| !kept.is_empty())
            .map(|&(shard, _)| shard)
            .collect(),
    };
    (Some(exceptions), keys)
}

/// The flows whose key is contested. One name may come from two shards, when a flow ended at one of them after it was
/// seen and was opened again at the other: the later report is of the one that lives.
fn exact(reports: &[(ShardId, &[Diverged])], contested: &[u32]) -> HashMap<FlowId, ShardId> {
    if contested.is_empty() {
        return HashMap::new();
    }
    // By far most reports are told apart by one bit.
    let mut bits = vec![0u64; 1 << 10];
    let bit = |key: u32| ((key >> 6 & 0x3ff) as usize, 1u64 << (key & 63));
    for &key in contested {
        let (word, bit) = bit(key);
        bits[word] |= bit;
    }
    let mut seen: HashMap<FlowId, (ShardId, &Diverged)> = HashMap::new();
    for (shard, kept) in reports {
        for flow in *kept {
            let (word, bit) = bit(flow.key);
            if bits[word] & bit == 0 || contested.binary_search(&flow.key).is_err() {
                continue;
            }
            let known = seen.entry(flow.id()).or_insert((*shard, flow));
            if flow.is_later(known.1) {
                *known = (*shard, flow);
            }
        }
    }
    seen.into_iter()
        .map(|(id, (shard, _))| (id, shard))
        .collect()
}
