//! The shim's declarations, line by line as in `shim/janus_dpdk.h`, which says what each means. Functions that can fail
//! answer 0 (or a count) or a negative errno value; see [`crate::check`].

#![allow(non_camel_case_types)] // the names are C's

use core::marker::{PhantomData, PhantomPinned};
use std::ffi::{c_char, c_int, c_void};

use crate::shim::declare;

/// Frames handled by one call of a burst function.
pub const JD_BURST_MAX: usize = 64;

/// Bytes of the headers of a chain.
pub const JD_HEADERS_MAX: usize = 128;

/// The IP checksum was found good.
pub const JD_RX_IP_GOOD: u16 = 0x0001;
/// The IP checksum was found bad.
pub const JD_RX_IP_BAD: u16 = 0x0002;
/// The TCP or UDP checksum was found good.
pub const JD_RX_L4_GOOD: u16 = 0x0004;
/// The TCP or UDP checksum was found bad.
pub const JD_RX_L4_BAD: u16 = 0x0008;
/// [`jd_frame::hash`] holds the RSS hash.
pub const JD_RX_HASH: u16 = 0x0010;
/// More segments follow: `len` counts only the first.
pub const JD_RX_CHAINED: u16 = 0x0020;
/// The data is whole; its TCP or UDP checksum was left to a device, and the field holds the folded pseudo header.
pub const JD_RX_L4_LEFT: u16 = 0x0040;
/// Fill in the IPv4 header checksum.
pub const JD_TX_IP_CHECKSUM: u16 = 0x0100;
/// Fill in the TCP checksum; its field holds the folded pseudo header.
pub const JD_TX_TCP_CHECKSUM: u16 = 0x0200;
/// With [`JD_TX_TCP_CHECKSUM`]: the packet is IPv6.
pub const JD_TX_IPV6: u16 = 0x0400;
/// With [`JD_TX_TCP_CHECKSUM`]: the packet begins a chain, see [`jd_packet::hash`].
pub const JD_TX_TSO: u16 = 0x0800;

/// Of a packet to send: its slot comes back by [`jd_hooks::finish`].
pub const JD_LENT: u16 = 0x1000;

/// IPv4 and TCP checksums are checked on receive.
pub const JD_OFFLOAD_RX_CHECKSUM: u32 = 0x01;
/// Frames carry their RSS hash.
pub const JD_OFFLOAD_RX_HASH: u32 = 0x02;
/// IPv4 checksums are filled in.
pub const JD_OFFLOAD_TX_IP_CHECKSUM: u32 = 0x04;
/// TCP checksums are filled in.
pub const JD_OFFLOAD_TX_TCP_CHECKSUM: u32 = 0x08;
/// Large segments are cut.
pub const JD_OFFLOAD_TX_TSO: u32 = 0x10;
/// Frames are spread over queues by the hash of TCP's addresses and ports.
pub const JD_OFFLOAD_RSS_TCP: u32 = 0x20;

/// DPDK's packet buffer; only pointers to it exist here.
#[repr(C)]
pub struct rte_mbuf {
    _opaque: [u8; 0],
    _not_ours: PhantomData<(*mut u8, PhantomPinned)>,
}

/// DPDK's pool of packet buffers; only pointers to it exist here.
#[repr(C)]
pub struct rte_mempool {
    _opaque: [u8; 0],
    _not_ours: PhantomData<(*mut u8, PhantomPinned)>,
}

