//! How many requests a second one core serves over open connections, each of which is used once before any is used
//! again, in an order that is not that in which they were opened: with few of them everything is in cache, with millions
//! each request meets cold memory. With more connections than requests at a time the client acknowledges each response
//! by a segment of its own, as its next request is far away. `placement=engine` is the TCP engine alone, without runtime
//! and tasks; `combined` has a task for each connection (`app=http`: one of `janus-http`), `rest` one for each request, as connections rest between; `split` has an I/O core beside
//! the shard, and the time of both counts, also that in which they find nothing to do (`placement` leaves it out).
//!
//! All sides work in turns. `relation` is what a request takes on one side over what it takes on the other, round by
//! round. With arguments only the placements are measured that they name, and only the numbers of connections (`10m`).

mod support;

use std::time::Duration;
use support::Scale;
use support::far::ECHO_LEN;
use support::far::plan::Mode;
use support::report::Report;
use support::side::{Cell, Rounds, Serving, Side, relation};

/// Requests in progress at a time.
const WINDOW: u32 = 256;
/// Connections opened between two looks at the time.
const OPENED: u32 = 1_000_000;

fn main() {
    let scale = Scale::get();
    let conn_counts: &[u32] = scale.pick(
        &[64],
        &[64, 1_000, 100_000],
        &[64, 1_000, 100_000, 1_000_000, 10_000_000],
    );
    let (runs, run_ms) = scale.pick((1, 20), (5, 100), (7, 2_000));
    let rounds = Rounds {
        runs,
        time: Duration::from_millis(run_ms),
    };
    let mut report = Report::new("rps");
    for conns in Scale::named_or(conn_counts) {
        report.progress(&format!("{conns} connections"));
        all_served(&mut report, conns, rounds);
    }
    report.finish();
}

/// Measures every server with so many connections.
fn all_served(report: &mut Report, conns: u32, rounds: Rounds) {
    let cell = |serving, six| Cell {
        serving,
        six,
        held: conns,
        ends_first: false,
        timestamps: true,
        answer: ECHO_LEN as u32,
    };
    let mut sides: Vec<Side> = Vec::new();
    for serving in Serving::wanted() {
        for six in [false, true] {
            let mut side = Side::start(cell(serving, six));
            side.open(OPENED);
            sides.push(side);
        }
    }
    let mut turns: Vec<&mut Side> = sides.iter_mut().collect();
    let all = rounds.take(&mut turns, Mode::Requests, WINDOW);
    for (side, series) in turns.iter().zip(&all) {
        let about = [("conns", side.cell.held.into())];
        side.rows(report, "req", series, &about);
    }
    let mut relate = |name: &str, above: Cell, below: Cell| {
        let of = |cell: Cell| turns.iter().position(|side| side.cell == cell);
        if let (Some(a), Some(b)) = (of(above), of(below)) {
            let params = [&above.params()[..], &[("conns", conns.into())]].concat();
            relation(report, name, [&all[a], &all[b]], &params);
        }
    };
    for six in [false, true] {
        let [engine, task, http, _, rest, http_rest] =
            Serving::ALL.map(|serving| cell(serving, six));
        relate("task_over_engine", task, engine);
        relate("http_over_engine", http, engine);
        relate("rest_over_task", rest, task);
        relate("http_rest_over_http", http_rest, http);
    }
    for serving in Serving::ALL {
        relate("six_over_four", cell(serving, true), cell(serving, false));
    }
    in_pieces(report, &mut sides, conns, rounds);
    sides.into_iter().for_each(Side::stop);
}

/// Measures the servers of HTTP again, while a tenth of the requests come in two pieces: a connection keeps its task then until the
/// second is there.
fn in_pieces(report: &mut Report, sides: &mut [Side], conns: u32, rounds: Rounds) {
    let is_http = |side: &&mut Side| {
        matches!(side.cell.serving, Serving::Http | Serving::HttpRest) && !side.cell.six
    };
    let mut turns: Vec<&mut Side> = sides.iter_mut().filter(is_http).collect();
    turns.iter().for_each(|side| side.plan.set_in_pieces());
    let all = rounds.take(&mut turns, Mode::Requests, WINDOW);
    let about = [("conns", conns.into()), ("mix", "a tenth in pieces".into())];
    for (side, series) in turns.iter().zip(&all) {
        side.rows(report, "req", series, &about);
    }
    if let [tasks, rest] = &all[..] {
        relation(report, "http_rest_over_http", [rest, tasks], &about);
    }
}
