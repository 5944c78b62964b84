//! The loop: from the device and the keeper to members, from members to the device; between bursts what members say. One thread does all of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use janus::{OpenDevice, Portal};
use janus_io::park::Parker;
use janus_io::{BURST, Batch, Idle, Queue};
use janus_mem::{Frame, LENT};
use janus_shm::{Closer, Descriptor, Device, Network, Welcome};
use janus_wire::tcp::Flags;
use janus_wire::{Link, classify};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::absent::Absent;
use crate::check::{Identity, Verdict};
use crate::door::Door;
use crate::doors::Doors;
use crate::member::{Breach, Member, Memory, Stage};
use crate::network::{self, Leased};
use crate::patience::Patience;
use crate::ports::{KEPT, Ports, Slot};
use crate::publisher::Publisher;
use crate::resets::Resets;
use crate::steer::{Pieces, To, steer};
use crate::stock::{Flight, Stock};
use crate::{Counters, MEMBERS_MAX, Settings};

/// Turns between two looks at what members say, where there is always something to carry.
const LOOK_EVERY: u32 = 256;
/// Frames of one core of a member in a turn: the others' come then.
const AT_ONCE: usize = 32;
/// Ports that a member may take by sending from them.
const TAKEN_MAX: u32 = 1024;
/// Bytes of a frame by which it is judged: addresses and ports are in them.
const HEAD: usize = 96;
/// Attempts to send before frames are dropped, as a full device does it.
const ATTEMPTS: usize = 4;

pub(crate) struct Switch {
    pub(crate) device: Box<dyn Queue>,
    pub(crate) cable: Box<dyn Queue>,
    pub(crate) door: Door,
    pub(crate) members: Vec<Option<Box<Member>>>,
    /// Places from here on are empty: newcomers have the first that is.
    pub(crate) places: usize,
    pub(crate) ports: Ports,
    pub(crate) pieces: Pieces,
    pub(crate) identity: Identity,
    pub(crate) welcome: Welcome,
    /// The addresses of now; none before the first lease.
    pub(crate) network: Network,
    /// Where the news of leased addresses comes from.
    pub(crate) leased: Option<Leased>,
    pub(crate) link: Link,
    pub(crate) frame_max: usize,
    pub(crate) stock: Stock,
    pub(crate) resets: Resets,
    pub(crate) closer: Closer,
    pub(crate) doors: Option<Doors>,
    /// For the device, and for the keeper.
    pub(crate) out: Batch,
    pub(crate) kept: Batch,
    /// From members to members, and back.
    pub(crate) inside: Vec<(Slot, u8, u32, Frame)>,
    /// Frames in lent buffers that are sent, or could not be.
    landed: Vec<Frame>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) expires: Option<Instant>,
    pub(crate) quiet_until: Option<Instant>,
    pub(crate) absent: Absent,
    pub(crate) patience: Patience,
}