/// The mbufs of somebody's slots; only pointers to it exist here.
#[repr(C)]
pub struct jd_slots {
    _opaque: [u8; 0],
    _not_ours: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A frame in a slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct jd_slot {
    /// Which slot, counted from 1.
    pub slot: u32,
    /// The caller's.
    pub region: u16,
    /// Where the frame begins in the slot.
    pub off: u16,
    /// Its bytes.
    pub len: u16,
    /// The caller's.
    pub tag: u16,
    /// The caller's.
    pub key: u32,
}

/// A frame in a slot, with what goes to and comes from the device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct jd_packet {
    /// The frame.
    pub frame: jd_slot,
    /// RSS hash, with [`JD_RX_HASH`]. With [`JD_TX_TSO`]: payload of each segment (bits 0 to 15), bytes of the TCP header (16
    /// to 23), packets of the chain, this one among them (24 to 31). What leaves is the chain's headers and the payload of each.
    pub hash: u32,
    /// `JD_RX_*` from the port; `JD_TX_*` and [`JD_LENT`] for it.
    pub flags: u16,
    /// Bytes of the link header, for `JD_TX_*`.
    pub l2_len: u8,
    /// Bytes of the IP header.
    pub l3_len: u8,
}

/// How slots are taken and given back, on whatever thread calls DPDK.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jd_hooks {
    /// First argument of all but `finish`.
    pub context: *mut c_void,
    /// Takes as many free slots, all (0) or none (a negative errno value).
    pub take: unsafe extern "C" fn(context: *mut c_void, slots: *mut u32, count: u32) -> c_int,
    /// Slots that a driver is finished with.
    pub give: unsafe extern "C" fn(context: *mut c_void, slots: *const u32, count: u32),
    /// A lent slot that a driver is finished with, as it was sent; `home` is what [`jd_slots_transmit`] was given.
    pub finish: unsafe extern "C" fn(home: *mut c_void, loan: *const jd_slot),
    /// About how many slots could be taken.
    pub available: unsafe extern "C" fn(context: *mut c_void) -> u32,
}

/// Where slots are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jd_slots_config {
    /// Hooks of the owner of the slots.
    pub hooks: jd_hooks,
    /// The first byte of slot 1.
    pub base: *mut c_void,
    /// How many.
    pub count: u32,
    /// Bytes of each.
    pub slot_size: u16,
    /// Put into each [`jd_slot`].
    pub region: u16,
    /// NUMA node, -1 for any.
    pub socket: i32,
    /// Zero.
    pub reserved: u32,
}

/// Counts of what receive calls did, added up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct jd_received {
    /// Frames that the driver gave.
    pub frames: u64,
    /// Copied, because the driver handed over somebody else's memory, or a lent slot by its pointer.
    pub copied: u64,
    /// Dropped: longer than one slot.
    pub too_long: u64,
    /// Dropped: no slot to copy to.
    pub no_buffer: u64,
}

/// A frame and the buffer it lies in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jd_frame {
    /// The buffer.
    pub mbuf: *mut rte_mbuf,
    /// The frame's first byte.
    pub data: *mut u8,
    /// RSS hash, with [`JD_RX_HASH`].
    pub hash: u32,
    /// Bytes of the frame.
    pub len: u16,
    /// `JD_RX_*` from the port, `JD_TX_*` for it.
    pub flags: u16,
    /// Bytes from `data` to the end of the buffer.
    pub room: u16,
    /// Bytes of the link header, for `JD_TX_*`.
    pub l2_len: u8,
    /// Bytes of the IP header.
    pub l3_len: u8,
    /// Bytes of the TCP header.
    pub l4_len: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

impl jd_frame {
    /// No frame.
    pub const NONE: Self = Self {
        mbuf: core::ptr::null_mut(),
        data: core::ptr::null_mut(),
        hash: 0,
        len: 0,
        flags: 0,
        room: 0,
        l2_len: 0,
        l3_len: 0,
        l4_len: 0,
        reserved: [0; 3],
    };
}

/// Capabilities of a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct jd_port_info {
    /// Name of the driver, zero-terminated.
    pub driver: [u8; 32],
    /// Hardware address.
    pub mac: [u8; 6],
    /// Most receive queues.
    pub rx_queues_max: u16,
    /// Most transmit queues.
    pub tx_queues_max: u16,
    /// Current MTU.
    pub mtu: u16,
    /// Largest MTU.
    pub mtu_max: u16,
    /// Bytes of an RSS key.
    pub hash_key_len: u16,
    /// Entries of the RSS redirection table.
    pub table_len: u16,
    /// NUMA node, -1 for any.
    pub socket: i16,
    /// `JD_OFFLOAD_*`.
    pub offloads: u32,
    /// Packets of a chain to send; 0: any number.
    pub chain_max: u16,
    /// Zero.
    pub reserved: u16,
}

