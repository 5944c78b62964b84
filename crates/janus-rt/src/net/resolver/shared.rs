//! One search for all who ask for the same at the same time, on whichever core they are. The first of them has a task begin it,
//! everybody waits for what it finds, and with the last who waits it is given up.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use super::Ways;
use super::ask::Wanted;
use crate::task::{JoinHandle, spawn};

/// What is looked for; what differs in any of this is another search.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sought {
    /// In small letters.
    pub(super) name: String,
    pub(super) wanted: Wanted,
    pub(super) ways: Ways,
}

/// The addresses; or what kind of error there was, and its text.
type Found = Result<Vec<IpAddr>, (io::ErrorKind, String)>;

/// The searches of a runtime that are under way. There are no more than tasks that wait for one.
#[derive(Default)]
pub(crate) struct Searches {
    open: Mutex<HashMap<Sought, Weak<Search>>>,
}

/// One of them: belongs to those who wait for it.
struct Search {
    sought: Sought,
    among: Arc<Searches>,
    state: Mutex<State>,
    /// Set by the first as soon as it has begun.
    task: OnceLock<JoinHandle<()>>,
}

enum State {
    /// By a number for each.
    Waiting {
        next: u64,
        wakers: BTreeMap<u64, Waker>,
    },
    Found(Found),
    /// Whoever searched is gone, with its core.
    Left,
}

impl Searches {
    /// What `find` finds, or what somebody else's does who was first. The one who found may have spelled the name otherwise.
    pub(super) async fn join<F>(
        self: &Arc<Searches>,
        sought: Sought,
        find: impl Fn() -> F,
    ) -> io::Result<Vec<IpAddr>>
    where
        F: Future<Output = io::Result<Vec<IpAddr>>> + 'static,
    {
        let (search, first) = self.enter(sought);
        if let Some(finder) = first {
            let found = find();
            let task = spawn(async move { finder.tell(found.await) });
            // Nobody else sets it.
            let _ = search.task.set(task);
        }
        match (Seeker {
            search,
            number: None,
        })
        .await
        {
            Some(found) => found.map_err(|(kind, text)| io::Error::new(kind, text)),
            // Rare, and not to make every future larger that asks.
            None => Box::pin(find()).await,
        }
    }

    /// The search, and the duty to tell if it is new.
    fn enter(self: &Arc<Searches>, sought: Sought) -> (Arc<Search>, Option<Finder>) {
        let mut open = lock(&self.open);
        if let Some(search) = open.get(&sought).and_then(Weak::upgrade) {
            return (search, None);
        }
        let search = Arc::new(Search {
            sought: sought.clone(),
            among: self.clone(),
            state: Mutex::new(State::Waiting {
                next: 0,
                wakers: BTreeMap::new(),
            }),
            task: OnceLock::new(),
        });
        let known = Arc::downgrade(&search);
        open.insert(sought, known.clone());
        (search, Some(Finder { search: known }))
    }
}

impl Search {
    /// Who asks from now on begins anew.
    fn close(&self) {
        let mut open = lock(&self.among.open);
        if open
            .get(&self.sought)
            .is_some_and(|known| std::ptr::eq(known.as_ptr(), self))
        {
            open.remove(&self.sought);
        }
    }

    fn end(&self, state: State) {
        self.close();
        let before = std::mem::replace(&mut *lock(&self.state), state);
        if let State::Waiting { wakers, .. } = before {
            wakers.into_values().for_each(Waker::wake);
        }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.close();
        // Nobody waits any more. One that is over is not affected.
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// The duty to tell what was found. Dropped before, it says that nobody will.
struct Finder {
    search: Weak<Search>,
}

impl Finder {
    fn tell(self, found: io::Result<Vec<IpAddr>>) {
        if let Some(search) = self.search.upgrade() {
            search.end(State::Found(
                found.map_err(|error| (error.kind(), error.to_string())),
            ));
        }
    }
}

impl Drop for Finder {
    fn drop(&mut self) {
        let Some(search) = self.search.upgrade() else {
            return;
        };
        let told = !matches!(&*lock(&search.state), State::Waiting { .. });
        if !told {
            search.end(State::Left);
        }
    }
}

/// Waits for what is found; `None`: nobody will tell.
struct Seeker {
    search: Arc<Search>,
    /// Under which its waker stands.
    number: Option<u64>,
}

impl Future for Seeker {
    type Output = Option<Found>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Found>> {
        let waker = cx.waker().clone();
        let seeker = &mut *self;
        let mut state = lock(&seeker.search.state);
        match &mut *state {
            State::Waiting { next, wakers } => {
                let number = *seeker.number.get_or_insert_with(|| {
                    *next += 1;
                    *next
                });
                let before = wakers.insert(number, waker);
                drop(state);
                drop(before);
                Poll::Pending
            }
            State::Found(found) => Poll::Ready(Some(found.clone())),
            State::Left => Poll::Ready(None),
        }
    }
}

impl Drop for Seeker {
    fn drop(&mut self) {
        let Some(number) = self.number else {
            return;
        };
        let left = match &mut *lock(&self.search.state) {
            State::Waiting { wakers, .. } => wakers.remove(&number),
            State::Found(_) | State::Left => None,
        };
        drop(left);
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in a lock's scope can be left half done.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
