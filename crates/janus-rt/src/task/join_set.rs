//! Many tasks awaited together, in the order in which they end. Each has a waker of its own that enters its number in a list, so that a
//! poll's work grows with the number of ends, not of tasks.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::join::{AbortHandle, JoinError, JoinHandle};
use super::spawn;
use crate::lock::Lock;

/// A set of tasks that are awaited together. Dropping it aborts them all.
///
/// ```
/// use janus::JoinSet;
///
/// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
/// let mut tasks = JoinSet::new();
/// for number in 1..=3 {
///     tasks.spawn(async move { number });
/// }
/// let mut sum = 0;
/// while let Some(number) = tasks.join_next().await {
///     sum += number?;
/// }
/// assert_eq!(sum, 6);
/// # Ok::<(), janus::BoxError>(())
/// # })?;
/// # Ok::<(), janus::BoxError>(())
/// ```
pub struct JoinSet<T> {
    members: Vec<Member<T>>,
    /// Indices of `members` without a task.
    free: Vec<u32>,
    woken: Arc<Woken>,
    len: usize,
}

struct Member<T> {
    handle: Option<JoinHandle<T>>,
    entry: Arc<Entry>,
    /// Waker of `entry`.
    waker: Waker,
}

/// Members whose tasks were woken.
#[derive(Default)]
struct Woken {
    state: Lock<WokenState>,
}

#[derive(Default)]
struct WokenState {
    /// Indices of members, each at most once.
    numbers: VecDeque<u32>,
    waiter: Option<Waker>,
}

/// Waker of a member's task.
struct Entry {
    number: u32,
    /// Whether its number is in the list.
    listed: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for Entry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.woken.state.lock();
        state.numbers.push_back(self.number);
        let waiter = state.waiter.take();
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl<T> JoinSet<T> {
    /// Makes an empty set.
    pub fn new() -> JoinSet<T> {
        JoinSet {
            members: Vec::new(),
            free: Vec::new(),
            woken: Arc::default(),
            len: 0,
        }
    }

    /// Returns the number of tasks in the set, those included that have ended and were not joined.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Aborts every task at its next await. They stay in the set until they are joined.
    pub fn abort_all(&self) {
        self.handles().for_each(JoinHandle::abort);
    }

    /// Lets all tasks go on alone; the set is empty afterwards.
    pub fn detach_all(&mut self) {
        self.members.clear();
        self.free.clear();
        // Remaining wakers enter themselves in the old list, which has no reader.
        self.woken = Arc::default();
        self.len = 0;
    }

    fn handles(&self) -> impl Iterator<Item = &JoinHandle<T>> {
        self.members
            .iter()
            .filter_map(|member| member.handle.as_ref())
    }
}

impl<T: 'static> JoinSet<T> {
    /// Spawns a task on this core, as [`spawn`] does.
    pub fn spawn<F: Future<Output = T> + 'static>(&mut self, future: F) -> AbortHandle {
        self.insert(spawn(future))
    }

    /// Adds a task to the set.
    pub(crate) fn insert(&mut self, handle: JoinHandle<T>) -> AbortHandle {
        let abort = handle.abort_handle();
        let number = self.free.pop().unwrap_or_else(|| self.new_place());
        let member = &mut self.members[number as usize];
        member.handle = Some(handle);
        self.len += 1;
        // The task may have ended already: it is polled once, and wakes from then on.
        member.entry.wake_by_ref();
        abort
    }

    fn new_place(&mut self) -> u32 {
        let number = self.members.len() as u32;
        let entry = Arc::new(Entry {
            number,
            listed: AtomicBool::new(false),
            woken: self.woken.clone(),
        });
        self.members.push(Member {
            handle: None,
            waker: Waker::from(entry.clone()),
            entry,
        });
        number
    }

    /// Waits for the next task that ends, or has ended; `None` when the set is empty.
    ///
    /// # Errors
    /// The inner result is an error when the task panicked, was aborted or never begun.
    ///
    /// # Cancel safety
    /// No result is lost when the future is dropped.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// Returns the result of a task that has ended, if there is one.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        let mut looks = self.woken.state.lock().numbers.len();
        while looks > 0 {
            if let Some(end) = self.look() {
                return Some(end);
            }
            looks -= 1;
        }
        None
    }

    /// Polls for the next result, as [`join_next`](JoinSet::join_next) does.
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.len == 0 {
            return Poll::Ready(None);
        }
        if let Some(end) = self.try_join_next() {
            return Poll::Ready(Some(end));
        }
        let mut state = self.woken.state.lock();
        let before = state.waiter.replace(cx.waker().clone());
        let more = !state.numbers.is_empty();
        drop(state);
        drop(before);
        if more {
            // Woken meanwhile, or out of budget: to be polled again soon.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Polls one member of the list.
    fn look(&mut self) -> Option<Result<T, JoinError>> {
        let number = self.woken.state.lock().numbers.pop_front()?;
        let member = &mut self.members[number as usize];
        // Cleared before the poll, so that a later wake is entered again.
        member.entry.listed.store(false, Ordering::Release);
        let handle = member.handle.as_mut()?;
        let mut cx = Context::from_waker(&member.waker);
        let Poll::Ready(end) = Pin::new(handle).poll(&mut cx) else {
            return None;
        };
        member.handle = None;
        self.free.push(number);
        self.len -= 1;
        Some(end)
    }

    /// Waits for all tasks and returns their outputs, in the order in which they ended.
    ///
    /// # Panics
    /// With the panic of the first task that panicked, or when one was cancelled; the others are aborted then.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut outputs = Vec::with_capacity(self.len);
        while let Some(end) = self.join_next().await {
            match end.map_err(JoinError::try_into_panic) {
                Ok(output) => outputs.push(output),
                Err(Ok(payload)) => std::panic::resume_unwind(payload),
                Err(Err(error)) => panic!("{error}"),
            }
        }
        outputs
    }

    /// Aborts all tasks and waits until they have ended.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> JoinSet<T> {
        JoinSet::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinSet({} tasks)", self.len)
    }
}
