//! The client's state machine (RFC 2131 section 4.4, figure 5) over frames: time and randomness are inputs, so that a lease of days passes
//! in a test. `keeper.rs` reads and writes the frames.
//!
//! Beyond the RFC's states: an address is probed by ARP before it is used (RFC 5227, in less time than that gives, as a server should be
//! up soon), defended once while it is ours, and given up when another host insists. Each time an address is lost soon after it was given,
//! the client waits longer before it asks again.

mod frames;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use janus_tcp::Instant;
use janus_wire::dhcp::{self, Kind, Message, Op};
use janus_wire::{MacAddr, arp};

use super::lease::Lease;
use frames::Heard;

/// First wait for an answer; each is twice the one before, up to [`WAIT_MAX`] (RFC 2131 section 4.1).
const WAIT: Duration = Duration::from_secs(4);
const WAIT_MAX: Duration = Duration::from_secs(64);
/// Each wait is longer or shorter by up to this.
const WAIT_SPREAD: Duration = Duration::from_secs(1);
/// Requests for an offered address before the offer is given up.
const REQUESTS_MAX: u32 = 4;
/// Least time between two requests that extend a lease (section 4.4.5).
const PROLONG_WAIT_MIN: Duration = Duration::from_secs(60);
/// Wait after an address was found to be another host's (section 3.1, step 5).
const AFTER_DECLINE: Duration = Duration::from_secs(10);
/// Requests for the address of an earlier process before the client discovers again.
const REBOOTS_MAX: u32 = 2;
/// A host that claims our address twice within this time keeps it (RFC 5227 section 2.4).
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);
/// ARP probes for an address before it is used, and the time between them.
const PROBES: u32 = 3;
const PROBE_EVERY: Duration = Duration::from_millis(150);
/// First wait after a failure; doubled with each further one, up to [`WAIT_MAX`].
const SETBACK: Duration = Duration::from_secs(1);

/// News of the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The address is leased, or its lease was extended.
    Ours(Lease),
    /// The address must not be used any more.
    Gone(Why),
}

/// Reason for which an address is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The lease was not extended in time.
    Expired,
    /// A server refused it.
    Refused,
    /// Another host uses it, and insists.
    Conflict,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Expired => "as nobody prolonged the lease",
            Why::Refused => "as a server has said",
            Why::Conflict => "as another host uses it",
        })
    }
}

/// A lease, its start, and the neighbor it came from.
#[derive(Clone, Debug)]
struct Held {
    lease: Lease,
    since: Instant,
    via: MacAddr,
}

impl Held {
    fn at(&self, after: Duration) -> Instant {
        self.since + after
    }

    fn end(&self) -> Instant {
        self.at(self.lease.time.unwrap_or(Duration::MAX))
    }
}

#[derive(Clone, Debug)]
enum ClientState {
    /// Waits before it discovers.
    Init,
    /// Requests the address of an earlier process (section 3.2).
    Rebooting(Ipv4Addr),
    /// Has asked all servers for offers.
    Selecting,
    /// Has taken an offer that its server has not confirmed.
    Requesting(Lease),
    /// Has a confirmed lease and probes whether another host has its address.
    Checking(Held),
    Bound(Held),
    Renewing(Held),
    Rebinding(Held),
}

/// One interface's client.
pub(crate) struct Client {
    mac: MacAddr,
    random: u64,
    state: ClientState,
    xid: u32,
    /// When the present attempt began: what the servers are told.
    began: Instant,
    /// When the last request was sent: a lease counts from there.
    asked: Instant,
    tries: u32,
    setbacks: u32,
    /// When the address was last defended.
    defended: Option<Instant>,
    due: Instant,
    frames: VecDeque<Vec<u8>>,
    news: VecDeque<News>,
}

impl Client {
    pub(crate) fn new(mac: MacAddr, seed: u64, now: Instant) -> Client {
        Client {
            mac,
            random: seed,
            state: ClientState::Init,
            xid: 0,
            began: now,
            asked: now,
            tries: 0,
            setbacks: 0,
            defended: None,
            due: now,
            frames: VecDeque::new(),
            news: VecDeque::new(),
        }
    }

    /// Makes a client that first requests this address, which an earlier process had, and whose lease is not over.
    pub(crate) fn again(mac: MacAddr, seed: u64, now: Instant, address: Ipv4Addr) -> Client {
        let mut client = Client::new(mac, seed, now);
        client.xid = client.bits() as u32;
        client.state = ClientState::Rebooting(address);
        client
    }

    /// Releases the address: tells its server, as the last message (section 4.4.6).
    pub(crate) fn release(&mut self, now: Instant) {
        let state = std::mem::replace(&mut self.state, ClientState::Init);
        self.due = now + Duration::MAX;
        if let ClientState::Bound(held)
        | ClientState::Renewing(held)
        | ClientState::Rebinding(held) = state
        {
            self.xid = self.bits() as u32;
            let lease = &held.lease;
            let message = self.message(Kind::Release, now).from(lease.address);
            let message = message.of(lease.server);
            self.frames.push_back(message.to(lease.server, held.via));
        }
    }