/// Configuration of a port.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jd_port_config {
    /// RSS key of `hash_key_len` bytes; null for the driver's own.
    pub hash_key: *const u8,
    /// Wanted `JD_OFFLOAD_*`; those the port has not are left out.
    pub offloads: u32,
    /// Bytes of `hash_key`.
    pub hash_key_len: u16,
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Descriptors of each receive queue, adjusted to what the driver takes.
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue.
    pub tx_descriptors: u16,
    /// MTU; 0 leaves it as it is.
    pub mtu: u16,
    /// 1 to receive what is not for this port.
    pub promiscuous: u8,
    /// 1 if receive queues shall be waited for, where the driver has it.
    pub interrupts: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

/// Counters of a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct jd_stats {
    /// Received frames.
    pub rx_packets: u64,
    /// Sent frames.
    pub tx_packets: u64,
    /// Received bytes.
    pub rx_bytes: u64,
    /// Sent bytes.
    pub tx_bytes: u64,
    /// Frames dropped because a queue was full.
    pub rx_missed: u64,
    /// Frames received with an error.
    pub rx_errors: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Frames dropped because the pool was empty.
    pub rx_no_buffer: u64,
}

const _: () = {
    assert!(size_of::<jd_frame>() == 32);
    assert!(size_of::<jd_port_info>() == 60);
    assert!(size_of::<jd_port_config>() == 32);
    assert!(size_of::<jd_stats>() == 64);
    assert!(size_of::<jd_slot>() == 16);
    assert!(size_of::<jd_packet>() == 24);
    assert!(size_of::<jd_hooks>() == 40);
    assert!(size_of::<jd_slots_config>() == 64);
    assert!(size_of::<jd_received>() == 32);
};

