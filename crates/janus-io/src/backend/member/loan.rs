//! Buffers that the daemon lends: they are in its own memory. Of what a program has there each received packet brings one and a buffer that it
//! gives takes one away, so that it never has more than it was lent. All go back when nothing here has a use for any of them: the line to the
//! daemon, by whose end it knows, ends with the last.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use janus_mem::Depot;
use janus_shm::{Link, Message, Segment};

use super::greeted::Greeted;
use crate::backend::held::Ours;

/// Held by the memory.
struct Line(Arc<Link>);

impl Drop for Line {
    fn drop(&mut self) {
        // It may have been said before; a daemon that is gone hears nothing.
        let _ = self.0.send(&Message::Leave { keeps: false }, &[]);
    }
}

/// A depot of the buffers that are lent, which of the daemon's they are, and its memory. `None`: it lends none.
pub(super) fn of(greeted: &mut Greeted) -> io::Result<Option<(Arc<Depot>, Ours, OwnedFd)>> {
    let (slots, count) = greeted.welcome.loan;
    if count == 0 {
        return Ok(None);
    }
    let fds = std::mem::take(&mut greeted.fds);
    let Ok([memory, list]) = <[OwnedFd; 2]>::try_from(fds) else {
        return Err(io::Error::other("the daemon lends buffers without memory"));
    };
    let list = Segment::open(list, count as usize * 4)?;
    let mut bytes = vec![0; list.len()];
    list.read(0, &mut bytes).map_err(io::Error::other)?;
    let numbers = bytes.chunks_exact(4);
    let given: Vec<u32> = numbers
        .map(|it| u32::from_ne_bytes([it[0], it[1], it[2], it[3]]))
        .collect();
    let line = Box::new(Line(greeted.link.clone()));
    let depot = Depot::lent(memory.as_fd(), slots, &given, line).map_err(io::Error::other)?;
    let ours: Ours = (0..slots).map(|_| AtomicBool::new(false)).collect();
    for slot in given {
        ours[slot as usize].store(true, Ordering::Relaxed);
    }
    Ok(Some((depot, ours, memory)))
}
