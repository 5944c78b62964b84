//! A stream polled through a combinator: the waker is not the task's own word, so it is stored beside the stack, woken
//! once, and forgotten with the stream.

use std::future::Future;
use std::io::{Read, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::support::*;
use janus::BackendChoice;
use janus::net::TcpStream;

in_every_layout!(wakes_through_a_combinator);

static WOKEN: AtomicUsize = AtomicUsize::new(0);

/// What `select` and its kind put between a task and its futures.
struct Between(Waker);

impl Wake for Between {
    fn wake(self: Arc<Self>) {
        WOKEN.fetch_add(1, Ordering::Relaxed);
        self.0.wake_by_ref();
    }
}

struct Combined<F>(F);

impl<F: Future + Unpin> Future for Combined<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let waker = Waker::from(Arc::new(Between(cx.waker().clone())));
        pin!(&mut self.0).poll(&mut Context::from_waker(&waker))
    }
}

async fn echo_combined(stream: TcpStream) {
    while let Ok(Some(piece)) = Combined(stream.recv()).await {
        let mut left = &piece[..];
        while let Ok(n @ 1..) = Combined(stream.write(left)).await {
            left = &left[n..];
            if left.is_empty() {
                break;
            }
        }
    }
}

fn wakes_through_a_combinator(case: Case) {
    let (server, address, _) = serve(
        case.builder().backend(BackendChoice::Portal),
        0,
        echo_combined,
    );
    let mut client = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let before = WOKEN.load(Ordering::Relaxed);
    for round in 0..20 {
        let sent = pattern(2000, round);
        client.write_all(&sent).unwrap();
        let mut got = vec![0; sent.len()];
        client.read_exact(&mut got).unwrap();
        assert!(got == sent);
        // Time for the server to find nothing more, and wait.
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(
        WOKEN.load(Ordering::Relaxed) > before,
        "the combinator's waker was used"
    );
    server.stop().unwrap();
}
