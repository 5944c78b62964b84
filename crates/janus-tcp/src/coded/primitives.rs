//! Numbers, times, addresses, and what consists of them: little-endian, and each value in one way only.

use core::num::NonZeroU32;
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use janus_wire::tcp::UserTimeout;
use janus_wire::{FlowKey, FlowKeyV4, FlowKeyV6, SeqNum, StampBase};

use super::{Coded, Garbled, Shift, Source};
use crate::time::{Instant, nanos};

macro_rules! numbers {
    ($($number:ident),+) => {$(
        impl Coded for $number {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
                from.array().map($number::from_le_bytes)
            }
        }
    )+};
}

numbers!(u8, u16, u32, u64);

/// A value that is spelled as another.
macro_rules! spelled {
    ($($name:ident as $other:ident: $to:expr, $from:expr;)+) => {$(
        impl Coded for $name {
            fn put(&self, to: &mut Vec<u8>) {
                let spell: fn(&$name) -> $other = $to;
                spell(self).put(to);
            }

            fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
                let read: fn($other) -> Option<$name> = $from;
                read($other::take(from)?).ok_or(Garbled)
            }
        }
    )+};
}

spelled! {
    SeqNum as u32: |seq| seq.0, |seq| Some(SeqNum(seq));
    NonZeroU32 as u32: |number| number.get(), NonZeroU32::new;
    StampBase as u32: |base| base.to_bits(), |bits| Some(StampBase::from_bits(bits));
    UserTimeout as u16: |time| time.bits(), UserTimeout::from_bits;
    Duration as u64: |time| nanos(*time), |nanos| Some(Duration::from_nanos(nanos));
    Ipv4Addr as u32: |ip| ip.to_bits(), |bits| Some(Ipv4Addr::from_bits(bits));
    bool as u8: |&is| is.into(), |is| (is <= 1).then_some(is == 1);
}

impl Coded for Ipv6Addr {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.octets());
    }

    fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
        from.array::<16>().map(Ipv6Addr::from)
    }
}

impl Coded for IpAddr {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            IpAddr::V4(ip) => {
                to.push(4);
                ip.put(to);
            }
            IpAddr::V6(ip) => {
                to.push(6);
                ip.put(to);
            }
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
        match u8::take(from)? {
            4 => Ipv4Addr::take(from).map(IpAddr::V4),
            6 => Ipv6Addr::take(from).map(IpAddr::V6),
            _ => Err(Garbled),
        }
    }
}

impl Coded for FlowKey {
    fn put(&self, to: &mut Vec<u8>) {
        self.peer().put(to);
        match self.local() {
            IpAddr::V4(ip) => ip.put(to),
            IpAddr::V6(ip) => ip.put(to),
        }
        self.peer_port().put(to);
        self.local_port().put(to);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
        Ok(match IpAddr::take(from)? {
            IpAddr::V4(peer) => FlowKey::V4(FlowKeyV4 {
                peer,
                local: Coded::take(from)?,
                peer_port: Coded::take(from)?,
                local_port: Coded::take(from)?,
            }),
            IpAddr::V6(peer) => FlowKey::V6(FlowKeyV6 {
                peer,
                local: Coded::take(from)?,
                peer_port: Coded::take(from)?,
                local_port: Coded::take(from)?,
            }),
        })
    }
}

impl Coded for Instant {
    fn put(&self, to: &mut Vec<u8>) {
        self.as_nanos().put(to);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
        u64::take(from).map(Instant::from_nanos)
    }

    fn shift(&mut self, by: &Shift) {
        *self = by.moment(*self);
    }
}

impl<T: Coded> Coded for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }

    fn shift(&mut self, by: &Shift) {
        if let Some(value) = self {
            value.shift(by);
        }
    }
}

impl<T: Coded> Coded for Box<T> {
    fn put(&self, to: &mut Vec<u8>) {
        T::put(self, to);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
        T::take(from).map(Box::new)
    }

    fn shift(&mut self, by: &Shift) {
        T::shift(self, by);
    }
}

impl<T: Coded, U: Coded> Coded for (T, U) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
        Ok((T::take(from)?, U::take(from)?))
    }

    fn shift(&mut self, by: &Shift) {
        self.0.shift(by);
        self.1.shift(by);
    }
}

impl<T: Coded + Copy + Default, const N: usize> Coded for [T; N] {
    fn put(&self, to: &mut Vec<u8>) {
        for value in self {
            value.put(to);
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
        let mut all = [T::default(); N];
        for value in &mut all {
            *value = T::take(from)?;
        }
        Ok(all)
    }

    fn shift(&mut self, by: &Shift) {
        for value in self {
            value.shift(by);
        }
    }
}

impl<T: Coded> Coded for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        (self.len() as u32).put(to);
        for value in self {
            value.put(to);
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Self, Garbled> {
        (0..from.count()?).map(|_| T::take(from)).collect()
    }

    fn shift(&mut self, by: &Shift) {
        for value in self {
            value.shift(by);
        }
    }
}
