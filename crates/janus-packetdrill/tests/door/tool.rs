//! A C program that was given the table, as packetdrill is: plain calls with `errno`, raw packets, and the clock.

use janus_packetdrill::{Interface, packetdrill_interface_init};
use janus_wire::tcp::{self, Flags, Header, OptionsToSend};
use janus_wire::{SeqNum, ipv4, ipv6};
use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};

/// What a call gave: a number, or `errno`.
pub(crate) type Outcome = Result<i64, i32>;

pub(crate) struct Tool {
    pub(crate) table: Interface,
}

// SAFETY: the table is made of functions that may be called from any thread.
unsafe impl Sync for Tool {}
// SAFETY: as above.
unsafe impl Send for Tool {}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub(crate) fn outcome(value: impl Into<i64>) -> Outcome {
    match value.into() {
        -1 => Err(errno()),
        value => Ok(value),
    }
}

/// Calls a function of the table; every argument is a number or a pointer that lives through the call.
macro_rules! call {
    ($tool:expr, $name:ident $(, $argument:expr)*) => {
        // SAFETY: `userdata` is the table's own and not freed yet; pointers are what POSIX asks for, or such as the
        // kernel would refuse, which is what is tested.
        $crate::tool::outcome(unsafe { ($tool.table.$name)($tool.table.userdata $(, $argument)*) } as i64)
    };
}
pub(crate) use call;

impl Tool {
    /// The calling thread plays the script from now on.
    pub(crate) fn new(flags: Option<&str>) -> Tool {
        let flags = flags.map(|flags| CString::new(flags).unwrap());
        let flags = flags
            .as_ref()
            .map_or(std::ptr::null(), |flags| flags.as_ptr());
        let mut table = MaybeUninit::uninit();
        // SAFETY: the flags are NULL or a C string, and there is room for a table, which is filled in any case.
        let table = unsafe {
            packetdrill_interface_init(flags, table.as_mut_ptr());
            table.assume_init()
        };
        Tool { table }
    }

    pub(crate) fn socket(&self, domain: c_int) -> Outcome {
        call!(self, socket, domain, libc::SOCK_STREAM, libc::IPPROTO_TCP)
    }

    pub(crate) fn bind(&self, fd: c_int, to: SocketAddr) -> Outcome {
        let name = name(to);
        call!(self, bind, fd, name.as_ptr().cast(), name.len() as u32)
    }

    pub(crate) fn listen(&self, fd: c_int) -> Outcome {
        call!(self, listen, fd, 5)
    }

    pub(crate) fn connect(&self, fd: c_int, to: SocketAddr) -> Outcome {
        let name = name(to);
        call!(self, connect, fd, name.as_ptr().cast(), name.len() as u32)
    }

    /// The descriptor, and the bytes of the peer's name.
    pub(crate) fn accept(&self, fd: c_int) -> Result<(c_int, Vec<u8>), i32> {
        let mut name = vec![0_u8; 128];
        let mut len = 128_u32;
        let fd = call!(self, accept, fd, name.as_mut_ptr().cast(), &mut len)?;
        name.truncate(len as usize);
        Ok((fd as c_int, name))
    }

    pub(crate) fn read(&self, fd: c_int, most: usize) -> Result<Vec<u8>, i32> {
        let mut bytes = vec![0_u8; most];
        let n = call!(self, read, fd, bytes.as_mut_ptr().cast(), most)?;
        bytes.truncate(n as usize);
        Ok(bytes)
    }

    pub(crate) fn write(&self, fd: c_int, bytes: &[u8]) -> Outcome {
        call!(self, write, fd, bytes.as_ptr().cast(), bytes.len())
    }

    pub(crate) fn close(&self, fd: c_int) -> Outcome {
        call!(self, close, fd)
    }

    pub(crate) fn usleep(&self, micros: u32) {
        assert_eq!(call!(self, usleep, micros), Ok(0));
    }

    /// Microseconds of the clock.
    pub(crate) fn time(&self) -> i64 {
        let mut time = libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        let told = call!(
            self,
            gettimeofday,
            &mut time,
            std::ptr::null_mut::<c_void>()
        );
        assert_eq!(told, Ok(0));
        time.tv_sec * 1_000_000 + time.tv_usec
    }

    pub(crate) fn send(&self, packet: &[u8]) -> Outcome {
        call!(self, netdev_send, packet.as_ptr().cast(), packet.len())
    }

    /// The next packet and when it was sent; `None` if none came.
    pub(crate) fn receive(&self) -> Option<(Packet, i64)> {
        let mut bytes = vec![0_u8; 2_000];
        let (mut len, mut time) = (bytes.len(), 0_i64);
        let got = call!(
            self,
            netdev_receive,
            bytes.as_mut_ptr().cast(),
            &mut len,
            &mut time
        );
        assert_eq!(got, Ok(0), "another answer is asked for again for ever");
        bytes.truncate(len);
        (len > 0).then(|| (Packet::read(&bytes), time))
    }

    /// The next packet with data; what is only acknowledged meanwhile does not matter.
    pub(crate) fn receive_data(&self) -> Packet {
        loop {
            let (packet, _) = self.receive().expect("data");
            if !packet.payload.is_empty() {
                return packet;
            }
        }
    }