declare! {
    /// Starts DPDK; the count of arguments it used.
    pub fn jd_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    /// Ends DPDK. No port may be in use.
    pub fn jd_eal_cleanup() -> c_int;
    /// Makes the calling thread one of DPDK's.
    pub fn jd_thread_register() -> c_int;
    /// The reverse, before the thread ends.
    pub fn jd_thread_unregister();
    /// Name and version.
    pub fn jd_version() -> *const c_char;
    /// Words for an error code of either sign.
    pub fn jd_error_text(error: c_int) -> *const c_char;

    /// Whether devices see the addresses that the program sees.
    pub fn jd_iova_is_va() -> c_int;
    /// Registers memory of the caller's that devices read and write, in pages of `page` bytes.
    pub fn jd_memory_add(base: *mut c_void, len: u64, page: u64) -> c_int;
    /// The reverse.
    pub fn jd_memory_remove(base: *mut c_void, len: u64) -> c_int;
    /// Shows it to a port's device; 0 also where the device needs no map.
    pub fn jd_memory_map(port: u16, base: *mut c_void, len: u64) -> c_int;

    /// Makes a pool of `count` buffers with `data_room` bytes each, headroom included; null and `error` on failure.
    pub fn jd_pool_create(
        name: *const c_char,
        count: u32,
        cache: u32,
        data_room: u16,
        socket: c_int,
        error: *mut c_int,
    ) -> *mut rte_mempool;
    /// Frees a pool whose buffers are all back.
    pub fn jd_pool_free(pool: *mut rte_mempool);
    /// Buffers in the pool.
    pub fn jd_pool_available(pool: *const rte_mempool) -> u32;
    /// Buffers out of the pool.
    pub fn jd_pool_in_use(pool: *const rte_mempool) -> u32;

    /// Takes `count` (at most [`JD_BURST_MAX`]) empty frames, all or none.
    pub fn jd_frames_alloc(pool: *mut rte_mempool, frames: *mut jd_frame, count: u16) -> c_int;
    /// Gives frames back to their pools.
    pub fn jd_frames_free(frames: *const jd_frame, count: u16);

    /// Makes the mbufs of slots; null and `error` on failure.
    pub fn jd_slots_create(
        name: *const c_char,
        config: *const jd_slots_config,
        error: *mut c_int,
    ) -> *mut jd_slots;
    /// Frees them. No driver may hold any.
    pub fn jd_slots_free(slots: *mut jd_slots);
    /// The pool that a port's receive queue is given.
    pub fn jd_slots_pool(slots: *const jd_slots) -> *mut rte_mempool;

    /// Finds a device and makes its port: a virtual one with its arguments, or a bus address.
    pub fn jd_device_add(name: *const c_char) -> c_int;
    /// Stops and closes the port and gives its device up.
    pub fn jd_device_remove(port: u16) -> c_int;

    /// Ports that are there.
    pub fn jd_port_count() -> u16;
    /// The number of the port with this name.
    pub fn jd_port_by_name(name: *const c_char, port: *mut u16) -> c_int;
    /// Reads the capabilities of a port into `info`.
    pub fn jd_port_info(port: u16, info: *mut jd_port_info) -> c_int;
    /// Configures a stopped port and its queues, `pools` with one pool for each receive queue; `offloads` says which of
    /// the wanted ones are on.
    pub fn jd_port_setup(
        port: u16,
        config: *const jd_port_config,
        pools: *const *mut rte_mempool,
        offloads: *mut u32,
    ) -> c_int;
    /// Starts a port.
    pub fn jd_port_start(port: u16) -> c_int;
    /// Stops a port.
    pub fn jd_port_stop(port: u16) -> c_int;
    /// Gives a stopped port up.
    pub fn jd_port_close(port: u16) -> c_int;
    /// 1 if the link is up, and its speed.
    pub fn jd_port_link(port: u16, mbit_per_s: *mut u32) -> c_int;
    /// Counters.
    pub fn jd_port_stats(port: u16, stats: *mut jd_stats) -> c_int;
    /// Sets the counters to zero.
    pub fn jd_port_stats_reset(port: u16) -> c_int;
    /// Sets the RSS redirection table.
    pub fn jd_port_table_set(port: u16, queues: *const u16, count: u16) -> c_int;

    /// Receives up to `count` frames. One thread per queue.
    pub fn jd_rx_burst(port: u16, queue: u16, frames: *mut jd_frame, count: u16) -> u16;
    /// Sends frames with the length and flags they say; those beyond the answer are still the caller's. One thread per
    /// queue.
    pub fn jd_tx_burst(port: u16, queue: u16, frames: *const jd_frame, count: u16) -> u16;
    /// Receives up to `count` frames into slots. One thread per queue.
    pub fn jd_slots_receive(
        port: u16,
        queue: u16,
        slots: *mut jd_slots,
        packets: *mut jd_packet,
        count: u16,
        received: *mut jd_received,
    ) -> u16;
    /// Sends frames from slots: how many went; the others are still the caller's. `-EINVAL`: this device cannot send the
    /// first one. `headers` are those of the chains, [`JD_HEADERS_MAX`] bytes for each, in their order; null where there are
    /// none. One thread per queue.
    pub fn jd_slots_transmit(
        port: u16,
        queue: u16,
        slots: *mut jd_slots,
        home: *mut c_void,
        packets: *const jd_packet,
        count: u16,
        headers: *const u8,
    ) -> c_int;
    /// For benchmarks: as many bursts received and sent back, with nothing in between; how many frames went.
    pub fn jd_raw_loop(port: u16, queue: u16, bursts: u64) -> u64;
    /// Makes the driver give back what it has sent; `-ENOTSUP` where it does so by itself.
    pub fn jd_tx_reclaim(port: u16, queue: u16) -> c_int;
    /// A descriptor that is readable when a queue has frames, or -1.
    pub fn jd_rx_wait_fd(port: u16, queue: u16) -> c_int;
    /// Before and after a sleep on it.
    pub fn jd_rx_wait_arm(port: u16, queue: u16, on: c_int) -> c_int;
}