    /// Returns the moment at which [`turn`](Self::turn) has something to do.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Returns the next frame to send.
    pub(crate) fn frame(&mut self) -> Option<Vec<u8>> {
        self.frames.pop_front()
    }

    /// Returns the next news of the address.
    pub(crate) fn news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// SplitMix64.
    fn bits(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the wait after so many tries, randomized.
    fn wait(&mut self) -> Duration {
        let whole = WAIT_MAX.min(WAIT * (1 << self.tries.saturating_sub(1).min(8)));
        let spread = self.bits() % (2 * WAIT_SPREAD.as_nanos() as u64);
        whole - WAIT_SPREAD + Duration::from_nanos(spread)
    }

    /// Does everything that is due.
    pub(crate) fn turn(&mut self, now: Instant) {
        if now < self.due {
            return;
        }
        match std::mem::replace(&mut self.state, ClientState::Init) {
            ClientState::Init => self.begin(now),
            ClientState::Rebooting(address) if self.tries < REBOOTS_MAX => {
                let message = self.message(Kind::Request, now).asks_for(address);
                self.frames.push_back(message.broadcast());
                self.tries += 1;
                self.asked = now;
                self.due = now + self.wait();
                self.state = ClientState::Rebooting(address);
            }
            ClientState::Rebooting(_) => self.begin(now),
            ClientState::Selecting => {
                self.state = ClientState::Selecting;
                self.discover(now);
            }
            ClientState::Requesting(offer) if self.tries < REQUESTS_MAX => self.request(offer, now),
            ClientState::Requesting(_) => self.set_back(now),
            ClientState::Checking(held) if self.tries < PROBES => {
                self.frames
                    .push_back(frames::probe(self.mac, held.lease.address));
                self.tries += 1;
                self.due = now + PROBE_EVERY;
                self.state = ClientState::Checking(held);
            }
            ClientState::Checking(held) => {
                self.frames
                    .push_back(frames::announcement(self.mac, held.lease.address));
                self.bind(held);
            }
            ClientState::Bound(held) => {
                self.xid = self.bits() as u32;
                self.began = now;
                self.renew(held, now);
            }
            ClientState::Renewing(held) => self.renew(held, now),
            ClientState::Rebinding(held) => self.rebind(held, now),
        }
    }

    /// Begins to discover, at once.
    fn begin(&mut self, now: Instant) {
        self.xid = self.bits() as u32;
        self.began = now;
        self.tries = 0;
        self.state = ClientState::Selecting;
        self.discover(now);
    }

    /// Begins to discover after a wait that grows with each failure.
    fn set_back(&mut self, now: Instant) {
        self.state = ClientState::Init;
        self.due = now + WAIT_MAX.min(SETBACK * (1 << self.setbacks.min(8)));
        self.setbacks = self.setbacks.saturating_add(1);
    }

    fn discover(&mut self, now: Instant) {
        let message = self.message(Kind::Discover, now);
        self.frames.push_back(message.broadcast());
        self.tries += 1;
        self.due = now + self.wait();
    }

    fn request(&mut self, offer: Lease, now: Instant) {
        let message = self.message(Kind::Request, now);
        let message = message.asks_for(offer.address).of(offer.server);
        self.frames.push_back(message.broadcast());
        self.tries += 1;
        self.asked = now;
        self.due = now + self.wait();
        self.state = ClientState::Requesting(offer);
    }

    /// Probes whether another host has the leased address.
    fn check(&mut self, lease: Lease, via: MacAddr, now: Instant) {
        let since = self.asked;
        (self.tries, self.due, self.defended) = (0, now, None);
        self.state = ClientState::Checking(Held { lease, since, via });
    }

    fn bind(&mut self, held: Held) {
        self.setbacks = 0;
        self.news.push_back(News::Ours(held.lease.clone()));
        self.due = held.at(held.lease.renew_after);
        self.state = ClientState::Bound(held);
    }

    /// Requests an extension from the server that gave the lease (RENEWING).
    fn renew(&mut self, held: Held, now: Instant) {
        let until = held.at(held.lease.rebind_after);
        if now >= until {
            return self.rebind(held, now);
        }
        let message = self.message(Kind::Request, now).from(held.lease.address);
        self.frames
            .push_back(message.to(held.lease.server, held.via));
        self.asked = now;
        self.due = prolong_at(now, until);
        self.state = ClientState::Renewing(held);
    }

    /// Requests an extension from all servers, until the lease is over (REBINDING).
    fn rebind(&mut self, held: Held, now: Instant) {
        let end = held.end();
        if now >= end {
            return self.lose(Why::Expired, now);
        }
        let message = self.message(Kind::Request, now).from(held.lease.address);
        self.frames.push_back(message.broadcast());
        self.asked = now;
        self.due = prolong_at(now, end);
        self.state = ClientState::Rebinding(held);
    }

    fn lose(&mut self, why: Why, now: Instant) {
        self.news.push_back(News::Gone(why));
        self.set_back(now);
    }

    fn message(&self, kind: Kind, now: Instant) -> frames::Outgoing {
        let secs = now.saturating_since(self.began).as_secs();
        let secs = u16::try_from(secs).unwrap_or(u16::MAX);
        frames::Outgoing::new(kind, self.xid, secs, self.mac)
    }

    /// Handles a frame that may concern the client. `checked`: the device vouches for its checksums.
    pub(crate) fn hear(&mut self, frame: &[u8], checked: bool, now: Instant) {
        match frames::read(frame, checked) {
            Some(Heard::Arp(packet)) => self.hear_arp(&packet, now),
            Some(Heard::Dhcp(payload, via)) => {
                if let Ok(message) = dhcp::parse(payload)
                    && message.op == Op::Reply
                    && message.xid == self.xid
                    && message.mac == self.mac
                {
                    self.hear_message(&message, via, now);
                }
            }
            None => {}
        }
    }

    /// Handles ARP: another host that has the address we are about to take, probes for it as we do, or uses the one we have.
    fn hear_arp(&mut self, packet: &arp::Packet, now: Instant) {
        let (held, ours) = match &self.state {
            ClientState::Checking(held) => (held, false),
            ClientState::Bound(held)
            | ClientState::Renewing(held)
            | ClientState::Rebinding(held) => (held, true),
            _ => return,
        };
        let address = held.lease.address;
        // A probe for an address of ours is answered by the stack.
        let probes =
            !ours && packet.sender_ip == Ipv4Addr::UNSPECIFIED && packet.target_ip == address;
        if packet.sender_mac == self.mac || !(packet.sender_ip == address || probes) {
            return;
        }
        let server = held.lease.server;
        let insists = |at: Instant| now.saturating_since(at) < DEFEND_INTERVAL;
        if ours && !self.defended.is_some_and(insists) {
            self.defended = Some(now);
            let announcement = frames::announcement(self.mac, address);
            return self.frames.push_back(announcement);
        }
        let message = self.message(Kind::Decline, now);
        let message = message.asks_for(address).of(server);
        self.frames.push_back(message.broadcast());
        if ours {
            self.news.push_back(News::Gone(Why::Conflict));
        }
        self.state = ClientState::Init;
        self.due = now + AFTER_DECLINE;
    }

    fn hear_message(&mut self, message: &Message<'_>, via: MacAddr, now: Instant) {
        let server = message.address(dhcp::option::SERVER);
        let by = |lease: &Lease| server.is_none_or(|server| server == lease.server);
        match (message.kind(), &self.state) {
            (Some(Kind::Offer), ClientState::Selecting) => {
                if let Ok(offer) = Lease::read(message) {
                    self.tries = 0;
                    self.request(offer, now);
                }
            }
            (Some(Kind::Ack), ClientState::Rebooting(address)) => {
                if let Ok(lease) = Lease::read(message)
                    && lease.address == *address
                {
                    self.check(lease, via, now);
                }
            }
            // From any server: it knows that the address is invalid on this link.
            (Some(Kind::Nak), ClientState::Rebooting(_)) => self.set_back(now),
            (Some(Kind::Ack), ClientState::Requesting(offer)) => {
                if let Some(lease) = confirmed(message, offer)
                    && lease.server == offer.server
                {
                    self.check(lease, via, now);
                }
            }
            (Some(Kind::Nak), ClientState::Requesting(offer)) if by(offer) => self.set_back(now),
            (Some(Kind::Ack), ClientState::Renewing(held) | ClientState::Rebinding(held)) => {
                if let Some(lease) = confirmed(message, &held.lease) {
                    let since = self.asked;
                    self.bind(Held { lease, since, via });
                }
            }
            (Some(Kind::Nak), ClientState::Renewing(held)) if by(&held.lease) => {
                self.lose(Why::Refused, now);
            }
            (Some(Kind::Nak), ClientState::Rebinding(_)) => self.lose(Why::Refused, now),
            _ => {}
        }
    }
}

/// Returns the lease that an answer confirms: one for the same address.
fn confirmed(message: &Message<'_>, asked: &Lease) -> Option<Lease> {
    let lease = Lease::read(message).ok()?;
    (lease.address == asked.address).then_some(lease)
}

/// Returns when to request an extension again: after half of the time that is left (RFC 2131 section 4.4.5).
fn prolong_at(now: Instant, until: Instant) -> Instant {
    let half = until.saturating_since(now) / 2;
    (now + half.max(PROLONG_WAIT_MIN)).min(until)
}
