//! Which lookups share a search, and its end when some or all give up, or when its core ends.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::spawn::spawn_on;
use crate::task::{JoinError, yield_now};
use crate::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);
const FOUND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

fn on_cores<F: Future<Output = ()> + 'static>(cores: usize, test: fn() -> F) {
    let runtime = crate::Runtime::builder().ignore_environment().cores(cores);
    let main = move || async move {
        if crate::core_id() == Some(0) {
            timeout(PATIENCE, test())
                .await
                .expect("it comes to its end");
        }
    };
    runtime
        .build()
        .expect("a runtime")
        .run(main)
        .expect("it ends well");
}

fn sought(name: &str) -> Sought {
    Sought {
        name: name.into(),
        wanted: Wanted::All,
        ways: Ways::default(),
    }
}

fn search(searches: &Searches, name: &str) -> Option<Arc<Search>> {
    searches
        .open
        .lock()
        .get(&sought(name))
        .and_then(Weak::upgrade)
}

/// How many wait for it.
fn waiting(searches: &Searches, name: &str) -> usize {
    let search = search(searches, name);
    search.map_or(0, |search| match &*search.state.lock() {
        SearchState::Waiting { wakers, .. } => wakers.len(),
        SearchState::Found(_) | SearchState::Left => 0,
    })
}

async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn whoever_asks_meanwhile_waits_for_the_one_search() {
    on_cores(2, || async {
        let (searches, begun) = (Arc::<Searches>::default(), Arc::<AtomicUsize>::default());
        let ask = || {
            let (searches, begun) = (searches.clone(), begun.clone());
            move |name: &'static str| async move {
                let among = searches.clone();
                let find = || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    let among = among.clone();
                    async move {
                        until(|| waiting(&among, name) == 10).await;
                        match name {
                            "there" => Ok(vec![FOUND]),
                            _ => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody says")),
                        }
                    }
                };
                searches.join(sought(name), find).await
            }
        };
        let all = |name| {
            let tasks = (0..10).map(|n| {
                let ask = ask();
                spawn_on(n % 2, move || ask(name))
            });
            tasks.collect::<Vec<_>>()
        };
        let (there, nowhere) = (all("there"), all("nowhere"));
        for task in there {
            assert_eq!(task.await.unwrap().unwrap(), [FOUND]);
        }
        for task in nowhere {
            let error = task.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(error.to_string(), "nobody says");
        }
        assert_eq!(begun.load(Ordering::Relaxed), 2);
        assert!(searches.open.lock().is_empty());
    });
}

/// A search that ends when `found` says so; the guard tells when it is gone.
fn begin(
    searches: &Arc<Searches>,
    found: &Rc<Cell<bool>>,
    guard: &Rc<()>,
) -> JoinHandle<io::Result<Vec<IpAddr>>> {
    let (searches, found, guard) = (searches.clone(), found.clone(), Rc::downgrade(guard));
    spawn(async move {
        let find = || {
            let (found, guard) = (found.clone(), guard.upgrade());
            async move {
                until(|| found.get()).await;
                drop(guard);
                Ok(vec![FOUND])
            }
        };
        searches.join(sought("it"), find).await
    })
}

#[test]
fn who_began_may_give_up_and_the_last_ends_it() {
    on_cores(1, || async {
        let searches = Arc::<Searches>::default();
        let (found, guard) = (Rc::<Cell<bool>>::default(), Rc::new(()));
        let seekers: Vec<_> = (0..3).map(|_| begin(&searches, &found, &guard)).collect();
        until(|| waiting(&searches, "it") == 3).await;
        let [first, second, third] = seekers.try_into().expect("three");
        first.abort();
        assert!(
            first
                .await
                .is_err_and(|error| JoinError::is_cancelled(&error))
        );
        assert_eq!(waiting(&searches, "it"), 2);
        found.set(true);
        for seeker in [second, third] {
            assert_eq!(seeker.await.unwrap().unwrap(), [FOUND]);
        }
        found.set(false);
        let seekers: Vec<_> = (0..3).map(|_| begin(&searches, &found, &guard)).collect();
        until(|| waiting(&searches, "it") == 3).await;
        assert_eq!(Rc::strong_count(&guard), 2);
        seekers.iter().for_each(JoinHandle::abort);
        // The search's own task has ended too, and what it held.
        until(|| Rc::strong_count(&guard) == 1).await;
        assert!(searches.open.lock().is_empty());
    });
}

#[test]
fn when_its_core_is_gone_everybody_asks_alone() {
    on_cores(1, || async {
        let searches = Arc::<Searches>::default();
        let (found, guard) = (Rc::<Cell<bool>>::default(), Rc::new(()));
        let seekers: Vec<_> = (0..3).map(|_| begin(&searches, &found, &guard)).collect();
        until(|| waiting(&searches, "it") == 3).await;
        let it = search(&searches, "it").expect("under way");
        it.task.get().expect("begun").abort();
        drop(it);
        until(|| Rc::strong_count(&guard) == 4).await;
        assert!(searches.open.lock().is_empty());
        // A lookup from here on begins a new search.
        let fourth = begin(&searches, &found, &guard);
        yield_now().await;
        until(|| waiting(&searches, "it") == 1).await;
        found.set(true);
        for seeker in seekers.into_iter().chain([fourth]) {
            assert_eq!(seeker.await.unwrap().unwrap(), [FOUND]);
        }
    });
}
