//! Members that are killed. `home_ms`: from the kill until the daemon has all of their buffers again; `port_ms`: until another member has their port.
//! `beside_us`: requests of another member's that come at a quarter of the rate which it can answer, in stretches in which nobody dies, in some with
//! `KILLS` deaths of members, and in some with as many of programs that have the same threads and buffers and no daemon: the kernel takes those apart
//! on the two processors of the threads that are measured. `beside_ratio` is that of members that die to either.

use std::future::pending;
use std::io::Result;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use janus::net::TcpListener;
use janus::{BackendChoice, DaemonMemory, wire};
use rustix::process::{Pid, Signal, kill_process};

use crate::apart::begins;
use crate::support::far::App;
use crate::support::far::packet::Ends;
use crate::support::far::plan::{Mode, Phase};
use crate::support::report::{Report, quantile};
use crate::support::served::{Layout, builder};
use crate::{Between, ECHO, HELD, Side, WINDOW, Work};

pub(crate) const HOME: &str = "home_ms";
pub(crate) const BESIDE: &str = "beside_us";
/// First argument of a program that is to be killed.
const CHILD: &str = "--dies";
const PORT: u16 = 1_000;
/// Of a program that is killed.
const BUFFERS: u32 = 4_096;
/// In a stretch.
const KILLS: u16 = 10;
/// Who dies.
const WHO: [&str; 3] = ["nobody", "strangers", "members"];
/// Percentiles.
const QUANTILES: [f64; 3] = [50.0, 99.0, 99.9];
const LONG: Duration = Duration::from_secs(10);

pub(crate) fn is_child() -> bool {
    std::env::args().nth(1).as_deref() == Some(CHILD)
}

/// `--dies PORT SOCKET`: has a port until it is killed; without a socket of nobody's.
pub(crate) fn child() {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let port: u16 = words[0].parse().expect("a port");
    let builder = match words.get(1) {
        Some(socket) => super::member(PathBuf::from(socket), DaemonMemory::Shared),
        None => super::member(PathBuf::new(), DaemonMemory::Isolated).backend(alone()),
    };
    let runtime = builder.packet_buffers(BUFFERS).build();
    let runtime = runtime.expect("it is let in");
    let ran = runtime.run(move || async move {
        let _listener = TcpListener::bind(("0.0.0.0", port)).await?;
        println!("serves");
        pending::<Result<()>>().await
    });
    ran.expect("it is killed");
}

/// A wire whose other end nobody has.
fn alone() -> BackendChoice {
    let (near, far) = wire::pair(wire::Config::default()).expect("a wire");
    std::mem::forget(far);
    BackendChoice::wire(near)
}

/// Those that are to be killed, each with a port of its own.
fn begin_all(daemon: Option<&Between>, count: u16) -> Vec<Child> {
    let path = daemon.map(|it| it.socket.display().to_string());
    let begun = (PORT..PORT + count).map(|port| {
        let port = port.to_string();
        let words = [CHILD, &port].into_iter().chain(path.as_deref());
        begins(&words.collect::<Vec<_>>())
    });
    let begun: Vec<_> = begun.collect();
    let serve = begun.into_iter().map(|(child, mut said)| {
        assert_eq!(said.next().as_deref(), Some("serves"));
        child
    });
    serve.collect()
}

/// Milliseconds until it is so, from a moment before.
fn until(begin: Instant, is: impl Fn() -> bool) -> f64 {
    while !is() {
        assert!(begin.elapsed() < LONG, "it never is");
        std::hint::spin_loop();
    }
    begin.elapsed().as_secs_f64() * 1e3
}

