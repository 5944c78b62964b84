//! A DHCP server on a port of a switch, and what a test may wish of it. It answers ARP for its own address and gives leases that are
//! to be prolonged every second. They last for so long that a busy machine does not lose one meanwhile.
#![allow(dead_code, reason = "each test program uses its part")]

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use janus_io::wire::switch::Port;
use janus_io::{Backend, Batch, Queue};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_wire::dhcp::{self, Kind, Message, Op, Repr, option};
use janus_wire::{MacAddr, arp, ethernet, ipv4, proto, udp};

pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const LEASE_SECS: u32 = 300;
/// A short one, for who wants to see its end.
const SHORT_SECS: u32 = 5;
/// When one is to be prolonged.
const RENEW_SECS: u32 = 1;
const HEADERS: usize = ethernet::LEN + ipv4::LEN + udp::LEN;

/// What came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) discovers: u32,
    pub(crate) renewals: u32,
    pub(crate) nonsense: u32,
    /// Requests for an address of an earlier life.
    pub(crate) reboots: u32,
}

/// What the test wants to come next.
#[derive(Clone, Default)]
pub(crate) struct Wish(Arc<Wished>);

#[derive(Default)]
struct Wished {
    /// The next request to prolong is refused, and this given from then on.
    next: Mutex<Option<Ipv4Addr>>,
    silent: AtomicBool,
    short: AtomicBool,
    nonsense: AtomicBool,
    renewals: AtomicU32,
    releases: AtomicU32,
    declines: AtomicU32,
    /// The address that another host on the server's port claims, over and over.
    claimed: Mutex<Option<Ipv4Addr>>,
    stop: AtomicBool,
}

impl Wish {
    /// Every answer comes behind others that are wrong in some way.
    pub(crate) fn nonsense_first() -> Wish {
        let wish = Wish::default();
        wish.0.nonsense.store(true, Ordering::Relaxed);
        wish
    }

    /// Leases are short.
    pub(crate) fn short_leases() -> Wish {
        let wish = Wish::default();
        wish.0.short.store(true, Ordering::Relaxed);
        wish
    }

    pub(crate) fn refuse_then_give(&self, address: Ipv4Addr) {
        *self.0.next.lock().unwrap() = Some(address);
    }

    pub(crate) fn be_silent(&self) {
        self.0.silent.store(true, Ordering::Relaxed);
    }

    pub(crate) fn speak(&self) {
        self.0.silent.store(false, Ordering::Relaxed);
    }

    pub(crate) fn releases(&self) -> u32 {
        self.0.releases.load(Ordering::Relaxed)
    }

    /// Until it is declined another host claims this address.
    pub(crate) fn claim(&self, address: Ipv4Addr) {
        *self.0.claimed.lock().unwrap() = Some(address);
    }

    pub(crate) fn declines(&self) -> u32 {
        self.0.declines.load(Ordering::Relaxed)
    }

    pub(crate) fn renewals(&self) -> u32 {
        self.0.renewals.load(Ordering::Relaxed)
    }
}

pub(crate) struct Server {
    wish: Wish,
    thread: JoinHandle<Counts>,
}

impl Server {
    pub(crate) fn start(port: Port, gives: Ipv4Addr) -> Server {
        Server::start_with(port, gives, Wish::default())
    }

    pub(crate) fn start_with(port: Port, gives: Ipv4Addr, wish: Wish) -> Server {
        let mac = port.caps().mac.unwrap();
        let queues = Box::new(port).open(1).unwrap();
        let mut serving = Serving {
            mac,
            queue: queues.into_iter().next().unwrap(),
            pool: Depot::new(4096, &Growth::Inline).unwrap().pool(),
            gives,
            wish: wish.clone(),
            counts: Counts::default(),
        };
        // Its buffers are there before anybody sends.
        serving.turn();
        let thread = std::thread::spawn(move || {
            while !serving.wish.0.stop.load(Ordering::Relaxed) {
                serving.turn();
                std::thread::sleep(Duration::from_micros(500));
            }
            serving.counts
        });
        Server { wish, thread }
    }

    pub(crate) fn wish(&self) -> Wish {
        self.wish.clone()
    }

