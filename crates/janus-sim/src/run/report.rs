//! Report of a failed script: the place, the expected and the actual event, the state of the connection, and the
//! packets that led there, all in the script's own notation and numbers, so that a line can be copied into the script.

use super::Passed;
use super::flow::Flow;
use crate::script::{Packet, seconds};
use crate::segment::Segment;
use janus_io::trace::{Flow as Direction, Writer};
use janus_wire::Link;
use std::collections::VecDeque;
use std::fmt;
use std::io;

/// Packets and calls kept for the report.
const HISTORY_MAX: usize = 24;

/// Why a script failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The script's name.
    pub file: String,
    /// The line of the event that failed.
    pub line: u32,
    /// Description of the mismatch.
    pub message: String,
    /// Context that helps to understand it, line by line.
    pub details: Vec<String>,
}

impl Failure {
    pub(super) fn new(file: &str, line: u32, message: String) -> Failure {
        Failure {
            file: file.to_owned(),
            line,
            message,
            details: Vec::new(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)?;
        self.details
            .iter()
            .try_for_each(|line| write!(f, "\n    {line}"))
    }
}

impl std::error::Error for Failure {}

/// A packet both of whose ends are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// Microseconds since the start.
    pub at: u64,
    /// The stack sent it; else the script did.
    pub sent: bool,
    /// From the IP header on.
    pub bytes: Vec<u8>,
}

/// A run with all that happened in it.
#[derive(Clone, Debug)]
pub struct Recording {
    /// How it ended.
    pub outcome: Result<Passed, Failure>,
    /// Every packet and call as a line of a script would say it.
    pub lines: Vec<String>,
    /// Every packet both ways.
    pub packets: Vec<Recorded>,
}

impl Recording {
    /// The packets as a pcapng file.
    pub fn pcapng(&self) -> io::Result<Vec<u8>> {
        let mut writer = Writer::new(Vec::new())?;
        let stack = writer.interface(Link::Ip, "stack")?;
        for packet in &self.packets {
            let flow = match packet.sent {
                true => Direction::Sent,
                false => Direction::Received,
            };
            writer.frame(stack, packet.at * 1_000, flow, &packet.bytes)?;
        }
        Ok(writer.into_inner())
    }
}

#[derive(Clone, Debug)]
enum What {
    Inbound(Option<usize>, Segment),
    Outbound(Option<usize>, Segment),
    Call(String),
}

/// The last things that happened.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    lines: VecDeque<(u64, What)>,
    dropped: usize,
    /// None is dropped.
    whole: bool,
}

impl History {
    pub(super) fn new(whole: bool) -> History {
        History {
            whole,
            ..History::default()
        }
    }

    fn push(&mut self, at: u64, what: What) {
        if self.lines.len() >= HISTORY_MAX && !self.whole {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back((at, what));
    }

    pub(super) fn inbound(&mut self, at: u64, flow: usize, live: Segment) {
        self.push(at, What::Inbound(Some(flow), live));
    }

    pub(super) fn outbound(&mut self, at: u64, flow: Option<usize>, live: Segment) {
        self.push(at, What::Outbound(flow, live));
    }

    pub(super) fn call(&mut self, at: u64, text: String) {
        self.push(at, What::Call(text));
    }

    /// The history in the script's numbers.
    pub(super) fn render(&self, flows: &[Flow]) -> Vec<String> {
        let mut lines = Vec::new();
        if self.dropped > 0 {
            lines.push(format!("  ... {} earlier", self.dropped));
        }
        let foreign = |flow: &Option<usize>, segment: &Segment| match flow {
            Some(_) => String::new(),
            None => format!(
                "  (of no connection of the script: {} > {})",
                segment.source_port, segment.destination_port
            ),
        };
        for (at, what) in &self.lines {
            let text = match what {
                What::Inbound(flow, live) => {
                    let shown = flow.map_or(live.clone(), |flow| flows[flow].echo_of_inbound(live));
                    format!("< {shown}")
                }
                What::Outbound(flow, live) => {
                    let shown = flow.map_or(live.clone(), |flow| flows[flow].to_script(live));
                    format!("> {shown}{}", foreign(flow, live))
                }
                What::Call(text) => text.clone(),
            };
            lines.push(format!("  {} {text}", seconds(*at)));
        }
        lines
    }
}

/// The lines that set the packet expected against the one that came.
pub(super) fn confront(expected: &Packet, due: &str, actual: &Segment, at: u64) -> [String; 2] {
    [
        format!("expected: {due} > {expected}"),
        format!("actual:   {} > {actual}", seconds(at)),
    ]
}
