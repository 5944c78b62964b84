//! Instructions that Janus's engine and smoltcp take for a short connection and for an echo request, each with the application and
//! without the far end, under a time that goes on by the same step each turn. Counted by valgrind, where it is installed.

use crate::behind::{Behind, Turns};
use crate::smol::SmolEcho;
use crate::support::Scale;
use crate::support::clock::Clock;
use crate::support::engine::Engine;
use crate::support::far::packet::Ends;
use crate::support::far::plan::{Kind, Mode, Phase, Plan};
use crate::support::report::Report;
use crate::support::served::OPEN_WINDOW;
use crate::support::valgrind;

const STACKS: [&str; 2] = ["janus engine", "smoltcp"];
/// Work and its number at a time.
const WORKS: [(&str, u32); 5] = [
    ("short", 16),
    ("short", 64),
    ("short", 256),
    ("short", 4_096),
    ("echo", 64),
];
/// Units of a run: the difference of the two is counted, so that the start is not.
const COUNTED: [u64; 2] = [10_000, 30_000];
/// Most at a time for smoltcp, which looks at all its sockets for each packet.
const PEER_MAX: u32 = 256;
/// Units of a test.
const FEW: u64 = 100;

/// Reports the instructions of each stack.
pub fn compare(report: &mut Report) {
    for (work, number) in WORKS {
        for timestamps in [true, false] {
            for stack in STACKS {
                if stack != STACKS[0] && number > PEER_MAX {
                    continue;
                }
                let what = [stack.into(), work.into(), number.to_string()];
                let what = [&what[..], &[timestamps.to_string()]].concat();
                if Scale::get() == Scale::Smoke {
                    assert!(run(&what, FEW) >= FEW);
                    continue;
                }
                let Some(each) = valgrind::each(&what, COUNTED) else {
                    println!("no instructions are counted: valgrind is not there");
                    return;
                };
                let params = [
                    ("work", work.into()),
                    ("number", number.into()),
                    ("timestamps", if timestamps { "yes" } else { "no" }.into()),
                    ("side", stack.into()),
                ];
                report.row("instructions", each, "count", &params);
            }
        }
    }
}

/// Does what was named, so often and a little more; how often it was.
pub fn run(what: &[String], units: u64) -> u64 {
    let [stack, work, number, timestamps] = what else {
        panic!("a stack, a work, its number, and whether there are timestamps");
    };
    let ends = Ends {
        timestamps: timestamps == "true",
        ..Ends::default()
    };
    let number = number.parse().expect("a number");
    let (mode, held) = match work.as_str() {
        "short" => (Mode::Short, 0),
        _ => (Mode::Requests, number),
    };
    let phase = Phase {
        mode,
        window: number,
        held,
    };
    if stack == STACKS[0] {
        let (mut engine, plan) = Engine::start_at(ends, held);
        engine.clock = Clock::Turns(0);
        work_for(engine, &plan, phase, units)
    } else {
        let mut server = SmolEcho::new(&ends, held, number);
        server.set_clock(Clock::Turns(0));
        let (behind, plan) = Behind::new(server, ends, held);
        work_for(behind, &plan, phase, units)
    }
}

fn work_for(mut server: impl Turns, plan: &Plan, phase: Phase, units: u64) -> u64 {
    plan.set_interleaved();
    let mut until = |phase: Phase, units: u64| {
        let before = plan.counts();
        plan.set(phase);
        let done = || plan.counts().since(&before).get(Kind::Ended);
        while done() < units {
            server.turn();
        }
        assert_eq!(plan.counts().bad(), 0, "{:?}", plan.counts());
        done()
    };
    if phase.held > 0 {
        let open = Phase {
            mode: Mode::Open,
            window: OPEN_WINDOW.min(phase.window),
            ..phase
        };
        until(open, phase.held.into());
    }
    until(phase, units)
}
