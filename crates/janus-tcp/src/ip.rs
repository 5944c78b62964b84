//! The host below TCP as one borrowed value: neighbors, fragments, ICMP, UDP, and the next hop of every frame.
//! Its rules reach no connection: an error about one is returned to the caller, which knows them.

pub(crate) mod control;
pub(crate) mod emit;
pub(crate) mod fragments;
pub(crate) mod host;
pub(crate) mod icmp;
pub(crate) mod icmp_errors;
pub(crate) mod icmp_out;
pub(crate) mod icmpv6;
pub(crate) mod nd;
pub(crate) mod neighbor;
pub(crate) mod reassembly;
pub(crate) mod udp;
pub(crate) mod walks;

use janus_mem::Pool;

use crate::ip::host::Host;
use crate::rules::Rules;
use crate::store::counters::Counters;
use crate::store::paths::PathKnowledge;
use crate::store::schedule::Schedule;
use crate::store::segment::Segments;
use crate::time::Instant;

/// The host, lent by [`Stack::ip`](crate::Stack).
pub(crate) struct Ip<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) host: &'a mut Host,
    pub(crate) paths: &'a mut PathKnowledge,
    pub(crate) schedule: &'a mut Schedule,
    /// Buffers that are lent to the device come home here.
    pub(crate) segments: &'a mut Segments,
    pub(crate) pool: &'a mut Pool,
    pub(crate) counters: &'a mut Counters,
    pub(crate) now: Instant,
}
