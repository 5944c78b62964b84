//! The ring: points on a circle of 2^32 keys, each belonging to a shard; a key belongs to the first point at or after
//! it. A ring never changes once built (an update builds another); who may use which ring when is not decided here.
//!
//! A lookup does no search. The top bits of the key pick a cell of the radix index; nearly every cell holds no point
//! inside, and its answer is in the cell itself. The others say where to start in the sorted positions.

use core::fmt;

use crate::shard::{ShardId, ShardSet};

#[cfg(test)]
mod tests;

/// The most points a ring may have: 256 shards with 256 points each.
pub const MAX_POINTS: usize = 1 << 16;

/// Cells per point the index aims for: one cell in sixteen holds a point, the others answer at once.
const CELLS_PER_POINT: usize = 16;
/// Bounds of the index: 256 cells, and 2^16 (256 KiB) for the largest rings.
const INDEX_BITS: core::ops::RangeInclusive<u32> = 8..=16;
/// Positions looked at one by one before giving up on an uneven ring and halving instead.
const SCAN_MAX: usize = 16;
/// Keys resolved together by [`Ring::owners`].
pub(crate) const BATCH: usize = 64;

/// Why a ring could not be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RingError {
    /// No point at all: the keys would have no owner.
    Empty,
    /// More than [`MAX_POINTS`] points.
    TooManyPoints,
    /// Two points at one position.
    Duplicate(u32),
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingError::Empty => write!(f, "a ring needs at least one point"),
            RingError::TooManyPoints => write!(f, "a ring has at most {MAX_POINTS} points"),
            RingError::Duplicate(at) => write!(
                f,
                "two points of the ring are at {at:#010x}; place one of them elsewhere"
            ),
        }
    }
}

impl std::error::Error for RingError {}

/// One cell of the radix index: the owner at the cell's first key, the first point at or after that key, whether a
/// point lies inside the cell (then the owner is not the same for all its keys), and the mark of [`Ring::marked`].
#[derive(Clone, Copy, Default)]
struct Cell(u32);

impl Cell {
    const DIVIDED: u32 = 1 << 31;
    const MARKED: u32 = 1 << 30;

    fn new(owner: ShardId, first: usize, divided: bool) -> Cell {
        debug_assert!(first <= MAX_POINTS);
        Cell(u32::from(owner.0) | (first as u32) << 8 | if divided { Cell::DIVIDED } else { 0 })
    }

    #[inline]
    fn owner(self) -> ShardId {
        ShardId(self.0 as u8)
    }

    #[inline]
    fn first(self) -> usize {
        ((self.0 & !(Cell::DIVIDED | Cell::MARKED)) >> 8) as usize
    }

    #[inline]
    fn is_divided(self) -> bool {
        self.0 & Cell::DIVIDED != 0
    }

    #[inline]
    fn is_marked(self) -> bool {
        self.0 & Cell::MARKED != 0
    }
}

/// The circle of keys, cut into arcs that belong to shards.
#[derive(Clone)]
pub struct Ring {
    /// Sorted; the arc of point `i` is what lies after point `i - 1`, up to and including `positions[i]`.
    positions: Box<[u32]>,
    /// Owner of each point, and once more that of point 0 for keys after the last point.
    owners: Box<[ShardId]>,
    index: Box<[Cell]>,
    shift: u32,
    members: ShardSet,
}

