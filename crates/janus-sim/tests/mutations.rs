//! A runner that passes everything would pass every script. So each script of the repository is also run with one thing
//! changed at a time, which must fail on that line and name what differs; and with text changed at random, which must
//! never panic.

use janus_sim::run::{Failure, Options, run_script};
use janus_sim::script::{Action, Expr, Packet, Script, TosSpec, When};
use janus_sim::segment::{Flags, TcpOption};
use proptest::prelude::*;

#[allow(dead_code)]
mod own;

/// Expected packets of a script that are changed.
const PACKETS_MAX: usize = 4;

/// What a change is called in the report of the failure, and the change; false where it cannot be made.
type Change = (&'static str, fn(&mut Packet) -> bool);

const CHANGES: [Change; 12] = [
    ("flags", |packet| {
        packet.flags = Flags(packet.flags.0 ^ Flags::PSH.0);
        true
    }),
    ("flags", |packet| {
        packet.flags = Flags(packet.flags.0 ^ Flags::ECE.0);
        true
    }),
    // A SYN's own number is the script's to choose.
    ("sequence number", |packet| {
        packet.seq = packet.seq.wrapping_add(1);
        !packet.flags.contains(Flags::SYN)
    }),
    ("payload length", |packet| {
        packet.len += 1;
        true
    }),
    ("ack", |packet| {
        packet.ack = packet.ack.map(|ack| ack.wrapping_add(1));
        packet.ack.is_some()
    }),
    ("window", |packet| {
        packet.window = packet.window.map(|window| window ^ 1);
        packet.window.is_some()
    }),
    ("urgent pointer", |packet| {
        packet.urgent = Some(packet.urgent.unwrap_or(0) + 1);
        true
    }),
    ("time to live", |packet| {
        packet.ip.ttl = Some(packet.ip.ttl.unwrap_or(64) - 1);
        true
    }),
    ("type of service", |packet| {
        packet.ip.tos = Some(TosSpec::Tos(0x44));
        true
    }),
    ("options", |packet| {
        let options = packet.options.as_mut();
        options.is_some_and(|options| options.pop().is_some())
    }),
    ("options", |packet| match &mut packet.options {
        Some(options) => {
            options.push(TcpOption::Nop);
            true
        }
        None => false,
    }),
    ("options", |packet| {
        packet.options.iter_mut().flatten().any(|option| {
            match option {
                TcpOption::Mss(mss) => *mss ^= 1,
                TcpOption::WindowScale(shift) => *shift ^= 1,
                TcpOption::Sack(blocks) => blocks[0].1 = blocks[0].1.wrapping_add(1),
                TcpOption::Timestamps { ecr, .. } => *ecr = ecr.wrapping_add(1),
                _ => return false,
            }
            true
        })
    }),
];

fn parsed() -> Vec<(String, Script)> {
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a readable script");
        // Another test tells what is wrong with one that does not parse.
        let script = Script::parse(&text).ok()?;
        Some((path.display().to_string(), script))
    };
    own::all().into_iter().filter_map(read).collect()
}

/// Runs a changed script, which must fail at `line` and say `what`.
fn must_fail(name: &str, script: &Script, line: u32, what: &str) -> Result<(), String> {
    match run_script(name, script, &Options::default()) {
        Ok(_) => Err(format!("{name}:{line}: another {what} is not noticed")),
        Err(failure) if names(&failure, line, what) => Ok(()),
        Err(failure) => Err(format!(
            "{name}:{line}: another {what} is told as\n{failure}"
        )),
    }
}

fn names(failure: &Failure, line: u32, what: &str) -> bool {
    let named = |text: &String| text.starts_with(&format!("{what}: expected"));
    failure.line == line && (failure.details.iter().any(named) || failure.message.contains(what))
}