impl Switch {
    pub(crate) fn new(
        device: OpenDevice,
        cable: Box<dyn Queue>,
        door: Door,
        absent: Absent,
        settings: &Settings,
        (stop, leased): (Arc<AtomicBool>, Option<Leased>),
        counters: Arc<Counters>,
    ) -> io::Result<Switch> {
        let caps = device.queue.caps();
        let (link, frame_max) = (caps.link, caps.frame_max());
        let carrier = match (&device.portal, caps.mac, link) {
            (Some(_), ..) => Device::Portal(Portal::first_port()),
            (None, Some(mac), Link::Ethernet) => Device::Ethernet(mac.0),
            _ => {
                let text = "members want a device with link addresses, or the portal";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        };
        let mut ports = Ports::new();
        let network = network::first(&device, leased.as_ref(), &mut ports);
        let addresses = network.addresses.iter().map(|(addr, _)| *addr).collect();
        // Members of a daemon before cannot join before there is an address, and until then nothing is answered in any case.
        let quiet = KEPT + leased.as_ref().map_or(Duration::ZERO, Leased::wait);
        let quiet_until = door.follows.then(|| Instant::now() + quiet);
        let welcome = Welcome {
            version: janus_shm::VERSION,
            member: 0,
            device: carrier,
            mtu: caps.mtu,
            checksums: (caps.rx_checksum, caps.tx_checksum),
            ports: (0, 0),
            addresses: network.addresses.clone(),
            gateways: network.gateways.clone(),
            loan: (0, 0),
        };
        Ok(Switch {
            cable,
            door,
            members: (0..MEMBERS_MAX).map(|_| None).collect(),
            places: 0,
            ports,
            pieces: Pieces::new(),
            identity: Identity::new(carrier, addresses),
            welcome,
            network,
            leased,
            link,
            frame_max,
            stock: Stock::new(
                &device.depot,
                device.memory,
                settings.lends,
                counters.clone(),
            ),
            resets: Resets::new(),
            closer: Closer::start()?,
            doors: device.portal.map(Doors::new),
            device: device.queue,
            out: Batch::new(),
            kept: Batch::new(),
            inside: Vec::new(),
            landed: Vec::new(),
            counters,
            stop,
            expires: None,
            quiet_until,
            absent,
            patience: Patience::new(settings.patience),
        })
    }

    /// Until it is stopped.
    pub(crate) fn run(&mut self, parker: &Parker, publisher: &mut Publisher) -> io::Result<()> {
        let (mut idle, mut turns) = (Idle::default(), 0_u32);
        self.absent.are_waited_for();
        while !self.stop.load(Ordering::Acquire) {
            let worked = self.turn() > 0;
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(LOOK_EVERY) {
                self.look()?;
                self.tell(true);
                publisher.show(&self.counters, &mut self.members);
            }
            if idle.should_sleep(worked) && self.arms() {
                publisher.show(&self.counters, &mut self.members);
                let before = Instant::now();
                self.sleep(parker)?;
                idle.slept(before.elapsed());
                self.look()?;
            }
        }
        // One that has left is not waited for by the next.
        self.look()?;
        let mut members = self.members.iter().flatten();
        self.door.is_left = members.any(|it| it.stage == Stage::Ready);
        Ok(())
    }

    /// Carries what there is, a burst of each; how many frames.
    fn turn(&mut self) -> usize {
        let mut carried = self.device_turn();
        carried += self.keeper_turn();
        for slot in 0..self.places {
            if self.members[slot].is_some() {
                carried += self.member_turn(slot as Slot);
            }
        }
        carried += self.resets_turn();
        self.send();
        self.tell(carried == 0);
        carried
    }

    /// Tells members what they have got, and gives them back what is sent.
    fn tell(&mut self, has_time: bool) {
        while let Some(frame) = self.landed.pop() {
            self.lands(frame);
        }
        for member in self.members[..self.places].iter_mut().flatten() {
            member.tell(has_time);
        }
    }

    fn device_turn(&mut self) -> usize {
        if self.absent.until().is_some() {
            return 0;
        }
        let mut batch = Batch::new();
        self.device.rx_burst(&mut self.stock.pool, &mut batch);
        let count = batch.len();
        for frame in batch.pull() {
            self.carry(frame);
        }
        if count > 0 {
            self.tell(false);
        }
        count
    }

    fn carry(&mut self, frame: Frame) {
        let class = classify(frame.data(), self.link);
        let to = steer(class, frame.data(), &self.ports, &mut self.pieces);
        if let Some((flow, flags)) = class.segment()
            && flags.contains(Flags::RST)
        {
            self.is_reset(&flow, to.slot());
        }
        match to {
            To::Member(slot, core) => return self.deliver(slot, core, frame, 0),
            To::Returns(slot, core) => {
                return self.deliver(slot, core, frame, Descriptor::RETURNS);
            }
            To::Keeper => return self.keep(frame),
            To::Everybody => {
                for slot in 0..self.places {
                    if self.members[slot].is_some()
                        && let Some(copy) = self.stock.copy(frame.data())
                    {
                        self.deliver(slot as Slot, 0, copy, 0);
                    }
                }
                return self.keep(frame);
            }
            To::Kept => self.counters.lost_reserved.add(1),
            To::Closed if self.waits_for_members() => self.counters.lost_reserved.add(1),
            To::Closed => return self.keep(frame),
            To::Nowhere => self.counters.lost_unknown.add(1),
        }
        self.stock.pool.free(frame.buf);
    }

    #[inline]
    pub(crate) fn deliver(&mut self, slot: Slot, core: u8, frame: Frame, tag: u32) {
        let Some(member) = &mut self.members[usize::from(slot)] else {
            return self.stock.pool.free(frame.buf);
        };
        let len = usize::from(frame.len);
        match member.deliver(core, frame, tag, &mut self.stock) {
            Ok(crossed) => self.counters.crossed(&mut member.account, len, crossed),
            Err(breach) => self.cut_off(slot, &breach),
        }
    }

    fn keep(&mut self, frame: Frame) {
        self.counters.to_keeper.add(1);
        if let Err(frame) = self.kept.push(frame) {
            self.counters.lost_full.add(1);
            self.stock.pool.free(frame.buf);
        }
    }

    fn keeper_turn(&mut self) -> usize {
        let mut batch = Batch::new();
        self.cable.rx_burst(&mut self.stock.pool, &mut batch);
        let count = batch.len();
        for frame in batch.pull() {
            self.keeper_sends(frame.data());
            self.put_out(frame);
        }
        count
    }

    pub(crate) fn put_out(&mut self, frame: Frame) {
        let Err(frame) = self.out.push(frame) else {
            return;
        };
        self.send();
        if let Err(frame) = self.out.push(frame) {
            self.loses(frame);
        }
    }

    /// Neither device nor keeper has room.
    fn loses(&mut self, frame: Frame) {
        self.counters.lost_full.add(1);
        match frame.is_lent() {
            true => self.landed.push(frame),
            false => self.stock.pool.free(frame.buf),
        }
    }

    /// Sends the frames that have gathered, to the device and to the keeper.
    pub(crate) fn send(&mut self) {
        for to_keeper in [false, true] {
            let (queue, frames) = match to_keeper {
                false => (&mut self.device, &mut self.out),
                true => (&mut self.cable, &mut self.kept),
            };
            // The device also without any: it may have some to give back.
            if to_keeper && frames.is_empty() {
                continue;
            }
            for _ in 0..ATTEMPTS {
                let mut done = Batch::new();
                queue.tx_burst(&mut self.stock.pool, frames, &mut done);
                if !done.is_empty() {
                    self.landed.extend(done.pull());
                }
                if frames.is_empty() {
                    break;
                }
            }
            if frames.is_empty() {
                continue;
            }
            let mut rest = std::mem::take(frames);
            for frame in rest.pull() {
                self.loses(frame);
            }
        }
    }

    /// A lent buffer goes back to who sent what is in it, unless that member is gone.
    fn lands(&mut self, frame: Frame) {
        let Flight {
            slot,
            core,
            borrower,
        } = Flight::of(frame.key);
        let member = self.members[usize::from(slot)].as_mut();
        let lent = member.and_then(|it| match it.memory {
            Memory::Lent(by) if by.get() == borrower => Some((it, by)),
            _ => None,
        });
        let Some((member, by)) = lent else {
            return self.stock.pool.free(frame.buf);
        };
        let Ok(offset) = self.stock.loans.lend(frame.buf, by) else {
            debug_assert!(false, "what was lent is of this memory");
            return;
        };
        let (len, tag) = (u32::from(frame.len), 0);
        if let Err(violation) = member.landed(core, Descriptor { offset, len, tag }) {
            self.cut_off(slot, &violation.into());
        }
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

    /// Takes a burst of frames from each core of a member, and gives it what has waited.
    pub(crate) fn take_from(&mut self, slot: Slot, member: &mut Member) -> Result<usize, Breach> {
        let mut count = 0;
        if self.stock.has_waiting() {
            while let Some((len, crossed)) = member.catches_up(&mut self.stock)? {
                self.counters.crossed(&mut member.account, len, crossed);
                count += 1;
            }
        }
        for number in 0..member.cores.len() {
            let core = &mut member.cores[number];
            if core.tx.waiting()? == 0 {
                continue;
            }
            let room = core.done.room_for(core.flying + AT_ONCE as u32)?;
            let room = (room.saturating_sub(core.flying) as usize).min(AT_ONCE);
            for _ in 0..room {
                let Some(it) = member.cores[number].tx.take()? else {
                    break;
                };
                count += 1;
                if it.len as usize > self.frame_max {
                    return Err(Breach::Words("it sends more than a frame"));
                }
                if self.flies(slot, number as u8, member, it)? {
                    member.cores[number].flying += 1;
                } else {
                    self.take(slot, member, it)?;
                    member.cores[number].done.put(it)?;
                }
            }
            member.cores[number].tx.publish();
        }
        Ok(count)
    }

    /// Sends a frame in its lent buffer, if it goes to the device and may.
    fn flies(
        &mut self,
        slot: Slot,
        core: u8,
        member: &mut Member,
        it: Descriptor,
    ) -> Result<bool, Breach> {
        let Memory::Lent(borrower) = member.memory else {
            return Ok(false);
        };
        let Some(buf) = self.stock.loans.take_back(it.offset, it.len, borrower) else {
            return Err(Breach::Words("it sends what it does not have"));
        };
        let mut frame = Frame::new(buf, it.len as u16);
        let (mut head, len) = ([0; HEAD], HEAD.min(it.len as usize));
        let head = &mut head[..len];
        head.copy_from_slice(&frame.data()[..len]);
        let stays = it.tag & Descriptor::RETURNS != 0 || self.identity.is_for_us(head);
        let passes = match stays {
            true => None,
            false => self.may_pass(slot, member, head),
        };
        let passes = passes.filter(|_| self.door.quotas.admits(member.user, head, it.len));
        let Some(flags) = passes else {
            // It is to be copied, or refused; or it is over the rate, and dropped as one in other memory is.
            let lent = self.stock.loans.lend(frame.buf, borrower);
            debug_assert!(lent.is_ok(), "it was taken back just now");
            return Ok(false);
        };
        if member.flows.turn_by(flags) {
            self.turns(member, frame.data());
        }
        let borrower = borrower.get();
        frame.tag = LENT;
        frame.key = Flight {
            slot,
            core,
            borrower,
        }
        .key();
        member.account.sent.add(it.len as usize);
        self.counters.from_members.add(1);
        self.counters.uncopied.add(1);
        self.put_out(frame);
        Ok(true)
    }

    /// Copies a frame, which is the daemon's then.
    fn take(&mut self, slot: Slot, member: &mut Member, it: Descriptor) -> Result<(), Breach> {
        let len = it.len as usize;
        let Some(mut buf) = self.stock.pool.alloc() else {
            self.counters.lost_full.add(1);
            return Ok(());
        };
        let at = usize::from(buf.off());
        let into = &mut buf.bytes_mut()[at..at + len];
        match &member.memory {
            Memory::Own(memory) => memory.read(it.offset, into)?,
            Memory::Lent(by) if self.stock.loans.peek(it.offset, into, *by) => {}
            Memory::Lent(_) | Memory::None => {
                return Err(Breach::Words("it sends what it does not have"));
            }
        }
        let frame = Frame::new(buf, len as u16);
        match it.tag & Descriptor::RETURNS {
            0 => self.pass(slot, member, frame),
            _ => self.turned_back(slot, frame, it.tag & Descriptor::INSIDE),
        }
        Ok(())
    }

    /// Flags of a segment that begins so, or none of another packet, if the member may send it.
    fn may_pass(&mut self, slot: Slot, member: &mut Member, head: &[u8]) -> Option<Flags> {
        match self.identity.judge(head, slot, &self.ports) {
            Verdict::Pass => Some(Flags::NONE),
            Verdict::Segment(flags) => Some(flags),
            Verdict::Refuse => None,
            Verdict::Takes(port) => {
                let may = member.taken < TAKEN_MAX && self.door.allows(member.user, port.number);
                let has = may && self.ports.claim(slot, port).is_some();
                member.taken += u32::from(has);
                // Now it is from a port of its own.
                has.then(|| self.may_pass(slot, member, head)).flatten()
            }
        }
    }

    fn pass(&mut self, slot: Slot, member: &mut Member, frame: Frame) {
        let Some(flags) = self.may_pass(slot, member, frame.data()) else {
            member.account.refused += 1;
            self.counters.refused.add(1);
            return self.stock.pool.free(frame.buf);
        };
        let (user, len) = (member.user, frame.len.into());
        if !self.door.quotas.admits(user, frame.data(), len) {
            member.account.limited += 1;
            self.counters.limited.add(1);
            return self.stock.pool.free(frame.buf);
        }
        member.account.sent.add(frame.len.into());
        if member.flows.turn_by(flags) {
            self.turns(member, frame.data());
        }
        if self.identity.is_for_us(frame.data()) {
            return self.carry_inside(slot, member, frame);
        }
        self.counters.from_members.add(1);
        self.put_out(frame);
    }

    /// Whether everything that could wake it will.
    fn arms(&mut self) -> bool {
        let is_carried = self.absent.until().is_none();
        if is_carried && !self.device.arm() || !self.cable.arm() {
            return false;
        }
        for slot in 0..self.places {
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
        let due = self.expires.into_iter().chain(self.resets.due());
        let held_until = self.absent.until();
        let looks = self.patience.due(self.counters.given());
        let due = due.chain(self.refuses_next()).chain(held_until);
        let due = due.chain(looks).min();
        let left = due.map(|at| at.saturating_duration_since(now));
        let bell = parker.bell();
        bell.arm();
        let has_news = self.leased.as_ref().is_some_and(Leased::is_fresh);
        if has_news || self.stop.load(Ordering::Acquire) {
            bell.disarm();
            return Ok(());
        }
        let mut polled = vec![
            PollFd::new(&self.door, PollFlags::IN),
            PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN),
        ];
        let device = held_until.is_none().then_some(&self.device);
        let queues = device.into_iter().chain([&self.cable]);
        for fd in queues.filter_map(|queue| queue.wait_fd()) {
            polled.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        polled.extend(
            self.stock
                .awaited()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        for member in self.members[..self.places].iter().flatten() {
            polled.push(PollFd::new(&member.link, PollFlags::IN));
            let process = member.process.iter();
            polled.extend(process.map(|fd| PollFd::new(fd, PollFlags::IN)));
            let bells = member.cores.iter().map(|core| &core.bell);
            polled.extend(bells.map(|bell| PollFd::new(bell, PollFlags::IN)));
        }
        // A time that the system cannot have is as good as for ever.
        let time = left.and_then(|left| Timespec::try_from(left).ok());
        let waited = poll(&mut polled, time.as_ref());
        drop(polled);
        bell.disarm();
        self.members.iter_mut().flatten().for_each(|it| it.disarm());
        match waited {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A turn takes less from a member's core than a batch holds.
const _: () = assert!(AT_ONCE <= BURST);
