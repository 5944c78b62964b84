//! The servers behind the proxy: which of them may be asked, and who finds that out. Shared by all cores, as numbers that are read
//! and written without a lock.

use std::fmt::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use janus::net::TcpListener;
use janus::time::timeout;
use janus_http::Connection;

/// Time between two looks at a server, and for each.
const INTERVAL: Duration = Duration::from_millis(500);
/// Looks in turn that must fail before a server is not asked any more, and succeed before it is again: one is no pattern.
const FALL: usize = 2;
const RISE: usize = 2;

pub(crate) static UPSTREAMS: LazyLock<Vec<Upstream>> =
    LazyLock::new(|| std::env::args().skip(3).map(Upstream::new).collect());

pub(crate) struct Upstream {
    pub(crate) address: String,
    alive: AtomicBool,
    /// Somebody wants it to end: what it has is finished, and nothing new comes.
    drained: AtomicBool,
    /// Requests that it has from here.
    in_hand: AtomicUsize,
}

/// One request less when it is dropped, however the request ended.
pub(crate) struct InHand(&'static Upstream);

impl Drop for InHand {
    fn drop(&mut self) {
        self.0.in_hand.fetch_sub(1, Relaxed);
    }
}

/// The next server in turn that may be asked and was not `tried`.
pub(crate) fn next(tried: &[&'static Upstream]) -> Option<&'static Upstream> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let all = &*UPSTREAMS;
    let first = TURN.fetch_add(1, Relaxed) % all.len().max(1);
    let in_turn = all[first..].iter().chain(&all[..first]);
    let tried = |upstream: &Upstream| tried.iter().any(|tried| std::ptr::eq(*tried, upstream));
    in_turn
        .into_iter()
        .find(|upstream| upstream.may_be_asked() && !tried(upstream))
}

impl Upstream {
    fn new(address: String) -> Upstream {
        Upstream {
            address,
            alive: AtomicBool::new(true),
            drained: AtomicBool::new(false),
            in_hand: AtomicUsize::new(0),
        }
    }

    pub(crate) fn may_be_asked(&self) -> bool {
        self.alive.load(Relaxed) && !self.drained.load(Relaxed)
    }

    pub(crate) fn begin(&'static self) -> InHand {
        self.in_hand.fetch_add(1, Relaxed);
        InHand(self)
    }

    /// A request found it dead, which need not be seen twice; the looks find out when it is back.
    pub(crate) fn failed(&self) {
        self.alive.store(false, Relaxed);
    }

    /// Looks whether it is there, until the proxy ends.
    pub(crate) async fn watch(&self) {
        let (mut rising, mut falling) = (0, 0);
        while timeout(INTERVAL, janus::shutting_down()).await.is_err() {
            let well = matches!(timeout(INTERVAL, self.look()).await, Ok(Ok(200..=299)));
            (rising, falling) = if well {
                (rising + 1, 0)
            } else {
                (0, falling + 1)
            };
            if rising >= RISE || falling >= FALL {
                self.alive.store(well, Relaxed);
            }
        }
    }

    /// Returns the status of its health check.
    async fn look(&self) -> janus_http::Result<u16> {
        let mut connection = Connection::connect(&self.address).await?;
        Ok(connection.get(&self.address, "/health").await?.status())
    }
}

/// Answers whoever runs the proxy, at an address that its clients do not reach.
pub(crate) async fn administer(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(janus_http::serve(stream, async |request, response| {
            let wish = request.path().trim_start_matches('/').split_once('/');
            match (request.method(), wish) {
                ("GET", None) => response.ok().send(table()).await,
                ("POST", Some((wish @ ("drain" | "serve"), address))) => {
                    let Some(upstream) = UPSTREAMS.iter().find(|one| one.address == address) else {
                        return response.status(404).send("no such server\n").await;
                    };
                    upstream.drained.store(wish == "drain", Relaxed);
                    response.ok().send(table()).await
                }
                _ => {
                    response
                        .status(404)
                        .send("GET /, POST /drain/.. or /serve/..\n")
                        .await
                }
            }
        }));
    }
}

fn table() -> String {
    let mut table = String::new();
    for upstream in UPSTREAMS.iter() {
        let state = match (upstream.drained.load(Relaxed), upstream.alive.load(Relaxed)) {
            (true, _) => "drained",
            (false, true) => "alive",
            (false, false) => "dead",
        };
        let in_hand = upstream.in_hand.load(Relaxed);
        let _ = writeln!(table, "{} {state} {in_hand}", upstream.address);
    }
    table
}
