//! Tasks of Janus's and tasks of tokio's on one thread: each finds the other's timers, sockets and tasks, and neither
//! keeps the other from its turn.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use janus::net::{TcpListener, TcpStream};
use janus_compat_tests::{PATIENCE, Running, dial, portal, run, told};

/// A bound on what must not take for ever, as a task sees it.
async fn soon<F: Future>(what: F) -> F::Output {
    janus::time::timeout(PATIENCE, what)
        .await
        .expect("not that long")
}

#[test]
fn a_task_of_tokios_runs_on_the_core_that_spawned_it() {
    let main = || async {
        let here = std::thread::current().id();
        let core = janus::core_id();
        for _ in 0..100 {
            let task = tokio::spawn(async { (std::thread::current().id(), janus::core_id()) });
            assert_eq!(soon(task).await.unwrap(), (here, core));
        }
    };
    Running::start(portal(3), main).join();
}

#[test]
fn tasks_await_each_other() {
    run(|| async {
        let ours = janus::spawn(async {
            let theirs = tokio::spawn(async { 2 });
            theirs.await.unwrap() + 1
        });
        // Not `Send`, as is everything in it.
        let shared = Rc::new(Cell::new(0));
        let seen = shared.clone();
        let local = tokio::task::spawn_local(async move {
            let ours = janus::spawn(async move { seen.set(ours.await.unwrap() + 4) });
            ours.await.unwrap();
        });
        soon(local).await.unwrap();
        assert_eq!(shared.get(), 7);
        let blocking = tokio::task::spawn_blocking(|| janus::core_id().is_none());
        assert!(soon(blocking).await.unwrap(), "a thread that is no core");
        let panicked = soon(tokio::spawn(async { panic!("as it should") })).await;
        assert!(panicked.unwrap_err().is_panic());
    });
}

#[test]
fn a_main_may_spawn_before_it_is_a_future() {
    let main = || {
        let task = tokio::spawn(async { 5 });
        async move { assert_eq!(soon(task).await.unwrap(), 5) }
    };
    run(main);
}

#[test]
fn timers_of_both_kinds_in_tasks_of_both_kinds() {
    const SHORT: Duration = Duration::from_millis(20);
    async fn sleeps() {
        let begin = Instant::now();
        tokio::time::sleep(SHORT).await;
        assert!(begin.elapsed() >= SHORT);
        janus::time::sleep(SHORT).await;
        let late = janus::time::timeout(SHORT, tokio::time::sleep(PATIENCE));
        assert!(late.await.is_err());
        let late = tokio::time::timeout(SHORT, janus::time::sleep(PATIENCE));
        assert!(late.await.is_err());
        let mut ticks = tokio::time::interval(SHORT);
        for _ in 0..3 {
            ticks.tick().await;
        }
    }
    run(|| async {
        soon(sleeps()).await;
        soon(tokio::spawn(sleeps())).await.unwrap();
    });
}

/// Far more messages than one poll's budget allows, in both directions, over a channel of one.
#[test]
fn channels_between_tasks_of_both_kinds() {
    const MESSAGES: u64 = 20_000;
    run(|| async {
        let (to_theirs, mut theirs) = tokio::sync::mpsc::channel::<u64>(1);
        let (to_ours, mut ours) = tokio::sync::mpsc::channel::<u64>(1);
        tokio::spawn(async move {
            while let Some(number) = theirs.recv().await {
                to_ours.send(number + 1).await.unwrap();
            }
        });
        let sender = janus::spawn(async move {
            for number in 0..MESSAGES {
                to_theirs.send(number).await.unwrap();
            }
        });
        let all = async {
            for number in 0..MESSAGES {
                assert_eq!(ours.recv().await, Some(number + 1));
            }
            assert_eq!(ours.recv().await, None);
        };
        soon(all).await;
        sender.await.unwrap();
    });
}