/// What is left is the daemon's, and another's.
pub(crate) fn leave(report: &mut Report, times: usize) {
    report.progress(HOME);
    let (device, _) = builder(&Ends::default(), Layout::COMBINED, App::Echo, 0);
    let daemon = Between::start(device, "deaths");
    let counters = daemon.counters.clone();
    let away = || counters.lent.get() - counters.returned.get();
    let (mut home, mut port) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let mut child = begin_all(Some(&daemon), 1).remove(0);
        assert!(away() > 0, "it has borrowed some");
        let begin = Instant::now();
        child.kill().expect("it is ours");
        home.push(until(begin, || away() == 0));
        child.wait().expect("its end");
    }
    for _ in 0..times {
        let mut child = begin_all(Some(&daemon), 1).remove(0);
        let pid = Pid::from_child(&child);
        let other = super::member(daemon.socket.clone(), DaemonMemory::Shared).build();
        let other = other.expect("the daemon takes it in");
        let (tells, told) = channel();
        let ran = other.run(move || {
            let tells = tells.clone();
            async move {
                let begin = Instant::now();
                kill_process(pid, Signal::KILL)?;
                while TcpListener::bind(("0.0.0.0", PORT)).await.is_err() {
                    assert!(begin.elapsed() < LONG, "it never has the port");
                    janus::yield_now().await;
                }
                let _ = tells.send(begin.elapsed());
                Result::Ok(())
            }
        });
        ran.expect("the port");
        let took = told.recv().expect("a time");
        port.push(took.as_secs_f64() * 1e3);
        child.wait().expect("its end");
    }
    report.median(HOME, &home, "ms", &[]);
    report.median("port_ms", &port, "ms", &[]);
    daemon.end();
}

/// Requests of one member's while others die.
pub(crate) fn compare(report: &mut Report, rounds: usize, time: Duration) {
    report.progress(BESIDE);
    let work = Work {
        metric: BESIDE,
        mode: Mode::Requests,
        window: WINDOW,
        size: ECHO,
    };
    let side = Side::member(work, "beside", DaemonMemory::Shared);
    let daemon = side.daemon.as_ref().expect("it has one");
    let (plan, died) = (&side.server.plan, || daemon.counters.died.get());
    side.server.open(HELD);
    let phase = Phase {
        mode: Mode::Requests,
        window: WINDOW,
        held: HELD,
    };
    let rate = side.measure(phase, time) / 4.0;
    let mut all = [(); 3].map(|()| QUANTILES.map(|_| Vec::new()));
    for round in 0..3 * rounds {
        let who = (round + round / 3) % 3;
        let (dies, is_member) = (WHO[who] != "nobody", WHO[who] != "strangers");
        let mut others = begin_all(is_member.then_some(daemon), KILLS);
        let before = died();
        plan.set_rate(rate, time);
        plan.set(phase);
        for child in &mut others {
            if dies {
                child.kill().expect("it is ours");
            }
            std::thread::sleep(time / u32::from(KILLS));
        }
        let (samples, _) = side.server.end_pace(HELD);
        let mut took: Vec<u64> = samples.iter().map(|sample| sample.took_ns).collect();
        took.sort_unstable();
        for (all, q) in all[who].iter_mut().zip(QUANTILES) {
            all.push(quantile(&took, q) / 1e3);
        }
        for mut child in others {
            let _dead = child.kill();
            child.wait().expect("its end");
        }
        let all_died = u64::from(KILLS) * u64::from(is_member);
        until(Instant::now(), || died() - before == all_died);
    }
    for (all, who) in all.iter().zip(WHO) {
        for (took, q) in all.iter().zip(QUANTILES) {
            let params = [("dies", who.into()), ("q", q.into())];
            report.median(BESIDE, took, "us", &params);
        }
    }
    // Ten members cost each turn something, whether they die or not.
    let [nobody, strangers, members] = &all;
    for (to, others) in [("nobody", nobody), ("strangers", strangers)] {
        for ((others, members), q) in others.iter().zip(members).zip(QUANTILES) {
            let both = members.iter().zip(others);
            let ratios: Vec<f64> = both.map(|(member, other)| member / other).collect();
            let params = [("to", to.into()), ("q", q.into())];
            report.median("beside_ratio", &ratios, "ratio", &params);
        }
    }
    let bad = plan.counts().bad();
    report.row("bad_answers", bad as f64, "count", &[("of", BESIDE.into())]);
    side.stop();
}
