//! Received bytes lent to the program where they lie. Each loan has a key of its own, so that one that was given back already, or sent,
//! is recognized. A loan keeps its packet buffer from the pool: one that is never given back does so until the process ends.

use std::os::fd::RawFd;
use std::sync::{MutexGuard, PoisonError};

use janus_posix::Received;
use janus_tcp::Piece;

use crate::core::{Attempt, Core, GoesOn};
use crate::process::Process;
use crate::{Errno, Result};

/// Some bytes that belong to the program until it gives them back.
#[derive(Clone, Copy, Debug)]
pub struct Loan {
    /// Never zero.
    pub key: u64,
    /// They stay here, and as they are, until then.
    pub at: *const u8,
    /// How many there are.
    pub len: usize,
}

/// A place for a loan, used again and again.
struct Place {
    /// Which of its loans this is.
    count: u32,
    state: State,
}

enum State {
    Free,
    Lent(Piece),
    /// A thread is about to send it.
    Away,
}

/// All loans of the process.
#[derive(Default)]
pub(crate) struct Loans {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Loans {
    fn lend(&mut self, piece: Piece) -> Loan {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place {
                count: 0,
                state: State::Free,
            });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[at as usize];
        place.count = place.count.wrapping_add(1).max(1);
        let loan = loan_of(key(at, place.count), &piece);
        place.state = State::Lent(piece);
        loan
    }

    /// The place that a key names, if its loan is not over.
    fn place(&mut self, key: u64) -> Result<&mut Place> {
        let (at, count) = (key as u32 as usize, (key >> 32) as u32);
        match self.places.get_mut(at) {
            Some(place) if place.count == count => Ok(place),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The bytes, which another thread cannot take meanwhile.
    fn take(&mut self, key: u64) -> Result<Piece> {
        let place = self.place(key)?;
        match std::mem::replace(&mut place.state, State::Away) {
            State::Lent(piece) => Ok(piece),
            other => {
                place.state = other;
                Err(Errno::EINVAL)
            }
        }
    }

    /// Those that were taken are lent on.
    fn put_back(&mut self, key: u64, piece: Piece) {
        if let Ok(place) = self.place(key) {
            place.state = State::Lent(piece);
        }
    }

    /// The loan of those that were taken is over.
    fn end(&mut self, key: u64) {
        if let Ok(place) = self.place(key) {
            place.state = State::Free;
            self.free.push(key as u32);
        }
    }
}

fn key(at: u32, count: u32) -> u64 {
    u64::from(count) << 32 | u64::from(at)
}

fn loan_of(key: u64, piece: &Piece) -> Loan {
    let bytes = piece.bytes();
    Loan {
        key,
        at: bytes.as_ptr(),
        len: bytes.len(),
    }
}

/// The part of a piece that a loan still names: its holder may have left out some at either end.
fn narrow(piece: &mut Piece, loan: Loan) -> Result<()> {
    let start = piece.bytes().as_ptr() as usize;
    let skipped = (loan.at as usize).checked_sub(start);
    match skipped {
        Some(skipped) if loan.len <= usize::from(piece.len).saturating_sub(skipped) => {
            piece.off += skipped as u16;
            piece.len = loan.len as u16;
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    }
}

impl Core {
    fn loans(&self) -> MutexGuard<'_, Loans> {
        self.loans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process {
    /// Receives the next bytes without copying them; `None` is the end of the peer's stream. Of the flags of `recv(2)` there is MSG_DONTWAIT.
    ///
    /// # Errors
    /// Those of `recv(2)`, and EOPNOTSUPP for other flags.
    pub fn receive_buf(&self, fd: RawFd, flags: i32, goes_on: GoesOn) -> Result<Option<Loan>> {
        self.core.block(fd, goes_on, |sockets, _, on, now| {
            match sockets.receive_buf(now, on, flags) {
                Ok(Received::Bytes(piece)) => {
                    Attempt::Done(Ok(Some(self.core.loans().lend(piece))))
                }
                Ok(Received::End) => Attempt::Done(Ok(None)),
                Ok(Received::Blocked) => Attempt::Blocked {
                    on,
                    so_far: Err(Errno::EAGAIN),
                    patience: sockets.receive_timeout(on),
                },
                Err(error) => Attempt::Done(Err(error)),
            }
        })
    }

    /// Gives a loan back; any thread may.
    ///
    /// # Errors
    /// EINVAL: there is no such loan, or no more.
    pub fn release(&self, key: u64) -> Result<()> {
        let mut loans = self.core.loans();
        let piece = loans.take(key)?;
        loans.end(key);
        drop(loans);
        // After the process's end the buffer finds home by itself.
        let _ended = self.core.call(|sockets, _, _| {
            sockets.release(piece);
            Ok(())
        });
        Ok(())
    }

    /// Sends what was lent, from where it lies, and ends the loan; `loan` may leave out bytes at its ends. How many bytes were sent, and the
    /// loan of the rest: of a socket that does not block, or not any longer, it may be that only a part finds room.
    ///
    /// # Errors
    /// Those of `send(2)`, and EINVAL where there is no such loan. After an error it is the program's still.
    pub fn send_buf(
        &self,
        fd: RawFd,
        loan: Loan,
        goes_on: GoesOn,
    ) -> Result<(usize, Option<Loan>)> {
        let mut piece = self.core.loans().take(loan.key)?;
        if let Err(error) = narrow(&mut piece, loan) {
            self.core.loans().put_back(loan.key, piece);
            return Err(error);
        }
        let mut held = Some(piece);
        let outcome = self.core.block(fd, goes_on, |sockets, _, socket, now| {
            let Some(piece) = held.take() else {
                return Attempt::Done(Ok(()));
            };
            let (error, rest) = match sockets.send_buf(now, socket, piece) {
                Ok(()) => return Attempt::Done(Ok(())),
                Err(refused) => refused,
            };
            held = Some(rest);
            match error {
                Errno::EAGAIN if !sockets.is_nonblocking(socket) => Attempt::Blocked {
                    on: socket,
                    so_far: Err(error),
                    patience: sockets.send_timeout(socket),
                },
                error => Attempt::Done(Err(error)),
            }
        });
        let mut loans = self.core.loans();
        let Some(rest) = held else {
            loans.end(loan.key);
            return outcome.map(|()| (loan.len, None));
        };
        let left = loan_of(loan.key, &rest);
        loans.put_back(loan.key, rest);
        match (loan.len - left.len, outcome) {
            (0, Err(error)) => Err(error),
            (sent, _) => Ok((sent, Some(left))),
        }
    }
}
