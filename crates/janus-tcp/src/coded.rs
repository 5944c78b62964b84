//! How values are spelled in bytes, for parcels ([`crate::store::parcel`]), and how what they say of times is moved to another clock. Each type
//! says it where it is defined, by [`coded!`]: a field that is added and not named there does not compile.
//! Never here: whether what was read makes sense.

mod primitives;

use janus_mem::{PacketBuf, Pool};

use crate::time::Instant;

/// A value that can be spelled in bytes.
pub(crate) trait Coded: Sized {
    fn put(&self, to: &mut Vec<u8>);
    fn take(from: &mut Source<'_>) -> Result<Self, Garbled>;
    /// Its times are said by another clock from now on.
    fn shift(&mut self, _by: &Shift) {}
}

/// The bytes are not what they are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Bytes that are read from the front, and buffers for what they carry.
pub(crate) struct Source<'a> {
    bytes: &'a [u8],
    pool: &'a mut Pool,
    starved: bool,
}

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8], pool: &'a mut Pool) -> Source<'a> {
        Source {
            bytes,
            pool,
            starved: false,
        }
    }

    /// A packet buffer.
    pub(crate) fn buffer(&mut self) -> Result<PacketBuf, Garbled> {
        let buf = self.pool.alloc();
        self.starved |= buf.is_none();
        buf.ok_or(Garbled)
    }

    /// Whether nothing is wrong but that there was no buffer.
    pub(crate) fn was_starved(&self) -> bool {
        self.starved
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Garbled> {
        let (front, rest) = self.bytes.split_at_checked(len).ok_or(Garbled)?;
        self.bytes = rest;
        Ok(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| Garbled)
    }

    /// The number of values that follow, each of a byte at least: more than there are bytes is refused before anything is made.
    pub(crate) fn count(&mut self) -> Result<usize, Garbled> {
        let count = u32::take(self)? as usize;
        (count <= self.bytes.len()).then_some(count).ok_or(Garbled)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// From one clock to another: what each shows at the same moment.
pub(crate) struct Shift {
    from: Instant,
    to: Instant,
}

impl Shift {
    pub(crate) fn new(from: Instant, to: Instant) -> Shift {
        Shift { from, to }
    }

    /// Of a moment in wrapping milliseconds.
    pub(crate) fn ms(&self, at: &mut u32) {
        let ahead = self.to.as_millis().wrapping_sub(self.from.as_millis());
        *at = at.wrapping_add(ahead as u32);
    }

    /// Of a moment in wrapping microseconds.
    pub(crate) fn us(&self, at: &mut u32) {
        let ahead = self.to.as_micros().wrapping_sub(self.from.as_micros());
        *at = at.wrapping_add(ahead as u32);
    }

    /// Of a moment; none is before the clock's first.
    pub(crate) fn moment(&self, at: Instant) -> Instant {
        if at == Instant::NEVER {
            return at;
        }
        let ahead = i128::from(self.to.as_nanos()) - i128::from(self.from.as_nanos());
        let moved = i128::from(at.as_nanos()) + ahead;
        Instant::from_nanos(moved.clamp(0, i128::from(u64::MAX - 1)) as u64)
    }
}

/// Says how a structure is spelled: its fields one after the other. `ms` and `us` are moments in wrapping milliseconds and microseconds;
/// fields under `not` are not spelled, and begin as is said.
macro_rules! coded {
    ($name:ident {
        $($field:ident),* $(,)?
        $(; ms $($ms:ident),+)?
        $(; us $($us:ident),+)?
        $(; not $($not:ident = $value:expr),+)? $(,)?
    }) => {
        impl $crate::coded::Coded for $name {
            fn put(&self, to: &mut Vec<u8>) {
                let Self { $($field,)* $($($ms,)+)? $($($us,)+)? $($($not: _,)+)? } = self;
                $($crate::coded::Coded::put($field, to);)*
                $($($crate::coded::Coded::put($ms, to);)+)?
                $($($crate::coded::Coded::put($us, to);)+)?
            }

            fn take(
                from: &mut $crate::coded::Source<'_>,
            ) -> Result<Self, $crate::coded::Garbled> {
                $(let $field = $crate::coded::Coded::take(from)?;)*
                $($(let $ms = $crate::coded::Coded::take(from)?;)+)?
                $($(let $us = $crate::coded::Coded::take(from)?;)+)?
                Ok(Self { $($field,)* $($($ms,)+)? $($($us,)+)? $($($not: $value,)+)? })
            }

            fn shift(&mut self, by: &$crate::coded::Shift) {
                $($crate::coded::Coded::shift(&mut self.$field, by);)*
                $($(by.ms(&mut self.$ms);)+)?
                $($(by.us(&mut self.$us);)+)?
            }
        }
    };
}

/// Like [`coded!`], for a structure that is packed and copied.
macro_rules! coded_packed {
    ($name:ident { $($field:ident),+ ; not $($not:ident = $value:expr),+ $(,)? }) => {
        impl $crate::coded::Coded for $name {
            fn put(&self, to: &mut Vec<u8>) {
                let Self { $($field,)+ $($not: _,)+ } = *self;
                $($crate::coded::Coded::put(&$field, to);)+
            }

            fn take(
                from: &mut $crate::coded::Source<'_>,
            ) -> Result<Self, $crate::coded::Garbled> {
                $(let $field = $crate::coded::Coded::take(from)?;)+
                Ok(Self { $($field,)+ $($not: $value,)+ })
            }

            fn shift(&mut self, by: &$crate::coded::Shift) {
                $(
                    let mut value = self.$field;
                    $crate::coded::Coded::shift(&mut value, by);
                    self.$field = value;
                )+
            }
        }
    };
}

/// Says which number stands for which value of an enumeration.
macro_rules! coded_as {
    ($name:ident { $($value:ident = $number:literal),+ $(,)? }) => {
        impl $crate::coded::Coded for $name {
            fn put(&self, to: &mut Vec<u8>) {
                to.push(match self { $($name::$value => $number,)+ });
            }

            fn take(
                from: &mut $crate::coded::Source<'_>,
            ) -> Result<Self, $crate::coded::Garbled> {
                match <u8 as $crate::coded::Coded>::take(from)? {
                    $($number => Ok($name::$value),)+
                    _ => Err($crate::coded::Garbled),
                }
            }
        }
    };
}

pub(crate) use coded;
pub(crate) use coded_as;
pub(crate) use coded_packed;