/// Calls to tokio beyond one poll's budget wait for the next round, and complete.
#[test]
fn a_task_that_uses_up_its_budget_goes_on() {
    run(|| async {
        let permits = Arc::new(tokio::sync::Semaphore::new(1));
        let taken = async {
            for _ in 0..5_000 {
                drop(permits.acquire().await.unwrap());
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        soon(taken).await;
    });
}

async fn echo(stream: TcpStream) {
    while let Ok(Some(piece)) = stream.recv().await {
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
}

#[test]
fn a_stream_moved_into_a_task_of_tokios_stays_on_its_core() {
    use std::io::{Read, Write};
    for cores in [1, 3] {
        let (tell, address) = told();
        let (core, cores_of_tasks) = told();
        let server = Running::start(portal(cores), move || {
            let (tell, core) = (tell.clone(), core.clone());
            async move {
                let listener = TcpListener::bind("0.0.0.0:0").await?;
                janus::once(|| tell.send(listener.reachable_at()).unwrap());
                loop {
                    let (stream, _) = listener.accept().await?;
                    let (accepted_on, core) = (janus::core_id(), core.clone());
                    tokio::spawn(async move {
                        echo(stream).await;
                        core.send((accepted_on, janus::core_id())).unwrap();
                    });
                }
                #[allow(unreachable_code, reason = "the type of main")]
                Ok::<(), janus::BoxError>(())
            }
        });
        let address = address.next();
        for length in [1, 1000, 100_000] {
            let mut client = dial(address);
            let sent: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            let mut sending = client.try_clone().unwrap();
            let bytes = sent.clone();
            let writer = std::thread::spawn(move || {
                sending.write_all(&bytes).unwrap();
                sending.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let mut got = Vec::new();
            client.read_to_end(&mut got).unwrap();
            writer.join().unwrap();
            assert!(got == sent);
            let (accepted_on, ran_on) = cores_of_tasks.next();
            assert_eq!(accepted_on, ran_on);
        }
        server.stop();
    }
}

/// Tokio's own sockets, over the kernel's loopback, in a task of Janus's.
#[test]
fn tokios_sockets_in_a_task_of_ours() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    run(|| async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = janus::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut reading, mut writing) = stream.split();
            tokio::io::copy(&mut reading, &mut writing).await.unwrap()
        });
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let sent: Vec<u8> = (0..50_000u32).map(|i| i as u8).collect();
        let mut got = vec![0; sent.len()];
        let both = async {
            let (mut reading, mut writing) = stream.split();
            tokio::join!(async { writing.write_all(&sent).await.unwrap() }, async {
                reading.read_exact(&mut got).await.unwrap()
            },);
            writing.shutdown().await.unwrap();
        };
        soon(both).await;
        assert!(got == sent);
        drop(stream);
        assert_eq!(soon(serving).await.unwrap(), 50_000);
        let (a, b) = (udp().await, udp().await);
        a.send_to(b"hello", b.local_addr().unwrap()).await.unwrap();
        let (n, from) = soon(b.recv_from(&mut [0; 16])).await.unwrap();
        assert_eq!((n, from), (5, a.local_addr().unwrap()));
    });
}

async fn udp() -> tokio::net::UdpSocket {
    tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

/// A task of tokio's that is always ready keeps neither packets nor our tasks and timers waiting.
#[test]
fn a_busy_task_of_tokios_starves_nobody() {
    use std::io::{Read, Write};
    let (tell, address) = told();
    let server = Running::start(portal(1), move || {
        let tell = tell.clone();
        async move {
            tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
            // The kind that goes back into the queue at once.
            tokio::spawn(std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                std::task::Poll::<()>::Pending
            }));
            for _ in 0..3 {
                soon(janus::time::sleep(Duration::from_millis(5))).await;
            }
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            tell.send(listener.reachable_at())?;
            loop {
                let (stream, _) = listener.accept().await?;
                janus::spawn(echo(stream));
            }
            #[allow(unreachable_code, reason = "the type of main")]
            Ok::<(), janus::BoxError>(())
        }
    });
    let mut client = dial(address.next());
    for round in 0..50u8 {
        client.write_all(&[round; 10]).unwrap();
        let mut got = [0; 10];
        client.read_exact(&mut got).unwrap();
        assert_eq!(got, [round; 10]);
        // Long enough for the shard to have nothing to do.
        std::thread::sleep(Duration::from_millis(u64::from(round % 5)));
    }
    server.stop();
}

