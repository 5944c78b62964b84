//! Connections that are open and idle, in the order in which they are used again, which is not that in which they were opened. Of few
//! connections everything is kept; of many four bytes each: where the server's sequence began. The rest follows from how often all have
//! been used.

use super::first_seq;
use super::packet::permuted;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// First sequence numbers, by connection.
pub type Firsts = Arc<[AtomicU32]>;

/// Most connections of which everything is kept.
const FEW: u32 = 1 << 16;

/// An open, idle connection.
#[derive(Clone, Copy, Default)]
pub struct Parked {
    pub conn: u32,
    pub seq: u32,
    pub ack: u32,
    pub ts_echo: u32,
}

/// Bytes of a request and of its answer.
#[derive(Clone, Copy)]
pub struct Lengths {
    pub request: u32,
    pub response: u32,
}

/// The idle connections of one far end.
pub enum Idle {
    Few {
        parked: VecDeque<Parked>,
        /// State of the generator that shuffles them; never zero.
        random: u64,
    },
    Many(Many),
}

/// Connections 0, 1, 2 and so on, each used once before any is used again, and each acknowledged at once. Of several far ends each uses
/// those whose numbers are its own when divided by the number of ends, once all are open; an answer may come to any.
pub struct Many {
    /// First sequence number of the server's data, by connection; all ends have the same.
    firsts: Firsts,
    index: u32,
    ends: u32,
    idle: u32,
    /// Uses so far, after the first of each.
    uses: u64,
}

impl Idle {
    /// Room for so many, which is touched now, at the far end number `index` of several or at the only one.
    pub fn new(held_max: u32, index: usize, ends: usize, firsts: impl FnOnce() -> Firsts) -> Self {
        if held_max > FEW {
            return Self::Many(Many {
                firsts: firsts(),
                index: index as u32,
                ends: ends as u32,
                idle: 0,
                uses: 0,
            });
        }
        let any = Parked {
            conn: 1,
            ..Parked::default()
        };
        let mut parked = VecDeque::new();
        parked.resize(held_max as usize + 1, any);
        parked.clear();
        let random = index as u64 + 1;
        Self::Few { parked, random }
    }

    /// Bytes that are kept of each connection, beyond those of few.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Few { parked, .. } => parked.capacity() * size_of::<Parked>(),
            Self::Many(many) => size_of_val(&*many.firsts) / many.ends as usize,
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Few { parked, .. } => parked.is_empty(),
            Self::Many(many) => many.ends == 1 && many.idle == 0,
        }
    }

    /// A connection to be held has opened, and the server's data begins at `first`.
    pub fn opens(&mut self, conn: u32, first: u32) {
        if let Self::Many(many) = self
            && let Some(place) = many.firsts.get(conn as usize)
        {
            place.store(first, Ordering::Relaxed);
        }
    }

    /// A connection has become idle; while connections are opened, of few at a random place.
    pub fn park(&mut self, connection: Parked, opening: bool) {
        match self {
            Self::Few { parked, random } => {
                parked.push_back(connection);
                if opening {
                    shuffle_in(parked, random);
                }
            }
            Self::Many(many) => many.idle += 1,
        }
    }

    /// The connection that is used next, of `opened` that were. Those are not counted here: a server that stood still sends its answers
    /// again, and the same connection would be counted twice.
    pub fn wake(&mut self, lengths: Lengths, opened: u32) -> Option<Parked> {
        match self {
            Self::Few { parked, .. } => parked.pop_front(),
            Self::Many(many) => many.wake(lengths, opened),
        }
    }

    /// Shows all connections; of many none, as nothing is left to be said to them.
    pub fn each(&self, mut see: impl FnMut(&Parked)) {
        if let Self::Few { parked, .. } = self {
            parked.iter().for_each(&mut see);
        }
    }
}

impl Many {
    fn wake(&mut self, lengths: Lengths, opened: u32) -> Option<Parked> {
        let opened = match self.ends {
            1 => {
                self.idle = self.idle.checked_sub(1)?;
                opened
            }
            ends => self.firsts.len() as u32 / ends,
        };
        let all = u64::from(opened);
        let conn = place((self.uses % all) as u32, opened) * self.ends + self.index;
        let served = 1 + (self.uses / all) as u32;
        self.uses += 1;
        let first = self.firsts[conn as usize].load(Ordering::Relaxed);
        Some(Parked {
            conn,
            seq: first_seq(conn)
                .wrapping_add(1)
                .wrapping_add(served.wrapping_mul(lengths.request)),
            ack: first.wrapping_add(served.wrapping_mul(lengths.response)),
            // It acknowledges nothing new, so nothing is measured by it.
            ts_echo: 0,
        })
    }
}

/// A permutation of the numbers below `count`.
fn place(number: u32, count: u32) -> u32 {
    let bits = count.next_power_of_two().trailing_zeros().max(2);
    let mut place = number;
    loop {
        place = permuted(place, bits);
        if place < count {
            return place;
        }
    }
}

/// Puts the newest idle connection at a random place: requests come in another order than the handshakes, whose order is that of
/// the server's memory.
fn shuffle_in(parked: &mut VecDeque<Parked>, random: &mut u64) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let idle = parked.len();
    let at = ((*random >> 32) * idle as u64) >> 32;
    parked.swap(at as usize, idle - 1);
}
