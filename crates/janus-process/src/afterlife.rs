//! A program that ends, or becomes another (`exec`), while other processes use its connections: on the kernel's sockets these would notice nothing. Here a copy of
//! the process goes on in its place, forked while it ends. The copy has the core, its memory and its descriptors, is the daemon's member from then on,
//! and does nothing but carry until no other uses any of it. The program does not wait for that.

use std::sync::PoisonError;

use janus::SeatCrew;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use crate::core::Inner;
use crate::held::Held;
use crate::kernel;
use crate::own::{self, Own};
use crate::process::Process;
use crate::pump::Carrier;
use crate::sleep::Sleeper;

/// Where a call goes on that has copied its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In the process that was there.
    Original,
    /// In the copy, which is no child of that one.
    Copy,
}

/// Forks a copy of the process, in which the calling thread is the only one; `None` if there cannot be one.
pub type Copies = fn() -> Option<Side>;

impl Process {
    /// Copies the process, and waits until the copy has its place. In the original all calls say EBADF then. `None`: there is no copy, and all is as before, but that
    /// the guardian is gone.
    pub(crate) fn copy(
        &self,
        crew: &mut SeatCrew,
        carrier: &mut Carrier,
        copies: Copies,
    ) -> Option<Side> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None).ok()?;
        if !crew.rests() {
            return None;
        }
        let (hears, tells) = own::keep_both(pair);
        let (hears, tells) = (Own::new(hears), Own::new(tells));
        // The copy is sent no signals: what ends a program's process ends no connection that others have.
        let signals = Held::now();
        let forks = (self.core.forks.lock()).unwrap_or_else(PoisonError::into_inner);
        let mut inner = self.core.lock();
        let loans = (self.core.loans.lock()).unwrap_or_else(PoisonError::into_inner);
        let side = crew.with_memory_for_copies(copies).ok().flatten();
        drop(loans);
        if side == Some(Side::Copy) {
            std::mem::forget(signals);
            inner.is_copied(carrier.held());
            drop((inner, forks));
            carrier.is_alone();
            kernel::leaves_its_program();
            if crew.goes_on_here().is_ok() {
                // It is waited for.
                let _ = send(&tells, &[1], SendFlags::NOSIGNAL);
            }
            return side;
        }
        // The other end is the copy's alone.
        drop(tells);
        let is_there = side.is_some() && recv(&hears, &mut [0], RecvFlags::empty()) == Ok((1, 1));
        if is_there {
            // Rings and line are the copy's: nothing is said at their end here.
            std::mem::forget(inner.seat.take());
            inner.sleepers.wake_all();
            return side;
        }
        drop((inner, forks));
        if let Err(error) = crew.goes_on() {
            eprintln!("janus: {error}");
        }
        None
    }
}

impl Inner {
    /// The other threads are gone, and what they waited for and held. Sockets that children hold yet: `held`.
    fn is_copied(&mut self, held: impl Iterator<Item = i32>) {
        Sleeper::forget_mine();
        // Never dropped: what it has is of no use here, and closed with the process.
        std::mem::forget(std::mem::take(&mut self.sleepers));
        for socket in self.descriptors.count_again(held) {
            // An end that fails is an end.
            let _ = self.end(socket);
        }
    }
}
