//! The daemon's packet buffers, and those among them that are lent: to members of its own user, who trust it and each other. What one has is given to
//! others again once its process can write there no more: when it has said that it needs none of it, or is dead.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use janus_io::loans::{Borrower, Loans};
use janus_mem::{Depot, Frame, Pool};
use janus_shm::{Link, Received, Segment};
use rustix::process::geteuid;

use crate::Counters;
use crate::member::{Crossed, has_ended};
use crate::ports::Slot;

/// Messages of one that has left, at a time: it has nothing to say.
const HEARD_AT_ONCE: usize = 4;

/// Frames that wait have this part of the buffers at most that are not to be lent.
const WAITING_PART: usize = 4;

pub(crate) struct Stock {
    pub(crate) pool: Pool,
    pub(crate) loans: Loans,
    /// `None`: none are lent.
    memory: Option<OwnedFd>,
    /// Buffers that may be lent yet.
    left: u32,
    /// How many each was lent.
    lent: BTreeMap<Borrower, u32>,
    last: u16,
    debtors: Vec<Debtor>,
    /// Frames of all members that wait for their buffers, and how many may.
    waiting: usize,
    waiting_max: usize,
    counters: Arc<Counters>,
}

/// A program that is no member any more and may write into buffers yet.
struct Debtor {
    borrower: Borrower,
    /// Its line, if it has left in order: it ends once nothing there uses them.
    line: Option<Link>,
    process: Option<OwnedFd>,
}

/// A loan as its borrower is told of it.
pub(crate) struct Loan<'a> {
    pub(crate) borrower: Borrower,
    pub(crate) memory: BorrowedFd<'a>,
    pub(crate) slots: u32,
    /// Numbers of the buffers.
    pub(crate) list: Segment,
    pub(crate) count: u32,
}

impl Stock {
    pub(crate) fn new(
        depot: &Arc<Depot>,
        memory: Option<OwnedFd>,
        lends: u32,
        counters: Arc<Counters>,
    ) -> Stock {
        Stock {
            pool: depot.pool(),
            loans: Loans::new(depot),
            left: if memory.is_some() { lends } else { 0 },
            memory,
            lent: BTreeMap::new(),
            last: 0,
            debtors: Vec::new(),
            waiting: 0,
            waiting_max: depot.capacity().saturating_sub(lends as usize) / WAITING_PART,
            counters,
        }
    }

    /// Lends buffers to one of this user, as many as it wants or none: at most half of what there is, so that there is something for the next.
    pub(crate) fn lend(&mut self, user: u32, wanted: u32) -> io::Result<Option<Loan<'_>>> {
        let Some(memory) = &self.memory else {
            return Ok(None);
        };
        if user != geteuid().as_raw() || wanted == 0 || wanted > self.left.div_ceil(2) {
            return Ok(None);
        }
        let others = &self.lent;
        let numbers = (1..=u16::MAX).map(|it| self.last.wrapping_add(it));
        let mut unused = numbers
            .filter_map(Borrower::new)
            .filter(|it| !others.contains_key(it));
        let Some(borrower) = unused.next() else {
            return Ok(None);
        };
        let list = Segment::create("janus-loan", wanted as usize * 4)?;
        for at in 0..u64::from(wanted) {
            let lent = self.pool.alloc().map(|buf| self.loans.lend(buf, borrower));
            let Some(Ok(address)) = lent else {
                self.loans.recall(borrower, &mut self.pool);
                return Ok(None);
            };
            let number = Loans::number(address);
            (list.write(at * 4, &number.to_ne_bytes())).map_err(io::Error::other)?;
        }
        self.lent.insert(borrower, wanted);
        self.left -= wanted;
        self.counters.lent.add(wanted.into());
        self.last = borrower.get();
        Ok(Some(Loan {
            borrower,
            memory: memory.as_fd(),
            slots: self.loans.slots(),
            list,
            count: wanted,
        }))
    }

    /// A member is none any more, which has said so if its line comes along.
    pub(crate) fn ends(
        &mut self,
        borrower: Borrower,
        line: Option<Link>,
        process: Option<OwnedFd>,
    ) {
        self.debtors.push(Debtor {
            borrower,
            line,
            process,
        });
        self.collect();
    }

    /// Takes back what those have who are done.
    pub(crate) fn collect(&mut self) {
        let (done, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.debtors)
            .into_iter()
            .partition(Debtor::is_done);
        self.debtors = open;
        for Debtor { borrower, .. } in done {
            self.loans.recall(borrower, &mut self.pool);
            let lent = self.lent.remove(&borrower).unwrap_or(0);
            self.left += lent;
            self.counters.returned.add(lent.into());
        }
    }

    /// Readable when one of them may be done.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let all = self.debtors.iter();
        all.flat_map(|it| {
            let line = it.line.iter().map(AsFd::as_fd);
            line.chain(it.process.iter().map(AsFd::as_fd))
        })
    }

    /// Whether one more frame may wait for its member: members that take nothing together keep no more than a part of the buffers.
    pub(crate) fn may_wait(&mut self) -> bool {
        let may = self.waiting < self.waiting_max;
        self.waiting += usize::from(may);
        may
    }

    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// One waits no more.
    pub(crate) fn waited(&mut self) {
        self.waiting -= 1;
    }

    /// A frame of the daemon's own with the same in it.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Option<Frame> {
        let mut buf = self.pool.alloc()?;
        let at = usize::from(buf.off());
        buf.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        Some(Frame::new(buf, bytes.len() as u16))
    }

    /// A buffer that a member gives, in exchange for the frame that it receives: the frame's address. `None`: it does not have that buffer.
    #[inline]
    pub(crate) fn exchange(
        &mut self,
        given: u64,
        frame: Frame,
        with: Borrower,
    ) -> Option<(u64, Crossed)> {
        let mut free = self.loans.take_back(given, 0, with)?;
        match self.loans.lend(frame.buf, with) {
            Ok(address) => {
                self.pool.free(free);
                Some((address, Crossed::Handed))
            }
            // Of another memory, as frames of a wire within a process are.
            Err(theirs) => {
                let (from, len) = (usize::from(theirs.off()), usize::from(frame.len));
                free.set_off(theirs.off());
                free.bytes_mut()[from..from + len]
                    .copy_from_slice(&theirs.bytes()[from..from + len]);
                self.pool.free(theirs);
                let address = self.loans.lend(free, with).ok()?;
                Some((address, Crossed::Copied))
            }
        }
    }
}

