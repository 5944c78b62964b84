//! Every setting, declared once: name, form of its value, default, whether a running program takes a new value, and its sentence in the
//! manual. A key `tap_name` is `tap_name = …` or `[tap] name = …` in `janus.toml` and `JANUS_TAP_NAME` in the environment.

use std::time::Duration;

use janus_io::faults::Faults;
use janus_io::filter::Filter;
use janus_io::policy::{LIST_MAX, Prefix, Rules};
use janus_io::{Batching, xdp};
use janus_tcp::ROUTES_MAX;

use super::declare::{Change, Key, keys};
use super::effective::Entry;
use super::forms::{Bytes, File, Form, List, Micros, Millis, Number, Switch};
use super::link_faults::LinkFaults;
use super::place::Place;
use super::values::*;
use crate::control::watch::PolicyName;
use crate::portal::{PortalListen, PortalReach};

/// TCP's own defaults.
fn tcp() -> janus_tcp::Config {
    janus_tcp::Config::default()
}

keys! {
    /// TCP cores, each with its loop and its copy of `main`: how many, or on which processors, which their threads then keep to.
    cores: Cores = Cores::auto(), usually "one for each processor";

    /// `combined`: each TCP core polls a queue of the device; `split`: dedicated I/O cores do.
    placement: PlacementName = PlacementName::Combined;

    /// I/O cores, one queue each; implies `split`.
    io_cores: Number<usize>, usually "1, when split";

    /// Device that carries the packets; `xdp`: see [xdp.md](xdp.md); `dpdk`: a feature, see [dpdk.md](dpdk.md); `daemon`: one that other
    /// programs share, see [processes.md](processes.md); `none`: connections within this process only, on 127.0.0.1 and ::1 or the addresses
    /// that are given; `auto`: the portal.
    backend: BackendName = BackendName::Auto;

    /// TAP interface; made if it does not exist. Its queues get room for 16,384 packets, unless it was given a `txqueuelen`.
    tap_name: Interface, usually "`janus0`";

    /// The kernel's own address on the TAP interface; `none`: it is configured elsewhere. For IPv6: `ip -6 address add`.
    tap_kernel_address: KernelEnd, usually "the first address of our IPv4 network that is not ours";

    /// Leaves checksums to the kernel, and lets segments cross to it and from it joined, up to 64 KiB at a time, where the kernel can; a
    /// `trace` then shows segments without their checksums.
    tap_offloads: Switch = true, expert;

    /// Takes the interface although another program has it, which otherwise is an error. The kernel then shares out frames among both,
    /// and each loses those of its connections that the other gets.
    tap_shared: Switch = false, expert;

    /// Interface that `backend = "xdp"` takes packets from; it must have as many receive queues as there are I/O cores (combined: TCP
    /// cores).
    xdp_interface: Interface;

    /// Ports that are ours, of TCP unless `/udp` follows: `80,443,8000-8080,53/udp`; all others stay the kernel's. Needed where the
    /// kernel has our address too.
    xdp_ports: Ports = xdp::Ports::default(), usually "none: all packets for our addresses";

    /// `native`: the driver runs the program; `generic`: the kernel does, with any driver; `auto`: native if the driver can.
    xdp_mode: xdp::Mode = xdp::Mode::Auto, expert;

    /// Device of `backend = "dpdk"`: a virtual one with its arguments (`net_tap0,iface=jt0`) or a place on a bus (`0000:03:00.0`).
    dpdk_device: Device;

    /// Socket at which `backend = "daemon"` finds the daemon.
    daemon_socket: File, usually "`/run/janus/io.sock`";

    /// Ports for connections that the program begins, of which the daemon gives it as many as it has to spare: a power of two.
    daemon_ports: Number<u16, 1> = 2048, expert;

    /// Programs of one user that name the same group may listen at the same ports of TCP: new connections are divided among them.
    daemon_group: Group, usually "none: a port is this program's alone";

    /// `shared`: packets are in the daemon's memory and not copied, if the daemon is of the same user and lends some; `isolated`: in memory of
    /// the program's own, and copied.
    daemon_memory: DaemonMemory = DaemonMemory::Shared;

    /// Further arguments for DPDK's environment, in one line; they go before what is chosen otherwise.
    dpdk_eal: Arguments = Vec::new(), expert;

    /// TAP interface to make: traffic of the device for other addresses than ours is the kernel's there.
    dpdk_exception: Interface, usually "none: it is dropped";

    /// Longest sleep of an idle core between two looks at a device that cannot wake it; 0: it never sleeps.
    dpdk_sleep _us: Micros, expert, usually "2,000";

    /// Our addresses, of both families; without a prefix length an address is alone in its network; `dhcp`: one that a server gives, with
    /// its gateway, routes and MTU (what is configured goes before), but not with `xdp`, which must know addresses beforehand.
    address: Addresses = Addresses::default(), usually "`192.0.2.1/24`; the portal has 127.0.0.1 and ::1";

    /// Time that the start waits for a DHCP server.
    dhcp_wait _ms: Millis = Duration::from_secs(30);

    /// File to remember the given address in: the next start asks for the same one first, and the end does not give it back.
    dhcp_file: File, usually "none: the end gives it back; of `janus daemon`: its socket's name with `.lease`";

    /// Next hop of IPv4 packets for other networks.
    gateway: GatewayV4;

    /// Next hop of IPv6 packets for other networks; often a link-local address.
    gateway_v6: GatewayV6;

    /// Routes to single networks, such as `10.0.0.0/8 via 192.0.2.254`; the longest prefix wins.
    route: List<Via, ROUTES_MAX> = Vec::new();

    /// Name servers, such as `192.0.2.53` or `[2001:db8::53]:5353`. The hosts file goes before them, their answers are remembered for as
    /// long as they say (a day at most), and tasks that ask for one name at once share a question.
    dns: List<NameServer> = Vec::new(), live Change::NameServers, usually "those that a DHCP server named, else those of \
        `/etc/resolv.conf` that our device reaches; if there is none, and behind the portal: the system's resolver, on a thread of its own";

    /// pcapng file to which every frame of the device is written; for looking, not for load.
    trace: File;

    /// Of those frames, only the ones that this expression matches; see [below](#the-trace). A running program takes it where it writes a
    /// trace.
    trace_filter: Filter, live Change::TraceFilter, usually "all";

    /// Makes every secret from a number, for runs that must be repeatable; never for a server that faces strangers.
    seed: Number<u64>, expert, usually "random";

    /// Connections that each core holds.
    max_connections: Number<u32, 1> = tcp().max_connections, usually "16 million (address space, not memory)";

    /// Bytes that a connection may hold unread, at first.
    receive_buffer: Bytes<1> = tcp().receive_buffer, live Change::ReceiveBuffers;

    /// Bytes that this grows to as the path and the application take it; not above the first: no growth.
    receive_buffer_max: Bytes = tcp().receive_buffer_max, live Change::ReceiveBuffers;

    /// Bytes that a connection may hold unsent or unacknowledged, at first.
    send_buffer: Bytes<1> = tcp().send_buffer, live Change::SendBuffers;

    /// Bytes that this grows to; not above the first: no growth.
    send_buffer_max: Bytes = tcp().send_buffer_max, live Change::SendBuffers;

    /// Packet buffers of 2 KiB for the whole runtime, 1,024 or more; used as needed.
    packet_buffers: Number<u32> = 64 * 1024;

    /// Packets that a core, polling or not, takes at a time; `adaptive`: 8 at first and up to 64 while there is more, where the core has
    /// idle time to pay for it, else 64.
    batch: Batch = Batching::Adaptive, expert;

    /// Connections that may wait to be accepted, for each listener; a new value holds for listeners bound from then on.
    backlog: Number<usize> = 1024, live Change::Backlog;

    /// Threads for blocking calls (`spawn_blocking`), made when needed; more calls than these wait. They wait rather than work, so there
    /// may be more of them than processors.
    blocking_threads: Number<usize, 1> = 256, live Change::BlockingThreads;

    /// Size from which a task's future is warned of, once for each type; 0: never. By default four times what fits a slot of the tasks'
    /// arena: such a future costs more than its connection.
    warn_future_bytes: Bytes = 16 * 1024;

    /// Time after which a task that has kept its core without an await, computing or in a call that blocks, is named in a warning; time in
    /// which no processor was free for the core does not count; 0: never.
    warn_blocked _ms: Millis = Duration::from_millis(100), live Change::BlockedLimit;

    /// How new connections are shared out among the cores: by `fixed` weights (equal, or `Handle::balance().set_weights`), or by a policy
    /// that watches the cores: `queue` by the depth of their receive queues, `service` by the time a connection takes. A running program
    /// takes it where a policy has watched from the start (it may become `fixed`, and a policy again).
    balance: PolicyName = PolicyName::Fixed, live Change::Balance;

    /// Our TCP timestamps name the core that a connection lives on, and polling cores read that from the echo instead of looking the packet
    /// up; makes the clock of timestamps coarser, by a millisecond for each core, up to the next power of two ([csb.md](csb.md)).
    owner_bits: Switch = false, expert;

    /// `on`: a connection that no task of its core accepts within twice the usual time (100 us to 5 ms) is offered to another core, where a
    /// task waits for one on the same port; `auto`: except for a second after more than half of 64 offers were in vain; `naive` and the rest:
    /// it goes at once to the core that PIKA's scheme of this name draws ([csb.md](csb.md)).
    speculative_accept: SpeculativeAccept = SpeculativeAccept::Off, live Change::SpeculativeAccept;

    /// Time between two looks of a policy of `balance`; while nothing comes in, ten times that.
    balance_interval _ms: Millis<1> = Duration::from_millis(100), live Change::Balance, expert;

    /// The loop of each TCP core runs inside a tokio runtime of its thread, see [tokio.md](tokio.md); needs the feature `tokio` of
    /// janus-rt.
    tokio: Switch = cfg!(feature = "tokio"), usually "`true` with that feature";

    /// Addresses of this machine on which the portal offers the ports that are bound; `loopback`: 127.0.0.1 and ::1. A port that a program
    /// binds on loopback stays there.
    portal_listen: PortalListen = PortalListen::Loopback;

    /// Peers that connections opened through the portal may reach: networks besides loopback, such as `10.0.0.0/8,2001:db8::/32`; an IPv4
    /// address in disguise (`::ffff:a.b.c.d`) is that address.
    portal_reach: PortalReach = PortalReach::Loopback;

    /// Of an unmodified program's TCP sockets: those that are Janus's though they are on loopback, or in `program_kernel`: networks,
    /// addresses, ports (`127.0.0.1:6379`, `[::1]:80-90`, `:8080`), or `any` ([programs.md](programs.md)).
    program_ours: List<Place, LIST_MAX> = Vec::new(), usually "none: all that is not on loopback is";

    /// Of an unmodified program's TCP sockets: those that stay the kernel's.
    program_kernel: List<Place, LIST_MAX> = Vec::new(), usually "none besides loopback";

    /// At its end an unmodified program prints a line that says how many sockets, connections and bytes were Janus's.
    program_report: Switch = false;

    /// `drop`: packets from addresses that no host can have (loopback, groups, reserved ones, our own), or for such, are dropped where they
    /// come in; `pass`: they are left to the stack.
    admission_martians: Martians, live Change::Rules, usually "`drop` on `tap`, `xdp` and `dpdk`, else `pass`";

    /// Sources that are let in. The longest prefix that holds a source decides, of equal ones the denial; a source in neither list is let
    /// in, unless there is only `admission_allow`.
    admission_allow: List<Prefix, LIST_MAX> = Vec::new(), live Change::Rules, usually "none: all are let in";

    /// Sources that are not let in.
    admission_deny: List<Prefix, LIST_MAX> = Vec::new(), live Change::Rules;

    /// Connections that may be opened from one network, a second.
    admission_syn_rate: Number<u32>, live Change::Rules, usually "no limit";

    /// Connections that may be opened from one network at once, after a silence.
    admission_syn_burst: Number<u32>, live Change::Rules, expert, usually "as many as in a second";

    /// Bits that the IPv4 addresses of one network share.
    admission_syn_prefix: Bits<32>, live Change::Rules, expert, usually "24";

    /// Bits that the IPv6 addresses of one network share.
    admission_syn_prefix_v6: Bits<128>, live Change::Rules, expert, usually "56";

    /// Another course of the same faults: see [a bad link](#a-bad-link).
    faults_seed: Number<u64>, expert, usually "0";

    /// Direction of the link that is bad.
    faults_way: Ways, expert, usually "`both`";

    /// Share of packets that is lost.
    faults_loss: Share, expert, usually "`0%`";

    /// Share of packets that arrives twice.
    faults_duplicate: Share, expert, usually "`0%`";

    /// Share of packets in which one bit is turned, behind the link's header, of IP packets only: ARP has no checksum.
    faults_corrupt: Share, expert, usually "`0%`";

    /// Share of packets that is held back.
    faults_reorder: Share, expert, usually "`0%`";

    /// Packets by which one that is held back is overtaken, at most.
    faults_distance: Number<u16, 1>, expert, usually "1";

    /// Time that each packet is under way.
    faults_delay _ms: Delay, expert, usually "0";

    /// Most time by which a packet is later still, drawn for each; changes no order.
    faults_jitter _ms: Delay, expert, usually "0";

    /// Rate of the link, each way, all queues together.
    faults_rate _kbit: Kilobits, expert, usually "no limit";

    /// Packets of one queue that may wait for the link or be under way on it; what comes beyond them is lost.
    faults_queue: Number<u16, 1>, expert, usually "1,000";

    /// SIGTERM and SIGINT end the runtime in order, see [below](#the-end).
    signals: Switch = true, usually "`true`; `false` where the code says `ignore_environment()`";

    /// Time that connections may go on when such a signal ends the runtime. By default, with `close_ms`, less than the ten seconds after
    /// which container engines lose patience.
    shutdown _ms: Millis = Duration::from_secs(8);

    /// Time that connections may take to end in order when the runtime ends.
    close _ms: Millis = Duration::from_millis(500), live Change::CloseTime;

    /// Port with `/metrics` and `/healthz`, see [metrics.md](metrics.md): a port alone (`9464`) is one of 127.0.0.1, else an address with it
    /// (`0.0.0.0:9464`, `[::1]:9464`); port 0 takes a free one.
    admin: Admin, usually "none: no port is opened";
}
