//! The stack as the balancer's traversal sees it: flows by key, local port and name. Three passes follow each other, in slices: stubs of whose
//! moves the last update has told go; the flows held are told of; the stubs that stand are told of. A flow that moves away before its place
//! has been looked at has its stub by the third, and one that moves later has been told of where it was, from where its stub leads on.

use super::tuple_claims::TupleClaims;
use janus_csb::{DivergenceFilter, Epoch, FlowBatch, FlowId, Flows, Held, ShardId};
use janus_tcp::Stack;
use janus_wire::{FlowKey, FlowKeyV4, FlowKeyV6, FlowNames, Toeplitz};

/// Bits of a cursor above which the pass stands: 0, then these.
const PASS_BITS: u32 = 62;
const HELD: u64 = 1 << PASS_BITS;
const GONE: u64 = 2 << PASS_BITS;
/// A stub that goes costs as much as so many places that are looked at, and one that is told of as so many.
const COST_OF_GOING: usize = 16;
const COST_OF_TELLING: usize = 4;

/// The flows of one shard, for one slice.
pub(crate) struct StackFlows<'a> {
    stack: &'a mut Stack,
    toeplitz: &'a Toeplitz,
    names: &'a FlowNames,
    claims: &'a TupleClaims,
    /// Stubs of moves by older rings than this go.
    over: Epoch,
    /// The last visit came to the end.
    ended: bool,
}

impl<'a> StackFlows<'a> {
    pub(crate) fn new(
        stack: &'a mut Stack,
        toeplitz: &'a Toeplitz,
        names: &'a FlowNames,
        claims: &'a TupleClaims,
        over: Epoch,
    ) -> StackFlows<'a> {
        StackFlows {
            stack,
            toeplitz,
            names,
            claims,
            over,
            ended: false,
        }
    }

    /// Lets stubs go from `place` on.
    fn forget(&mut self, place: u32, budget: usize) -> u64 {
        let over = |epoch: u16| self.over.since(Epoch::new(epoch)) > 0;
        let budget = (budget / COST_OF_GOING) as u32;
        let next = self.stack.forget_moves(place, budget, over);
        next.map_or(HELD, u64::from)
    }

    /// Tells of stubs from `place` on.
    fn tell(&self, place: u32, budget: usize, filter: &mut DivergenceFilter<'_>) -> Option<u64> {
        let (toeplitz, names) = (self.toeplitz, self.names);
        let budget = (budget / COST_OF_TELLING) as u32;
        let next = self.stack.moved_flows(place, budget, |flow, shard, moved| {
            let held = Held {
                key: toeplitz.key_of(flow),
                port: flow.local_port(),
                id: FlowId(names.of(flow)),
            };
            filter.gone_to(ShardId(shard as u8), moved.stamp, held);
        });
        next.map(|place| GONE | u64::from(place))
    }

    /// Tells of the flows held from `cursor` on.
    fn show_held(
        &self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        let (toeplitz, names, claims) = (self.toeplitz, self.names, self.claims);
        let mut v4 = FlowBatch::new(FlowKeyV4::NONE);
        let mut v6 = FlowBatch::new(FlowKeyV6::default());
        let v4_name = |flow: &FlowKeyV4| FlowId(names.v4(flow));
        let v6_name = |flow: &FlowKeyV6| FlowId(names.v6(flow));
        let next = self.stack.visit_flows(cursor, budget, |flow| match flow {
            flow if claims.stands_elsewhere(flow) => {}
            FlowKey::V4(flow) => {
                if v4.add(toeplitz.key_of_v4(flow), flow.local_port, *flow) {
                    filter.flows(&mut v4, v4_name);
                }
            }
            FlowKey::V6(flow) => {
                if v6.add(toeplitz.key_of_v6(flow), flow.local_port, *flow) {
                    filter.flows(&mut v6, v6_name);
                }
            }
        });
        filter.flows(&mut v4, v4_name);
        filter.flows(&mut v6, v6_name);
        next
    }
}

impl Flows for StackFlows<'_> {
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        let news = filter.news_only();
        if cursor == 0 {
            self.stack.track_moves(!news);
        }
        let stubs = self.stack.stubs_of_moves() > 0;
        let place = cursor & (HELD - 1);
        let next = match cursor & !(HELD - 1) {
            0 if stubs => Some(self.forget(place as u32, budget)),
            GONE => self.tell(place as u32, budget, filter),
            _ if news => stubs.then_some(GONE),
            pass => {
                let place = if pass == HELD { place } else { 0 };
                let next = self.show_held(place, budget, filter);
                next.map(|next| HELD | next).or(stubs.then_some(GONE))
            }
        };
        self.ended = next.is_none();
        next
    }

    fn take_moved(&mut self, filter: &mut DivergenceFilter<'_>) {
        let (toeplitz, names, claims) = (self.toeplitz, self.names, self.claims);
        self.stack.take_moved(|flow| {
            if !claims.stands_elsewhere(flow) {
                show(flow, toeplitz, names, filter);
            }
        });
        if self.ended {
            self.stack.track_moves(false);
        }
    }

    fn held(&self) -> usize {
        self.stack.flows_held()
    }
}

#[inline]
fn show(flow: &FlowKey, toeplitz: &Toeplitz, names: &FlowNames, filter: &mut DivergenceFilter<'_>) {
    let key = toeplitz.key_of(flow);
    filter.flow(key, flow.local_port(), || FlowId(names.of(flow)));
}
