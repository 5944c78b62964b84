//! Runs a script against the stack in virtual time: a script of minutes takes milliseconds and never sleeps, and with
//! the same seed it takes the same course. See `docs/packetdrill.md` for what a script's author needs to know.
//! What never lives here: the language (`script`), and what a correct stack does: that is in the scripts.

use crate::script::{Action, Call, Event, Packet, Script, Settings, When, seconds};
use crate::segment::Flags;
use janus_tcp::Config;
use std::net::SocketAddrV4;
use std::path::Path;

mod calls;
mod compare;
mod flow;
mod report;
#[cfg(test)]
mod tests;
mod values;
mod world;

use calls::{Attempt, Fd, Returned};
use flow::Flow;
pub use report::Failure;
use report::{History, confront};
use world::{Sent, World};

/// How long after its time an outbound packet is still waited for, so that a late one is reported as late.
const GRACE_MICROS: u64 = 2_000_000;
/// How long a packet with the time `*` is waited for.
const PATIENCE_MICROS: u64 = 3_600_000_000;
/// The script's port when it opens a connection to the stack without naming one.
const REMOTE_PORT: u16 = 40_000;

/// How scripts are run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The stack's configuration.
    pub config: Config,
    /// Decides the stack's secrets: initial sequence numbers, timestamps, ports.
    pub seed: u64,
    /// Packets after the last expected one are no failure, nor is what the stack leaves behind.
    pub lenient_end: bool,
}

/// What a script that passed did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    /// Events carried out.
    pub events: usize,
    /// Virtual time that went by, in microseconds.
    pub micros: u64,
}

/// Reads, parses and runs a file.
pub fn run_file(path: &Path, options: &Options) -> Result<Passed, Failure> {
    let file = path.display().to_string();
    let fail = |line, message| Failure {
        file: file.clone(),
        line,
        message,
        details: Vec::new(),
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| fail(0, format!("cannot be read: {error}")))?;
    let script = Script::parse(&text).map_err(|error| fail(error.line, error.message))?;
    run_script(&file, &script, options)
}

/// Runs a parsed script; `name` is what a failure calls it.
pub fn run_script(name: &str, script: &Script, options: &Options) -> Result<Passed, Failure> {
    let world =
        World::new(&script.settings, &options.config, options.seed).map_err(|error| Failure {
            file: name.to_owned(),
            line: 0,
            message: format!("no memory for a stack: {error}"),
            details: Vec::new(),
        })?;
    let mut runner = Runner {
        script,
        world,
        flows: Vec::new(),
        current: None,
        fds: Vec::new(),
        pending: None,
        previous_due: 0,
        history: History::default(),
    };
    let end = runner.run(options.lenient_end);
    let micros = runner.world.micros();
    end.map_err(|trouble| runner.failure(name, trouble))?;
    if !options.lenient_end {
        let left = runner.world.leftovers();
        if !left.is_empty() {
            return Err(Failure {
                file: name.to_owned(),
                line: script.events.last().map_or(0, |event| event.line),
                message: format!(
                    "all sockets closed and all timers run down, the stack still holds {}",
                    left.join(", ")
                ),
                details: Vec::new(),
            });
        }
    }
    Ok(Passed {
        events: script.events.len(),
        micros,
    })
}

