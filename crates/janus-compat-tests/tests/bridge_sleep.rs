//! A core sleeps when neither side has anything to do, and wakes for either: every way in, alone, so that nothing else
//! could have woken it, long asleep and just about to be. Alone in its file, because it looks at the whole process.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use janus::net::TcpListener;
use janus_compat_tests::{PATIENCE, Running, dial, portal, told};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Rounds with a pause before each.
const ROUNDS: u64 = if cfg!(debug_assertions) {
    1_500
} else {
    10_000
};

/// One test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Pauses around the time after which a core falls asleep, and now and then one in which it surely has.
fn pause(round: u64) {
    let random = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let pause = match round % 50 {
        0 => Duration::from_millis(20),
        _ => Duration::from_nanos(random % 150_000),
    };
    let begin = Instant::now();
    if pause >= Duration::from_millis(1) {
        std::thread::sleep(pause);
    }
    while begin.elapsed() < pause {
        std::hint::spin_loop();
    }
}

/// One byte there and back, again and again.
fn ping(stream: &mut std::net::TcpStream) {
    stream.set_nodelay(true).unwrap();
    for round in 0..ROUNDS {
        pause(round);
        stream.write_all(&[round as u8]).unwrap();
        let mut got = [0];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, [round as u8]);
    }
}

/// A way from a thread that is no core to a task, by the task's own waker.
#[derive(Default)]
struct Mail {
    inner: Mutex<(Option<u64>, Option<Waker>)>,
}

