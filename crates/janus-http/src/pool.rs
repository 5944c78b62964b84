//! Memory that outlives the request that used it: the futures that handle requests, and the buffers they work with. Each thread has a pool
//! of its own, so nothing is shared; both kinds are bounded, and the excess is freed.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::head::HeadIndex;
use crate::response::Output;

/// Most idle futures of one kind that a thread keeps.
pub(crate) const FUTURES_MAX: usize = 1024;
/// Most idle sets of buffers that a thread keeps.
pub(crate) const BUFFERS_MAX: usize = 1024;
/// Largest capacity in bytes of a buffer that is kept; a larger one was an exception and is freed.
pub(crate) const BUFFER_BYTES_KEPT: usize = 32 * 1024;
/// Initial capacity of an output buffer in bytes.
const OUTPUT_BYTES: usize = 4096;

/// Counters of this thread's pools and of its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolCounters {
    /// Futures that were allocated because none was idle.
    pub futures_allocated: u64,
    /// Sets of buffers that were allocated because none was idle.
    pub buffers_allocated: u64,
    /// Futures and sets of buffers that were freed because the pool was full.
    pub freed: u64,
    /// Streams of HTTP/2 that were reset because the peer took nothing of a response for
    /// [`write_timeout`](crate::Options::write_timeout).
    pub streams_stalled: u64,
}

thread_local! {
    static COUNTERS: Cell<PoolCounters> = const {
        Cell::new(PoolCounters { futures_allocated: 0, buffers_allocated: 0, freed: 0, streams_stalled: 0 })
    };
    // Few kinds: one for each handler type that a program has.
    static FUTURES: RefCell<Vec<(TypeId, Box<dyn Any>)>> = const { RefCell::new(Vec::new()) };
    // Boxed, because a request holds them for its whole life and a pointer is what should move.
    #[allow(clippy::vec_box)]
    static BUFFERS: RefCell<Vec<Box<Buffers>>> = const { RefCell::new(Vec::new()) };
}

/// Returns this thread's counters.
pub fn counters() -> PoolCounters {
    COUNTERS.get()
}

pub(crate) fn count(change: impl FnOnce(&mut PoolCounters)) {
    // A thread that ends has no counters any more.
    let _ = COUNTERS.try_with(|cell| {
        let mut counters = cell.get();
        change(&mut counters);
        cell.set(counters);
    });
}

type Slot<F> = Pin<Box<Option<F>>>;

/// A future in a pooled box. Dropping it, finished or not, drops the future and returns the box.
pub(crate) struct Pooled<F: Future + 'static> {
    /// Taken only while being dropped.
    slot: Option<Slot<F>>,
}

impl<F: Future + 'static> Pooled<F> {
    pub(crate) fn new(future: F) -> Self {
        let idle = FUTURES
            .try_with(|pools| with_kind(pools, Vec::pop))
            .ok()
            .flatten();
        let slot = match idle {
            Some(mut slot) => {
                slot.as_mut().set(Some(future));
                slot
            }
            None => {
                count(|c| c.futures_allocated += 1);
                Box::pin(Some(future))
            }
        };
        Self { slot: Some(slot) }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self
            .slot
            .as_mut()
            .and_then(|slot| slot.as_mut().as_pin_mut())
        {
            Some(future) => future.poll(cx),
            // Reached only after `drop`, after which there is no poll.
            None => Poll::Pending,
        }
    }
}

impl<F: Future + 'static> Drop for Pooled<F> {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else {
            return;
        };
        // The future ends here, before the pool is borrowed: its drop may run anything.
        slot.as_mut().set(None);
        let mut slot = Some(slot);
        let _ = FUTURES.try_with(|pools| {
            with_kind(pools, |idle: &mut Vec<Slot<F>>| {
                if idle.len() < FUTURES_MAX {
                    idle.extend(slot.take());
                }
            });
        });
        if slot.is_some() {
            count(|c| c.freed += 1);
        }
    }
}

