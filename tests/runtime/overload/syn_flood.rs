//! Strangers' SYNs as fast as the server answers them, far more than it can remember: cookies take over, the others'
//! connections open and go on, and a little later nothing is left of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use janus::BackendChoice;
use janus_tcp::Config;

use super::flood::{Flooded, Tide};
use super::others;
use super::scene::{ECHO, Scene};
use crate::support::reports::sum;
use crate::support::{Case, ONE_COMBINED, wire_for};

/// Handshakes that a listener, or a core, remembers half done.
const BACKLOG: usize = 64;
const HALF_OPEN_MAX: u32 = 256;
/// Times what all cores together remember.
const OVERLOAD: u64 = 10;
/// A chunk of memory for records at the beginning, and no more for all the strangers.
const HALF_OPEN_BYTES_MAX: usize = 4 << 20;

pub(crate) fn syns_from_everywhere(case: Case) {
    let (near, far) = wire_for(case);
    let tcp = Config {
        max_half_open: HALF_OPEN_MAX,
        // So that the end of those that are remembered need not be waited for long; and yet as long as it may take the others, on
        // a busy machine, to answer: who is forgotten meanwhile is reset.
        max_syn_ack_retries: 2,
        ..Config::default()
    };
    let server = case.builder().backend(BackendChoice::wire(near));
    let server = server
        .address("192.0.2.1/24".parse().unwrap())
        .gateway([192, 0, 2, 2]);
    let server = server.tcp(tcp).backlog(BACKLOG).build().unwrap();
    let scene = Scene::start(case, server);
    let tide = Arc::new(Tide::default());
    let flooded = Flooded {
        end: far,
        tide: tide.clone(),
        port: ECHO,
    };
    let clients = ONE_COMBINED.builder();
    let clients = clients.backend(BackendChoice::Custom(Box::new(flooded)));
    let capacity = u64::from(HALF_OPEN_MAX) * case.cores as u64;
    let rising = tide.clone();
    let cores = scene.play(clients, move |stage| {
        let tide = rising.clone();
        async move {
            let before = stage.warm_up().await;
            tide.runs.store(true, Ordering::Release);
            // Under way when the others come, and until long after.
            while tide.sent.load(Ordering::Relaxed) < capacity {
                janus::yield_now().await;
            }
            while tide.sent.load(Ordering::Relaxed) < OVERLOAD * capacity {
                others::are_served().await;
            }
            tide.runs.store(false, Ordering::Release);
            stage.recovers(before).await;
        }
    });
    let sent = tide.sent.load(Ordering::Relaxed);
    let answered = tide.answered.load(Ordering::Relaxed);
    let cookies = sum(&cores, |core| core.tcp.cookies_sent);
    let by_cookie = sum(&cores, |core| core.tcp.cookies_accepted);
    println!(
        "{case:?}: {sent} SYNs from strangers, {answered} answered, {cookies} of them by cookies; \
         of the others' connections {by_cookie} were opened by a cookie"
    );
    assert!(sent >= OVERLOAD * capacity && answered > sent / 2);
    assert!(cookies > sent / 2 && by_cookie > 0, "{cores:?}");
    let others = tide.others.load(Ordering::Relaxed);
    assert_eq!(others, 0, "only SYN-ACKs are due to strangers");
    for core in &cores {
        assert_eq!(core.tcp.half_open_evicted, 0, "nobody was pushed out");
        assert!(core.memory.half_open <= HALF_OPEN_BYTES_MAX, "{core:?}");
    }
}
