//! What the servers of the tests under load answer, told by its length and a seed, and two hashes of it: one for clients
//! that can compute what they like, and one for wrk, whose Lua knows no integers. `/LENGTH/SEED` is its name over HTTP.

use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

use janus::net::TcpStream;
use janus_http::{Request, Responder, Sent};

/// No answer is longer.
pub const LONGEST: usize = 1 << 20;
/// 2^31 - 1, a prime.
const MODULUS: u64 = 0x7fff_ffff;

/// Bytes that differ from place to place and from seed to seed, and do not repeat.
pub fn content(len: usize, seed: u64) -> Vec<u8> {
    stretch(0..len, seed)
}

/// These places of a content, for who does not want to hold the whole.
pub fn stretch(places: Range<usize>, seed: u64) -> Vec<u8> {
    let word = |at: u64| {
        let mixed = (at ^ seed << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 32).to_le_bytes()
    };
    let words = places.start as u64 / 8..places.end.div_ceil(8) as u64;
    let bytes = words.flat_map(word).skip(places.start % 8);
    bytes.take(places.len()).collect()
}

/// The hash of a content.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// A polynomial over the bytes; every value on the way fits the 53 bits of a Lua number.
pub fn lua_hash(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum * 257 + u64::from(*byte) + 1) % MODULUS;
    bytes.iter().fold(0, step)
}

/// The name of a content.
pub fn target(len: usize, seed: u64) -> String {
    format!("/{len}/{seed}")
}

fn named(target: &str) -> Option<(usize, u64)> {
    let (len, seed) = target.strip_prefix('/')?.split_once('/')?;
    let len = len.parse().ok().filter(|len| *len <= LONGEST)?;
    Some((len, seed.parse().ok()?))
}

/// Answers a request with the content it names.
pub async fn answer(
    request: Request<'_, TcpStream>,
    response: Responder<'_, TcpStream>,
) -> janus_http::Result<Sent> {
    match named(request.path()) {
        Some((len, seed)) => response.ok().send(content(len, seed)).await,
        None => response.status(404).send(b"no such content\n").await,
    }
}

/// Serves one connection over HTTP; a client that breaks off is its own affair.
pub async fn serve(stream: TcpStream) {
    let _ = janus_http::serve(stream, answer).await;
}
