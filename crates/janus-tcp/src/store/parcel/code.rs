//! A parcel in bytes. The version comes first; then each part as its type says.

use core::fmt;

use janus_mem::Pool;

use super::{Busy, Connection, Content, Parcel};
use crate::coded::{Coded, Garbled, Source};
use crate::rules::profile::SocketOptions;
use crate::store::cold::Tcb;
use crate::store::half_open::HalfOpen;
use crate::store::rest::Rest;
use crate::store::time_wait::TimeWait;

/// Changes with whatever a parcel is made of.
const VERSION: u16 = 1;

/// Why bytes are no parcel. Nothing was made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreadable {
    /// Another version than this one's, which is told.
    Version(u16),
    /// Cut, too long, or with values that no connection has.
    Garbled,
    /// There is no packet buffer for what it carries.
    NoBuffers,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Version(theirs) => write!(
                f,
                "a parcel of version {theirs}, and this is {VERSION}: both sides must be of one release"
            ),
            Unreadable::Garbled => f.write_str("the bytes are no parcel: cut, or changed"),
            Unreadable::NoBuffers => f.write_str("no packet buffer is free for what it carries"),
        }
    }
}

impl core::error::Error for Unreadable {}

impl Parcel {
    /// Appends the parcel, spelled in bytes. Buffers that are on a wire stay there, and come after it under the same numbers as they would
    /// after the parcel itself.
    pub fn encode(&self, to: &mut Vec<u8>) {
        VERSION.put(to);
        self.flow.put(to);
        self.made.put(to);
        match &self.content {
            Content::Connection(conn) => {
                to.push(0);
                conn.put(to);
            }
            Content::HalfOpen(record) => {
                to.push(1);
                record.put(to);
            }
            Content::TimeWait(record) => {
                to.push(2);
                record.put(to);
            }
        }
    }

    /// The parcel that the bytes spell, with what it carries in buffers of `pool`. It makes sense in itself; who may send one is the
    /// caller's to know.
    pub fn decode(bytes: &[u8], pool: &mut Pool) -> Result<Parcel, Unreadable> {
        let mut from = Source::new(bytes, pool);
        let version = u16::take(&mut from).map_err(|Garbled| Unreadable::Garbled)?;
        if version != VERSION {
            return Err(Unreadable::Version(version));
        }
        let parcel = Parcel::take(&mut from);
        match parcel {
            Ok(parcel) if from.is_empty() && parcel.is_sound() => Ok(parcel),
            Err(Garbled) if from.was_starved() => Err(Unreadable::NoBuffers),
            _ => Err(Unreadable::Garbled),
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Parcel, Garbled> {
        let (flow, made) = (Coded::take(from)?, Coded::take(from)?);
        let content = match u8::take(from)? {
            0 => Content::Connection(Connection::take(from)?),
            1 => Content::HalfOpen(HalfOpen::take(from)?),
            2 => Content::TimeWait(TimeWait::take(from)?),
            _ => return Err(Garbled),
        };
        Ok(Parcel {
            flow,
            made,
            content,
        })
    }
}

/// Which parts follow that few connections have.
mod part {
    pub(super) const REST: u8 = 1 << 0;
    pub(super) const OPTIONS: u8 = 1 << 1;
    pub(super) const ANSWERED: u8 = 1 << 2;
    pub(super) const PATH: u8 = 1 << 3;
    pub(super) const BUSY: u8 = 1 << 4;
    pub(super) const LOOKED: u8 = 1 << 5;
    pub(super) const ALL: u8 = (1 << 6) - 1;
}

impl Connection {
    fn put(&self, to: &mut Vec<u8>) {
        let Connection {
            tcb,
            place,
            rest,
            options,
            answered,
            looked_ms,
            path,
            busy,
        } = self;
        place.put(to);
        tcb.put(to);
        let parts = [
            (rest.is_some(), part::REST),
            (options.is_some(), part::OPTIONS),
            (!answered.is_none(), part::ANSWERED),
            (path.is_some(), part::PATH),
            (busy.is_some(), part::BUSY),
            (looked_ms.is_some(), part::LOOKED),
        ];
        let parts = parts.into_iter().filter(|(has, _)| *has);
        to.push(parts.map(|(_, part)| part).sum());
        if let Some(rest) = rest {
            rest.word().put(to);
        }
        if let Some(options) = options {
            options.put(to);
        }
        if !answered.is_none() {
            answered.put(to);
        }
        if let Some(looked) = looked_ms {
            looked.put(to);
        }
        if let Some(path) = path {
            path.put(to);
        }
        if let Some(busy) = busy {
            busy.put(to);
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Connection, Garbled> {
        let (place, tcb): (_, Tcb) = (Coded::take(from)?, Coded::take(from)?);
        let parts = u8::take(from)?;
        if parts & !part::ALL != 0 {
            return Err(Garbled);
        }
        let has = |part: u8| parts & part != 0;
        let rest = match has(part::REST) {
            true => Some(Rest::of_word(u32::take(from)?).ok_or(Garbled)?),
            false => None,
        };
        let options = has(part::OPTIONS).then(|| SocketOptions::take(from));
        let options = options.transpose()?.map(Box::new);
        let answered = match has(part::ANSWERED) {
            true => Coded::take(from)?,
            false => Default::default(),
        };
        let looked_ms = has(part::LOOKED).then(|| Coded::take(from)).transpose()?;
        let path = has(part::PATH).then(|| Coded::take(from)).transpose()?;
        let busy = has(part::BUSY).then(|| Busy::take(from));
        Ok(Connection {
            tcb,
            place,
            rest,
            options,
            answered,
            looked_ms,
            path,
            busy: busy.transpose()?.map(Box::new),
        })
    }
}
