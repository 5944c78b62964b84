//! An address that is given back, one that is remembered, one that another host takes, and a core that falls after a change.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::support::fragile::{Fragile, NONE};

in_every_layout!(an_address_is_given_back_at_the_end);

fn an_address_is_given_back_at_the_end(case: Case) {
    let [ours, servers, _clients] = ports(case);
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
        let [ours, servers, _clients] = ports(ONE_COMBINED);
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
    let [ours, servers, _clients] = ports(ONE_COMBINED);
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
    let [ours, servers, _clients] = ports(ONE_COMBINED);
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

/// Connections, so many that each core has some.
const CONNECTIONS: usize = 40;

/// Connects, has queue `falls` break, and counts the connections that are reset: those of its core. The others go on.
async fn resets(breaks: &AtomicUsize, falls: usize) -> std::io::Result<usize> {
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = connected(SECOND).await?;
        said_and_heard(&stream).await?;
        streams.push(stream);
    }
    breaks.store(falls, Ordering::Release);
    let begin = Instant::now();
    while breaks.load(Ordering::Acquire) != NONE {
        assert!(begin.elapsed() < PATIENCE, "queue {falls} is not asked");
        // Something for each queue to receive.
        for stream in &streams {
            let _ = said_and_heard(stream).await;
        }
    }
    let mut resets = 0;
    for stream in &streams {
        if let Err(error) = said_and_heard(stream).await {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
            resets += 1;
        }
    }
    Ok(resets)
}

#[test]
fn a_core_that_falls_after_the_address_has_changed_takes_its_own_with_it() {
    falls_after_a_change(1);
}

#[test]
fn the_core_that_answers_for_the_address_falls_after_it_has_changed() {
    falls_after_a_change(0);
}

/// At the changed address, too, the connections of the core that falls are reset and the others' live. Who knows nobody yet
/// asks for the address then, which core 0 says whose it is, fallen or not.
fn falls_after_a_change(falls: usize) {
    let [ours, servers, clients, newcomers] = ports(THREE_COMBINED);
    let server = Server::start(servers, FIRST);
    let breaks = Arc::new(AtomicUsize::new(NONE));
    let runtime = THREE_COMBINED
        .builder()
        .backend(BackendChoice::Custom(Box::new(Fragile {
            inner: ours,
            breaks: breaks.clone(),
        })))
        .dhcp()
        .build()
        .unwrap();
    let handle = runtime.handle();
    let (running, _, cores) = serve_on(runtime, 80, echo);
    server.wish().refuse_then_give(SECOND);
    let (client, told) = at("192.0.2.2/24", clients, move || {
        let (handle, breaks) = (handle.clone(), breaks.clone());
        async move {
            until_async(|| address_of(&handle) == Some(SECOND)).await;
            // Nothing comes in from it now.
            let own = || handle.admission().rules().own;
            until_async(|| own() == [std::net::IpAddr::from(SECOND)]).await;
            resets(&breaks, falls).await
        }
    });
    let resets = told
        .recv_timeout(2 * PATIENCE)
        .expect("an answer of each core's");
    let of_fallen = cores.try_iter().filter(|core| *core == falls).count();
    assert!(of_fallen > 0 && of_fallen < CONNECTIONS, "{of_fallen}");
    assert_eq!(resets.unwrap(), of_fallen, "its own, and no others");
    let (newcomer, told) = at("192.0.2.3/24", newcomers, || async {
        said_and_heard(&connected(SECOND).await?).await
    });
    let found = told.recv_timeout(2 * PATIENCE).expect("an answer");
    found.expect("the address is found by who does not know it");
    newcomer.stop().unwrap();
    client.stop().unwrap();
    assert!(running.stop().is_err(), "its panic is told");
    server.stop();
}

/// A host that says what `has` came to, and stays.
fn at<C, F, T>(address: &str, port: Port, has: C) -> (Running, Receiver<T>)
where
    C: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::Custom(Box::new(port)))
        .address(address.parse().unwrap());
    let (tell, told) = channel();
    let running = Running::start(builder.build().unwrap(), move || {
        let (tell, has) = (tell.clone(), has());
        async move {
            let _ = tell.send(has.await);
            std::future::pending::<janus::Result>().await
        }
    });
    (running, told)
}
