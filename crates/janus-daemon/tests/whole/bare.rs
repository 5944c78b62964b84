//! A member by hand: one end of a line and its memory, used as a test likes. An honest one sends each datagram back to where it came from.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use janus_shm::{
    Bell, Claim, Consumer, Descriptor, Hello, Link, Message, Mode, Producer, Received, Segment,
    Share, VERSION, Welcome, bytes_of_ring,
};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown,
    socket_with,
};

use crate::world::LONG;

pub(crate) const LOG2: u8 = 6;
pub(crate) const PACKETS: usize = 1 << 18;
/// Bytes of a buffer, and how many a member gives: the rest of its memory the daemon must leave alone.
const SLOT: u64 = 2048;
const GIVEN: u64 = 32;
/// Its memory before anything was written there.
const UNTOUCHED: u8 = 0xa5;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const UDP_HEAD: usize = 42;

pub(crate) struct Bare {
    pub(crate) link: Link,
    pub(crate) welcome: Option<Welcome>,
    pub(crate) packets: Segment,
    pub(crate) rings: Arc<Segment>,
    pub(crate) bell: (Bell, Bell),
}

/// A member's four rings, and the buffers that the daemon has.
pub(crate) struct Echo {
    fill: Producer,
    rx: Consumer,
    tx: Producer,
    done: Consumer,
    port: u16,
    filling: BTreeSet<u64>,
    sending: BTreeSet<u64>,
}

pub(crate) fn hello() -> Hello {
    Hello {
        versions: (VERSION, VERSION),
        name: "by hand".into(),
        mode: Mode::Isolated,
        cores: 1,
        member: 0,
        ports: (0, 64),
        buffers: 0,
        permit: None,
    }
}

pub(crate) fn claim(number: u32, udp: bool, port: u16) -> Message {
    Message::Claim(Claim {
        number,
        udp,
        address: ([192, 0, 2, 1], port).into(),
        group: String::new(),
        share: Share::Alone,
        permit: None,
    })
}

