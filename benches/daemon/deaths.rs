//! Members that are killed. `home_ms`: from the kill until the daemon has all of their buffers again; `port_ms`: until another member has their port.
//! `beside_us`: requests of another member's that come at a quarter of the rate which it can answer, in turns of stretches in which nobody dies and of those
//! with `KILLS` deaths, and the ratio of the two. There are as many processes in both; the kernel takes those apart that are killed on the two
//! processors of the threads that are measured.

use std::future::pending;
use std::io::Result;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use janus::DaemonMemory;
use janus::net::TcpListener;
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
/// Percentiles.
const QUANTILES: [f64; 3] = [50.0, 99.0, 99.9];
const LONG: Duration = Duration::from_secs(10);

pub(crate) fn is_child() -> bool {
    std::env::args().nth(1).as_deref() == Some(CHILD)
}

/// `--dies SOCKET PORT`: has a port until it is killed.
pub(crate) fn child() {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let port: u16 = words[1].parse().expect("a port");
    let builder = super::member(PathBuf::from(&words[0]), DaemonMemory::Shared);
    let runtime = builder.packet_buffers(BUFFERS).build();
    let runtime = runtime.expect("the daemon takes it in");
    let ran = runtime.run(move || async move {
        let _listener = TcpListener::bind(("0.0.0.0", port)).await?;
        println!("serves");
        pending::<Result<()>>().await
    });
    ran.expect("it is killed");
}

/// Those that are to be killed, each with a port of its own.
fn begin_all(daemon: &Between, count: u16) -> Vec<Child> {
    let path = daemon.socket.display().to_string();
    let ports = PORT..PORT + count;
    let begun = ports.map(|port| begins(&[CHILD, &path, &port.to_string()]));
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
        let mut child = begin_all(&daemon, 1).remove(0);
        assert!(away() > 0, "it has borrowed some");
        let begin = Instant::now();
        child.kill().expect("it is ours");
        home.push(until(begin, || away() == 0));
        child.wait().expect("its end");
    }
    for _ in 0..times {
        let mut child = begin_all(&daemon, 1).remove(0);
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
    let mut all = [(); 2].map(|()| QUANTILES.map(|_| Vec::new()));
    for round in 0..2 * rounds {
        // As many processes in either case; every other pair the other way round.
        let dies = (round + round / 2) % 2 == 1;
        let mut others = begin_all(daemon, KILLS);
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
        for (all, q) in all[usize::from(dies)].iter_mut().zip(QUANTILES) {
            all.push(quantile(&took, q) / 1e3);
        }
        for mut child in others {
            let _dead = child.kill();
            child.wait().expect("its end");
        }
        until(Instant::now(), || died() - before == KILLS.into());
    }
    let [none, some] = &all;
    for (deaths, all) in [(0, none), (KILLS, some)] {
        let per_s = f64::from(deaths) / time.as_secs_f64();
        for (took, q) in all.iter().zip(QUANTILES) {
            let params = [("deaths_per_s", per_s.into()), ("q", q.into())];
            report.median(BESIDE, took, "us", &params);
        }
    }
    for ((none, some), q) in none.iter().zip(some).zip(QUANTILES) {
        let ratios: Vec<f64> = some
            .iter()
            .zip(none)
            .map(|(some, none)| some / none)
            .collect();
        report.median("beside_ratio", &ratios, "ratio", &[("q", q.into())]);
    }
    let bad = plan.counts().bad();
    report.row("bad_answers", bad as f64, "count", &[("of", BESIDE.into())]);
    side.stop();
}