impl Ring {
    /// A ring with exactly these points, in any order.
    pub fn from_points(points: &[(u32, ShardId)]) -> Result<Ring, RingError> {
        if points.is_empty() {
            return Err(RingError::Empty);
        }
        if points.len() > MAX_POINTS {
            return Err(RingError::TooManyPoints);
        }
        let mut points = points.to_vec();
        points.sort_unstable();
        if let Some(pair) = points.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(RingError::Duplicate(pair[0].0));
        }
        let positions: Box<[u32]> = points.iter().map(|&(at, _)| at).collect();
        let owners: Box<[ShardId]> = points
            .iter()
            .chain(points.first())
            .map(|&(_, shard)| shard)
            .collect();
        let bits = (points.len() * CELLS_PER_POINT)
            .next_power_of_two()
            .trailing_zeros();
        let bits = bits.clamp(*INDEX_BITS.start(), *INDEX_BITS.end());
        let shift = u32::BITS - bits;
        let index = build_index(&positions, &owners, bits);
        Ok(Ring {
            positions,
            members: owners.iter().copied().collect(),
            owners,
            index,
            shift,
        })
    }

    /// A ring on which shard `i` has `weights[i]` points (0 = it owns nothing), placed by murmur3 under `seed`. The
    /// points of a shard do not depend on the other shards, nor the first n of them on how many it has: a change of
    /// weights moves few keys.
    pub fn weighted(weights: &[u16], seed: u32) -> Result<Ring, RingError> {
        if weights.len() > 1 << 8
            || weights.iter().map(|&w| usize::from(w)).sum::<usize>() > MAX_POINTS
        {
            return Err(RingError::TooManyPoints);
        }
        let mut taken = std::collections::BTreeMap::new();
        for (shard, &weight) in (0..=u8::MAX).zip(weights) {
            for point in 0..weight {
                let mut attempt = 0;
                let mut at = place(shard, point, attempt, seed);
                // Two points at one position would make the owner depend on the order of placing; at most MAX_POINTS
                // of 2^32 positions are taken, so a free one is near.
                while taken.contains_key(&at) {
                    attempt += 1;
                    at = place(shard, point, attempt, seed);
                }
                taken.insert(at, ShardId(shard));
            }
        }
        Ring::from_points(&taken.into_iter().collect::<Vec<_>>())
    }

    /// A ring of `shards` shards with `points` points each, placed by murmur3 under `seed`.
    ///
    /// # Panics
    /// When that is no point at all, or more than [`MAX_POINTS`], or more than 256 shards.
    pub fn uniform(shards: usize, points: u16, seed: u32) -> Ring {
        match Ring::weighted(&vec![points; shards], seed) {
            Ok(ring) => ring,
            Err(error) => panic!("uniform ring of {shards} shards with {points} points: {error}"),
        }
    }

    /// The shard that owns `key`.
    #[inline]
    pub fn owner(&self, key: u32) -> ShardId {
        let cell = self.cell(key);
        if cell.is_divided() {
            self.owners[self.point_from(cell.first(), key)]
        } else {
            cell.owner()
        }
    }

    /// The owners of many keys: all cells are loaded first (the loads overlap), then the few divided ones resolved.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn owners(&self, keys: &[u32], out: &mut [ShardId]) {
        assert_eq!(keys.len(), out.len(), "one owner for each key");
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            // The divided ones are noted without a branch: which they are is as random as the keys.
            let mut divided = [0u8; BATCH];
            let mut count = 0;
            for (i, (&key, owner)) in keys.iter().zip(out.iter_mut()).enumerate() {
                let cell = self.cell(key);
                *owner = cell.owner();
                divided[count] = i as u8;
                count += usize::from(cell.is_divided());
            }
            for &i in &divided[..count] {
                let key = keys[usize::from(i)];
                out[usize::from(i)] = self.owners[self.point_from(self.cell(key).first(), key)];
            }
        }
    }

    /// Returns this ring with a mark on the cells of its index in which one of `keys` lies, and on no other.
    pub(crate) fn marked(&self, keys: &[u32]) -> Ring {
        let mut ring = self.clone();
        for cell in &mut ring.index {
            cell.0 &= !Cell::MARKED;
        }
        for &key in keys {
            ring.index[(key >> ring.shift) as usize].0 |= Cell::MARKED;
        }
        ring
    }

    /// How many cells are marked, of how many.
    pub(crate) fn marks(&self) -> (usize, usize) {
        let marked = self.index.iter().filter(|cell| cell.is_marked()).count();
        (marked, self.index.len())
    }

    /// Whether the cell of `key` is marked.
    #[inline]
    pub(crate) fn is_marked(&self, key: u32) -> bool {
        self.cell(key).is_marked()
    }

    /// [`owners`](Ring::owners) of at most 64 keys, and which of them lie in a marked cell, in rising order.
    #[inline]
    pub(crate) fn owners_and_marked<'a>(
        &self,
        keys: &[u32],
        out: &mut [ShardId],
        marked: &'a mut [u8; BATCH],
    ) -> &'a [u8] {
        assert!(
            keys.len() == out.len() && keys.len() <= BATCH,
            "one owner for each of at most {BATCH} keys"
        );
        let mut divided = [0u8; BATCH];
        let mut count = 0;
        let mut marks = 0;
        for (i, (&key, owner)) in keys.iter().zip(out.iter_mut()).enumerate() {
            let cell = self.cell(key);
            *owner = cell.owner();
            divided[count] = i as u8;
            count += usize::from(cell.is_divided());
            marked[marks] = i as u8;
            marks += usize::from(cell.is_marked());
        }
        for &i in &divided[..count] {
            let key = keys[usize::from(i)];
            out[usize::from(i)] = self.owners[self.point_from(self.cell(key).first(), key)];
        }
        &marked[..marks]
    }

    /// The owner of `key` when only the shards of `among` count: that of the first point at or after the key which
    /// belongs to one of them. `None` when none of them has a point.
    pub fn owner_among(&self, key: u32, among: &ShardSet) -> Option<ShardId> {
        let start = self.point_from(self.cell(key).first(), key);
        let count = self.positions.len();
        let (before, after) = self.owners[..count].split_at(start.min(count));
        after
            .iter()
            .chain(before)
            .copied()
            .find(|&shard| among.contains(shard))
    }

    /// The shards that have a point on this ring.
    pub fn members(&self) -> &ShardSet {
        &self.members
    }

    /// The points in rising order.
    pub fn points(&self) -> impl ExactSizeIterator<Item = (u32, ShardId)> + '_ {
        self.positions
            .iter()
            .copied()
            .zip(self.owners.iter().copied())
    }

    /// How many of the 2^32 keys have another owner on `other`.
    pub fn moved_to(&self, other: &Ring) -> u64 {
        // Between two neighbouring points of either ring both owners are constant.
        let mut ends: Vec<u32> = self
            .positions
            .iter()
            .chain(&other.positions)
            .copied()
            .collect();
        ends.sort_unstable();
        ends.dedup();
        let mut from = 0;
        let mut moved = 0;
        for end in ends.into_iter().chain([u32::MAX]) {
            if self.owner(end) != other.owner(end) {
                moved += (u64::from(end) + 1).saturating_sub(from);
            }
            from = u64::from(end) + 1;
        }
        moved
    }

    /// Where the `point`th point of `shard` is placed under `seed`, if nothing is there already.
    pub(crate) fn place(shard: ShardId, point: u16, attempt: u8, seed: u32) -> u32 {
        place(shard.0, point, attempt, seed)
    }

    /// Bytes of memory the ring takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.positions) + size_of_val(&*self.owners) + size_of_val(&*self.index)
    }

    #[inline]
    fn cell(&self, key: u32) -> Cell {
        self.index[(key >> self.shift) as usize]
    }

    /// The first point at or after `key`, looking from point `first` on; `positions.len()` when none is left.
    #[inline]
    fn point_from(&self, first: usize, key: u32) -> usize {
        let rest = &self.positions[first..];
        match rest.iter().take(SCAN_MAX).position(|&at| at >= key) {
            Some(steps) => first + steps,
            None if rest.len() <= SCAN_MAX => self.positions.len(),
            None => first + SCAN_MAX + rest[SCAN_MAX..].partition_point(|&at| at < key),
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ring {
            positions,
            owners: _,
            index,
            shift: _,
            members,
        } = self;
        write!(
            f,
            "Ring({} points, {} cells, shards {members:?})",
            positions.len(),
            index.len()
        )
    }
}

fn build_index(positions: &[u32], owners: &[ShardId], bits: u32) -> Box<[Cell]> {
    let shift = u32::BITS - bits;
    let mut first = 0;
    (0..1u32 << bits)
        .map(|cell| {
            let low = cell << shift;
            let high = low | ((1 << shift) - 1);
            while first < positions.len() && positions[first] < low {
                first += 1;
            }
            Cell::new(
                owners[first],
                first,
                positions.get(first).is_some_and(|&at| at <= high),
            )
        })
        .collect()
}

/// Where a point goes. murmur3 because the positions must look random and be the same everywhere; no attacker chooses
/// its input.
fn place(shard: u8, point: u16, attempt: u8, seed: u32) -> u32 {
    let [low, high] = point.to_le_bytes();
    let name = [shard, low, high, attempt];
    // Reading from a slice of bytes cannot fail.
    murmur3::murmur3_32(&mut &name[..], seed).unwrap_or_default()
}