fn with_kind<F: 'static, R>(
    pools: &RefCell<Vec<(TypeId, Box<dyn Any>)>>,
    then: impl FnOnce(&mut Vec<Slot<F>>) -> R,
) -> R {
    let mut pools = pools.borrow_mut();
    let id = TypeId::of::<Slot<F>>();
    let at = pools
        .iter()
        .position(|(kind, _)| *kind == id)
        .unwrap_or_else(|| {
            pools.push((id, Box::new(Vec::<Slot<F>>::new())));
            pools.len() - 1
        });
    match pools[at].1.downcast_mut() {
        Some(idle) => then(idle),
        None => unreachable!("a pool stands under the type it holds"),
    }
}

/// Buffers of a request.
#[derive(Default)]
pub(crate) struct Buffers {
    /// Index of its head.
    pub(crate) index: HeadIndex,
    /// A head that spans several received buffers.
    pub(crate) carry: Vec<u8>,
    /// Responses to be written.
    pub(crate) output: RefCell<Output>,
}

/// Takes a set of empty buffers.
pub(crate) fn take_buffers() -> Box<Buffers> {
    let idle = BUFFERS
        .try_with(|idle| idle.borrow_mut().pop())
        .ok()
        .flatten();
    idle.unwrap_or_else(|| {
        count(|c| c.buffers_allocated += 1);
        let output = Output::new(Vec::with_capacity(OUTPUT_BYTES));
        Box::new(Buffers {
            output: RefCell::new(output),
            ..Buffers::default()
        })
    })
}

/// Returns a set of buffers.
pub(crate) fn put_buffers(mut buffers: Box<Buffers>) {
    let Buffers { carry, output, .. } = &mut *buffers;
    for buffer in [carry, output.get_mut().buffer()] {
        if buffer.capacity() > BUFFER_BYTES_KEPT {
            *buffer = Vec::new();
        }
        buffer.clear();
    }
    let mut buffers = Some(buffers);
    let _ = BUFFERS.try_with(|idle| {
        let mut idle = idle.borrow_mut();
        if idle.len() < BUFFERS_MAX {
            idle.extend(buffers.take());
        }
    });
    if buffers.is_some() {
        count(|c| c.freed += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::task::Waker;

    #[test]
    fn a_box_is_used_again_and_its_future_is_dropped_at_once() {
        async fn job(guard: Rc<()>) -> usize {
            Rc::strong_count(&guard)
        }
        let (guard, before) = (Rc::new(()), counters().futures_allocated);
        let cx = &mut Context::from_waker(Waker::noop());
        for _ in 0..10 {
            let mut pooled = Pooled::new(job(guard.clone()));
            assert_eq!(pooled.poll(cx), Poll::Ready(2));
            drop(pooled);
            assert_eq!(Rc::strong_count(&guard), 1);
        }
        drop(Pooled::new(job(guard.clone()))); // never polled
        assert_eq!(Rc::strong_count(&guard), 1);
        assert_eq!(counters().futures_allocated - before, 1);
    }

    #[test]
    fn futures_may_nest_in_the_pool() {
        let cx = &mut Context::from_waker(Waker::noop());
        let inner = Pooled::new(core::future::ready(3));
        let mut outer = Pooled::new(async move {
            let mut inner = inner;
            core::future::poll_fn(|cx| inner.poll(cx)).await
        });
        assert_eq!(outer.poll(cx), Poll::Ready(3));
    }

    #[test]
    fn buffers_that_grew_too_large_are_not_kept() {
        let mut buffers = take_buffers();
        buffers.carry = vec![1; BUFFER_BYTES_KEPT + 1];
        buffers.output.get_mut().buffer().extend(b"left over");
        put_buffers(buffers);
        let mut buffers = take_buffers();
        let output = buffers.output.get_mut().buffer();
        assert_eq!((buffers.carry.capacity(), output.len()), (0, 0));
    }
}