/// Each change of a packet, of its time, and of what a call returns.
#[test]
fn whatever_is_changed_is_noticed_and_named() {
    let (mut tried, mut missed) = (0, Vec::new());
    for (round, (name, script)) in parsed().into_iter().enumerate() {
        let outbound = |at: &usize| matches!(script.events[*at].action, Action::Outbound(_));
        let packets: Vec<usize> = (0..script.events.len()).filter(outbound).collect();
        let step = packets.len().div_ceil(PACKETS_MAX).max(1);
        for (turn, &at) in packets.iter().step_by(step).enumerate() {
            let (what, change) = CHANGES[(round + 5 * turn) % CHANGES.len()];
            let mut changed = script.clone();
            let line = changed.events[at].line;
            let Action::Outbound(packet) = &mut changed.events[at].action else {
                continue;
            };
            if change(packet) {
                tried += 1;
                missed.extend(must_fail(&name, &changed, line, what).err());
            }
        }
        missed.extend(later(&name, &script, &packets).err());
        missed.extend(another_result(&name, &script, round).err());
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert!(tried > 100, "{tried} changes are too few");
}

/// An expected packet whose time is said comes earlier than the script has it.
fn later(name: &str, script: &Script, packets: &[usize]) -> Result<(), String> {
    let said = |at: &&usize| matches!(script.events[**at].when, When::Relative(_));
    let Some(&at) = packets.iter().rev().find(said) else {
        return Ok(());
    };
    let mut changed = script.clone();
    if let When::Relative(after) = &mut changed.events[at].when {
        // The largest tolerance that scripts have, and that of what is far away.
        *after = 50_000 + 2 * *after;
    }
    must_fail(name, &changed, script.events[at].line, "time")
}

/// A call returns something else.
fn another_result(name: &str, script: &Script, round: usize) -> Result<(), String> {
    let plain = ["setsockopt", "bind", "listen", "write", "read", "shutdown"];
    let fits = |at: &usize| {
        let Action::Call(call) = &script.events[*at].action else {
            return false;
        };
        call.end.is_none() && call.errno.is_none() && plain.contains(&call.name.as_str())
    };
    let calls: Vec<usize> = (0..script.events.len()).filter(fits).collect();
    let Some(&at) = calls.get(round % calls.len().max(1)) else {
        return Ok(());
    };
    let mut changed = script.clone();
    let line = changed.events[at].line;
    if let Action::Call(call) = &mut changed.events[at].action {
        match &mut call.result {
            Expr::Int(result) => *result += 1,
            _ => return Ok(()),
        }
    }
    must_fail(name, &changed, line, "expected")
}

/// What scripts are made of, and what they are not.
const PIECES: [&str; 32] = [
    "0",
    "1",
    "-1",
    "4294967295",
    "65536",
    "0x7fffffff",
    "...",
    "+",
    "*",
    "~",
    "<",
    ">",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    "=",
    "|",
    "icmp",
    "unreachable",
    "poll",
    "epoll_wait",
    "sack",
    "TS",
    "S.",
    "F.",
    "+0 close(4) = 0\n",
    "\n",
    "\"",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Words of a script taken out, doubled, or made others: an error or an outcome, never a panic.
    #[test]
    fn no_changed_text_can_panic_the_runner(
        which in any::<prop::sample::Index>(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..3, 0usize..PIECES.len()), 1..6),
    ) {
        let paths = own::all();
        let text = std::fs::read_to_string(which.get(&paths)).expect("a readable script");
        let mut words: Vec<&str> = text.split_inclusive(|c: char| !c.is_alphanumeric()).collect();
        for (at, how, piece) in edits {
            let at = at.index(words.len());
            match how {
                0 => words[at] = PIECES[piece],
                1 => words.insert(at, PIECES[piece]),
                _ => words.insert(at, words[at]),
            }
        }
        if let Ok(script) = Script::parse(&words.concat()) {
            let _ = run_script("changed.pkt", &script, &Options::default());
        }
    }
}
