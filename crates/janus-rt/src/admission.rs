//! Rules for incoming packets on the polling cores, changeable while the runtime lives; counters of what they did, and the
//! packet trace. The rules themselves, and where they stand on a packet's way, are `janus-io`'s.

use std::sync::Arc;

pub use janus_io::IoCounters;
use janus_io::faults::FaultCounters;
pub use janus_io::filter::{Filter, FilterError};
pub use janus_io::policy::{Policy as Admission, Prefix, Rules, SynLimit};
use janus_io::trace::Trace;
use janus_io::{DeviceLosses, LossesFn};

/// Where packets come in, for whoever has a handle of the runtime.
pub(crate) struct Ingress {
    pub(crate) admission: Admission,
    /// Of each core that polls a queue.
    pub(crate) counters: Vec<Arc<IoCounters>>,
    pub(crate) trace: Option<Trace>,
    pub(crate) faults: Option<Arc<FaultCounters>>,
    /// Reader of what the device loses, where it counts that.
    pub(crate) device: Option<Box<LossesFn>>,
}

impl Ingress {
    /// Frames that the device lost.
    pub(crate) fn device_losses(&self) -> DeviceLosses {
        self.device
            .as_ref()
            .map(|losses| losses())
            .unwrap_or_default()
    }
}
