//! The loop: from the device and the keeper to members, from members to the device; between bursts what members say. One thread does all of it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use janus::OpenDevice;
use janus_io::park::Parker;
use janus_io::{BURST, Batch, Idle, Queue};
use janus_mem::{Frame, Pool};
use janus_shm::{Claim, Closer, Descriptor, Hello, Message, Received, Welcome, is_agreed_on};
use janus_wire::{Link, MacAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::check::{Identity, Verdict};
use crate::door::Door;
use crate::member::{Breach, CLAIMS_MAX, Member, Stage};
use crate::ports::{KEPT, Port, Ports, Slot};
use crate::steer::{Pieces, To, steer};
use crate::{Counters, MEMBERS_MAX};

/// Turns between two looks at what members say, where there is always something to carry.
const LOOK_EVERY: u32 = 256;
/// Messages of one member at a time.
const MESSAGES_MAX: usize = 64;
/// Frames of one core of a member in a turn: the others' come then.
const AT_ONCE: usize = 32;
/// Programs that are let in at a time.
const ASK_AT_ONCE: usize = 16;
/// Bursts that a member may yet send when it leaves: more than are in its rings.
const FAREWELL_TURNS: usize = 1024;
/// Ports that a member may take by sending from them.
const TAKEN_MAX: u32 = 1024;
/// Attempts to send before frames are dropped, as a full device does it.
const ATTEMPTS: usize = 4;

pub(crate) struct Switch {
    device: Box<dyn Queue>,
    cable: Box<dyn Queue>,
    door: Door,
    members: Vec<Option<Member>>,
    ports: Ports,
    pieces: Pieces,
    identity: Identity,
    welcome: Welcome,
    link: Link,
    frame_max: usize,
    pool: Pool,
    closer: Closer,
    /// For the device, and for the keeper.
    out: Batch,
    kept: Batch,
    /// From members to members.
    inside: Vec<(Slot, u8, Frame)>,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    expires: Option<Instant>,
    quiet_until: Option<Instant>,
}

impl Switch {
    pub(crate) fn new(
        device: OpenDevice,
        cable: Box<dyn Queue>,
        door: Door,
        stop: Arc<AtomicBool>,
        counters: Arc<Counters>,
    ) -> io::Result<Switch> {
        let caps = device.queue.caps();
        let (mac, link, frame_max) = (caps.mac, caps.link, caps.frame_max());
        let (Some(mac), Link::Ethernet) = (mac, link) else {
            let text = "members want a device with link addresses: TAP, XDP or DPDK";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        let interface = &device.interface;
        let addresses: Vec<_> = interface.addresses.iter().map(|own| own.addr).collect();
        let with_prefix = interface.addresses.iter().map(|own| (own.addr, own.prefix));
        let quiet_until = door.follows.then(|| Instant::now() + KEPT);
        let welcome = Welcome {
            version: janus_shm::VERSION,
            member: 0,
            mac: mac.0,
            mtu: caps.mtu,
            checksums: (caps.rx_checksum, caps.tx_checksum),
            ports: (0, 0),
            addresses: with_prefix.collect(),
            gateways: device.gateways().collect(),
        };
        Ok(Switch {
            cable,
            door,
            members: (0..MEMBERS_MAX).map(|_| None).collect(),
            ports: Ports::new(),
            pieces: Pieces::new(),
            identity: Identity::new(MacAddr(mac.0), addresses),
            welcome,
            link,
            frame_max,
            pool: device.depot.pool(),
            closer: Closer::start()?,
            device: device.queue,
            out: Batch::new(),
            kept: Batch::new(),
            inside: Vec::new(),
            counters,
            stop,
            expires: None,
            quiet_until,
        })
    }

    /// Until it is stopped.
    pub(crate) fn run(&mut self, parker: &Parker) -> io::Result<()> {
        let (mut idle, mut turns) = (Idle::default(), 0_u32);
        while !self.stop.load(Ordering::Acquire) {
            let worked = self.turn() > 0;
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(LOOK_EVERY) {
                self.look()?;
            }
            if idle.should_sleep(worked) && self.arms() {
                let before = Instant::now();
                self.sleep(parker)?;
                idle.slept(before.elapsed());
                self.look()?;
            }
        }
        Ok(())
    }

    /// Carries what there is, a burst of each; how many frames.
    fn turn(&mut self) -> usize {
        let mut carried = self.device_turn();
        carried += self.keeper_turn();
        for slot in 0..self.members.len() {
            if self.members[slot].is_some() {
                carried += self.member_turn(slot as Slot);
            }
        }
        self.send();
        carried
    }

    fn device_turn(&mut self) -> usize {
        let mut batch = Batch::new();
        self.device.rx_burst(&mut self.pool, &mut batch);
        let count = batch.len();
        for frame in batch.pull() {
            self.carry(frame);
        }
        if count > 0 {
            (self.members.iter_mut().flatten()).for_each(Member::tell);
        }
        count
    }

    fn carry(&mut self, frame: Frame) {
        match steer(frame.data(), self.link, &self.ports, &mut self.pieces) {
            To::Member(slot, core) => self.deliver(slot, core, frame.data(), 0),
            To::Keeper => return self.keep(frame),
            To::Everybody => {
                for slot in 0..self.members.len() {
                    self.deliver(slot as Slot, 0, frame.data(), 0);
                }
                return self.keep(frame);
            }
            To::Kept => self.counters.lost_reserved.add(1),
            To::Closed if self.waits_for_members() => self.counters.lost_reserved.add(1),
            To::Closed => return self.keep(frame),
            To::Nowhere => self.counters.lost_unknown.add(1),
        }
        self.pool.free(frame.buf);
    }

    #[inline]
    fn deliver(&mut self, slot: Slot, core: u8, bytes: &[u8], tag: u32) {
        let Some(member) = &mut self.members[usize::from(slot)] else {
            return;
        };
        match member.deliver(core, bytes, tag) {
            Ok(true) => self.counters.to_members.add(1),
            Ok(false) => self.counters.lost_no_buffer.add(1),
            Err(violation) => self.cut_off(slot, &violation.into()),
        }
    }

    /// Members of a daemon before are about to ask for their ports again, whose connections must not be reset meanwhile.
    fn waits_for_members(&mut self) -> bool {
        let waits = self.quiet_until.is_some_and(|until| Instant::now() < until);
        if !waits {
            self.quiet_until = None;
        }
        waits
    }

    fn keep(&mut self, frame: Frame) {
        self.counters.to_keeper.add(1);
        if let Err(frame) = self.kept.push(frame) {
            self.counters.lost_full.add(1);
            self.pool.free(frame.buf);
        }
    }

    fn keeper_turn(&mut self) -> usize {
        let mut batch = Batch::new();
        self.cable.rx_burst(&mut self.pool, &mut batch);
        let count = batch.len();
        for frame in batch.pull() {
            self.put_out(frame);
        }
        count
    }

    fn put_out(&mut self, frame: Frame) {
        let Err(frame) = self.out.push(frame) else {
            return;
        };
        self.send();
        if let Err(frame) = self.out.push(frame) {
            self.counters.lost_full.add(1);
            self.pool.free(frame.buf);
        }
    }

    /// Sends the frames that have gathered, to the device and to the keeper.
    fn send(&mut self) {
        let mut done = Batch::new();
        for (queue, frames) in [
            (&mut self.device, &mut self.out),
            (&mut self.cable, &mut self.kept),
        ] {
            // Also without any: it may have some to give back.
            queue.tx_burst(&mut self.pool, frames, &mut done);
            for _ in 1..ATTEMPTS {
                if frames.is_empty() {
                    break;
                }
                queue.tx_burst(&mut self.pool, frames, &mut done);
            }
            for frame in frames.pull() {
                self.counters.lost_full.add(1);
                self.pool.free(frame.buf);
            }
        }
        debug_assert!(done.is_empty(), "nothing here is lent");
    }

    fn member_turn(&mut self, slot: Slot) -> usize {
        let Some(mut member) = self.members[usize::from(slot)].take() else {
            return 0;
        };
        let taken = self.take_from(slot, &mut member);
        self.members[usize::from(slot)] = Some(member);
        if !self.inside.is_empty() {
            self.deliver_inside();
        }
        match taken {
            Ok(count) => count,
            Err(breach) => {
                self.cut_off(slot, &breach);
                0
            }
        }
    }

    /// Takes a burst of frames from each core of a member.
    fn take_from(&mut self, slot: Slot, member: &mut Member) -> Result<usize, Breach> {
        let Some(memory) = &member.memory else {
            return Ok(0);
        };
        let mut count = 0;
        for core in &mut member.cores {
            let mut burst = [Descriptor::default(); AT_ONCE];
            let room = (core.done.room()? as usize).min(AT_ONCE);
            let taken = core.tx.pop(&mut burst[..room])?;
            if taken == 0 {
                continue;
            }
            count += taken;
            for it in &burst[..taken] {
                let len = it.len as usize;
                if len > self.frame_max {
                    return Err(Breach::Words("it sends more than a frame"));
                }
                let Some(mut buf) = self.pool.alloc() else {
                    self.counters.lost_full.add(1);
                    continue;
                };
                let at = usize::from(buf.off());
                memory.read(it.offset, &mut buf.bytes_mut()[at..at + len])?;
                let frame = Frame::new(buf, len as u16);
                self.pass(slot, member.user, &mut member.taken, frame);
            }
            core.done.push(&burst[..taken])?;
            core.sent();
        }
        Ok(count)
    }

    fn pass(&mut self, slot: Slot, user: u32, taken: &mut u32, frame: Frame) {
        let verdict = match self.identity.judge(frame.data(), slot, &self.ports) {
            Verdict::Takes(port) if !self.door.allows(user, port.number) => Verdict::Refuse,
            Verdict::Takes(_) if *taken >= TAKEN_MAX => Verdict::Refuse,
            Verdict::Takes(port) => match self.ports.claim(slot, port) {
                Some(_) => {
                    *taken += 1;
                    Verdict::Pass
                }
                None => Verdict::Refuse,
            },
            other => other,
        };
        match verdict {
            Verdict::Pass if self.identity.is_for_us(frame.data()) => {
                self.carry_inside(slot, frame);
            }
            Verdict::Pass => {
                self.counters.from_members.add(1);
                self.put_out(frame);
            }
            _ => {
                self.counters.refused.add(1);
                self.pool.free(frame.buf);
            }
        }
    }

    /// From one member to another, or back: whoever sends to a port without an owner answers itself that it is closed.
    fn carry_inside(&mut self, from: Slot, frame: Frame) {
        self.counters.inside.add(1);
        let to = steer(frame.data(), self.link, &self.ports, &mut self.pieces);
        let (slot, core) = match to {
            To::Member(slot, core) => (slot, core),
            To::Keeper | To::Closed => (from, 0),
            To::Kept | To::Nowhere | To::Everybody => {
                self.counters.lost_reserved.add(1);
                return self.pool.free(frame.buf);
            }
        };
        self.inside.push((slot, core, frame));
    }

    /// Delivers what stays inside, once no member is lent out.
    fn deliver_inside(&mut self) {
        let mut inside = std::mem::take(&mut self.inside);
        for (slot, core, frame) in inside.drain(..) {
            self.deliver(slot, core, frame.data(), Descriptor::INSIDE);
            self.pool.free(frame.buf);
        }
        self.inside = inside;
        (self.members.iter_mut().flatten()).for_each(Member::tell);
    }

    /// Whether everything that could wake it will.
    fn arms(&mut self) -> bool {
        if !self.device.arm() || !self.cable.arm() {
            return false;
        }
        for slot in 0..self.members.len() {
            let Some(member) = &mut self.members[slot] else {
                continue;
            };
            match member.arm() {
                Ok(true) => {}
                Ok(false) => return false,
                Err(violation) => {
                    self.cut_off(slot as Slot, &violation.into());
                    return false;
                }
            }
        }
        true
    }

    fn sleep(&mut self, parker: &Parker) -> io::Result<()> {
        let now = Instant::now();
        let left = (self.expires).map(|at| at.saturating_duration_since(now));
        let bell = parker.bell();
        bell.arm();
        if self.stop.load(Ordering::Acquire) {
            bell.disarm();
            return Ok(());
        }
        let mut polled = vec![
            PollFd::new(&self.door, PollFlags::IN),
            PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN),
        ];
        let queues = [&self.device, &self.cable].into_iter();
        for fd in queues.filter_map(|queue| queue.wait_fd()) {
            polled.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        for member in self.members.iter().flatten() {
            polled.push(PollFd::new(&member.link, PollFlags::IN));
            let process = member.process.iter();
            polled.extend(process.map(|fd| PollFd::new(fd, PollFlags::IN)));
            let bells = member.cores.iter().map(|core| &core.bell);
            polled.extend(bells.map(|bell| PollFd::new(bell, PollFlags::IN)));
        }
        let time = left.map(timespec);
        let waited = poll(&mut polled, time.as_ref());
        drop(polled);
        bell.disarm();
        (self.members.iter_mut().flatten()).for_each(Member::disarm);
        match waited {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Hears what members have to say, and who else asks.
    fn look(&mut self) -> io::Result<()> {
        if self.expires.is_some_and(|at| at <= Instant::now()) {
            self.expires = self.ports.expire(Instant::now());
        }
        for slot in 0..self.members.len() {
            if let Some(mut member) = self.members[slot].take() {
                let slot = slot as Slot;
                let heard = self.hear(slot, &mut member);
                self.members[usize::from(slot)] = Some(member);
                match heard {
                    Ok(Some(end)) => self.ends(slot, end),
                    Ok(None) => {}
                    Err(breach) => self.cut_off(slot, &breach),
                }
            }
        }
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
                Ok(member) => *place = Some(member),
                Err(error) => eprintln!("janus: a program that asks cannot be told of: {error}"),
            }
        }
        Ok(())
    }

    /// Hears one member; how it ends, if it does.
    fn hear(&mut self, slot: Slot, member: &mut Member) -> Result<Option<End>, Breach> {
        let mut closed = false;
        for core in &member.cores {
            closed |= !core.bell.hear()?;
        }
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
                    self.welcomes(slot, member, &hello)?;
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
                    self.counters.joined.add(1);
                }
                Received::Message(Message::Claim(claim), _) => self.claims(slot, member, &claim)?,
                Received::Message(Message::Release { number }, _) => {
                    if let Some(port) = member.claims.remove(&number) {
                        self.ports.release(slot, port);
                    }
                }
                Received::Message(Message::Leave, _) => {
                    // Its last frames go out yet.
                    for _ in 0..FAREWELL_TURNS {
                        if self.take_from(slot, member)? == 0 {
                            break;
                        }
                        self.send();
                    }
                    return Ok(Some(End::Leaves));
                }
                Received::Message(..) | Received::Strange(_) => {
                    return Err(Breach::Words("it says what only a daemon says"));
                }
                Received::Nothing => break,
                Received::End => return Ok(Some(End::Dies)),
            }
        }
        if member.dawdles() {
            return Err(Breach::Words("it asks, and does not join"));
        }
        // Its line may be held by a child of it.
        Ok((closed || member.has_ended()).then_some(End::Dies))
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

    fn welcomes(&mut self, slot: Slot, member: &mut Member, hello: &Hello) -> Result<(), Breach> {
        if !self.door.admits(member.user) {
            let why = "no port is allowed to this user: `janus daemon --allow` names who may what";
            let _ = member.say(&refused(0, Errno::ACCESS, why.into()));
            return Err(Breach::Words("its user may have no port"));
        }
        if hello.mode == janus_shm::Mode::Shared {
            let why = "this daemon copies packets: ask for that";
            let _ = member.say(&refused(0, Errno::OPNOTSUPP, why.into()));
            return Err(Breach::Words("it wants shared memory"));
        }
        member.greets(hello)?;
        let Some(ports) = self.ports.block(slot, hello.ports) else {
            let why = "no ports are left for connections that it begins";
            let _ = member.say(&refused(0, Errno::ADDRINUSE, why.into()));
            return Err(Breach::Words("there are no ports left for it"));
        };
        member.say(&Message::Welcome(Welcome {
            member: u32::from(slot) + 1,
            ports,
            ..self.welcome.clone()
        }))
    }

    fn claims(&mut self, slot: Slot, member: &mut Member, claim: &Claim) -> Result<(), Breach> {
        let number = claim.number;
        if member.stage == Stage::Asks {
            return Err(Breach::Words("it claims before it has presented itself"));
        }
        if let Err((errno, why)) = self.may_claim(member, claim.address) {
            return member.say(&refused(number, errno, why));
        }
        let port = Port {
            udp: claim.udp,
            number: claim.address.port(),
        };
        match self.ports.claim(slot, port) {
            Some(given) => {
                let given = Port {
                    number: given,
                    ..port
                };
                member.claims.insert(number, given);
                let port = given.number;
                member.say(&Message::Granted { number, port })
            }
            None => {
                let why = format!("port {} is another program's", port.number);
                member.say(&refused(number, Errno::ADDRINUSE, why))
            }
        }
    }

    fn may_claim(&self, member: &Member, address: SocketAddr) -> Result<(), (Errno, String)> {
        let (ip, port) = (address.ip(), address.port());
        if !ip.is_unspecified() && !self.identity.has(ip) {
            let why = format!("{ip} is no address of the daemon's device");
            return Err((Errno::ADDRNOTAVAIL, why));
        }
        if port != 0 && !self.door.allows(member.user, port) {
            let user = member.user;
            let why = format!("port {port} is not allowed to user {user} (`janus daemon --allow`)");
            return Err((Errno::ACCESS, why));
        }
        if member.claims.len() >= CLAIMS_MAX {
            return Err((Errno::NOBUFS, format!("{CLAIMS_MAX} ports are claimed")));
        }
        Ok(())
    }

    #[cold]
    fn cut_off(&mut self, slot: Slot, breach: &Breach) {
        let member = &self.members[usize::from(slot)];
        if let Some(member) = member {
            eprintln!("janus: {} is cut off: {breach}", member.called());
        }
        self.ends(slot, End::CutOff);
    }

    fn ends(&mut self, slot: Slot, end: End) {
        let Some(member) = self.members[usize::from(slot)].take() else {
            return;
        };
        let until = Instant::now() + KEPT;
        let was_ready = member.stage == Stage::Ready;
        let (counter, kept) = match end {
            End::Leaves => (&self.counters.left, None),
            End::Dies => (&self.counters.died, Some(until)),
            End::CutOff => (&self.counters.cut_off, Some(until)),
        };
        if was_ready || end == End::CutOff {
            counter.add(1);
        }
        self.ports.gone(slot, kept);
        if kept.is_some() {
            self.expires = Some(self.expires.map_or(until, |at| at.min(until)));
        }
        // Its memory is unmapped before its line is hung up.
        drop(member);
    }
}

/// How a member ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Leaves,
    Dies,
    CutOff,
}

fn refused(number: u32, errno: Errno, why: String) -> Message {
    let errno = errno.raw_os_error();
    Message::Refused { number, errno, why }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// A turn takes less from a member's core than a batch holds.
const _: () = assert!(AT_ONCE <= BURST);
