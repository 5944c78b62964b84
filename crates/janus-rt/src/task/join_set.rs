//! Many tasks awaited together, in the order in which they end. Each has a waker of its own that enters its number in a
//! list, so that a look takes as long as there are ends, not tasks.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::join::{AbortHandle, JoinError, JoinHandle};
use super::{spawn, spawn_blocking, spawn_on};

/// Tasks that are awaited together. Dropping the set ends them all.
pub struct JoinSet<T> {
    members: Vec<Member<T>>,
    /// Places in `members` without a task.
    free: Vec<u32>,
    woken: Arc<Woken>,
    len: usize,
}

struct Member<T> {
    handle: Option<JoinHandle<T>>,
    entry: Arc<Entry>,
    /// Of `entry`.
    waker: Waker,
}

/// Whose end is to be looked at.
#[derive(Default)]
struct Woken {
    state: Mutex<WokenState>,
}

#[derive(Default)]
struct WokenState {
    /// Each place at most once.
    numbers: VecDeque<u32>,
    waiter: Option<Waker>,
}

/// What a member's task wakes.
struct Entry {
    number: u32,
    /// Its number is in the list.
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
        let mut state = self.woken.lock();
        state.numbers.push_back(self.number);
        let waiter = state.waiter.take();
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, WokenState> {
        // Nothing in a lock's scope can be left half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> JoinSet<T> {
    /// A set without tasks.
    pub fn new() -> JoinSet<T> {
        JoinSet {
            members: Vec::new(),
            free: Vec::new(),
            woken: Arc::default(),
            len: 0,
        }
    }

    /// Tasks in the set, those included that have ended and were not joined.
    pub fn len(&self) -> usize {
        self.len
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Ends every task at its next await. They stay in the set until they are joined.
    pub fn abort_all(&self) {
        self.handles().for_each(JoinHandle::abort);
    }

    /// Lets all tasks go on alone; the set is empty then.
    pub fn detach_all(&mut self) {
        self.members.clear();
        self.free.clear();
        // Wakers that live on enter themselves in a list that nobody reads.
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
    /// Begins a task on this core, as [`spawn`] does.
    pub fn spawn<F: Future<Output = T> + 'static>(&mut self, future: F) -> AbortHandle {
        self.insert(spawn(future))
    }

    /// Begins a task on a core of this runtime, as [`spawn_on`] does.
    pub fn spawn_on<M, F>(&mut self, core: usize, make: M) -> AbortHandle
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send,
    {
        self.insert(spawn_on(core, make))
    }

    /// Runs a call that may block, as [`spawn_blocking`] does.
    pub fn spawn_blocking<F>(&mut self, call: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.insert(spawn_blocking(call))
    }

    /// Waits for this one too.
    fn insert(&mut self, handle: JoinHandle<T>) -> AbortHandle {
        let abort = handle.abort_handle();
        let number = self.free.pop().unwrap_or_else(|| self.new_place());
        let member = &mut self.members[number as usize];
        member.handle = Some(handle);
        self.len += 1;
        // It is not known whether it has ended already: it is looked at once, and from then on it wakes.
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

    /// The next task that ends, or has ended; `None` when there are no tasks. May be dropped while it waits: no end is
    /// lost.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// A task that has ended, if there is one.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        let mut looks = self.woken.lock().numbers.len();
        while looks > 0 {
            if let Some(end) = self.look() {
                return Some(end);
            }
            looks -= 1;
        }
        None
    }

    /// [`join_next`](JoinSet::join_next) for futures written by hand.
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.len == 0 {
            return Poll::Ready(None);
        }
        if let Some(end) = self.try_join_next() {
            return Poll::Ready(Some(end));
        }
        let mut state = self.woken.lock();
        let before = state.waiter.replace(cx.waker().clone());
        let more = !state.numbers.is_empty();
        drop(state);
        drop(before);
        if more {
            // Woken meanwhile, or out of budget: not now, but soon.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Looks at one member of the list.
    fn look(&mut self) -> Option<Result<T, JoinError>> {
        let number = self.woken.lock().numbers.pop_front()?;
        let member = &mut self.members[number as usize];
        // Before the look, so that what comes after it is entered again.
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

    /// Waits for all tasks and gives what they gave, in the order in which they ended.
    ///
    /// # Panics
    /// With the panic of the first task that panicked, or when one was cancelled; the others are ended then.
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

    /// Ends all tasks and waits until they have.
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