impl Bare {
    pub(crate) fn new(socket: &Path) -> Bare {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let to = SocketAddrUnix::new(socket).unwrap();
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &to).unwrap();
        let rings = 4 * bytes_of_ring(LOG2) as usize;
        Bare {
            link: Link::new(socket),
            welcome: None,
            packets: Segment::create("test", PACKETS).unwrap(),
            rings: Arc::new(Segment::create("test", rings).unwrap()),
            bell: Bell::pair().unwrap(),
        }
    }

    pub(crate) fn says(&self, message: &Message, fds: &[&dyn AsFd]) {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        // It may be cut off by then.
        let _ = self.link.send(message, &fds);
    }

    pub(crate) fn hears(&self) -> Option<Message> {
        let begin = Instant::now();
        loop {
            match self.link.receive() {
                Ok(Received::Message(message, _)) => return Some(message),
                Ok(Received::Nothing) => {}
                Ok(Received::End | Received::Strange(_)) | Err(_) => return None,
            }
            assert!(begin.elapsed() < LONG, "the daemon says nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn says_hello(&self) {
        self.says(&Message::Hello(hello()), &[]);
    }

    pub(crate) fn hears_welcome(&mut self) {
        let Some(Message::Welcome(welcome)) = self.hears() else {
            panic!("it is not welcome");
        };
        self.welcome = Some(welcome);
    }

    pub(crate) fn gives_memory(&self) {
        let memory = Message::Memory {
            packets: PACKETS as u64,
            rings: self.rings.len() as u64,
        };
        self.says(&memory, &[&self.packets, &*self.rings]);
    }

    pub(crate) fn gives_rings(&self) {
        self.says(&self.places([0, 1, 2, 3]), &[&self.bell.1]);
    }

    /// Up to where packets may come.
    pub(crate) fn joins(&mut self) {
        self.joins_by(hello());
    }

    pub(crate) fn joins_by(&mut self, hello: Hello) {
        self.says(&Message::Hello(hello), &[]);
        self.hears_welcome();
        self.gives_memory();
        self.gives_rings();
        self.says(&Message::Ready, &[]);
    }

    /// The device's link address, as it was told.
    pub(crate) fn mac(&self) -> [u8; 6] {
        let welcome = self.welcome.as_ref().expect("it has joined");
        welcome.device.mac().expect("the device has one")
    }

    /// Asks for a port of TCP, or of UDP, and waits until it has it.
    pub(crate) fn claims(&self, number: u32, udp: bool, port: u16) {
        self.says(&claim(number, udp, port), &[]);
        self.is_granted(number, port);
    }

    pub(crate) fn is_granted(&self, number: u32, port: u16) {
        let answer = self.hears();
        let permit = None;
        let granted = Message::Granted {
            number,
            port,
            permit,
        };
        assert_eq!(answer, Some(granted));
    }

    /// Goes in order: once this is back the daemon has let go of it.
    pub(crate) fn leaves(self) {
        self.leaves_to_another(false);
    }

    pub(crate) fn leaves_to_another(self, keeps: bool) {
        self.says(&Message::Leave { keeps }, &[]);
        assert!(self.is_cut_off());
    }

    /// Ends without a word, also where a child that another thread is about to start has its line for a moment.
    pub(crate) fn dies(self) {
        let _ = shutdown(&self.link, Shutdown::Both);
    }

    pub(crate) fn places(&self, at: [u64; 4]) -> Message {
        Message::Rings {
            core: 0,
            offsets: at.map(|at| at * bytes_of_ring(LOG2)),
            log2: LOG2,
        }
    }

    pub(crate) fn ring(&self, at: u64) -> Producer {
        Producer::new(self.rings.clone(), at * bytes_of_ring(LOG2), LOG2).unwrap()
    }

    pub(crate) fn end(&self, at: u64) -> Consumer {
        Consumer::new(self.rings.clone(), at * bytes_of_ring(LOG2), LOG2).unwrap()
    }

    /// Says that a frame is there to be sent.
    pub(crate) fn offers(&self, tx: &mut Producer, offset: u64, len: u32) {
        let tag = 0;
        assert_eq!(tx.put(Descriptor { offset, len, tag }), Ok(true));
        let _ = tx.publish();
        self.bell.0.ring();
    }

    /// Has a frame sent.
    pub(crate) fn sends(&self, tx: &mut Producer, bytes: &[u8]) {
        self.packets.write(0, bytes).unwrap();
        self.offers(tx, 0, bytes.len() as u32);
    }

    /// Whether the line is hung up.
    pub(crate) fn is_cut_off(&self) -> bool {
        loop {
            if self.hears().is_none() {
                return true;
            }
        }
    }
}

impl Echo {
    pub(crate) fn new(bare: &Bare, port: u16) -> Echo {
        bare.packets.write(0, &[UNTOUCHED; PACKETS]).unwrap();
        Echo {
            fill: bare.ring(0),
            rx: bare.end(1),
            tx: bare.ring(2),
            done: bare.end(3),
            port,
            filling: BTreeSet::new(),
            sending: BTreeSet::new(),
        }
    }

    /// Gives the daemon each other buffer of the memory's first half.
    pub(crate) fn fills(&mut self, bare: &Bare) {
        (0..GIVEN).for_each(|at| self.gives(at * 2 * SLOT));
        self.shows(bare);
    }

    /// A buffer that it has taken.
    pub(crate) fn gives_again(&mut self, bare: &Bare, offset: u64) {
        self.gives(offset);
        self.shows(bare);
    }

    /// The daemon may have frames that wait for them.
    fn shows(&mut self, bare: &Bare) {
        if self.fill.publish() {
            bare.bell.0.ring();
        }
    }

    fn gives(&mut self, offset: u64) {
        let given = Descriptor {
            offset,
            ..Descriptor::default()
        };
        assert_eq!(self.fill.put(given), Ok(true));
        assert!(self.filling.insert(offset));
    }

    /// A frame that came, and its buffer.
    pub(crate) fn takes(&mut self, bare: &Bare) -> Option<(u64, Vec<u8>)> {
        let got = self.rx.take().unwrap()?;
        self.rx.publish();
        assert!(self.filling.remove(&got.offset), "a buffer that it had not");
        let mut frame = vec![0; got.len as usize];
        bare.packets.read(got.offset, &mut frame).unwrap();
        Some((got.offset, frame))
    }

    /// Sends a datagram back in the buffer in which it came: its checksums stay true.
    pub(crate) fn sends_back(&mut self, bare: &Bare, (offset, mut frame): (u64, Vec<u8>)) {
        for (one, other, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
            let (head, tail) = frame.split_at_mut(other);
            head[one..one + len].swap_with_slice(&mut tail[..len]);
        }
        bare.packets.write(offset, &frame).unwrap();
        assert!(self.sending.insert(offset));
        bare.offers(&mut self.tx, offset, frame.len() as u32);
    }

    /// Takes buffers back whose frames were sent, and gives them anew; how many.
    pub(crate) fn reaps(&mut self, bare: &Bare) -> usize {
        let mut count = 0;
        while let Some(got) = self.done.take().unwrap() {
            self.done.publish();
            assert!(self.sending.remove(&got.offset), "it was not sent");
            self.gives_again(bare, got.offset);
            count += 1;
        }
        count
    }

    /// The next datagram; it must be this member's, as its first word says.
    pub(crate) fn takes_own(&mut self, bare: &Bare) -> Option<(u64, Vec<u8>)> {
        let port = self.port.to_be_bytes();
        loop {
            let (offset, frame) = self.takes(bare)?;
            if frame[12..14] == [8, 0] && frame[23] == UDP {
                assert_eq!(frame[36..38], port, "another's port: {frame:?}");
                let begins = format!("{} ", self.port);
                let text = &frame[UDP_HEAD..];
                assert!(text.starts_with(begins.as_bytes()), "another's: {text:?}");
                return Some((offset, frame));
            }
            // An answer about link addresses, which all are told; or an answer of its own came too late for who had asked.
            let is_late = frame[23] == ICMP && frame.get(62..64) == Some(&port);
            assert!(frame[12..14] == [8, 6] || is_late, "{frame:?}");
            self.gives_again(bare, offset);
        }
    }

    /// Sends back what has come.
    pub(crate) fn serves(&mut self, bare: &Bare) {
        while let Some(taken) = self.takes_own(bare) {
            self.sends_back(bare, taken);
        }
        self.reaps(bare);
    }

    /// Whether the daemon has each buffer that it was given, those apart that are on their way, and has written into no others.
    pub(crate) fn is_whole(&self, bare: &Bare) {
        assert_eq!(self.filling.len() + self.sending.len(), GIVEN as usize);
        let mut slot = [0; SLOT as usize];
        for at in (0..PACKETS as u64 / SLOT).filter(|at| at % 2 == 1 || *at >= 2 * GIVEN) {
            bare.packets.read(at * SLOT, &mut slot).unwrap();
            let touched = slot.iter().position(|byte| *byte != UNTOUCHED);
            assert_eq!(touched, None, "written into buffer {at}");
        }
    }
}