/// A call that has not returned yet.
#[derive(Clone, Debug)]
struct Pending<'s> {
    line: u32,
    call: &'s Call,
    /// When it must return, in microseconds since the start.
    due: u64,
    started: u64,
    progress: usize,
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

    fn run(&mut self, lenient_end: bool) -> Result<(), Trouble> {
        for event in &self.script.events {
            self.event(event)?;
        }
        let line = self.script.events.last().map_or(0, |event| event.line);
        self.finish_pending()?;
        if lenient_end {
            return Ok(());
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
        let settings = self.settings();
        let share =
            due.saturating_sub(self.previous_due) as f64 * settings.tolerance_percent / 100.0;
        settings.tolerance_micros.max(share as u64)
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
        while self.world.step(at) {
            self.poll_pending()?;
        }
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

    /// The connection a packet belongs to: by its ports, else the current one; made when there is none.
    fn flow_for(&mut self, ports: Option<(u16, u16)>, inbound: bool) -> Option<usize> {
        let ports = ports.map(|(source, destination)| {
            if inbound {
                (source, destination)
            } else {
                (destination, source)
            }
        });
        if let Some((remote, local)) = ports {
            let known = self
                .flows
                .iter()
                .rposition(|flow| (flow.remote.port(), flow.local.port()) == (remote, local));
            if known.is_some() {
                return known;
            }
        } else if self.current.is_some() {
            return self.current;
        }
        if !inbound {
            return None;
        }
        let settings = self.settings();
        let next_port = REMOTE_PORT + self.flows.len() as u16;
        let (remote, local) = ports.unwrap_or((next_port, settings.bind_port));
        self.flows.push(Flow::new(
            SocketAddrV4::new(settings.local_ip, local),
            SocketAddrV4::new(settings.remote_ip, remote),
        ));
        if self.current.is_none() {
            self.current = Some(self.flows.len() - 1);
        }
        Some(self.flows.len() - 1)
    }

    fn inbound(&mut self, line: u32, packet: &Packet) -> Result<(), Trouble> {
        let Some(index) = self.flow_for(packet.ports, true) else {
            return Err(Trouble::new(line, "no connection for this packet"));
        };
        let flow = &mut self.flows[index];
        flow.learn_inbound(packet);
        let live = flow.to_live(packet, self.script.settings.timestamp_ecr_scaled);
        let live = live.map_err(|message| Trouble::new(line, message))?;
        self.history
            .inbound(self.world.micros(), index, live.clone());
        if !self.world.deliver(&live) {
            return Err(Trouble::new(
                line,
                "the packet does not fit a packet buffer",
            ));
        }
        self.poll_pending()
    }

    fn outbound(
        &mut self,
        event: &Event,
        packet: &Packet,
        from: u64,
        to: u64,
    ) -> Result<(), Trouble> {
        let Some(index) = self.flow_for(packet.ports, false) else {
            return Err(Trouble::new(
                event.line,
                "no connection exists yet that could send this packet",
            ));
        };
        let limit = if event.when == When::Any {
            to
        } else {
            to + GRACE_MICROS
        };
        let due = event.when.to_string();
        let Some(mut sent) = self.next_sent(event.line, index, limit)? else {
            let mut trouble = Trouble::new(
                event.line,
                format!(
                    "the packet expected was not sent, until {}",
                    seconds(self.world.micros())
                ),
            );
            trouble.details.push(format!("expected: {due} > {packet}"));
            return Err(trouble);
        };
        self.assemble(event.line, index, packet, &mut sent, limit)?;
        let flow = &mut self.flows[index];
        flow.learn_outbound(packet, &sent.segment);
        flow.learn_timestamp(packet, &sent.segment);
        let actual = flow.to_script(&sent.segment);
        let mut differences = compare::differences(packet, &actual, flow, &self.script.settings);
        if event.when != When::Any {
            let tolerance = self.tolerance(to);
            if sent.at + tolerance < from || sent.at > to + tolerance {
                differences.push(format!(
                    "time: expected {}, actual {}, tolerance {}",
                    if from == to {
                        seconds(from)
                    } else {
                        format!("{}~{}", seconds(from), seconds(to))
                    },
                    seconds(sent.at),
                    seconds(tolerance)
                ));
            }
        }
        if differences.is_empty() {
            return Ok(());
        }
        let mut trouble = Trouble::new(event.line, "the packet sent is not the packet expected");
        trouble
            .details
            .extend(confront(packet, &due, &actual, sent.at));
        trouble.details.extend(differences);
        Err(trouble)
    }

    /// The next packet of a connection that was sent or will be until `limit`.
    fn next_sent(&mut self, line: u32, index: usize, limit: u64) -> Result<Option<Sent>, Trouble> {
        loop {
            self.check_sound(line)?;
            while let Some(sent) = self.world.pop_sent() {
                let owner = self.flows.iter().rposition(|flow| flow.sent(&sent.segment));
                self.history.outbound(sent.at, owner, sent.segment.clone());
                if owner == Some(index) {
                    return Ok(Some(sent));
                }
                if owner.is_some() {
                    let mut trouble =
                        Trouble::new(line, "another connection of the script sent a packet first");
                    trouble.details.push(format!(
                        "actual:   {} > {}",
                        seconds(sent.at),
                        self.shown(&sent)
                    ));
                    return Err(trouble);
                }
            }
            if !self.world.step(limit) {
                return Ok(None);
            }
            self.poll_pending()?;
        }
    }

    /// A script may write several full segments as one large one: they are put together, unless it says
    /// `--strict_segments`.
    fn assemble(
        &mut self,
        line: u32,
        index: usize,
        packet: &Packet,
        sent: &mut Sent,
        limit: u64,
    ) -> Result<(), Trouble> {
        let wanted = usize::from(packet.len);
        while !self.settings().strict_segments && (1..wanted).contains(&sent.segment.payload.len())
        {
            let first = &sent.segment;
            let end = first.seq.wrapping_add(first.payload.len() as u32);
            let follows = |next: &Sent| next.segment.seq == end && next.segment.ack == first.ack;
            if !self.world.peek_sent().is_none_or(follows) || first.flags.contains(Flags::FIN) {
                return Ok(());
            }
            let Some(next) = self.next_sent(line, index, limit)? else {
                return Ok(());
            };
            sent.segment.flags = next.segment.flags;
            sent.segment.payload.extend(next.segment.payload);
            sent.at = next.at;
        }
        Ok(())
    }

    fn call(&mut self, event: &Event, call: &'s Call) -> Result<(), Trouble> {
        let mut pending = Pending {
            line: event.line,
            call,
            due: 0,
            started: self.world.micros(),
            progress: 0,
        };
        if let Some(end) = call.end {
            let relative = matches!(event.when, When::Relative(_));
            let base = if let When::Relative(after) = event.when {
                self.world.micros() - after.min(self.world.micros())
            } else {
                0
            };
            pending.due = if relative { base + end } else { end };
        }
        let attempt = self
            .attempt(call, &mut pending.progress)
            .map_err(|message| Trouble::new(event.line, message))?;
        self.world.settle();
        match attempt {
            Attempt::Returned(returned) => self.call_returned(&pending, returned),
            Attempt::Blocked if call.end.is_some() => {
                self.history
                    .call(self.world.micros(), format!("{call}  (waiting)"));
                self.pending = Some(pending);
                Ok(())
            }
            Attempt::Blocked => Err(Trouble::new(
                event.line,
                format!(
                    "{} would block: make the socket nonblocking, or give the call a duration, such as `0...0.2 {}(..)`",
                    call.name, call.name
                ),
            )),
        }
    }

    fn call_returned(&mut self, pending: &Pending<'s>, returned: Returned) -> Result<(), Trouble> {
        let (line, call, now) = (pending.line, pending.call, self.world.micros());
        self.history
            .call(now, format!("{} returned {returned}", call.name));
        if let Some(message) =
            calls::mismatch(call, returned).map_err(|message| Trouble::new(line, message))?
        {
            return Err(Trouble::new(line, message));
        }
        if call.end.is_some() {
            let share = pending.due.saturating_sub(pending.started) as f64
                * self.settings().tolerance_percent
                / 100.0;
            let tolerance = self.settings().tolerance_micros.max(share as u64);
            if now.abs_diff(pending.due) > tolerance {
                let message = format!(
                    "{} returned at {}, expected at {}",
                    call.name,
                    seconds(now),
                    seconds(pending.due)
                );
                return Err(Trouble::new(line, message));
            }
        }
        Ok(())
    }

    /// Tries the waiting call again.
    fn poll_pending(&mut self) -> Result<(), Trouble> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(());
        };
        let attempt = self.attempt(pending.call, &mut pending.progress);
        self.world.settle();
        match attempt.map_err(|message| Trouble::new(pending.line, message))? {
            Attempt::Returned(returned) => self.call_returned(&pending, returned),
            Attempt::Blocked => {
                self.pending = Some(pending);
                Ok(())
            }
        }
    }

    /// One call waits at a time: the next one, and the end, wait for it.
    fn finish_pending(&mut self) -> Result<(), Trouble> {
        while let Some(pending) = &self.pending {
            let (line, limit) = (
                pending.line,
                pending.due.max(self.world.micros()) + GRACE_MICROS,
            );
            let name = pending.call.name.clone();
            if !self.world.step(limit) {
                return Err(Trouble::new(
                    line,
                    format!("{name} has not returned, at {}", seconds(limit)),
                ));
            }
            self.poll_pending()?;
        }
        Ok(())
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
        // What was sent and not looked at belongs to the story too.
        while let Some(sent) = self.world.pop_sent() {
            let owner = self.flows.iter().rposition(|flow| flow.sent(&sent.segment));
            self.history.outbound(sent.at, owner, sent.segment);
        }
        details.push("the last packets and calls:".into());
        details.extend(self.history.render(&self.flows));
        Failure {
            file: name.to_owned(),
            line: trouble.line,
            message: trouble.message,
            details,
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
        let Some(conn) = fd.and_then(|fd| self.world.sockets.connection(fd.live)) else {
            return timer;
        };
        match self.world.sockets.stack().info(conn) {
            Err(_) => timer,
            Ok(info) => format!(
                "{:?}, {} unsent, {} in flight, {} unread, cwnd {}, srtt {} us, {timer}",
                info.state, info.unsent, info.in_flight, info.unread, info.cwnd, info.srtt_us
            ),
        }
    }
}
