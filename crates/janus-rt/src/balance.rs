//! Which core gets how many of the connections, changed while they live: weights for the cores, and what came of it.
//! How a change is made without losing a connection is the balancer's (`janus-csb`, `docs/csb.md`); it is carried out
//! by a thread of its own, and none of the calls here waits for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use janus_csb::MAX_POINTS;
pub use janus_csb::UpdateReport;

pub use crate::config::SpeculativeAccept;
use crate::control::mailbox::ControlMailbox;
pub use crate::control::watch::PolicyName as Policy;

/// The balancer of one runtime; from [`Handle::balance`](crate::Handle::balance), usable on any thread.
///
/// ```
/// let runtime = janus::Runtime::builder().ignore_environment().cores(2).build()?;
/// let balance = runtime.handle().balance();
/// balance.set_weights(&[3, 1])?;
/// balance.drain(1)?;
/// assert_eq!(balance.drained(), [1]);
/// assert!(balance.drain(0).is_err(), "a core must be left");
/// # Ok::<(), janus::BoxError>(())
/// ```
#[derive(Clone)]
pub struct Balance {
    mailbox: Arc<ControlMailbox>,
}

/// Totals of the updates since the start.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct BalanceReport {
    /// Updates carried out.
    pub updates: u64,
    /// Those among them that the policy planned.
    pub planned: u64,
    /// Times one was put off, because too many flows would have differed from the new ring.
    pub refused: u64,
    /// Flows that stayed on their core while a new ring gave them to another, over all updates.
    pub diverged: u64,
    /// Flows that were looked at, over all updates.
    pub held: u64,
    /// Of the diverged, flows that had to be told apart by more than their key.
    pub exact: u64,
    /// Slices in which cores looked through their flows.
    pub slices: u64,
    /// The longest of them, as the clock saw it: that of the core's thread, whether it ran or not.
    pub slice_ns_max: u64,
    /// Connections, handshakes and what is left of connections that drained cores have given to others.
    pub moved: u64,
    /// Nanoseconds that this took them.
    pub moving_ns: u64,
    /// The last update.
    pub last: UpdateReport,
}

impl Balance {
    pub(crate) fn new(mailbox: Arc<ControlMailbox>) -> Balance {
        Balance { mailbox }
    }

    /// From now on new connections are shared out among the cores in proportion to these weights, one number for each
    /// core; a core with none gets no new connection. Connections that live stay where they are. The runtime starts with
    /// equal shares. Where a policy watches the load (the key `balance`), it goes on from there.
    ///
    /// The change is carried out soon; [`report`](Balance::report) counts it then. Of two changes that wait the later
    /// counts.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) unless there is a weight for each core, their sum is between 1 and
    /// 65,536, and some core with a weight is not drained.
    pub fn set_weights(&self, points: &[u16]) -> io::Result<()> {
        let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let cores = self.mailbox.shards();
        if points.len() != cores {
            return invalid(format!(
                "{} weights for {cores} cores: give one for each",
                points.len()
            ));
        }
        let sum: usize = points.iter().map(|&points| usize::from(points)).sum();
        if sum == 0 || sum > MAX_POINTS {
            return invalid(format!(
                "the weights' sum must be 1 to {MAX_POINTS}, not {sum}"
            ));
        }
        if !self.mailbox.want_weights(points) {
            return invalid("every core that has a weight is drained: restore one first".into());
        }
        Ok(())
    }

    /// From now on `core` gets no new connections, and the others have its share. Connections that no task of it has move to the others,
    /// which serve them on: those at [rest](crate::net::Handler) where the same handler is, those that wait to be accepted, and what ends by
    /// itself. A connection that a task has stays until it comes to rest or ends, or the task takes it elsewhere
    /// ([`move_to`](crate::move_to), [`adopt_here`](crate::net::TcpStream::adopt_here)). What its main and its tasks do goes on. The change is
    /// carried out soon, as with [`set_weights`](Balance::set_weights), which changes nothing for a core that is drained; nor does a
    /// policy. A port on which this core alone listens is refused then.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) when there is no such core, or no other would get new connections.
    pub fn drain(&self, core: usize) -> io::Result<()> {
        self.cast(core, true)
    }

    /// `core` gets new connections again: a share by its weight beside the others'.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) when there is no such core.
    pub fn restore(&self, core: usize) -> io::Result<()> {
        self.cast(core, false)
    }

    /// The cores that [`drain`](Balance::drain) was said of last.
    pub fn drained(&self) -> Vec<usize> {
        let drained = self.mailbox.drained().into_iter().enumerate();
        drained
            .filter_map(|(core, drained)| drained.then_some(core))
            .collect()
    }

    fn cast(&self, core: usize, drained: bool) -> io::Result<()> {
        let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let cores = self.mailbox.shards();
        if core >= cores {
            return invalid(format!(
                "there is no core {core}: they are 0 to {}",
                cores - 1
            ));
        }
        if !self.mailbox.want_drained(core, drained) {
            return invalid("no other core would have new connections: restore one first".into());
        }
        Ok(())
    }

    /// Returns the totals of the updates.
    pub fn report(&self) -> BalanceReport {
        let done = self.mailbox.done();
        let boards = self.mailbox.boards();
        let longest = boards
            .iter()
            .map(|b| b.slice_ns_max.load(Ordering::Relaxed));
        BalanceReport {
            updates: done.updates,
            planned: done.planned,
            refused: done.refused,
            diverged: done.diverged,
            held: done.held,
            exact: done.exact,
            slices: boards.iter().map(|board| board.slices.get()).sum(),
            slice_ns_max: longest.max().unwrap_or_default(),
            moved: boards.iter().map(|board| board.moved.get()).sum(),
            moving_ns: boards.iter().map(|board| board.moving_ns.get()).sum(),
            last: done.last,
        }
    }
}
