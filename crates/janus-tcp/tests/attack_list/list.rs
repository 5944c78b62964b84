//! The known attacks on a TCP stack, one function each, all under one oracle: nothing panics, witnesses' connections go
//! on in the middle of it and newcomers are served after it, packet buffers and answers stay within bounds, and in the
//! end nothing is left behind. Fought against one stack by `main.rs`, and against whole runtimes by the tests of
//! `janus-rt` (`lockstep/tests/attacks.rs`). Details of an attack are asserted in `attacks*.rs`.

pub(crate) mod arena;
pub(crate) mod flows;
pub(crate) mod lies;
pub(crate) mod packets;
pub(crate) mod strangers;
#[path = "../support/mod.rs"]
pub(crate) mod support;

use janus_tcp::Config;

/// Packet buffers of the host, for an attack that does not name a number.
pub(crate) const BUFFERS: u32 = 8_192;

/// Tables so small that every attack meets their bounds.
pub(crate) fn small() -> Config {
    Config {
        max_connections: 400,
        max_hot: 400,
        max_half_open: 64,
        max_time_wait: 64,
        max_segments: 8_000,
        receive_buffer: 60_000,
        send_buffer: 60_000,
        ..Config::default()
    }
}

/// Calls the macro `$test` with `$with` and each attack: its documentation, its place in this module, the packet buffers
/// that it may have the host hold, and sometimes how many the host has.
macro_rules! attacks {
    ($test:ident $($with:tt)*) => {
        $test! {
            $($with)*
            /// RFC 4987, from many addresses; cookies answer what the table cannot hold.
            strangers::syn_flood, 200;
            strangers::syn_flood_from_one_address, 200;
            /// Guesses at cookies, with and without a flood that makes them look possible.
            strangers::forged_cookies, 200;
            /// For connections and ports that do not exist: resets, no more than the reply queue holds.
            strangers::segments_for_nobody, 200;
            /// RFC 5961 section 3, and the same against half-open connections.
            strangers::blind_resets, 200;
            /// RFC 5961 section 4.
            strangers::blind_syns, 200;
            /// RFC 5961 section 5.
            strangers::blind_data, 200;
            strangers::blind_acknowledgements, 200;
            /// RFC 7323: a timestamp from the future must not silence the peer.
            strangers::forged_timestamps, 200;
            /// CVE-2016-5696: all challenges of a second used up, again and again.
            strangers::challenges_used_up, 200;
            /// Our own address and port as the source.
            strangers::land, 200;
            /// RFC 5927: wrong sequence numbers, every type and code, sizes from none to all.
            packets::forged_icmp, 200;
            /// Every kind of impossible option, in every kind of segment.
            packets::malformed_options, 200;
            /// Lengths and offsets that lie.
            packets::malformed_headers, 200;
            /// Fragments that overlap, never complete, or come in thousands.
            packets::fragments, 1_100;
            packets::noise, 200;
            /// Single bytes with holes between, on many connections.
            flows::holes, 4_000;
            flows::holes_backwards, 4_000;
            /// The same bytes again with other contents.
            flows::overlaps_that_differ, 1_000;
            /// An MSS of nothing: every byte of ours would have a packet buffer of its own.
            flows::tiny_segments, 2_500;
            /// Windows that stay shut, open by a byte, open and shut.
            flows::shut_windows, 2_500;
            flows::flapping_windows, 1_000;
            /// Savage et al., "TCP congestion control with a misbehaving receiver": three ways. The first makes
            /// the send buffers grow, up to where memory pressure stops it: the pool has 8,192 packet buffers.
            flows::acknowledgements_of_the_future, 6_500;
            flows::acknowledgements_in_pieces, 1_000;
            flows::acknowledgements_repeated, 1_000;
            /// Blocks that lie below, above, inside out, in single bytes (compare CVE-2019-11477 and its kin).
            flows::sack_lies, 2_500;
            /// Everything but the first segment is SACKed, then taken back.
            flows::sack_reneging, 2_500;
            /// Connections that are opened and closed as fast as can be.
            flows::opened_and_closed, 500;
            /// Connections that say half a FIN handshake and fall silent.
            flows::half_closed, 500;
            /// Answers to our FIN whose numbers are too high.
            flows::early_fins, 500;
            /// Connections that are written to, and silent when no buffer is left to cut a segment.
            flows::narrow_windows_left, 1_024, in 1_024;
            /// As many connections as there is room for, all silent.
            flows::silent_connections, 500;
            flows::urgent_pointers, 500;
            flows::congestion_echoes, 1_000;
            /// A timeout that is said to have been for nothing, and repeats that are (RFC 5682, RFC 2883).
            lies::timeouts_denied, 6_500;
            lies::duplicates_claimed, 1_500;
            /// RFC 7323: once round the clock, and back.
            lies::clocks_that_leap, 1_500;
            /// RFC 3168, from who may.
            lies::marks_on_everything, 500;
            /// RFC 5927 and 6069: a router that saw our packet, and lies.
            lies::complaints_that_quote_well, 300;
            /// Everything that can happen between a SYN and its end.
            lies::restless_handshakes, 200;
            /// Several ends of one stream.
            lies::ends_that_move, 2_000;
            /// RFC 9293 section 3.8.6: a window that is taken back, again and again.
            lies::shrinking_windows, 1_500;
            /// RFC 1337 and 6191.
            lies::stirred_time_wait, 300;
            /// Extension headers and IP options of every kind and length, in chains.
            packets::extension_chains, 1_100;
        }
    };
}