/// A task of ours that is always ready keeps neither tokio's tasks, nor its timers, nor its sockets waiting.
#[test]
fn a_busy_task_of_ours_starves_nobody() {
    use std::io::{Read, Write};
    let kernel = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = kernel.local_addr().unwrap();
    let far = std::thread::spawn(move || {
        let (mut stream, _) = kernel.accept().unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() == 1 {
            stream.write_all(&byte).unwrap();
        }
    });
    run(move || async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (over, turns) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0u64)));
        let (end, count) = (over.clone(), turns.clone());
        let busy = janus::spawn(async move {
            while !end.get() {
                count.set(count.get() + 1);
                janus::yield_now().await;
            }
        });
        soon(tokio::time::sleep(Duration::from_millis(5))).await;
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        for round in 0..50u8 {
            stream.write_all(&[round]).await.unwrap();
            let mut got = [0];
            soon(stream.read_exact(&mut got)).await.unwrap();
            assert_eq!(got, [round]);
            assert_eq!(
                soon(tokio::spawn(async move { round })).await.unwrap(),
                round
            );
        }
        assert!(turns.get() > 0);
        over.set(true);
        busy.await.unwrap();
    });
    far.join().unwrap();
}

/// A thousand timers and channels of tokio's are no reason to look at it without end while only our tasks work; and a
/// wake from another thread is served all the same.
#[test]
fn wakes_from_other_threads_come_while_our_tasks_work() {
    run(|| async {
        let over = Arc::new(AtomicBool::new(false));
        let (end, seen) = (over.clone(), Arc::new(AtomicU64::new(0)));
        let busy = janus::spawn(async move {
            while !end.load(Ordering::Relaxed) {
                janus::yield_now().await;
            }
        });
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let sender = std::thread::spawn(move || {
            for number in 0..500u64 {
                send.send(number).unwrap();
                if number % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let count = seen.clone();
        let receiving = tokio::spawn(async move {
            while receive.recv().await.is_some() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        soon(receiving).await.unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), 500);
        over.store(true, Ordering::Relaxed);
        busy.await.unwrap();
        sender.join().unwrap();
    });
}

#[test]
fn without_the_setting_there_is_no_tokio() {
    let main = || async {
        assert!(tokio::runtime::Handle::try_current().is_err());
        janus::time::sleep(Duration::from_millis(1)).await;
    };
    Running::start(portal(2).tokio(false), main).join();
    let (tell, heard) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let builder = portal(1).tokio(false).on_warning(move |warning| {
        let _ = tell.lock().unwrap().send(warning.to_string());
    });
    let main = || async {
        let wants = janus::spawn(async { tokio::time::sleep(Duration::ZERO).await });
        assert!(wants.await.is_err());
    };
    Running::start(builder, main).join();
    let told = heard.recv().expect("a warning");
    assert!(told.contains("`tokio = false`"), "{told}");
    let main = || async { assert!(tokio::runtime::Handle::try_current().is_ok()) };
    Running::start(portal(2).tokio(true), main).join();
}

/// Counts that it is dropped.
struct Guard(Arc<AtomicU64>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tasks of tokio's end with the runtime, their connections end in order, and a thread of tokio's that does not come back is not waited
/// for.
#[test]
fn at_the_end_tasks_of_tokios_are_dropped() {
    use std::io::Read;
    let (tell, address) = told();
    let dropped = Arc::new(AtomicU64::new(0));
    let counter = dropped.clone();
    let (never, waits) = std::sync::mpsc::channel::<()>();
    let waits = Arc::new(std::sync::Mutex::new(Some(waits)));
    let server = Running::start(portal(1), move || {
        let (tell, counter, waits) = (tell.clone(), counter.clone(), waits.clone());
        async move {
            let blocked = waits.lock().unwrap().take().unwrap();
            tokio::task::spawn_blocking(move || blocked.recv());
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            tell.send(listener.reachable_at())?;
            let (stream, _) = listener.accept().await?;
            let guard = Guard(counter.clone());
            let ours = Guard(counter.clone());
            janus::spawn(async move {
                let _ours = ours;
                std::future::pending::<()>().await;
            });
            tokio::spawn(async move {
                let _guard = guard;
                stream.write_all(b"last words").await.unwrap();
                std::future::pending::<()>().await;
            });
            std::future::pending::<()>().await;
            Ok::<(), janus::BoxError>(())
        }
    });
    let mut client = dial(address.next());
    let mut got = [0; 10];
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"last words");
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    server.stop();
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("an end, not a reset");
    assert!(rest.is_empty());
    drop(never);
}
