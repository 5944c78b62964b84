//! The rules that can be weakened, and what may never happen.

/// One rule of the protocol, weakened. The number is that of the rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weak {
    /// Nothing is: the protocol as it stands.
    Nothing,
    /// 4: a shard that does not know the flow forwards straight to the owner of the newest ring.
    Jump,
    /// 4: a hint counts as the ring's own choice.
    TrustHints,
    /// 6: the mover does not report a flow that changes its store during an update.
    SilentMover,
    /// 7: published as soon as every shard has adopted the ring, whether or not it has looked at all its flows.
    PublishEarly,
    /// 7: a key that differs on two shards goes into `H_diff` like any other.
    NoExactMap,
    /// 7: of two shards that report one tuple, because it ended at one and began at the other, either is believed, not the later.
    AnyReport,
    /// 6: a move is told though the flow has ended since.
    TellTheDead,
    /// 8: a pending ring is withdrawn.
    RollBack,
    /// 9: the next update begins as soon as the last is published.
    BeginEarly,
    /// 9: a round of draining less.
    FewerRounds,
    /// 10: an active open asks the rings only, not what is known to differ from them.
    OpenByRings,
    /// 12: a shard leaves with its last flow.
    LeaveEmpty,
    /// 14: a shard takes packets although a parcel waits for it.
    PacketsBeforeParcels,
    /// 14: a shard looks through what it holds, or opens a tuple, although a parcel waits for it.
    LooksBeforeParcels,
    /// 14: a traversal passes over stubs.
    SilentStubs,
    /// 14: a stub is believed like a flow that was just seen, and not by when it was made.
    StubsTellOfNow,
    /// 14: a stub goes with the next update, whether or not one has been published since it was made.
    StubsGoEarly,
    /// 14: what comes by a stub and finds nothing goes on like any packet, and may create a flow.
    StubsCreate,
    /// 14: a flow that has moved moves again before an update has told of it.
    MoveAgain,
    /// 14: of another ring too shards tell only what has moved since the last.
    NewsOfRings,
    /// 14: the stubs of a shard that dies are lost with the flows that it held.
    StubsDie,
    /// `Set_fly` is asked before filter, exact map and `H_diff`, and kept when another ring is published.
    OldFlyFirst,
}

/// What must never happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// I1: a packet of a live flow ended where the flow is not, and was answered with a reset.
    Reset,
    /// I2: a second shard created the flow.
    Twice,
    /// I5: a packet was forwarded too often.
    Hops,
    /// I6: a packet is sent to a shard that has left.
    Gone,
    /// Rule 9: a packet is queued that asks for a ring which has been freed.
    Freed,
    /// A packet of a live flow was led by a stub to where the flow is not yet.
    Lost,
    /// I1: when all is quiet, packets of a live flow do not reach it.
    Astray,
}
