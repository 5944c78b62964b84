//! Runs a script against the stack in virtual time: a script of minutes takes milliseconds and never sleeps, and with
//! the same seed it takes the same course. See `docs/packetdrill.md` for what a script's author needs to know.
//! What never lives here: the language (`script`), and what a correct stack does: that is in the scripts.

use crate::script::{Action, Event, Script, Settings, When, seconds};
use janus_posix::sysctl;
use std::path::Path;

mod calls;
mod compare;
mod flow;
mod icmp;
mod packets;
mod report;
#[cfg(test)]
mod tests;
mod values;
mod waiting;
mod world;

use calls::Fd;
use flow::Flow;
pub use janus_posix::Whose;
use report::History;
pub use report::{Failure, Recorded, Recording};
use waiting::Pending;
use world::{Sent, World};

/// How long after its time an outbound packet is still waited for, so that a late one is reported as late.
const GRACE_MICROS: u64 = 2_000_000;
/// How long a packet with the time `*` is waited for.
const PATIENCE_MICROS: u64 = 3_600_000_000;

/// How scripts are run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Settings of the stack beside those the script makes, as [`janus_posix::sysctl`] reads them.
    pub so_flags: String,
    /// Decides the stack's secrets: initial sequence numbers, timestamps, ports.
    pub seed: u64,
    /// Packets after the last expected one are no failure.
    pub lenient_end: bool,
    /// Move all connections to another stack before these events.
    pub moves: Moves,
    /// The stack that they move to.
    pub whose: Whose,
    /// Judge no more strictly than the original tool does: times may be off by an eighth of the time since the event
    /// before, large segments may come in parts with time in between, echoed timestamps are not looked at, nor is what
    /// comes or stays after the end.
    pub as_packetdrill: bool,
}

/// When connections move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moves {
    /// Never.
    #[default]
    Never,
    /// Before each event.
    Always,
    /// Before the event of this number.
    Before(usize),
}

impl Moves {
    fn before(self, event: usize) -> bool {
        match self {
            Moves::Never => false,
            Moves::Always => true,
            Moves::Before(at) => at == event,
        }
    }
}

/// Figures of a script that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// Events carried out.
    pub events: usize,
    /// Virtual time that went by, in microseconds.
    pub micros: u64,
}

/// The tolerance of the original tool, in percent of the time since the event before.
const PACKETDRILL_PERCENT: f64 = 12.5;

/// Reads, parses and runs a file.
pub fn run_file(path: &Path, options: &Options) -> Result<Passed, Failure> {
    let script = read_file(path)?;
    run_script(&path.display().to_string(), &script, options)
}

/// Reads and parses a file.
pub fn read_file(path: &Path) -> Result<Script, Failure> {
    let fail = |line, message| Failure::new(&path.display().to_string(), line, message);
    let text = std::fs::read_to_string(path)
        .map_err(|error| fail(0, format!("cannot be read: {error}")))?;
    Script::parse(&text).map_err(|error| {
        let message = format!("column {}: {}", error.column, error.message);
        fail(error.line, message)
    })
}

/// Runs a parsed script; `name` is what a failure calls it.
pub fn run_script(name: &str, script: &Script, options: &Options) -> Result<Passed, Failure> {
    run(name, script, options, false).outcome
}

/// Like [`run_script`], but keeps a record of all events and packets.
pub fn record_script(name: &str, script: &Script, options: &Options) -> Recording {
    run(name, script, options, true)
}

fn run(name: &str, script: &Script, options: &Options, recorded: bool) -> Recording {
    let nothing = |message| Recording {
        outcome: Err(Failure::new(name, 0, message)),
        lines: Vec::new(),
        packets: Vec::new(),
    };
    let flags = format!("{},{}", script.settings.so_flags, options.so_flags);
    let stack = match sysctl::parse(&flags) {
        Ok(stack) => stack,
        Err(error) => return nothing(format!("the settings: {error}")),
    };
    let world = match World::new(&script.settings, &stack, options.seed, recorded) {
        Ok(world) => world,
        Err(error) => return nothing(format!("no memory for a stack: {error}")),
    };
    let mut runner = Runner {
        script,
        options,
        world,
        flows: Vec::new(),
        current: None,
        fds: Vec::new(),
        pending: None,
        previous_due: 0,
        history: History::new(recorded),
    };
    let end = runner.run();
    let micros = runner.world.micros();
    let outcome = end.map_err(|trouble| runner.failure(name, trouble));
    let lines = runner.history.render(&runner.flows);
    let packets = runner.world.take_recorded();
    let outcome = outcome.and_then(|()| {
        let left = match options.as_packetdrill {
            true => Vec::new(),
            false => runner.world.leftovers(),
        };
        if left.is_empty() {
            return Ok(Passed {
                events: script.events.len(),
                micros,
            });
        }
        let message = format!(
            "all sockets closed and all timers run down, the stack still holds {}",
            left.join(", ")
        );
        let last = script.events.last().map_or(0, |event| event.line);
        Err(Failure::new(name, last, message))
    });
    Recording {
        outcome,
        lines,
        packets,
    }
}