/// Members have what they were lent, and keep it: nothing is to be written there.
impl Drop for Stock {
    fn drop(&mut self) {
        self.pool.depot().give_up(self.loans.forget());
    }
}

impl Debtor {
    fn is_done(&self) -> bool {
        let heard = (0..HEARD_AT_ONCE).map(|_| self.line.as_ref().map(Link::receive));
        let mut heard = heard.map_while(|it| it);
        let hung_up = heard.any(|it| matches!(it, Ok(Received::End) | Err(_)));
        hung_up || self.process.as_ref().is_some_and(has_ended)
    }
}

/// The sender of a frame in a lent buffer, while the device has it.
#[derive(Clone, Copy)]
pub(crate) struct Flight {
    pub(crate) slot: Slot,
    pub(crate) core: u8,
    pub(crate) borrower: u16,
}

impl Flight {
    pub(crate) fn key(self) -> u32 {
        u32::from(self.borrower) << 16 | u32::from(self.core) << 8 | u32::from(self.slot)
    }

    pub(crate) fn of(key: u32) -> Flight {
        Flight {
            slot: key as u8,
            core: (key >> 8) as u8,
            borrower: (key >> 16) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use janus_mem::Growth;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    const LENDS: u32 = 1_024;

    fn stock() -> (Stock, Arc<Depot>) {
        let (depot, memory) = Depot::shared(2 * LENDS, &Growth::Inline).unwrap();
        let stock = Stock::new(&depot, Some(memory), LENDS, Arc::default());
        (stock, depot)
    }

    #[test]
    fn half_of_what_there_is_is_lent_at_most_and_to_its_own_user_only() {
        let (mut stock, _depot) = stock();
        let own = geteuid().as_raw();
        assert!(stock.lend(own + 1, 16).unwrap().is_none(), "another's");
        assert!(stock.lend(own, 0).unwrap().is_none());
        assert!(stock.lend(own, LENDS / 2 + 1).unwrap().is_none());
        let all: Vec<_> = std::iter::from_fn(|| {
            let loan = stock.lend(own, LENDS / 4).unwrap()?;
            Some((loan.borrower, loan.count))
        })
        .collect();
        assert_eq!(all.len(), 3, "{all:?}");
        let (first, _) = all[0];
        stock.ends(first, None, None);
        assert_eq!(
            stock.counters.returned.get(),
            0,
            "nothing says that it is dead"
        );
        let mut without = Stock::new(&stock.pool.depot().clone(), None, LENDS, Arc::default());
        assert!(without.lend(own, 16).unwrap().is_none());
    }

    #[test]
    fn what_one_has_comes_home_once_its_line_ends_after_it_has_left() {
        let (mut stock, depot) = stock();
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.map(|(one, other)| (Link::new(one), other)).unwrap();
        let loan = stock.lend(geteuid().as_raw(), 100).unwrap().unwrap();
        let borrower = loan.borrower;
        let mut first = [0; 4];
        loan.list.read(0, &mut first).unwrap();
        let given = u64::from(u32::from_ne_bytes(first)) * janus_mem::SLOT_SIZE as u64;
        // The buffers that it has are others afterwards.
        let frame = stock.copy(b"some").unwrap();
        let (had, crossed) = stock.exchange(given, frame, borrower).unwrap();
        assert_eq!(crossed, Crossed::Handed);
        let frame = stock.copy(b"some").unwrap();
        assert!(
            stock.exchange(given, frame, borrower).is_none(),
            "it has it no more"
        );
        let stranger = Depot::new(16, &Growth::Inline).unwrap();
        let mut frame = Frame::new(stranger.pool().alloc().unwrap(), 4);
        frame.data_mut().copy_from_slice(b"more");
        let (had, crossed) = stock.exchange(had, frame, borrower).unwrap();
        assert_eq!(crossed, Crossed::Copied);
        let mut seen = [0; 4];
        assert!(stock.loans.peek(had, &mut seen, borrower));
        assert_eq!(&seen, b"more");
        stock.ends(borrower, Some(ours), None);
        stock.collect();
        assert_eq!(stock.counters.returned.get(), 0);
        drop(theirs);
        stock.collect();
        assert_eq!(stock.counters.returned.get(), 100);
        drop(stock);
        assert_eq!(depot.stats().outstanding, 0);
    }
}
