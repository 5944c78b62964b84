//! Counters of events: everything dropped by its cause, and the traffic. Plain integers of one thread.

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Counts since the stack began.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Names of the counters, each with its description, in the order of [`iter`](Counters::iter).
            pub fn descriptions() -> impl Iterator<Item = (&'static str, &'static str)> {
                [$((stringify!($name), concat!($($doc),*).trim_ascii()),)*].into_iter()
            }

            /// Adds another stack's counts.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Frames that came in.
    frames_in,
    /// Frames handed out.
    frames_out,
    /// Frames for our own addresses, which came back in instead of being handed out.
    looped,
    /// TCP segments that came in.
    segments_in,
    /// TCP segments handed out, repeats included.
    segments_out,
    /// Connections and records that have left the stack as parcels.
    detached,
    /// Parcels that were taken in.
    adopted,
    /// Segments sent again.
    retransmissions,
    /// Tail loss probes sent (RFC 8985).
    tail_probes,
    /// Tail loss probes that repaired a loss.
    tail_losses,
    /// SACK blocks that cannot be true.
    sack_invalid,
    /// D-SACKs: segments that were sent again in vain (RFC 2883).
    dsacks_in,
    /// Acknowledgements whose SACK blocks were not all read, as the search for them took too long.
    sack_searches_cut,
    /// Looks for lost retransmissions that were given up as there were too many.
    rack_walks_cut,
    /// Recoveries that turned out to have been for nothing, and were undone (RFC 3522, RFC 3708).
    recoveries_undone,
    /// Peers that threw away what they had SACKed.
    sack_reneged,
    /// Segments in flight that were stepped over or marked for SACK and RACK: the work of loss recovery.
    recovery_steps,
    /// Packet buffers sent as they were given, their bytes not copied.
    buffers_given,
    /// Packet buffers given to be sent whose bytes were copied: too short to go alone, without room for headers in front, or
    /// of another runtime.
    buffers_copied,
    /// Segments cut in two before they went, as the peer's window or the path took less; the second part is copied.
    segments_cut,
    /// Retransmission timeouts.
    timeouts,
    /// Fast retransmissions begun.
    fast_retransmits,
    /// Data that came with a router's congestion mark (RFC 3168).
    marks_in,
    /// Windows lowered because the peer saw such a mark.
    mark_reductions,
    /// Connections opened by a peer.
    accepted,
    /// Connections opened by us.
    connected,
    /// Connections whose path was worth remembering when they ended (RFC 9040).
    paths_learned,
    /// Connections that began with what another one had learned of their path.
    paths_recalled,
    /// Flows handed to another shard.
    forwarded,
    /// Packets of other shards' flows that were handed on because a record here says whose they are.
    redirected,
    /// Source ports passed over because their packets would come to another shard.
    ports_elsewhere,
    /// Flows that changed store while an update was on, and were remembered.
    moves_told,
    /// Flows that changed store when too many were remembered; the visit meets them where they went.
    moves_untold,
    /// Dropped: headers that do not parse.
    dropped_malformed,
    /// Dropped: a wrong checksum.
    dropped_checksum,
    /// Dropped: not addressed to us, or from an address nothing may come from.
    dropped_address,
    /// Dropped: a protocol or fragment the stack does not take.
    dropped_protocol,
    /// Dropped: sequence number outside the window.
    dropped_window,
    /// Dropped: older than what the timestamps say was seen (PAWS).
    dropped_paws,
    /// Dropped: no packet buffer.
    dropped_no_buffer,
    /// Dropped: the receive buffer was full.
    dropped_receive_full,
    /// Dropped: the accept queue was full.
    dropped_accept_full,
    /// Dropped: a table was full.
    dropped_table_full,
    /// Dropped: replies beyond the bound of the reply queue.
    dropped_reply_full,
    /// Dropped: frames for our own addresses beyond the bound of what waits to come back in.
    dropped_loop_full,
    /// Dropped: the neighbour's hardware address is not known.
    dropped_no_neighbor,
    /// Neighbours that asked for our address and were answered, but not filed: every place was one's in use.
    neighbors_refused,
    /// Half-open records that made room for newer ones.
    half_open_evicted,
    /// Half-open records given up.
    half_open_expired,
    /// SYNs answered with a cookie.
    cookies_sent,
    /// Connections opened by a cookie that came back.
    cookies_accepted,
    /// Acknowledgements whose cookie was forged, damaged or too old.
    cookies_bad,
    /// TIME-WAIT records that made room for newer ones.
    time_wait_evicted,
    /// Questions to idle peers whether they are there.
    keepalives,
    /// Connections ended because nothing was heard for too long.
    idle_ended,
    /// Connections closed because they were at rest for too long.
    rests_ended,
    /// Waiting readers that were woken to look at their clocks.
    readers_woken,
    /// Connections without an owner that were reset: they took too long, or were too many.
    orphans_aborted,
    /// Handshakes finished by a peer of which the first data is waited for.
    deferred,
    /// Urgent pointers not heeded: on too many connections something is urgent.
    urgent_ignored,
    /// RSTs sent.
    resets_out,
    /// Connections ended by the peer's RST.
    resets_in,
    /// Challenge ACKs sent (RFC 5961).
    challenge_acks,
    /// Challenge ACKs held back by the rate limit.
    challenge_acks_limited,
    /// Writes and FINs put off for want of a packet buffer.
    starved,
    /// Connections reset for their packet buffers: their peers had stalled, and others found none.
    shed,
    /// Segments received out of order and kept.
    reordered,
    /// ICMP errors about TCP that came in.
    icmp_errors_in,
    /// ICMP errors of them that nothing was done about: they quote nothing that is outstanding, or tell nothing new.
    icmp_errors_ignored,
    /// Attempts to connect, ours and peers', that ended because an ICMP error said that the other end cannot be reached.
    icmp_refusals,
    /// Times that a retransmission timeout was halved again, because a router said that a part of the way is missing (RFC 6069).
    backoffs_taken_back,
    /// ICMP errors sent.
    icmp_errors_out,
    /// ICMP errors held back by the rate limit.
    icmp_errors_limited,
    /// Paths found to carry less, because a router said so.
    paths_shrunk,
    /// Paths suspected to drop large packets without a word (RFC 4821).
    black_holes,
    /// Segments sent larger than a path was known to carry, to find out.
    path_probes,
    /// Fragments of IP datagrams that came in.
    fragments_in,
    /// IP datagrams put together from fragments.
    datagrams_reassembled,
    /// Dropped: fragments that can be part of no datagram, or that leave a header in pieces (RFC 1858, RFC 3128).
    dropped_fragment_invalid,
    /// Dropped: fragments that overlap others, and those that belong to the same datagram as one that did (RFC 5722).
    dropped_fragment_overlap,
    /// IP datagrams in pieces that made room for newer ones.
    reassembly_evicted,
    /// IP datagrams whose missing fragments did not come in time.
    reassembly_expired,
    /// Times a receive buffer grew, because its application read more in a round trip than before.
    windows_grown,
    /// Packet buffers with out-of-order data that made room, before anything in them was acknowledged.
    reordered_pruned,
    /// Times memory became short, or shorter.
    pressure_rises,
    /// Dropped: data for which there was no memory, while others held it.
    dropped_pressure,
    /// Dropped: out-of-order data beyond a bound.
    dropped_reordered,
    /// Connections reset because the stack came to its end before they did.
    reset_at_end,
    /// UDP datagrams that a socket took.
    datagrams_in,
    /// UDP datagrams sent.
    datagrams_out,
    /// Dropped: UDP datagrams for ports that no socket has.
    dropped_datagrams_port,
    /// Dropped: UDP datagrams for which the socket's queue had no room.
    dropped_datagrams_full,
    /// Dropped: UDP datagrams beyond the packet buffers that all sockets' queues may hold.
    dropped_datagrams_memory,
    /// Dropped: UDP datagrams that came in pieces for another core, which already had as many on their way to it as may be.
    dropped_datagrams_astray,
    /// Dropped: UDP datagrams that had not been read when their socket was closed, or connected to somebody else.
    dropped_datagrams_unread,
}
