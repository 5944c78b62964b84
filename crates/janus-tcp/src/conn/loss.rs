//! Loss of what was sent: how it is found, how it is repaired, and what a mistake is undone by.

pub(crate) mod ecn;
pub(crate) mod frto;
pub(crate) mod prr;
pub(crate) mod rack;
pub(crate) mod recovery;
pub(crate) mod rttm;
pub(crate) mod sack;
pub(crate) mod tlp;
pub(crate) mod undo;
pub(crate) mod window;
