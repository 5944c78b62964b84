//! Members that lie: each is cut off or ignored, and whoever else is there is served.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use janus_shm::{
    Bell, Claim, Descriptor, Hello, Link, Message, Mode, Producer, Received, Segment, Share,
    VERSION, Welcome, bytes_of_ring,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::world::World;

pub(crate) const LOG2: u8 = 6;
const PACKETS: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(10);

/// One end of a line, used as the test likes.
pub(crate) struct Liar {
    link: Link,
    welcome: Option<Welcome>,
    pub(crate) packets: Segment,
    pub(crate) rings: Arc<Segment>,
    pub(crate) bell: (Bell, Bell),
}

fn hello() -> Hello {
    Hello {
        versions: (VERSION, VERSION),
        name: "a liar".into(),
        mode: Mode::Isolated,
        cores: 1,
        member: 0,
        ports: (0, 64),
    }
}

impl Liar {
    pub(crate) fn new(world: &World) -> Liar {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(&world.socket).unwrap()).unwrap();
        let rings = 4 * bytes_of_ring(LOG2) as usize;
        Liar {
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

    /// Up to where packets may come.
    pub(crate) fn joins(&mut self) {
        self.says(&Message::Hello(hello()), &[]);
        let Some(Message::Welcome(welcome)) = self.hears() else {
            panic!("it is not welcome");
        };
        self.welcome = Some(welcome);
        let memory = Message::Memory {
            packets: PACKETS as u64,
            rings: self.rings.len() as u64,
        };
        self.says(&memory, &[&self.packets, &*self.rings]);
        self.says(&self.places([0, 1, 2, 3]), &[&self.bell.1]);
        self.says(&Message::Ready, &[]);
    }

    fn places(&self, at: [u64; 4]) -> Message {
        Message::Rings {
            core: 0,
            offsets: at.map(|at| at * bytes_of_ring(LOG2)),
            log2: LOG2,
        }
    }

    pub(crate) fn ring(&self, at: u64) -> Producer {
        Producer::new(self.rings.clone(), at * bytes_of_ring(LOG2), LOG2).unwrap()
    }

    /// Says that a frame is there to be sent.
    fn offers(&self, tx: &mut Producer, offset: u64, len: u32) {
        let tag = 0;
        tx.push(&[Descriptor { offset, len, tag }]).unwrap();
        let _ = tx.publish();
        self.bell.0.ring();
    }

    /// Has a frame sent.
    fn sends(&self, tx: &mut Producer, bytes: &[u8]) {
        self.packets.write(0, bytes).unwrap();
        self.offers(tx, 0, bytes.len() as u32);
    }

    /// Whether the line is hung up.
    fn is_cut_off(&self) -> bool {
        loop {
            if self.hears().is_none() {
                return true;
            }
        }
    }
}

fn claim(number: u32, port: u16) -> Message {
    Message::Claim(Claim {
        number,
        udp: false,
        address: ([192, 0, 2, 1], port).into(),
        group: String::new(),
        share: Share::Alone,
    })
}

/// Each lies in its own way; the honest one must not notice.
fn lie(name: &str, lies: impl Fn(&mut Liar)) -> bool {
    let world = World::new("liar");
    let honest = world.member(80, "honest");
    let mut liar = Liar::new(&world);
    lies(&mut liar);
    let cut_off = liar.is_cut_off();
    assert_eq!(world.asks(80, "hello").unwrap(), "honest: hello", "{name}");
    honest.ends();
    let counters = world.ends();
    assert_eq!(counters.cut_off.get(), u64::from(cut_off), "{name}");
    cut_off
}

#[test]
fn who_breaks_the_rules_is_cut_off() {
    let word = |at: u64, value: u32| {
        move |liar: &mut Liar| {
            liar.joins();
            let word = liar.rings.word(at).unwrap();
            word.store(value, std::sync::atomic::Ordering::SeqCst);
            liar.bell.0.ring();
        }
    };
    let ring = bytes_of_ring(LOG2);
    assert!(lie(
        "more to send than a ring holds",
        word(2 * ring, 1 << 20)
    ));
    assert!(lie(
        "more came back than there was",
        word(3 * ring + 128, 77)
    ));
    assert!(lie("a frame outside of its memory", |liar| {
        liar.joins();
        liar.offers(&mut liar.ring(2), PACKETS as u64 - 3, 60);
    }));
    assert!(lie("a frame that is too long", |liar| {
        liar.joins();
        liar.offers(&mut liar.ring(2), 0, 9_000);
    }));
    assert!(lie("ready before it can be", |liar| {
        liar.says(&Message::Ready, &[]);
    }));
    assert!(lie("what only a daemon says", |liar| {
        liar.says(
            &Message::Granted {
                number: 1,
                port: 80,
            },
            &[],
        );
    }));
    assert!(lie("twice", |liar| {
        liar.joins();
        liar.says(&Message::Hello(hello()), &[]);
    }));
    assert!(lie("another version", |liar| {
        let versions = (7, 9);
        liar.says(
            &Message::Hello(Hello {
                versions,
                ..hello()
            }),
            &[],
        );
    }));
    assert!(lie("memory that is not sealed", |liar| {
        liar.says(&Message::Hello(hello()), &[]);
        liar.hears();
        let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        let memory = Message::Memory {
            packets: 4_096,
            rings: 4_096,
        };
        liar.says(&memory, &[&file, &file]);
    }));
    assert!(lie("rings that overlap the end", |liar| {
        liar.says(&Message::Hello(hello()), &[]);
        liar.hears();
        let (packets, rings) = (PACKETS as u64, liar.rings.len() as u64);
        liar.says(
            &Message::Memory { packets, rings },
            &[&liar.packets, &*liar.rings],
        );
        liar.says(&liar.places([0, 1, 2, 9]), &[&liar.bell.1]);
    }));
    assert!(lie("a bell that is none", |liar| {
        liar.says(&Message::Hello(hello()), &[]);
        liar.hears();
        let (packets, rings) = (PACKETS as u64, liar.rings.len() as u64);
        liar.says(
            &Message::Memory { packets, rings },
            &[&liar.packets, &*liar.rings],
        );
        let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        liar.says(&liar.places([0, 1, 2, 3]), &[&file]);
        liar.says(&Message::Ready, &[]);
    }));
}

#[test]
fn what_is_not_a_members_own_does_not_go_out() {
    let world = World::new("forger");
    let honest = world.member(80, "honest");
    let mut liar = Liar::new(&world);
    liar.joins();
    liar.says(&claim(1, 80), &[]);
    let Some(Message::Refused { number: 1, why, .. }) = liar.hears() else {
        panic!("another's port is granted");
    };
    assert!(why.contains("another program's"), "{why}");
    let welcome = liar.welcome.clone().unwrap();
    let frame = |source: [u8; 4], port: u16| {
        let mut frame = vec![0xff; 6];
        frame.extend(welcome.mac);
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(source);
        frame.extend([192, 0, 2, 2]);
        frame.extend(port.to_be_bytes());
        frame.extend([0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 4, 0, 0, 0, 0, 0, 0]);
        frame
    };
    let mut tx = liar.ring(2);
    let forged = [
        frame([192, 0, 2, 1], 80),
        frame([192, 0, 2, 77], 4_000),
        vec![0; 60],
        vec![],
    ];
    for frame in &forged {
        liar.sends(&mut tx, frame);
        std::thread::sleep(Duration::from_millis(20));
    }
    let begin = Instant::now();
    while world.counters().refused.get() < forged.len() as u64 {
        assert!(begin.elapsed() < LONG, "{}", world.counters());
        std::thread::sleep(Duration::from_millis(1));
    }
    // Its own goes out.
    let before = world.counters().from_members.get();
    liar.sends(&mut tx, &frame([192, 0, 2, 1], welcome.ports.0));
    while world.counters().from_members.get() == before {
        assert!(begin.elapsed() < LONG, "{}", world.counters());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(world.asks(80, "hello").unwrap(), "honest: hello");
    honest.ends();
    drop(liar);
    assert_eq!(world.ends().cut_off.get(), 0);
}

#[test]
fn one_that_asks_and_never_takes_anything_disturbs_nobody() {
    let world = World::new("deaf");
    let honest = world.member(80, "honest");
    let mut liar = Liar::new(&world);
    liar.joins();
    // Claims whose answers it does not read, until there is no room for them.
    for number in 0..5_000 {
        liar.says(&claim(number, 20_000), &[]);
    }
    for _ in 0..20 {
        assert_eq!(world.asks(80, "hello").unwrap(), "honest: hello");
    }
    // Packets for a port of one who gives no buffers.
    let unanswered = world.asks_for(20_000, "hello", Duration::from_millis(300));
    assert_eq!(unanswered.unwrap_err().kind(), ErrorKind::TimedOut);
    honest.ends();
    drop(liar);
    world.ends();
}
