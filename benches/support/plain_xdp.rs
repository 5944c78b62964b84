//! AF_XDP as plainly as it goes: one socket, memory of its own, a program that takes every packet, descriptors that go round.
//! It owes nothing to the backend that it is compared with.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Entries of each ring, and chunks of memory for each direction.
const DEPTH: u32 = 2048;
const CHUNK: u64 = 2048;

struct Ring {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    entries: *mut u8,
}

impl Ring {
    fn map(fd: i32, at: i64, offset: &libc::xdp_ring_offset, entry: usize) -> io::Result<Ring> {
        let len = offset.desc as usize + DEPTH as usize * entry;
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
        );
        // SAFETY: a fresh mapping of the socket's ring, never unmapped.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, fd, at) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let place = |offset: u64| base.cast::<u8>().wrapping_add(offset as usize);
        Ok(Ring {
            producer: place(offset.producer).cast(),
            consumer: place(offset.consumer).cast(),
            entries: place(offset.desc),
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: a word of the mapping, which stays for ever.
        unsafe { &*self.producer }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &*self.consumer }
    }

    fn entry<T>(&self, index: u32) -> *mut T {
        self.entries
            .cast::<T>()
            .wrapping_add((index % DEPTH) as usize)
    }
}

pub(crate) struct Plain {
    fd: i32,
    memory: *mut u8,
    fill: Ring,
    completed: Ring,
    rx: Ring,
    tx: Ring,
    /// Where the next packet to be sent lies: round and round in its half of the memory.
    next: u32,
}

fn check(result: i64) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as i32)
    }
}

fn option<T>(fd: i32, name: i32, value: &T) -> io::Result<i32> {
    let len = size_of::<T>() as u32;
    // SAFETY: the value is as long as said.
    check(
        unsafe { libc::setsockopt(fd, libc::SOL_XDP, name, (&raw const *value).cast(), len) }
            .into(),
    )
}

fn bpf(command: i32, fields: &[(usize, u64, usize)]) -> io::Result<i32> {
    let mut attr = [0_u64; 16];
    for &(at, value, bytes) in fields {
        let into = &mut attr[at / 8];
        let shift = 8 * (at % 8);
        let mask = if bytes == 8 {
            u64::MAX
        } else {
            u64::from(u32::MAX) << shift
        };
        *into = *into & !mask | value << shift & mask;
    }
    // SAFETY: the attribute is as long as said; what it points to lives through the call.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_ptr(), 120) })
}

/// Sends every packet of the interface to the socket.
fn take_all(fd: i32, interface: u32) -> io::Result<()> {
    let map = bpf(0, &[(0, 17, 4), (4, 4, 4), (8, 4, 4), (12, 1, 4)])?;
    let (key, value) = (0_u32, fd as u32);
    let [key, value] = [&raw const key, &raw const value].map(|at| at.expose_provenance() as u64);
    bpf(2, &[(0, map as u64, 4), (8, key, 8), (16, value, 8)])?;
    // r1 = map; r2 = 0; r3 = XDP_PASS; r0 = redirect_map(r1, r2, r3); exit
    let program: [u64; 6] = [
        0x1118 | (map as u64) << 32,
        0,
        0x02b7,
        0x02_0000_03b7,
        0x33_0000_0085,
        0x95,
    ];
    let (code, license) = (
        program.as_ptr().expose_provenance(),
        c"MIT".as_ptr().expose_provenance(),
    );
    let loaded = bpf(
        5,
        &[
            (0, 6, 4),
            (4, 6, 4),
            (8, code as u64, 8),
            (16, license as u64, 8),
            (68, 37, 4),
        ],
    )?;
    bpf(
        28,
        &[
            (0, loaded as u64, 4),
            (4, interface.into(), 4),
            (8, 37, 4),
            (12, 4, 4),
        ],
    )
    .map(drop)
}

