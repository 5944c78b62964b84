//! One search for all simultaneous lookups of a name, on whichever cores they are. The first of them spawns a task for it, all wait for
//! its result, and it is aborted when the last of them stops waiting.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};

use super::Ways;
use super::ask::Wanted;
use crate::lock::Lock;
use crate::task::{JoinHandle, spawn};

/// Key of a search: lookups that differ in any of this do not share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sought {
    /// In lower case.
    pub(super) name: String,
    pub(super) wanted: Wanted,
    pub(super) ways: Ways,
}

/// Addresses, or the kind and text of an error.
type Found = Result<Vec<IpAddr>, (io::ErrorKind, String)>;

/// Searches of a runtime that are under way, at most as many as tasks that wait for one.
#[derive(Default)]
pub(crate) struct Searches {
    open: Lock<HashMap<Sought, Weak<Search>>>,
}

/// A search, owned by those who wait for it.
struct Search {
    sought: Sought,
    among: Arc<Searches>,
    state: Lock<SearchState>,
    /// Set by the first lookup as soon as the task is spawned.
    task: OnceLock<JoinHandle<()>>,
}

enum SearchState {
    /// Wakers by number.
    Waiting {
        next: u64,
        wakers: BTreeMap<u64, Waker>,
    },
    Found(Found),
    /// The searching task is gone, with its core.
    Left,
}

impl Searches {
    /// Returns the result of `find`, or of another lookup's search if one is under way. The other may have spelled the name in another
    /// case.
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
            // No other lookup sets it.
            let _ = search.task.set(task);
        }
        match (Seeker {
            search,
            number: None,
        })
        .await
        {
            Some(found) => found.map_err(|(kind, text)| io::Error::new(kind, text)),
            // Rare, and boxed so that not every lookup's future is larger.
            None => Box::pin(find()).await,
        }
    }

    /// Returns the search, and the duty to report its result if it is new.
    fn enter(self: &Arc<Searches>, sought: Sought) -> (Arc<Search>, Option<Finder>) {
        let mut open = self.open.lock();
        if let Some(search) = open.get(&sought).and_then(Weak::upgrade) {
            return (search, None);
        }
        let search = Arc::new(Search {
            sought: sought.clone(),
            among: self.clone(),
            state: Lock::new(SearchState::Waiting {
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
    /// Closes the search: later lookups begin a new one.
    fn close(&self) {
        let mut open = self.among.open.lock();
        if open
            .get(&self.sought)
            .is_some_and(|known| std::ptr::eq(known.as_ptr(), self))
        {
            open.remove(&self.sought);
        }
    }

    fn end(&self, state: SearchState) {
        self.close();
        let before = std::mem::replace(&mut *self.state.lock(), state);
        if let SearchState::Waiting { wakers, .. } = before {
            wakers.into_values().for_each(Waker::wake);
        }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.close();
        // No lookup waits any more. A task that has ended is not affected.
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// Duty to report the result of a search. Dropped before, it reports that there will be none.
struct Finder {
    search: Weak<Search>,
}

impl Finder {
    fn tell(self, found: io::Result<Vec<IpAddr>>) {
        if let Some(search) = self.search.upgrade() {
            search.end(SearchState::Found(
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
        let told = !matches!(&*search.state.lock(), SearchState::Waiting { .. });
        if !told {
            search.end(SearchState::Left);
        }
    }
}

/// Waits for the result; `None`: there will be none.
struct Seeker {
    search: Arc<Search>,
    /// Number of its waker.
    number: Option<u64>,
}

impl Future for Seeker {
    type Output = Option<Found>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Found>> {
        let waker = cx.waker().clone();
        let seeker = &mut *self;
        let mut state = seeker.search.state.lock();
        match &mut *state {
            SearchState::Waiting { next, wakers } => {
                let number = *seeker.number.get_or_insert_with(|| {
                    *next += 1;
                    *next
                });
                let before = wakers.insert(number, waker);
                drop(state);
                drop(before);
                Poll::Pending
            }
            SearchState::Found(found) => Poll::Ready(Some(found.clone())),
            SearchState::Left => Poll::Ready(None),
        }
    }
}

impl Drop for Seeker {
    fn drop(&mut self) {
        let Some(number) = self.number else {
            return;
        };
        let left = match &mut *self.search.state.lock() {
            SearchState::Waiting { wakers, .. } => wakers.remove(&number),
            SearchState::Found(_) | SearchState::Left => None,
        };
        drop(left);
    }
}