    /// A socket that listens on the wildcard's port 8080.
    pub(crate) fn listener(&self, domain: c_int) -> c_int {
        let fd = self.socket(domain).unwrap() as c_int;
        let any = match domain {
            libc::AF_INET6 => "[::]:8080",
            _ => "0.0.0.0:8080",
        };
        assert_eq!(self.bind(fd, any.parse().unwrap()), Ok(0));
        assert_eq!(self.listen(fd), Ok(0));
        fd
    }

    /// A handshake from outside; the stack's next sequence number.
    pub(crate) fn handshake(&self, peer: &Peer) -> u32 {
        self.send(&peer.packet(Flags::SYN, 1_000, 0, &[])).unwrap();
        let (answer, _) = self.receive().expect("a SYN-ACK");
        assert_eq!(answer.flags, Flags(Flags::SYN.0 | Flags::ACK.0));
        assert_eq!(answer.ack, 1_001);
        let next = answer.seq.wrapping_add(1);
        self.send(&peer.packet(Flags::ACK, 1_001, next, &[]))
            .unwrap();
        next
    }

    pub(crate) fn free(self) {
        // SAFETY: nobody uses the table after this.
        unsafe { (self.table.free)(self.table.userdata) };
    }
}

/// `struct sockaddr` of an address.
pub(crate) fn name(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::new();
    match address {
        SocketAddr::V4(at) => {
            bytes.extend((libc::AF_INET as u16).to_ne_bytes());
            bytes.extend(at.port().to_be_bytes());
            bytes.extend(at.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(at) => {
            bytes.extend((libc::AF_INET6 as u16).to_ne_bytes());
            bytes.extend(at.port().to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(at.ip().octets());
            bytes.extend([0; 4]);
        }
    }
    bytes
}

/// The other end.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) own: SocketAddr,
    pub(crate) stack: SocketAddr,
}

pub(crate) const V4: (&str, &str) = ("192.0.2.1:5000", "192.168.0.1:8080");
pub(crate) const V6: (&str, &str) = ("[2001:db8::1]:5000", "[fd3d:fa7b:d17d::]:8080");

impl Peer {
    pub(crate) fn new((own, stack): (&str, &str)) -> Peer {
        Peer {
            own: own.parse().unwrap(),
            stack: stack.parse().unwrap(),
        }
    }

    /// A packet to the stack.
    pub(crate) fn packet(&self, flags: Flags, seq: u32, ack: u32, payload: &[u8]) -> Vec<u8> {
        self.packet_with(flags, (seq, ack, 0), payload)
    }

    /// The same, with an urgent pointer behind the two numbers.
    pub(crate) fn packet_with(
        &self,
        flags: Flags,
        (seq, ack, urgent): (u32, u32, u16),
        payload: &[u8],
    ) -> Vec<u8> {
        let header = Header {
            src_port: self.own.port(),
            dst_port: self.stack.port(),
            seq: SeqNum(seq),
            ack: SeqNum(ack),
            flags,
            window: 10_000,
            urgent,
            header_len: 0,
        };
        let mut segment = vec![0; 60];
        let len = tcp::emit(&mut segment, &header, &OptionsToSend::default());
        segment.truncate(len);
        segment.extend_from_slice(payload);
        let mut packet = vec![0; 40];
        let len = match (self.own.ip(), self.stack.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                tcp::fill_checksum_v4(&mut segment, from, to);
                let total = 20 + segment.len() as u16;
                packet[..4].copy_from_slice(&[0x45, 0, (total >> 8) as u8, total as u8]);
                packet[8..10].copy_from_slice(&[64, 6]);
                packet[12..16].copy_from_slice(&from.octets());
                packet[16..20].copy_from_slice(&to.octets());
                let sum = janus_wire::checksum::ipv4_header(&packet[..20]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
                20
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                tcp::fill_checksum_v6(&mut segment, from, to);
                packet[0] = 0x60;
                packet[4..6].copy_from_slice(&(segment.len() as u16).to_be_bytes());
                packet[6..8].copy_from_slice(&[6, 64]);
                packet[8..24].copy_from_slice(&from.octets());
                packet[24..40].copy_from_slice(&to.octets());
                40
            }
            _ => panic!("two families"),
        };
        packet.truncate(len);
        packet.extend(segment);
        packet
    }
}

/// What the stack sent.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) from: SocketAddr,
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    fn read(bytes: &[u8]) -> Packet {
        let (from, segment): (IpAddr, &[u8]) = match bytes[0] >> 4 {
            4 => {
                let ip = ipv4::parse(bytes).unwrap();
                (ip.src.into(), ip.payload())
            }
            _ => {
                let ip = ipv6::parse(bytes).unwrap();
                (ip.src.into(), ip.payload())
            }
        };
        let (header, _, payload) = tcp::parse(segment).unwrap();
        Packet {
            from: SocketAddr::new(from, header.src_port),
            flags: header.flags,
            seq: header.seq.0,
            ack: header.ack.0,
            payload: payload.to_vec(),
        }
    }
}
