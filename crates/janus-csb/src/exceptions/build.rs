//! From the shards' reports to the exceptions of a layout: sort the keys, tell the contested ones, compress the rest.

use std::collections::HashMap;

use super::Exceptions;
use super::diff::Runs;
use super::filter::Filter;
use crate::flow::{Diverged, FlowId};
use crate::shard::ShardId;

/// What all shards reported, each with its name; the keys that differ, each once and rising. No exceptions when
/// nothing differs.
///
/// A flow may be reported twice (visited, and then moved): that changes nothing.
pub(crate) fn build(
    reports: &[(ShardId, Vec<Diverged>)],
    seed: u64,
) -> (Option<Exceptions>, Vec<u32>) {
    let mut sorted: Vec<u64> = Vec::with_capacity(reports.iter().map(|(_, kept)| kept.len()).sum());
    for (shard, kept) in reports {
        sorted.extend(
            kept.iter()
                .map(|flow| u64::from(flow.key) << 8 | u64::from(shard.0)),
        );
    }
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.is_empty() {
        return (None, Vec::new());
    }
    let mut runs = Runs::default();
    let mut contested = Vec::new();
    let mut keys = Vec::with_capacity(sorted.len());
    for same_key in sorted.chunk_by(|a, b| a >> 8 == b >> 8) {
        let key = (same_key[0] >> 8) as u32;
        keys.push(key);
        match same_key {
            [one] => runs.push(key, ShardId(*one as u8)),
            _ => contested.push(key),
        }
    }
    let mut filter = Filter::for_keys(keys.len(), seed);
    keys.iter().for_each(|&key| filter.insert(key));
    let exact = exact(reports, &contested);
    let exceptions = Exceptions {
        filter,
        diff: runs.finish(),
        exact,
        contested: contested.into_boxed_slice(),
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
fn exact(reports: &[(ShardId, Vec<Diverged>)], contested: &[u32]) -> HashMap<FlowId, ShardId> {
    if contested.is_empty() {
        return HashMap::new();
    }
    let mut seen: HashMap<FlowId, (ShardId, &Diverged)> = HashMap::new();
    for (shard, kept) in reports {
        for flow in kept {
            if contested.binary_search(&flow.key).is_ok() {
                let known = seen.entry(flow.id()).or_insert((*shard, flow));
                if flow.is_later(known.1) {
                    *known = (*shard, flow);
                }
            }
        }
    }
    seen.into_iter()
        .map(|(id, (shard, _))| (id, shard))
        .collect()
}
