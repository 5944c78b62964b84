//! In steady state a request allocates nothing: not when its head is whole in one received buffer, not when it spans
//! two, not with a body, not when requests are pipelined. Counted by the global allocator on this test's thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use janus_http::{Request, Responder, Transport, serve};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is handed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise about `layout` is the system allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from the system's allocator with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Pieces to be received, and how many bytes were answered.
#[derive(Default)]
struct Ends {
    incoming: RefCell<VecDeque<&'static [u8]>>,
    answered: Cell<usize>,
}

struct Memory(Rc<Ends>);

impl Transport for Memory {
    type Piece = &'static [u8];
    type Sleep = std::future::Pending<()>;

    fn poll_recv(&self, _: &mut Context<'_>) -> Poll<io::Result<Option<&'static [u8]>>> {
        match self.0.incoming.borrow_mut().pop_front() {
            Some(piece) => Poll::Ready(Ok(Some(piece))),
            None => Poll::Pending,
        }
    }

    fn poll_write(&self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.answered.set(self.0.answered.get() + bytes.len());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn sleep(&self, _: Duration) -> Self::Sleep {
        std::future::pending()
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    // As Janus's own streams do.
    fn wake_reader(&self, _: Option<Duration>) -> bool {
        true
    }
}

async fn handler(
    mut request: Request<'_, Memory>,
    response: Responder<'_, Memory>,
) -> janus_http::Result<janus_http::Sent> {
    let mut sum = 0u8;
    while let Some(bytes) = request.body().next().await? {
        sum = bytes.iter().fold(sum, |sum, byte| sum.wrapping_add(*byte));
    }
    response
        .ok()
        .header("content-type", "application/octet-stream")
        .send([sum])
        .await
}

const GET: &[u8] = b"GET /plain HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";

#[test]
fn requests_in_steady_state_allocate_nothing() {
    let turns: [&[&[u8]]; 4] = [
        &[GET],
        &[GET, GET, POST],
        &[GET.split_at(20).0, GET.split_at(20).1],
        &[POST.split_at(75).0, POST.split_at(75).1],
    ];
    let ends: Vec<Rc<Ends>> = (0..8).map(|_| Rc::default()).collect();
    let mut connections: Vec<_> = ends
        .iter()
        .map(|ends| Box::pin(serve(Memory(ends.clone()), handler)))
        .collect();
    let cx = &mut Context::from_waker(Waker::noop());
    let mut round = || {
        for turn in turns {
            // All connections are in the middle of their turn at once where it has more than one piece.
            for piece in turn {
                for (ends, connection) in ends.iter().zip(&mut connections) {
                    ends.incoming.borrow_mut().push_back(piece);
                    assert!(connection.as_mut().poll(cx).is_pending());
                }
            }
        }
    };
    round();
    let (before, answered) = (ALLOCATIONS.get(), ends[0].answered.get());
    for _ in 0..100 {
        round();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert_eq!(
        ends[0].answered.get(),
        101 * answered,
        "six answers in each round"
    );
    let waiting = pin!(serve(Memory(Rc::default()), handler));
    assert!(size_of_val(&*waiting) <= 40);
}
