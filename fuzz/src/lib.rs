//! What is fuzzed, without the fuzzer: each target is a function of any bytes that must return. `cargo fuzz run NAME`
//! looks for bytes on which it does not; `cargo test` runs all of them over the corpora in `corpus/NAME`.
//! What never lives here: libFuzzer (that is in `fuzz_targets`).

mod stack;

use janus_http::head::HeadIndex;
use janus_wire::{arp, dhcp, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp, udp};

pub use stack::{frames, is_parcel, parcel, samples, segments};

/// Every reader of a header, each at the beginning and behind the others.
pub fn wire(data: &[u8]) {
    let _ = arp::Packet::parse(data);
    let _ = janus_wire::classify(data, janus_wire::Link::Ethernet);
    let _ = janus_wire::classify(data, janus_wire::Link::Ip);
    if let Ok((_, body)) = ethernet::Header::parse(data) {
        let _ = arp::Packet::parse(body);
    }
    if let Ok(message) = icmpv4::parse(data) {
        let _ = message.quote();
    }
    let _ = icmpv6::parse(data);
    lease(data);
    if let Ok(datagram) = udp::parse(data) {
        lease(datagram.payload());
    }
    segment(data);
    if let Ok(packet) = ipv4::parse(data) {
        let _ = packet.checksum_ok();
        let _ = icmpv4::parse(packet.payload());
        segment(packet.payload());
    }
    if let Ok(packet) = ipv6::parse(data) {
        let _ = icmpv6::parse(packet.payload());
        segment(packet.payload());
    }
    // Both readers of segments, ours and the tests' own, agree on what a sound one says.
    if let (Ok(theirs), Ok(packet)) = (janus_sim::segment::decode(data), ipv4::parse(data)) {
        let Ok((header, _, payload)) = tcp::parse(packet.payload()) else {
            panic!("a segment that only one of two readers takes");
        };
        assert_eq!((header.seq.0, header.ack.0), (theirs.seq, theirs.ack));
        assert_eq!(payload, theirs.payload);
    }
}

/// A message of DHCP, and all that can be asked of it.
fn lease(bytes: &[u8]) {
    let Ok(message) = dhcp::parse(bytes) else {
        return;
    };
    let _ = (message.kind(), message.prefix(), message.mtu());
    let mut into = [0; dhcp::OPTION_MAX];
    for code in 0..=u8::MAX {
        let _ = message.word(code);
        if let Some(value) = message.option(code, &mut into) {
            assert!(value.len() <= dhcp::OPTION_MAX);
            let _ = dhcp::routes(value).count() + dhcp::addresses(value).count();
        }
    }
}

fn segment(bytes: &[u8]) {
    if let Ok((_, options, _)) = tcp::parse(bytes) {
        let _ = tcp::options::parse(options);
    }
    let _ = tcp::options::parse(bytes);
}

/// The parser of packetdrill's language.
pub fn script(data: &[u8]) {
    if let Ok(text) = core::str::from_utf8(data) {
        let _ = janus_sim::script::Script::parse(text);
    }
}

/// The messages between a member and the daemon: bytes are those of one message, or of none.
pub fn message(data: &[u8]) {
    if let Ok(message) = janus_shm::Message::decode(data) {
        let written = message.encode();
        assert_eq!(written, data, "{message:?} has two forms");
        assert_eq!(janus_shm::Message::decode(&written), Ok(message));
    }
}

/// The parser of HTTP heads: what it says of a request does not depend on the pieces it came in.
pub fn http_head(data: &[u8]) {
    const LIMIT: usize = 8 << 10;
    let mut whole = HeadIndex::default();
    let at_once = whole.parse_request(data, LIMIT);
    if at_once.is_ok() {
        let _ = (whole.method(data), whole.target(data));
        let _ = whole.headers(data).count();
        let _ = whole.header(data, "host");
    }
    let mut first = HeadIndex::default();
    if first.parse_request(&data[..data.len() / 2], LIMIT).is_err() {
        assert!(at_once.is_err(), "a bad beginning with a good end");
    }
    let _ = HeadIndex::default().parse_response(data, LIMIT);
}
