//! The desk between bursts: programs are taken in, claim ports, and go.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use janus_shm::{Claim, Hello, Message, Mode, Permit, Received, Share, Welcome, is_agreed_on};
use rustix::io::Errno;

use crate::doors;
use crate::groups::Name;
use crate::member::{Breach, CLAIMS_MAX, Member, Memory, Stage};
use crate::ports::{KEPT, Port, Slot};
use crate::switch::Switch;
use crate::{HEIRS_MAX, MEMBERS_MAX};

/// Messages of one member at a time.
const MESSAGES_MAX: usize = 64;
/// Programs that are let in at a time.
const ASK_AT_ONCE: usize = 16;
/// Places of programs whose users may have nothing, and that have not said yet why they are to be taken in.
const STRANGERS_MAX: usize = 8;
/// Ports that are tried where any will do, as programs of the kernel's may have some.
const FREE_TRIED: usize = 64;
/// Bursts that a member may yet send when it leaves: more than are in its rings.
const FAREWELL_TURNS: usize = 1024;

impl Switch {
    /// Hears what members have to say, and who else asks.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        if self.expires.is_some_and(|at| at <= Instant::now()) {
            self.expires = self.ports.expire(Instant::now());
        }
        self.stock.collect();
        self.learns()?;
        // Newcomers last: one that follows a dead member, whose port it claims, is to find that member's end heard.
        for joins in [false, true] {
            for slot in 0..self.members.len() {
                let place = &mut self.members[slot];
                let slot = slot as Slot;
                let Some(mut member) = place.take_if(|it| (it.stage != Stage::Ready) == joins)
                else {
                    continue;
                };
                let heard = self.hear(slot, &mut member);
                self.members[usize::from(slot)] = Some(member);
                match heard {
                    Ok(Some(end)) => self.ends(slot, end),
                    Ok(None) => {}
                    Err(breach) => self.cut_off(slot, &breach),
                }
            }
        }
        self.cuts_off_who_hangs();
        let asks = self.members.iter().flatten();
        let asks = asks.filter(|it| it.stage == Stage::Asks && !self.door.admits(it.user));
        let mut strangers = asks.count();
        for _ in 0..ASK_AT_ONCE {
            let Some(link) = self.door.next() else {
                break;
            };
            let Some(place) = self.members.iter_mut().find(|it| it.is_none()) else {
                let why = format!("{MEMBERS_MAX} programs are members already");
                // It is hung up on in any case.
                let _ = link.send(&refused(0, Errno::AGAIN, why), &[]);
                continue;
            };
            match Member::new(link) {
                // Whoever may have nothing is told so once it has said hello.
                Ok(member) => {
                    let is_strange = !self.door.admits(member.user);
                    if !is_strange || strangers < STRANGERS_MAX {
                        strangers += usize::from(is_strange);
                        *place = Some(Box::new(member));
                    }
                }
                Err(error) => eprintln!("janus: a program that asks cannot be told of: {error}"),
            }
        }
        if let Some(doors) = &mut self.doors {
            doors.close_unheard(&self.ports);
        }
        let last = self.members.iter().rposition(Option::is_some);
        self.places = last.map_or(0, |last| last + 1);
        Ok(())
    }

    /// Members of a daemon before are about to ask for their ports again, whose connections must not be reset meanwhile.
    pub(crate) fn waits_for_members(&mut self) -> bool {
        let waits = self.quiet_until.is_some_and(|until| Instant::now() < until);
        if !waits {
            self.quiet_until = None;
        }
        waits
    }

    fn cuts_off_who_hangs(&mut self) {
        let now = Instant::now();
        let Some(limit) = self.patience.looks(now, self.counters.given()) else {
            return;
        };
        for slot in 0..self.places {
            let Some(member) = &mut self.members[slot] else {
                continue;
            };
            let breach = match member.hangs_since(now) {
                Ok(Some(since)) if now.duration_since(since) >= limit => Breach::Hangs(limit),
                Ok(Some(_)) => {
                    self.patience.is_kept_waiting();
                    continue;
                }
                Ok(None) => continue,
                Err(violation) => violation.into(),
            };
            self.cut_off(slot as Slot, &breach);
        }
    }

    /// Hears one member; how it ends, if it does.
    fn hear(&mut self, slot: Slot, member: &mut Member) -> Result<Option<End>, Breach> {
        let mut closed = false;
        for core in &member.cores {
            closed |= !core.bell.hear()?;
        }
        // Its line may be held by a child of it.
        let had_ended = member.has_ended();
        let mut has_said_all = false;
        for _ in 0..MESSAGES_MAX {
            let heard = match member.link.receive()? {
                Received::Message(message, fds) => Received::Message(message, self.inspect(fds)?),
                Received::Strange(fds) => {
                    self.inspect(fds)?;
                    return Err(Breach::Words("it says what is no message"));
                }
                other => other,
            };
            match heard {
                Received::Message(Message::Hello(hello), _) => {
                    if !self.greets(slot, member, &hello)? {
                        return Ok(Some(End::Leaves { keeps: false }));
                    }
                }
                Received::Message(Message::Memory { packets, rings }, fds) => {
                    member.maps((packets, rings), fds)?;
                }
                Received::Message(
                    Message::Rings {
                        core,
                        offsets,
                        log2,
                    },
                    fds,
                ) => member.rings(core, offsets, log2, fds)?,
                Received::Message(Message::Ready, _) => {
                    member.is_ready()?;
                    self.absent.is_back(member.identity);
                    self.counters.joined.add(1);
                }
                Received::Message(Message::Claim(claim), _) => self.claims(slot, member, &claim)?,
                Received::Message(Message::Release { number }, _) => {
                    if let Some(port) = member.claims.remove(&number) {
                        self.ports.release(slot, port);
                    }
                    member.say(&Message::Heard { number })?;
                }
                Received::Message(Message::Has { number, ends }, _) => {
                    self.has(slot, member, ends);
                    member.say(&Message::Heard { number })?;
                }
                Received::Message(Message::Moves { process }, fds) => {
                    member.moves(process, fds)?;
                }
                Received::Message(Message::Leave { keeps }, _) => {
                    // Its last frames go out yet.
                    for _ in 0..FAREWELL_TURNS {
                        if self.take_from(slot, member)? == 0 {
                            break;
                        }
                        self.send();
                    }
                    return Ok(Some(End::Leaves { keeps }));
                }
                Received::Message(..) | Received::Strange(_) => {
                    return Err(Breach::Words("it says what only a daemon says"));
                }
                Received::Nothing => {
                    has_said_all = true;
                    break;
                }
                Received::End => return Ok(Some(End::Dies)),
            }
        }
        if self.refuses_to_wait(member)? {
            return Ok(Some(End::Leaves { keeps: false }));
        }
        if member.dawdles() {
            return Err(Breach::Words("it asks, and does not join"));
        }
        // It may have said before that it goes on in another.
        let has_ended = closed || had_ended && has_said_all && member.has_ended();
        Ok(has_ended.then_some(End::Dies))
    }

    /// Descriptors that a member sent, if all are of the kinds that are agreed on.
    fn inspect(&self, fds: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Breach> {
        let (known, strange): (Vec<_>, Vec<_>) = fds.into_iter().partition(is_agreed_on);
        if strange.is_empty() {
            return Ok(known);
        }
        for fd in strange {
            if !self.closer.close(fd) {
                self.counters.left_open.add(1);
            }
        }
        Err(Breach::Words(
            "it sends a descriptor that is neither memory nor a bell",
        ))
    }

    /// False: it is sent away.
    fn greets(&mut self, slot: Slot, member: &mut Member, hello: &Hello) -> Result<bool, Breach> {
        let permit = hello.permit.as_ref();
        if !self.door.admits(member.user) && !permit.is_some_and(|it| self.door.honours(it)) {
            let why = "no port is allowed to this user: `janus daemon --allow` names who may what";
            let _ = member.say(&refused(0, Errno::ACCESS, why.into()));
            return Err(Breach::Words("its user may have no port"));
        }
        member.greets(hello)?;
        // One that was here under the daemon before has its place.
        if let Some(port) = member.heir_to.filter(|_| hello.member == 0) {
            let others = self.members.iter().flatten();
            if others.filter(|it| it.heir_to == Some(port)).count() >= HEIRS_MAX {
                let why = format!("{HEIRS_MAX} programs have come for port {port} already");
                member.say(&refused(0, Errno::AGAIN, why))?;
                return Ok(false);
            }
        }
        if !self.has_it_wait(member, hello)? {
            self.welcomes(slot, member, hello)?;
        }
        Ok(true)
    }

    pub(crate) fn welcomes(
        &mut self,
        slot: Slot,
        member: &mut Member,
        hello: &Hello,
    ) -> Result<(), Breach> {
        member.identity = self.identity_for(hello.member);
        let Some(ports) = self.ports.block(slot, hello.ports) else {
            let why = "no ports are left for connections that it begins";
            let _ = member.say(&refused(0, Errno::ADDRINUSE, why.into()));
            return Err(Breach::Words("there are no ports left for it"));
        };
        if self.leased.is_some() || !self.network.routes.is_empty() {
            // A welcome does not say all of it.
            member.say(&Message::Network(self.network.clone()))?;
        }
        let mut welcome = Welcome {
            member: member.identity,
            ports,
            ..self.welcome.clone()
        };
        let wanted = match hello.mode {
            // One that has waited may have brought memory meanwhile.
            Mode::Shared if !matches!(member.memory, Memory::None) => 0,
            Mode::Shared if member.process.is_some() => hello.buffers,
            // Of another container's process it is not seen when it ends: what it was lent would never come back.
            Mode::Shared | Mode::Isolated => 0,
        };
        let Some(loan) = self.stock.lend(member.user, wanted)? else {
            return member.say(&Message::Welcome(welcome));
        };
        member.memory = Memory::Lent(loan.borrower);
        welcome.loan = (loan.slots, loan.count);
        let fds = [loan.memory, loan.list.as_fd()];
        Ok(member.link.send(&Message::Welcome(welcome), &fds)?)
    }

    /// The number that it had with a daemon before, or one that is no other's.
    fn identity_for(&self, before: u32) -> u32 {
        let others = || self.members.iter().flatten().map(|it| it.identity);
        let is_free = |it: &u32| *it != 0 && others().all(|other| other != *it);
        // At random: those of members that are about to join again are not known.
        let fresh = std::iter::repeat_with(|| RandomState::new().hash_one(before) as u32);
        let mut all = std::iter::once(before).chain(fresh);
        all.find(is_free)
            .expect("there are more numbers than members")
    }

    fn claims(&mut self, slot: Slot, member: &mut Member, claim: &Claim) -> Result<(), Breach> {
        let number = claim.number;
        if member.stage == Stage::Asks {
            return Err(Breach::Words("it claims before it has presented itself"));
        }
        if let Err((errno, why)) = self.may_claim(member, claim) {
            return member.say(&refused(number, errno, why));
        }
        let group = (claim.share != Share::Alone && !claim.udp).then(|| match &claim.permit {
            Some(permit) => (permit.user, permit.group.clone()),
            None => (member.user, claim.group.clone()),
        });
        let group = group.map(|(user, name)| Name { user, name });
        match self.gives(slot, member.identity, claim, group.as_ref()) {
            Ok(given) => {
                member.claims.insert(number, given);
                let port = given.number;
                let permit = group.map(|it| self.door.seals.permit(it.user, &it.name, port));
                member.say(&Message::Granted {
                    number,
                    port,
                    permit,
                })
            }
            Err((errno, why)) => member.say(&refused(number, errno, why)),
        }
    }

    /// Gives a member the port that it claims, and opens its door where the portal is the device.
    fn gives(
        &mut self,
        slot: Slot,
        identity: u32,
        claim: &Claim,
        group: Option<&Name>,
    ) -> Result<Port, (Errno, String)> {
        let (udp, address, share) = (claim.udp, claim.address, claim.share);
        let number = address.port();
        for _ in 0..FREE_TRIED {
            let given = match group {
                Some(name) if share == Share::Left => {
                    self.ports.has_left(slot, identity, number, name)
                }
                Some(name) => {
                    let reserve = share == Share::Reserve;
                    (self.ports).join(slot, identity, number, name, reserve)
                }
                None => self.ports.claim(slot, Port { udp, number }),
            };
            let Some(given) = given else {
                let but = match share {
                    Share::Join | Share::Reserve | Share::Left => ", or of another group",
                    Share::Alone => "",
                };
                let why = format!("port {number} is another program's{but}");
                return Err((Errno::ADDRINUSE, why));
            };
            let port = Port { udp, number: given };
            let doors = self.doors.as_mut().filter(|_| share != Share::Left);
            let Some(Err(error)) = doors.map(|it| it.open(address.ip(), given)) else {
                return Ok(port);
            };
            self.ports.release(slot, port);
            if number != 0 || error.kind() != io::ErrorKind::AddrInUse {
                return Err((doors::errno_of(&error), error.to_string()));
            }
        }
        let why = "the kernel's programs have all ports that were tried";
        Err((Errno::ADDRINUSE, why.into()))
    }

    fn may_claim(&self, member: &Member, claim: &Claim) -> Result<(), (Errno, String)> {
        let (ip, port) = (claim.address.ip(), claim.address.port());
        if claim.udp && self.doors.is_some() {
            let why = "the daemon's device is the portal, which carries TCP alone";
            return Err((Errno::OPNOTSUPP, why.into()));
        }
        if !ip.is_unspecified() && !self.identity.has(ip) {
            let why = format!("{ip} is no address of the daemon's device");
            return Err((Errno::ADDRNOTAVAIL, why));
        }
        let is_left = |it: &Permit| it.port == port && !claim.udp && self.door.honours(it);
        let is_allowed = match &claim.permit {
            Some(permit) => is_left(permit),
            None => port == 0 || self.door.allows(member.user, port),
        };
        if !is_allowed {
            let user = member.user;
            let why = format!("port {port} is not allowed to user {user} (`janus daemon --allow`)");
            return Err((Errno::ACCESS, why));
        }
        if member.claims.len() >= CLAIMS_MAX && !member.claims.contains_key(&claim.number) {
            return Err((Errno::NOBUFS, format!("{CLAIMS_MAX} ports are claimed")));
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn cut_off(&mut self, slot: Slot, breach: &Breach) {
        let member = &self.members[usize::from(slot)];
        if let Some(member) = member {
            eprintln!("janus: {} is cut off: {breach}", member.called());
        }
        self.ends(slot, End::CutOff);
    }

    fn ends(&mut self, slot: Slot, end: End) {
        let Some(mut member) = self.members[usize::from(slot)].take() else {
            return;
        };
        let now = Instant::now();
        let until = now + KEPT;
        let was_ready = member.stage == Stage::Ready;
        let (counter, kept) = match end {
            End::Leaves { keeps } => (&self.counters.left, keeps.then_some(until)),
            End::Dies => (&self.counters.died, Some(until)),
            End::CutOff => (&self.counters.cut_off, Some(until)),
        };
        if was_ready || end == End::CutOff {
            counter.add(1);
        }
        member.lets_go(&mut self.stock);
        self.ports.gone(slot, kept);
        self.pieces.forget(slot);
        // Nothing is reset while members of a daemon before may come.
        let from = self.quiet_until.map_or(now, |at| at.max(now));
        let flows = std::mem::take(&mut member.flows);
        self.resets.tell(flows, member.user, from, &self.counters);
        // Nor what others have sent to it in this turn.
        self.inside.retain(|(to, ..)| *to != slot);
        if kept.is_some() {
            self.expires = Some(self.expires.map_or(until, |at| at.min(until)));
        }
        let Memory::Lent(borrower) = member.memory else {
            // Its memory is unmapped before its line is hung up.
            return drop(member);
        };
        let Member { link, process, .. } = *member;
        let line = matches!(end, End::Leaves { .. }).then_some(link);
        self.stock.ends(borrower, line, process);
    }
}

/// How a member ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Leaves {
        /// Its ports are kept for another.
        keeps: bool,
    },
    Dies,
    CutOff,
}

pub(crate) fn refused(number: u32, errno: Errno, why: String) -> Message {
    let errno = errno.raw_os_error();
    Message::Refused { number, errno, why }
}
