//! How many short connections a second one core serves: SYN, request, response, FIN. `placement=engine` is the TCP engine
//! alone, without runtime and tasks; `combined` has a task for each connection (`app=http`: one of `janus-http`); `split`
//! has an I/O core beside the shard, and the time of both counts, also that in which they find nothing to do (`placement` leaves it out). `window` connections are in progress at a time, their
//! packets interleaved, and `held` others are open and idle. In the rows with `first=server` the server answers and ends
//! in one segment, and keeps a TIME-WAIT record of each connection; in the others the client ends first.
//!
//! All sides work in turns. `relation` is what a connection takes on one side over what it takes on the other, round by
//! round. `open_ns_per_conn` is what a connection takes, with one request, of those that are opened and held: of each
//! 100,000, while the tables grow; the worst is `max`. With arguments only the placements are measured that they name, and only the numbers
//! of held connections (`100m`: over IPv4 alone, 8 GB at rest); `engine`, on one thread, can be run under a profiler that counts
//! instructions.

mod support;

use std::time::Duration;
use support::Scale;
use support::far::ECHO_LEN;
use support::far::plan::Mode;
use support::report::{Report, Value};
use support::side::{Cell, Rounds, Serving, Side, relation};

/// Short connections in progress at a time.
const WINDOWS: [u32; 4] = [16, 64, 256, 4_096];
/// Short connections in progress where others are held.
const WINDOW: u32 = 256;
/// Most that a runtime is given: of more SYNs at once it sheds some, which the far end never sends again. The ring of 1,024
/// frames between an I/O core and a shard has room for as many, each with up to three on the way to the server.
const RUNTIME_WINDOW_MAX: u32 = 256;
/// Opened connections of which the time is taken together.
const OPENED: u32 = 100_000;
/// Held connections beyond which only IPv4 is measured: two servers are more than a machine holds.
const HELD_TWICE_MAX: u32 = 20_000_000;

fn main() {
    let scale = Scale::get();
    let held_counts: &[u32] = scale.pick(
        &[100],
        &[100_000, 1_000_000],
        &[100_000, 1_000_000, 10_000_000],
    );
    let (runs, run_ms) = scale.pick((1, 20), (5, 50), (7, 2_000));
    let rounds = Rounds {
        runs,
        time: Duration::from_millis(run_ms),
    };
    let mut report = Report::new("accept_rate");
    let mut bare: Vec<Side> = Vec::new();
    for serving in Serving::wanted() {
        for six in [false, true] {
            bare.push(Side::start(cell(serving, six, 0)));
        }
    }
    for window in WINDOWS {
        interleaved(&mut report, &mut bare, window, rounds);
    }
    for held in Scale::named_or(held_counts) {
        for pair in bare.chunks_mut(2) {
            report.progress(&format!("{held} held"));
            let families = if held > HELD_TWICE_MAX { 1 } else { 2 };
            holding(&mut report, &mut pair[..families], held, rounds);
        }
    }
    bare.into_iter().for_each(Side::stop);
    server_first(&mut report, rounds);
    report.finish();
}

fn cell(serving: Serving, six: bool, held: u32) -> Cell {
    Cell {
        serving,
        six,
        held,
        ends_first: false,
        timestamps: true,
        answer: ECHO_LEN as u32,
    }
}

/// Measures all servers with so many connections in progress, none held.
fn interleaved(report: &mut Report, bare: &mut [Side], window: u32, rounds: Rounds) {
    let fits =
        |side: &&mut Side| side.cell.serving == Serving::Engine || window <= RUNTIME_WINDOW_MAX;
    let mut sides: Vec<&mut Side> = bare.iter_mut().filter(fits).collect();
    let all = rounds.take(&mut sides, Mode::Short, window);
    for (side, series) in sides.iter().zip(&all) {
        side.rows(report, "conn", series, &about(side.cell.held, window));
    }
    let of = |serving, six| {
        let wanted = cell(serving, six, 0);
        let at = sides.iter().position(|side| side.cell == wanted);
        at.map(|at| &all[at])
    };
    let mut relate = |name: &str, above: Cell, below: Cell| {
        let of = |cell: Cell| of(cell.serving, cell.six);
        if let (Some(a), Some(b)) = (of(above), of(below)) {
            let params = [&above.params()[..], &about(0, window)].concat();
            relation(report, name, [a, b], &params);
        }
    };
    for six in [false, true] {
        let [engine, task, http, _, rest, http_rest] =
            Serving::ALL.map(|serving| cell(serving, six, 0));
        relate("task_over_engine", task, engine);
        relate("http_over_engine", http, engine);
        relate("rest_over_engine", rest, engine);
        relate("http_rest_over_engine", http_rest, engine);
    }
    for serving in Serving::ALL {
        relate(
            "six_over_four",
            cell(serving, true, 0),
            cell(serving, false, 0),
        );
    }
}

/// Measures a server over IPv4, and one over IPv6 if there is one, beside others that hold so many connections.
fn holding(report: &mut Report, bare: &mut [Side], held: u32, rounds: Rounds) {
    let families = bare.len();
    let mut full: Vec<Side> = Vec::new();
    for side in bare.iter() {
        let mut side = Side::start(Cell { held, ..side.cell });
        let opened = side.open(OPENED);
        let params = [&side.cell.params()[..], &[("held", held.into())]].concat();
        report.median("open_ns_per_conn", &opened, "ns", &params);
        full.push(side);
    }
    let mut sides: Vec<&mut Side> = bare.iter_mut().chain(&mut full).collect();
    let all = rounds.take(&mut sides, Mode::Short, WINDOW);
    for (side, series) in sides
        .iter()
        .zip(&all)
        .filter(|(side, _)| side.cell.held > 0)
    {
        side.rows(report, "conn", series, &about(side.cell.held, WINDOW));
    }
    let mut relate = |name: &str, [above, below]: [usize; 2]| {
        let params = [&sides[above].cell.params()[..], &about(held, WINDOW)].concat();
        relation(report, name, [&all[above], &all[below]], &params);
    };
    for family in 0..families {
        relate("held_over_none", [families + family, family]);
    }
    if families == 2 {
        relate("six_over_four", [3, 2]);
    }
    full.into_iter().for_each(Side::stop);
}

/// Measures servers that end connections themselves.
fn server_first(report: &mut Report, rounds: Rounds) {
    let wanted = Serving::wanted();
    let mut sides = Vec::new();
    for serving in [Serving::Engine, Serving::Task] {
        if wanted.contains(&serving) {
            sides.push(Side::start(Cell {
                ends_first: true,
                ..cell(serving, false, 0)
            }));
        }
    }
    let mut turns: Vec<&mut Side> = sides.iter_mut().collect();
    let all = rounds.take(&mut turns, Mode::Short, WINDOW);
    for (side, series) in turns.iter().zip(&all) {
        side.rows(report, "conn", series, &about(side.cell.held, WINDOW));
    }
    sides.into_iter().for_each(Side::stop);
}

fn about(held: u32, window: u32) -> [(&'static str, Value); 2] {
    [("held", held.into()), ("window", window.into())]
}