/// Why an event failed.
struct Trouble {
    line: u32,
    message: String,
    details: Vec<String>,
}

impl Trouble {
    fn new(line: u32, message: impl Into<String>) -> Trouble {
        Trouble {
            line,
            message: message.into(),
            details: Vec::new(),
        }
    }
}

/// A script being run.
struct Runner<'s> {
    script: &'s Script,
    options: &'s Options,
    world: World,
    flows: Vec<Flow>,
    /// The connection that packets without ports belong to.
    current: Option<usize>,
    fds: Vec<Fd>,
    pending: Option<Pending<'s>>,
    /// When the event before was due.
    previous_due: u64,
    history: History,
}

impl<'s> Runner<'s> {
    fn settings(&self) -> &'s Settings {
        &self.script.settings
    }

    fn run(&mut self) -> Result<(), Trouble> {
        for (number, event) in self.script.events.iter().enumerate() {
            if self.options.moves.before(number) {
                let whose = self.options.whose;
                self.world.move_to_another(event.line, whose, number)?;
            }
            self.event(event)?;
        }
        let line = self.script.events.last().map_or(0, |event| event.line);
        self.finish_pending()?;
        if self.options.lenient_end || self.options.as_packetdrill {
            return Ok(());
        }
        if let Some(sent) = self.world.pop_icmp() {
            let message = "the script ended, but the stack had sent an ICMP message";
            let mut trouble = Trouble::new(line, message);
            let actual = format!("actual:   {} > {sent}", seconds(sent.at));
            trouble.details.push(actual);
            return Err(trouble);
        }
        match self.world.peek_sent() {
            Some(sent) => {
                let (at, packet) = (sent.at, self.shown(sent));
                let mut trouble = Trouble::new(
                    line,
                    "the script ended, but the stack had sent something more",
                );
                trouble
                    .details
                    .push(format!("actual:   {} > {packet}", seconds(at)));
                Err(trouble)
            }
            None => self.check_sound(line),
        }
    }

    fn event(&mut self, event: &'s Event) -> Result<(), Trouble> {
        let (from, to) = self.due(event.when);
        match &event.action {
            Action::Outbound(packet) => self.outbound(event, packet, from, to)?,
            Action::Inbound(packet) => {
                self.wait_until(event.line, from)?;
                self.inbound(event.line, packet)?;
            }
            Action::OutboundIcmp(message) => self.outbound_icmp(event, message, (from, to))?,
            Action::InboundIcmp(message) => {
                self.wait_until(event.line, from)?;
                self.inbound_icmp(event.line, message)?;
            }
            Action::Call(call) => {
                self.wait_until(event.line, from)?;
                self.finish_pending()?;
                self.call(event, call)?;
            }
        }
        self.previous_due = from.max(self.previous_due);
        Ok(())
    }

    /// The window of time in which an event is due, in microseconds since the start.
    fn due(&self, when: When) -> (u64, u64) {
        let now = self.world.micros();
        match when {
            When::Any => (now, now + PATIENCE_MICROS),
            When::Absolute(at) => (at, at),
            When::Relative(after) => (now + after, now + after),
            When::AbsoluteRange(from, to) => (from, to),
            When::RelativeRange(from, to) => (now + from, now + to),
        }
    }

    /// How far off an event may be that is due at `due`.
    fn tolerance(&self, due: u64) -> u64 {
        self.tolerance_over(due.saturating_sub(self.previous_due))
    }

    /// Returns the tolerance for an event `micros` microseconds after the one before.
    fn tolerance_over(&self, micros: u64) -> u64 {
        let settings = self.settings();
        let percent = match self.options.as_packetdrill {
            true => settings.tolerance_percent.unwrap_or(PACKETDRILL_PERCENT),
            false => settings.tolerance_percent.unwrap_or(0.0),
        };
        let share = micros as f64 * percent / 100.0;
        settings.tolerance_micros.max(share as u64)
    }

    /// Describes how the time at which a packet was sent misses the script's; `None` when it is within the tolerance.
    fn lateness(&self, when: When, (from, to): (u64, u64), at: u64) -> Option<String> {
        let tolerance = self.tolerance(to);
        if when == When::Any || (at + tolerance >= from && at <= to + tolerance) {
            return None;
        }
        let due = match from == to {
            true => seconds(from),
            false => format!("{}~{}", seconds(from), seconds(to)),
        };
        let (at, tolerance) = (seconds(at), seconds(tolerance));
        Some(format!(
            "time: expected {due}, actual {at}, tolerance {tolerance}"
        ))
    }

    /// Moves on to what comes next, a deadline of the stack or the end of a call's patience, if that is not after
    /// `limit`; else to `limit`, and says false.
    fn step(&mut self, limit: u64) -> Result<bool, Trouble> {
        let patience = self.pending.as_ref().and_then(Pending::deadline);
        let until = patience.filter(|at| *at <= limit);
        let stepped = self.world.step(until.unwrap_or(limit));
        self.poll_pending()?;
        Ok(stepped || until.is_some())
    }

    /// Lets time go by. What happens meanwhile lands in the outbox; a waiting call may return.
    fn wait_until(&mut self, line: u32, at: u64) -> Result<(), Trouble> {
        let now = self.world.micros();
        if now > at + self.tolerance(at) {
            return Err(Trouble::new(
                line,
                format!(
                    "this event is due at {}, and it is {} already",
                    seconds(at),
                    seconds(now)
                ),
            ));
        }
        while self.step(at)? {}
        self.check_sound(line)
    }

    fn check_sound(&mut self, line: u32) -> Result<(), Trouble> {
        match self.world.take_unsound() {
            None => Ok(()),
            Some(unsound) => {
                let mut trouble = Trouble::new(
                    line,
                    format!(
                        "the stack sent a packet that is damaged: {}",
                        unsound.damage
                    ),
                );
                let hex: Vec<String> = unsound
                    .bytes
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                trouble
                    .details
                    .extend(hex.chunks(32).map(|row| row.join(" ")));
                Err(trouble)
            }
        }
    }

    /// A packet in the script's numbers.
    fn shown(&self, sent: &Sent) -> String {
        let flow = self.flows.iter().rfind(|flow| flow.sent(&sent.segment));
        flow.map_or(sent.segment.clone(), |flow| flow.to_script(&sent.segment))
            .to_string()
    }

    fn failure(&mut self, name: &str, trouble: Trouble) -> Failure {
        let mut details = trouble.details;
        details.push(format!(
            "at {}; {}",
            seconds(self.world.micros()),
            self.state()
        ));
        // Packets sent but not yet examined belong to the history too.
        while let Some(sent) = self.world.pop_sent() {
            let owner = self.flows.iter().rposition(|flow| flow.sent(&sent.segment));
            self.history.outbound(sent.at, owner, sent.segment);
        }
        details.push("the last packets and calls:".into());
        details.extend(self.history.render(&self.flows));
        Failure {
            details,
            ..Failure::new(name, trouble.line, trouble.message)
        }
    }

    /// The current connection and the next timer, in a line.
    fn state(&mut self) -> String {
        let timer = match self.world.next_deadline() {
            Some(at) => format!("next timer at {}", seconds(at)),
            None => "no timer is running".into(),
        };
        let fd = self
            .fds
            .iter()
            .rfind(|fd| fd.flow.is_some() && fd.flow == self.current)
            .copied();
        let Some(conn) = fd.and_then(|fd| self.world.sockets().connection(fd.live)) else {
            return timer;
        };
        match self.world.stack().info(conn) {
            Err(_) => timer,
            Ok(info) => format!(
                "{:?}, {} unsent, {} in flight, {} unread, cwnd {}, srtt {} us, {timer}",
                info.state, info.unsent, info.in_flight, info.unread, info.cwnd, info.srtt_us
            ),
        }
    }
}
