//! Packet events: which connection a packet belongs to, handing inbound ones to the stack, and waiting for the outbound
//! ones that the script expects.

use super::flow::Flow;
use super::report::confront;
use super::world::Sent;
use super::{GRACE_MICROS, Runner, Trouble, compare};
use crate::script::{Event, Packet, When, seconds};
use std::net::SocketAddr;

/// The script's port when it opens a connection to the stack without naming one.
const REMOTE_PORT: u16 = 40_000;

impl Runner<'_> {
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
            SocketAddr::new(settings.local_ip, local),
            SocketAddr::new(settings.remote_ip, remote),
        ));
        if self.current.is_none() {
            self.current = Some(self.flows.len() - 1);
        }
        Some(self.flows.len() - 1)
    }

    pub(super) fn inbound(&mut self, line: u32, packet: &Packet) -> Result<(), Trouble> {
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

    pub(super) fn outbound(
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
        self.assemble(event.line, index, packet, (&mut sent, limit))?;
        let flow = &mut self.flows[index];
        flow.learn_outbound(packet, &sent.segment);
        flow.learn_timestamp(packet, &sent.segment);
        let actual = flow.to_script(&sent.segment);
        let settings = &self.script.settings;
        let lenient = self.options.as_packetdrill;
        let mut differences = compare::differences(packet, &actual, flow, settings, lenient);
        differences.extend(flow.label_difference(packet, &actual));
        differences.extend(self.lateness(event.when, (from, to), sent.at));
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
            if !self.step(limit)? {
                return Ok(None);
            }
        }
    }

    /// A script may write several full segments that leave together as one large one: they are put together, unless
    /// it says `--strict_segments`.
    fn assemble(
        &mut self,
        line: u32,
        index: usize,
        packet: &Packet,
        (sent, limit): (&mut Sent, u64),
    ) -> Result<(), Trouble> {
        let wanted = usize::from(packet.len);
        while !self.settings().strict_segments && (1..wanted).contains(&sent.segment.payload.len())
        {
            // The original tool waits for the rest.
            while self.options.as_packetdrill && self.world.peek_sent().is_none() {
                self.check_sound(line)?;
                if !self.step(limit)? {
                    return Ok(());
                }
            }
            let first = &sent.segment;
            let end = first.seq.wrapping_add(first.payload.len() as u32);
            let follows = |next: &Sent| {
                (next.at == sent.at || self.options.as_packetdrill)
                    && self.flows[index].sent(&next.segment)
                    && (next.segment.seq, next.segment.ack) == (end, first.ack)
                    && !next.segment.payload.is_empty()
            };
            if !self.world.peek_sent().is_some_and(follows) {
                return Ok(());
            }
            let Some(next) = self.world.pop_sent() else {
                return Ok(());
            };
            self.history
                .outbound(next.at, Some(index), next.segment.clone());
            sent.segment.flags = next.segment.flags;
            sent.segment.payload.extend(next.segment.payload);
        }
        Ok(())
    }
}
