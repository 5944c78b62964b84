//! Which flow a frame belongs to, for the few that must be told apart by more than their key. Decides nothing.

use janus_wire::tcp::Flags;
use janus_wire::{Class, FlowKey, Link, classify};

/// The flow of a frame that came in; `None` for what has none: fragments, questions, other protocols.
#[cold]
pub(super) fn flow_of(bytes: &[u8], link: Link) -> Option<FlowKey> {
    match classify(bytes, link) {
        Class::Icmp4(icmp) => icmp.quoted.map(FlowKey::V4),
        Class::Icmp6(icmp) => icmp.quoted.map(FlowKey::V6),
        class => class.segment().map(|(flow, _)| flow),
    }
}

/// The flow, as its arriving packets name it, that a frame which goes out answers the SYN of.
pub(super) fn answered(bytes: &[u8], link: Link) -> Option<FlowKey> {
    let (flow, flags) = classify(bytes, link).segment()?;
    let syn_ack = Flags::SYN.0 | Flags::ACK.0;
    (flags.0 & syn_ack == syn_ack).then(|| flow.reversed())
}
