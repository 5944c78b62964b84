//! An address that is given back, one that is remembered, one that another host takes, and a core that was grown anew since.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use janus_io::{Backend, Batch, Caps, Queue};
use janus_mem::Pool;

in_every_layout!(an_address_is_given_back_at_the_end);

fn an_address_is_given_back_at_the_end(case: Case) {
    let (ours, servers, _clients) = ports(case);
    let server = Server::start(servers, FIRST);
    let wish = server.wish();
    let runtime = asking(case, ours).build().unwrap();
    let (running, _, _) = serve_on(runtime, 80, echo);
    assert_eq!(wish.releases(), 0);
    running.stop().unwrap();
    until("the address is given back", || wish.releases() > 0);
    server.stop();
    assert_eq!(wish.releases(), 1);
}

/// Of two lives with a file between them the second asks for the address of the first, and nobody is asked who has one.
#[test]
fn an_address_is_remembered_by_the_next_start() {
    let file = std::env::temp_dir().join(format!("janus-dhcp-{}", std::process::id()));
    for life in 0..2 {
        let (ours, servers, _clients) = ports(ONE_COMBINED);
        let server = Server::start(servers, FIRST);
        let wish = server.wish();
        let runtime = asking(ONE_COMBINED, ours).dhcp_file(&file).build().unwrap();
        assert_eq!(address_of(&runtime.handle()), Some(FIRST));
        let (running, _, _) = serve_on(runtime, 80, echo);
        running.stop().unwrap();
        let counts = server.stop();
        assert_eq!((counts.discovers, counts.reboots), [(1, 0), (0, 1)][life]);
        assert_eq!(wish.releases(), 0, "it is asked for again");
    }
    // A server that knows nothing of it says no, and gives another.
    let (ours, servers, _clients) = ports(ONE_COMBINED);
    let server = Server::start(servers, SECOND);
    let runtime = asking(ONE_COMBINED, ours).dhcp_file(&file).build().unwrap();
    assert_eq!(address_of(&runtime.handle()), Some(SECOND));
    drop(runtime);
    let counts = server.stop();
    assert_eq!((counts.discovers, counts.reboots), (1, 1));
    std::fs::remove_file(&file).unwrap();
}

/// What another host insists on is given up, and the server told.
#[test]
fn an_address_that_another_host_takes_is_given_up() {
    let (ours, servers, _clients) = ports(ONE_COMBINED);
    let server = Server::start(servers, FIRST);
    let runtime = asking(ONE_COMBINED, ours).build().unwrap();
    let handle = runtime.handle();
    let wish = server.wish();
    let (running, _, _) = serve_on(runtime, 80, echo);
    wish.claim(FIRST);
    until("it is given up", || handle.lease().is_none());
    until("the server is told", || wish.declines() > 0);
    running.stop().unwrap();
    assert_eq!(wish.releases(), 0, "there is nothing to give back");
    server.stop();
}

/// A device that panics once when it is told to.
struct Fragile(Port, Arc<AtomicBool>);

struct FragileQueue(Box<dyn Queue>, Arc<AtomicBool>);

impl Backend for Fragile {
    fn open(self: Box<Self>, queues: usize) -> std::io::Result<Vec<Box<dyn Queue>>> {
        let Fragile(inner, breaks) = *self;
        let opened = Box::new(inner).open(queues)?.into_iter();
        let wrap = |inner| -> Box<dyn Queue> { Box::new(FragileQueue(inner, breaks.clone())) };
        Ok(opened.map(wrap).collect())
    }
}

impl Queue for FragileQueue {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        self.0.rx_burst(pool, out);
        let told = self.1.swap(false, Ordering::AcqRel);
        assert!(!told, "the device of the test breaks");
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.0.tx_burst(pool, frames, done);
    }

    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.0.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }
}

/// A core that was grown anew after the address had changed knows the present one: it answers for it, as by a reset.
#[test]
fn a_core_grown_anew_has_the_address_of_now() {
    let (ours, servers, clients) = ports(ONE_COMBINED);
    let server = Server::start(servers, FIRST);
    let breaks = Arc::new(AtomicBool::new(false));
    let runtime = ONE_COMBINED
        .builder()
        .backend(BackendChoice::Custom(Box::new(Fragile(
            ours,
            breaks.clone(),
        ))))
        .address("dhcp")
        .build()
        .unwrap();
    let handle = runtime.handle();
    let (running, _, _) = serve_on(runtime, 80, echo);
    server.wish().refuse_then_give(SECOND);
    let client = ONE_COMBINED
        .builder()
        .backend(BackendChoice::Custom(Box::new(clients)))
        .address("192.0.2.2/24")
        .build()
        .unwrap();
    let (talk, heard) = std::sync::mpsc::channel();
    let client = Running::start(client, move || {
        let (talk, handle, breaks) = (talk.clone(), handle.clone(), breaks.clone());
        async move {
            until_async(|| address_of(&handle) == Some(SECOND)).await;
            let old = connected(SECOND).await?;
            said_and_heard(&old).await?;
            breaks.store(true, Ordering::Release);
            // Its connection is reset by the new stack, which must know that the address is its own.
            let said = said_and_heard(&old).await;
            let _ = talk.send(said.map_err(|error| error.kind()));
            std::future::pending::<janus::Result>().await
        }
    });
    let said = heard
        .recv_timeout(PATIENCE)
        .expect("an answer of the core's");
    assert_eq!(said, Err(std::io::ErrorKind::ConnectionReset));
    client.stop().unwrap();
    assert!(running.stop().is_err(), "its panic is told");
    server.stop();
}
