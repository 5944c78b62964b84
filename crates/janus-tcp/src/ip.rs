//! The host below TCP as one borrowed value: neighbors, fragments, ICMP, UDP, and the next hop of every frame.
//! Its rules reach no connection: an error about one is returned to the caller, which knows them.

use janus_mem::Pool;

use crate::counters::Counters;
use crate::host::Host;
use crate::paths::PathKnowledge;
use crate::rules::Rules;
use crate::schedule::Schedule;
use crate::segment::Segments;
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