    pub(crate) fn stop(self) -> Counts {
        self.wish.0.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Another host says that an address is its own (RFC 5227 section 2.3).
fn claim(address: Ipv4Addr) -> Vec<u8> {
    let mac = MacAddr([2, 0, 0, 0, 0, 0x99]);
    let mut bytes = vec![0; ethernet::LEN + arp::LEN];
    let header = ethernet::Header {
        dst: MacAddr::BROADCAST,
        src: mac,
        ethertype: ethernet::ethertype::ARP,
    };
    header.emit(&mut bytes);
    let packet = arp::Packet {
        op: arp::Op::Request,
        sender_mac: mac,
        sender_ip: address,
        target_mac: MacAddr::ZERO,
        target_ip: address,
    };
    packet.emit(&mut bytes[ethernet::LEN..]);
    bytes
}

struct Serving {
    mac: MacAddr,
    queue: Box<dyn Queue>,
    pool: Pool,
    gives: Ipv4Addr,
    wish: Wish,
    counts: Counts,
}

impl Serving {
    fn turn(&mut self) {
        let mut batch = Batch::new();
        self.queue.rx_burst(&mut self.pool, &mut batch);
        let mut answers = Vec::new();
        if let Some(address) = *self.wish.0.claimed.lock().unwrap() {
            answers.push(claim(address));
        }
        for frame in batch.pull() {
            self.hear(frame.data(), &mut answers);
            self.pool.free(frame.buf);
        }
        let (mut sending, mut done) = (Batch::new(), Batch::new());
        for answer in answers {
            let mut frame = Frame::new(self.pool.alloc().unwrap(), answer.len() as u16);
            frame.data_mut().copy_from_slice(&answer);
            sending.push(frame).unwrap();
        }
        self.queue.tx_burst(&mut self.pool, &mut sending, &mut done);
    }

    fn hear(&mut self, frame: &[u8], answers: &mut Vec<Vec<u8>>) {
        let Ok((header, packet)) = ethernet::Header::parse(frame) else {
            return;
        };
        let Ok(ip) = ipv4::parse(packet) else { return };
        let Ok(datagram) = udp::parse(ip.payload()) else {
            return;
        };
        if header.ethertype != ethernet::ethertype::IPV4
            || ip.proto != proto::UDP
            || datagram.dst_port != dhcp::SERVER_PORT
        {
            return;
        }
        assert!(ip.checksum_ok() && datagram.checksum_ok_v4(ip.src, ip.dst));
        let message = dhcp::parse(datagram.payload()).expect("a client that makes sense");
        if self.wish.0.silent.load(Ordering::Relaxed) {
            return;
        }
        let kind = match message.kind() {
            Some(Kind::Discover) => {
                self.counts.discovers += 1;
                Kind::Offer
            }
            Some(Kind::Request) => self.judge(&message),
            Some(Kind::Release) => {
                assert_eq!(message.client, self.gives);
                assert_eq!(message.address(option::SERVER), Some(ADDRESS));
                self.wish.0.releases.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Some(Kind::Decline) => {
                assert_eq!(message.address(option::REQUESTED), Some(self.gives));
                *self.wish.0.claimed.lock().unwrap() = None;
                self.wish.0.declines.fetch_add(1, Ordering::Relaxed);
                return;
            }
            _ => return,
        };
        if self.wish.0.nonsense.load(Ordering::Relaxed) {
            self.talk_nonsense(kind, &message, answers);
        }
        answers.push(self.answer(kind, &message, message.xid, self.gives));
    }

    fn judge(&mut self, message: &Message<'_>) -> Kind {
        let prolongs = !message.client.is_unspecified();
        if prolongs {
            self.counts.renewals += 1;
            self.wish.0.renewals.fetch_add(1, Ordering::Relaxed);
            if let Some(next) = self.wish.0.next.lock().unwrap().take() {
                self.gives = next;
            }
        }
        let server = message.address(option::SERVER);
        self.counts.reboots += u32::from(!prolongs && server.is_none());
        let asked = match prolongs {
            true => Some(message.client),
            false => message.address(option::REQUESTED),
        };
        if asked == Some(self.gives) {
            Kind::Ack
        } else {
            Kind::Nak
        }
    }

    fn answer(&self, kind: Kind, message: &Message<'_>, xid: u32, yours: Ipv4Addr) -> Vec<u8> {
        let secs = match self.wish.0.short.load(Ordering::Relaxed) {
            true => SHORT_SECS,
            false => LEASE_SECS,
        };
        let (time, renew) = (secs.to_be_bytes(), RENEW_SECS.to_be_bytes());
        let server = ADDRESS.octets();
        let lease: &[(u8, &[u8])] = &[
            (option::SERVER, &server),
            (option::MASK, &[255, 255, 255, 0]),
            (option::NAME_SERVERS, &[192, 0, 2, 53]),
            (option::LEASE, &time),
            (option::RENEW, &renew),
        ];
        let repr = Repr {
            op: Op::Reply,
            kind,
            xid,
            secs: 0,
            broadcast: false,
            client: Ipv4Addr::UNSPECIFIED,
            yours: if kind == Kind::Nak {
                Ipv4Addr::UNSPECIFIED
            } else {
                yours
            },
            mac: message.mac,
            options: if kind == Kind::Nak {
                &lease[..1]
            } else {
                lease
            },
        };
        let mut bytes = vec![0; 700];
        let len = dhcp::emit(&mut bytes[HEADERS..], &repr).unwrap();
        bytes.truncate(HEADERS + len);
        let header = ethernet::Header {
            dst: message.mac,
            src: self.mac,
            ethertype: ethernet::ethertype::IPV4,
        };
        header.emit(&mut bytes);
        let ip = ipv4::Repr {
            src: ADDRESS,
            dst: yours,
            proto: proto::UDP,
            payload_len: (udp::LEN + len) as u16,
            ttl: 64,
            tos: 0,
            id: 0,
            dont_fragment: false,
        };
        ipv4::emit(&mut bytes[ethernet::LEN..], &ip);
        let at = ethernet::LEN + ipv4::LEN;
        udp::emit(&mut bytes[at..], dhcp::SERVER_PORT, dhcp::CLIENT_PORT, len);
        udp::fill_checksum_v4(&mut bytes[at..], ip.src, ip.dst);
        bytes
    }

    /// Answers to somebody else, with addresses that nobody can have, cut off, and with wrong sums.
    fn talk_nonsense(&mut self, kind: Kind, message: &Message<'_>, answers: &mut Vec<Vec<u8>>) {
        let good = self.answer(kind, message, message.xid, self.gives);
        let mut wrong = vec![
            self.answer(kind, message, message.xid ^ 1, self.gives),
            self.answer(kind, message, message.xid, Ipv4Addr::BROADCAST),
            self.answer(kind, message, message.xid, Ipv4Addr::UNSPECIFIED),
            good[..HEADERS + 20].to_vec(),
            good[..30].to_vec(),
        ];
        for at in [
            ethernet::LEN + 3,
            HEADERS - 1,
            HEADERS + 30,
            HEADERS + 237,
            good.len() - 1,
        ] {
            let mut bytes = good.clone();
            bytes[at] ^= 0x55;
            wrong.push(bytes);
        }
        self.counts.nonsense += wrong.len() as u32;
        answers.append(&mut wrong);
    }
}
