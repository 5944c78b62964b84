//! In steady state a core allocates nothing from the heap: not for a connection it accepts, not for the task that
//! serves it, not for a request. Counted by the global allocator, on the server's thread only.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use janus::BackendChoice;
use janus::net::{Handler, TcpListener, TcpStream};
use support::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // Not from a thread that is being taken down.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

// SAFETY: every call is handed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise about `layout` is the system allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `alloc`; `memory` came from the system's allocator.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from the system's allocator with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM: usize = 200;
const COUNTED: usize = 800;
/// Counted so often at most. Where the machine let the server wait, more than ever before may come at once, and a list of its
/// grow for the last time; what a connection or a request allocates shows every time.
const TIMES: usize = 20;
/// Connections that are open at a time.
const ABREAST: usize = 8;
const REQUESTS: usize = 3;

#[test]
fn neither_a_connection_nor_a_request_allocates() {
    for (case, at_rest) in [
        (ONE_COMBINED, false),
        (ONE_SPLIT, false),
        (ONE_COMBINED, true),
    ] {
        let (near, far) = wire_for(case);
        let (results, result) = channel();
        let (ready, listens) = channel();
        let over: &'static AtomicBool = Box::leak(Box::default());
        let builder = case
            .builder()
            .backend(BackendChoice::wire(near))
            .address("192.0.2.1/24".parse().unwrap());
        let server = Running::start(builder.build().unwrap(), move || {
            let (results, ready) = (results.clone(), ready.clone());
            async move {
                let listener = TcpListener::bind("0.0.0.0:80").await?;
                ready.send(())?;
                let handler = at_rest.then(|| Handler::new(echo_once)).transpose()?;
                let accept = async |count| accept(&listener, handler.as_ref(), count).await;
                accept(WARM).await?;
                for _ in 0..TIMES {
                    let before = allocations();
                    accept(COUNTED).await?;
                    let counted = allocations() - before;
                    results.send(counted)?;
                    if counted == 0 {
                        break;
                    }
                }
                over.store(true, Ordering::Relaxed);
                accept(usize::MAX).await?;
                janus::Result::<()>::Ok(())
            }
        });
        listens.recv_timeout(PATIENCE).expect("it listens");
        run_clients(far, ABREAST, move |_| async move {
            while !over.load(Ordering::Relaxed) {
                request().await;
            }
        });
        server.stop().unwrap();
        let counted: Vec<u64> = result.iter().collect();
        assert_eq!(
            counted.last(),
            Some(&0),
            "{case:?}, at rest: {at_rest}: allocations over {COUNTED} connections of {REQUESTS} requests: {counted:?}"
        );
    }
}

/// Serves so many connections, each with a task, or with this handler.
async fn accept(
    listener: &TcpListener,
    handler: Option<&Handler>,
    count: usize,
) -> std::io::Result<()> {
    for _ in 0..count {
        let (stream, _) = listener.accept().await?;
        match handler {
            Some(handler) => handler.rest(stream)?,
            None => drop(janus::spawn(echo(stream))),
        }
    }
    Ok(())
}

async fn request() {
    let stream = TcpStream::connect(SocketAddr::from(([192, 0, 2, 1], 80)))
        .await
        .unwrap();
    for _ in 0..REQUESTS {
        stream.write_all(&[7; 100]).await.unwrap();
        stream.read_exact(&mut [0; 100]).await.unwrap();
    }
    stream.shutdown(Shutdown::Write).await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
}