impl Plain {
    pub(crate) fn open(name: &str) -> io::Result<Plain> {
        let name = std::ffi::CString::new(name)?;
        let bytes = 2 * DEPTH as usize * CHUNK as usize;
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
        );
        // SAFETY: a fresh mapping; a name that ends with zero; no pointers.
        let (memory, interface, fd) = unsafe {
            let memory = libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0);
            (
                memory,
                libc::if_nametoindex(name.as_ptr()),
                libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0),
            )
        };
        check(fd.into())?;
        let umem = libc::xdp_umem_reg {
            addr: memory.expose_provenance() as u64,
            len: bytes as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        option(fd, libc::XDP_UMEM_REG, &umem)?;
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            option(fd, ring, &DEPTH)?;
        }
        // SAFETY: integers only, for which zero will do.
        let mut at: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        let (mut len, into) = (size_of_val(&at) as u32, (&raw mut at).cast());
        let name = libc::XDP_MMAP_OFFSETS;
        // SAFETY: the kernel writes as many bytes as said.
        let told = unsafe { libc::getsockopt(fd, libc::SOL_XDP, name, into, &raw mut len) };
        check(told.into())?;
        let plain = Plain {
            fd,
            memory: memory.cast(),
            fill: Ring::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING as i64, &at.fr, 8)?,
            completed: Ring::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, &at.cr, 8)?,
            rx: Ring::map(fd, libc::XDP_PGOFF_RX_RING, &at.rx, 16)?,
            tx: Ring::map(fd, libc::XDP_PGOFF_TX_RING, &at.tx, 16)?,
            next: 0,
        };
        for chunk in 0..DEPTH {
            // SAFETY: an entry of the ring, which is the kernel's only once it is published.
            unsafe { *plain.fill.entry(chunk) = u64::from(DEPTH + chunk) * CHUNK };
        }
        plain.fill.producer().store(DEPTH, Ordering::Release);
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: interface,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let (len, place) = (size_of_val(&address) as u32, (&raw const address).cast());
        // SAFETY: the address is as long as said.
        let bound = unsafe { libc::bind(fd, place, len) };
        check(bound.into())?;
        take_all(fd, interface)?;
        Ok(plain)
    }

    /// Sends, in bursts, and is done when all the memory is back.
    pub(crate) fn send(&mut self, packet: &[u8], count: usize) {
        let mut left = count;
        while left > 0 {
            let burst = left.min(64);
            let from = self.tx.producer().load(Ordering::Relaxed);
            for index in 0..burst as u32 {
                let addr = u64::from(self.next % DEPTH) * CHUNK;
                self.next = self.next.wrapping_add(1);
                // SAFETY: a chunk of the half for sending, which is ours again since all before was completed; then an
                // entry that is not published.
                unsafe {
                    let into = self.memory.wrapping_add(addr as usize);
                    std::ptr::copy_nonoverlapping(packet.as_ptr(), into, 42);
                    let desc = libc::xdp_desc {
                        addr,
                        len: packet.len() as u32,
                        options: 0,
                    };
                    self.tx
                        .entry::<libc::xdp_desc>(from.wrapping_add(index))
                        .write(desc);
                }
            }
            self.tx
                .producer()
                .store(from.wrapping_add(burst as u32), Ordering::Release);
            let mut back = 0;
            while back < burst as u32 {
                // SAFETY: no pointers but a null one of no length.
                unsafe {
                    libc::sendto(
                        self.fd,
                        std::ptr::null(),
                        0,
                        libc::MSG_DONTWAIT,
                        std::ptr::null(),
                        0,
                    )
                };
                let done = self.completed.producer().load(Ordering::Acquire);
                back += done.wrapping_sub(self.completed.consumer().load(Ordering::Relaxed));
                self.completed.consumer().store(done, Ordering::Release);
            }
            left -= burst;
        }
    }

    /// Takes up to a burst and gives the memory back at once.
    pub(crate) fn receive(&mut self) -> usize {
        let from = self.rx.consumer().load(Ordering::Relaxed);
        let waiting = self
            .rx
            .producer()
            .load(Ordering::Acquire)
            .wrapping_sub(from)
            .min(64);
        if waiting == 0 {
            return 0;
        }
        let fill = self.fill.producer().load(Ordering::Relaxed);
        for index in 0..waiting {
            // SAFETY: an entry the kernel has published, and one that is free: as many chunks go as came.
            unsafe {
                let addr = (*self.rx.entry::<libc::xdp_desc>(from.wrapping_add(index))).addr;
                *self.fill.entry::<u64>(fill.wrapping_add(index)) = addr & !(CHUNK - 1);
            }
        }
        self.rx
            .consumer()
            .store(from.wrapping_add(waiting), Ordering::Release);
        self.fill
            .producer()
            .store(fill.wrapping_add(waiting), Ordering::Release);
        waiting as usize
    }
}