impl Mail {
    fn put(&self, number: u64) {
        let mut inner = self.inner.lock().unwrap();
        inner.0 = Some(number);
        let waker = inner.1.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn take(&self) -> u64 {
        poll_fn(|cx| {
            let mut inner = self.inner.lock().unwrap();
            match inner.0.take() {
                Some(number) => Poll::Ready(number),
                None => {
                    inner.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[test]
fn a_task_of_ours_is_woken_from_another_thread() {
    let _alone = alone();
    let mail = Arc::new(Mail::default());
    let (tell, told) = told();
    let letters = mail.clone();
    let running = Running::start(portal(1), move || {
        let (mail, tell) = (letters.clone(), tell.clone());
        async move {
            for _ in 0..ROUNDS {
                tell.send(mail.take().await).unwrap();
            }
        }
    });
    for round in 0..ROUNDS {
        pause(round);
        mail.put(round);
        assert_eq!(told.next(), round);
    }
    running.join();
}

#[test]
fn a_task_of_tokios_is_woken_from_another_thread() {
    let _alone = alone();
    let (send, receive) = tokio::sync::mpsc::unbounded_channel();
    let receive = Arc::new(Mutex::new(Some(receive)));
    let (tell, told) = told();
    let running = Running::start(portal(1), move || {
        let (receive, tell) = (receive.clone(), tell.clone());
        async move {
            let mut receive = receive.lock().unwrap().take().unwrap();
            let receiving = tokio::spawn(async move {
                while let Some(number) = receive.recv().await {
                    tell.send(number).unwrap();
                }
            });
            receiving.await.unwrap();
        }
    });
    for round in 0..ROUNDS {
        pause(round);
        send.send(round).unwrap();
        assert_eq!(told.next(), round);
    }
    drop(send);
    running.join();
}

#[test]
fn the_kernels_sockets_wake_it() {
    let _alone = alone();
    for in_a_task_of_tokios in [false, true] {
        let (tell, address) = told();
        let running = Running::start(portal(1), move || {
            let tell = tell.clone();
            let serve = async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut byte = [0];
                while stream.read(&mut byte).await.unwrap() == 1 {
                    stream.write_all(&byte).await.unwrap();
                }
            };
            async move {
                if in_a_task_of_tokios {
                    tokio::spawn(serve).await.unwrap();
                } else {
                    serve.await;
                }
            }
        });
        let mut stream = dial(address.next());
        ping(&mut stream);
        drop(stream);
        running.join();
    }
}

#[test]
fn packets_wake_it() {
    let _alone = alone();
    for in_a_task_of_tokios in [false, true] {
        let (tell, address) = told();
        let running = Running::start(portal(1), move || {
            let tell = tell.clone();
            async move {
                let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
                tell.send(listener.reachable_at()).unwrap();
                let (stream, _) = listener.accept().await.unwrap();
                let serve = async move {
                    while let Some(piece) = stream.recv().await.unwrap() {
                        stream.write_all(&piece).await.unwrap();
                    }
                };
                if in_a_task_of_tokios {
                    tokio::spawn(serve).await.unwrap();
                } else {
                    serve.await;
                }
            }
        });
        let mut stream = dial(address.next());
        ping(&mut stream);
        drop(stream);
        running.join();
    }
}

/// A task of tokio's keeps it busy for a while, in which the shard comes to rest, and then writes.
#[test]
fn what_is_written_while_it_goes_to_rest_is_sent() {
    let _alone = alone();
    let (tell, address) = told();
    let running = Running::start(portal(1), move || {
        let tell = tell.clone();
        async move {
            let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
            tell.send(listener.reachable_at()).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let serve = async move {
                let mut round = 0u64;
                while let Some(piece) = stream.recv().await.unwrap() {
                    round += 1;
                    for _ in 0..round * 977 % 4_000 {
                        at_once_again().await;
                    }
                    stream.write_all(&piece).await.unwrap();
                }
            };
            tokio::spawn(serve).await.unwrap();
        }
    });
    let mut stream = dial(address.next());
    ping(&mut stream);
    drop(stream);
    running.join();
}

/// Goes back to the end of the queue, and no further.
async fn at_once_again() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Each timer is the only one there is when the core falls asleep.
#[test]
fn timers_of_both_kinds_wake_it() {
    let _alone = alone();
    let main = || async {
        for round in 0..60u64 {
            let time = Duration::from_micros(100 + round * 371);
            match round % 4 {
                0 => janus::time::sleep(time).await,
                1 => tokio::time::sleep(time).await,
                2 => tokio::spawn(janus::time::sleep(time)).await.unwrap(),
                _ => tokio::spawn(tokio::time::sleep(time)).await.unwrap(),
            }
        }
    };
    Running::start(portal(1), main).join();
}

#[test]
fn its_end_wakes_it() {
    let _alone = alone();
    for round in 0..20 {
        let (tell, told) = told();
        let running = Running::start(portal(2), move || {
            let tell = tell.clone();
            async move {
                tokio::spawn(std::future::pending::<()>());
                tell.send(()).unwrap();
                std::future::pending::<()>().await;
            }
        });
        told.next();
        told.next();
        pause(round * 10);
        running.stop();
    }
}

#[test]
fn idle_it_uses_no_processor() {
    let _alone = alone();
    let (tell, addresses) = told();
    let running = Running::start(portal(2), move || {
        let tell = tell.clone();
        async move {
            // Everything that may be open and waited for.
            let kernel = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(kernel.local_addr().unwrap()).unwrap();
            tokio::spawn(async move {
                let (mut stream, _) = kernel.accept().await.unwrap();
                // More than ever comes.
                let _ = stream.read_exact(&mut [0; 8]).await;
            });
            tokio::spawn(tokio::time::sleep(Duration::from_secs(3600)));
            janus::spawn(janus::time::sleep(Duration::from_secs(3600)));
            let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
            tell.send(listener.reachable_at()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move { while let Ok(Some(_)) = stream.recv().await {} });
            }
            #[allow(unreachable_code, reason = "the type of main")]
            ()
        }
    });
    let open: Vec<_> = (0..4).map(|_| dial(addresses.next())).collect();
    for mut stream in &open {
        stream.write_all(b"word").unwrap();
    }
    let (start, mut shares) = (Instant::now(), Vec::new());
    // Coming to rest takes a busy machine longer; one that never does is not idle.
    while shares.last().is_none_or(|share| *share >= 0.02) {
        assert!(
            start.elapsed() < PATIENCE / 4,
            "parts of a processor while idle: {shares:?}"
        );
        let (begin, before) = (Instant::now(), processor_time());
        std::thread::sleep(Duration::from_millis(900));
        let used = processor_time() - before;
        shares.push(used.as_secs_f64() / begin.elapsed().as_secs_f64());
    }
    running.stop();
}

/// Processor time of all threads so far.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let nanos = tasks.map(|task| {
        let stat = task.unwrap().path().join("schedstat");
        let text = std::fs::read_to_string(stat).unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|first| first.parse::<u64>().ok())
            .unwrap_or(0)
    });
    Duration::from_nanos(nanos.sum())
}
