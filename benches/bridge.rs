//! What tokio costs a core whose loop runs inside of it: echo requests over open connections, served by tasks of Janus's
//! and by tasks of tokio's, beside the same core without tokio, in turns. Built with the feature `tokio` only.

mod support;

use std::time::Duration;

use janus::net::TcpStream;
use support::Scale;
use support::far::App;
use support::far::plan::{Mode, Phase};
use support::report::Report;
use support::served::{Layout, Server};

const CONNECTIONS: u32 = 64;
/// Before each measurement.
const WARM: Duration = Duration::from_millis(200);

/// Who serves, and what else there is.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The loop without tokio.
    Off,
    /// Inside of tokio, which has nothing to do.
    On,
    /// And which has a task that waits, and a timer.
    OnWithATask,
    /// Connections are tasks of tokio's.
    Spawned,
}

const WAYS: [Way; 4] = [Way::Off, Way::On, Way::OnWithATask, Way::Spawned];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Off => "off",
            Way::On => "on",
            Way::OnWithATask => "on, a waiting task",
            Way::Spawned => "on, connections by tokio::spawn",
        }
    }

    fn begin(self, stream: TcpStream) {
        match self {
            Way::Off | Way::On => {
                janus::spawn(echo(stream));
            }
            Way::OnWithATask => {
                if tokio::runtime::Handle::current()
                    .metrics()
                    .num_alive_tasks()
                    == 0
                {
                    tokio::spawn(tokio::time::sleep(Duration::from_secs(3600)));
                }
                janus::spawn(echo(stream));
            }
            Way::Spawned => {
                tokio::spawn(echo(stream));
            }
        }
    }
}

async fn echo(stream: TcpStream) {
    loop {
        let Ok(Some(piece)) = stream.recv().await else {
            return;
        };
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
}

fn main() {
    let scale = Scale::get();
    let windows: &[u32] = scale.pick(&[64], &[1, 64], &[1, 8, 64]);
    let (rounds, run_ms) = scale.pick((1, 50), (5, 400), (9, 2000));
    let run_time = Duration::from_millis(run_ms);
    let mut report = Report::new("bridge");
    for &window in windows {
        let mut rates = WAYS.map(|_| Vec::new());
        let mut costs = WAYS.map(|_| Vec::new());
        for _ in 0..rounds {
            for (at, way) in WAYS.into_iter().enumerate() {
                let (rate, cost) = measure(way, window, run_time);
                rates[at].push(rate);
                costs[at].push(cost);
            }
        }
        for (at, way) in WAYS.into_iter().enumerate() {
            let params = [("way", way.name().into()), ("window", window.into())];
            report.median("req_per_s", &rates[at], "1/s", &params);
            report.median("server_ns_per_req", &costs[at], "ns", &params);
            // Each run beside the one without tokio in the same round.
            let ratios: Vec<f64> = costs[at]
                .iter()
                .zip(&costs[0])
                .map(|(on, off)| on / off)
                .collect();
            report.median("cost_ratio_to_off", &ratios, "ratio", &params);
        }
    }
    report.finish();
}

fn measure(way: Way, window: u32, run_time: Duration) -> (f64, f64) {
    let configure = |builder: janus::Builder| builder.tokio(!matches!(way, Way::Off));
    let layout = Layout::COMBINED;
    let server = Server::start_with(layout, App::Echo, CONNECTIONS, configure, move |stream| {
        way.begin(stream)
    });
    let phase = Phase {
        mode: Mode::Requests,
        window,
        held: CONNECTIONS,
    };
    let series = server.measure(phase, WARM, run_time);
    (series.rates[0], series.costs[0])
}
