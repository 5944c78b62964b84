//! The stack as the balancer's traversal sees it: flows by key, local port and name.

use super::tuple_claims::TupleClaims;
use janus_csb::{DivergenceFilter, FlowBatch, FlowId, Flows, Held, ShardId};
use janus_tcp::Stack;
use janus_wire::{FlowKey, FlowKeyV4, FlowKeyV6, FlowNames, Toeplitz};

/// The flows of one shard, for one slice.
pub(crate) struct StackFlows<'a> {
    stack: &'a mut Stack,
    toeplitz: &'a Toeplitz,
    names: &'a FlowNames,
    claims: &'a TupleClaims,
    /// The last visit came to the end.
    ended: bool,
}

impl<'a> StackFlows<'a> {
    pub(crate) fn new(
        stack: &'a mut Stack,
        toeplitz: &'a Toeplitz,
        names: &'a FlowNames,
        claims: &'a TupleClaims,
    ) -> StackFlows<'a> {
        StackFlows {
            stack,
            toeplitz,
            names,
            claims,
            ended: false,
        }
    }
}

impl Flows for StackFlows<'_> {
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        if cursor == 0 {
            self.stack.track_moves(true);
        }
        let (toeplitz, names) = (self.toeplitz, self.names);
        let claims = self.claims;
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
        self.ended = next.is_none();
        if self.ended {
            for (flow, shard, moved) in self.stack.moved_flows() {
                let held = Held {
                    key: toeplitz.key_of(&flow),
                    port: flow.local_port(),
                    id: FlowId(names.of(&flow)),
                };
                filter.gone_to(ShardId(shard as u8), moved.stamp, held);
            }
        }
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
