//! The metrics, each declared once. The text and the table in `docs/metrics.md` are made from these; a test demands that every field
//! of a report is read by one of them.

use std::sync::LazyLock;
use std::time::Duration;

use janus_io::{Counter, DeviceLosses};
use janus_tcp::{Counters, MemoryReport};

use super::collect::AdminCounters;
use super::family::{Family, Kind, OfCore, Read, Read::Io, Read::Shared};
use crate::admission::IoCounters;
use crate::shard::CoreReport;
use crate::shard::{BATCH_CLASSES, ForwardCounters, OfferCounters};

/// Reads one value of a core.
fn core(read: fn(&CoreReport) -> u64) -> Read {
    Read::Core(OfCore::One(read))
}

/// Reads several values of a core.
fn parts(read: fn(&CoreReport) -> Vec<u64>) -> Read {
    Read::Core(OfCore::Parts(read))
}

/// Makes a list of families. A row has the place that the values are read from, type, name, help and reader; then, where it needs
/// them, calls of [`Family`]'s methods.
macro_rules! families {
    ($(
        $from:ident $kind:ident $name:literal $help:literal =
            $read:expr $(, $method:ident($($value:expr),*))*;
    )*) => {
        vec![$(Family::new(Kind::$kind, $name, $help, $from($read))$(.$method($($value),*))*),*]
    };
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Every metric, in the order of the text.
pub(super) static FAMILIES: LazyLock<Vec<Family>> = LazyLock::new(|| {
    let mut all = of_the_runtime();
    all.extend(of_the_loops());
    all.extend(of_tasks());
    all.extend(of_connections());
    all.extend(of_tcp());
    all.extend(of_forwards());
    all.extend(of_polling());
    all.extend(of_packet_buffers());
    all.extend(of_shortages());
    all.extend(of_the_admin_port());
    all
});

fn of_the_runtime() -> Vec<Family> {
    let mut families = families! {
        Shared Gauge "janus_build_info" "Version of Janus; always 1." = |_| vec![1],
            by("version", [env!("CARGO_PKG_VERSION")]);
        Shared Gauge "janus_serving"
            "1 while new connections are taken, 0 from the beginning of the shutdown on." =
            |shared| vec![shared.serving.into()];
        Shared Gauge "janus_cores" "TCP cores of the runtime." = |shared| vec![shared.cores as u64];
    };
    let help = "1 while the core does not answer, as one task keeps it; its other values are then those of its last answer.";
    let stalled = Family::new(Kind::Gauge, "janus_core_stalled", help, Read::Stalled);
    families.push(stalled.each_core());
    families
}

fn of_the_loops() -> Vec<Family> {
    let batch = |report: &CoreReport| {
        let sum = [report.turns.packets];
        report.turns.batches.iter().chain(&sum).copied().collect()
    };
    // The largest batch of each class; the last class is open, and the sum follows.
    const BUCKETS: [&str; BATCH_CLASSES + 1] = [
        "0.0", "1.0", "3.0", "7.0", "15.0", "31.0", "63.0", "127.0", "+Inf", "",
    ];
    families! {
        core Counter "janus_turns" "Turns of the core's loop." = |r| r.turns.turns, each_core();
        core Counter "janus_turns_working" "Turns of the core's loop in which something moved." =
            |r| r.turns.working_turns, each_core();
        core Counter "janus_busy_seconds" "Time in turns in which something moved." =
            |r| nanoseconds(r.turns.busy), each_core();
        core Counter "janus_asleep_seconds"
            "Time asleep. The rest, neither busy nor asleep, went into looking for work." =
            |r| nanoseconds(r.turns.asleep), each_core();
        core Counter "janus_sleeps" "Times the core slept." = |r| r.turns.sleeps, each_core();
        core Gauge "janus_longest_turn_seconds" "Longest turn since the start." =
            |r| nanoseconds(r.turns.longest_turn), each_core();
        parts Histogram "janus_turn_packets"
            "Packets taken in one turn." =
            batch, by("le", BUCKETS);
        core Counter "janus_messages_spilled"
            "Messages from other threads that found the core's ring full; none is lost." =
            |r| r.messages_spilled;
    }
}

fn of_tasks() -> Vec<Family> {
    families! {
        core Gauge "janus_tasks" "Tasks alive, including those that ended and wait to be joined." =
            |r| r.tasks as u64, each_core();
        core Gauge "janus_task_memory_bytes"
            "Memory committed for tasks, their queue and their timers." =
            |r| r.task_bytes as u64;
        core Counter "janus_tasks_spawned" "Tasks begun." = |r| r.tasks_spawned;
        core Counter "janus_task_polls" "Polls of tasks." = |r| r.task_polls;
        core Counter "janus_tasks_panicked" "Tasks that ended by a panic." = |r| r.tasks_panicked;
        core Counter "janus_tasks_boxed"
            "Futures too large for a slot, kept in a box." =
            |r| r.tasks_boxed;
        core Counter "janus_task_slots_retired"
            "Task slots out of use because their generations are used up." =
            |r| r.task_slots_retired;
        core Counter "janus_task_budget_used_up"
            "Turns with more ready tasks than may be polled before packets have their turn." =
            |r| r.turns.task_budget_used_up;
        Shared Gauge "janus_blocking_threads" "Threads for blocking calls." = |shared| {
            let busy = shared.blocking.threads.saturating_sub(shared.blocking.idle);
            vec![shared.blocking.idle as u64, busy as u64]
        }, by("state", ["idle", "busy"]);
        Shared Gauge "janus_blocking_calls_waiting" "Blocking calls that wait for a thread." =
            |shared| vec![shared.blocking.waiting as u64];
        Shared Counter "janus_blocking_calls" "Blocking calls that came to their end." =
            |shared| vec![shared.blocking.done];
        Shared Counter "janus_blocking_calls_refused"
            "Blocking calls refused because too many waited, or no thread could be made." =
            |shared| vec![shared.blocking.refused];
        Shared Counter "janus_blocking_threads_refused"
            "Threads for blocking calls that the system refused." =
            |shared| vec![shared.blocking.threads_refused];
    }
}

fn of_connections() -> Vec<Family> {
    const PURPOSES: [&str; 8] = [
        "tcb",
        "table",
        "hot",
        "segments",
        "half_open",
        "time_wait",
        "stubs",
        "timers",
    ];
    families! {
        core Gauge "janus_connections"
            "Connections, including those not yet accepted and those closed but unfinished." =
            |r| r.connections as u64, each_core();
        core Gauge "janus_connections_resting"
            "Connections at rest: no task waits for what comes." =
            |r| r.resting as u64;
        core Gauge "janus_connections_half_open"
            "SYNs answered and not yet acknowledged." =
            |r| r.half_open as u64;
        core Gauge "janus_connections_time_wait"
            "Connections in TIME-WAIT." =
            |r| r.in_time_wait as u64;
        core Gauge "janus_connections_hot"
            "Connections with something in flight, queued, unread or timed." =
            |r| r.hot_in_use as u64;
        parts Gauge "janus_tcp_memory_bytes" "Memory committed by TCP." =
            memory_of, by("purpose", PURPOSES);
    }
}

/// In the order of `PURPOSES`.
fn memory_of(report: &CoreReport) -> Vec<u64> {
    let MemoryReport {
        tcb,
        table,
        hot,
        segments,
        half_open,
        time_wait,
        stubs,
        timers,
    } = report.memory;
    [
        tcb, table, hot, segments, half_open, time_wait, stubs, timers,
    ]
    .map(|bytes| bytes as u64)
    .to_vec()
}

/// A family for each of TCP's counters with its own description, and one for everything dropped, by cause.
fn of_tcp() -> Vec<Family> {
    let mut families = Vec::new();
    let (mut causes, mut dropped) = (Vec::new(), Vec::new());
    for (place, (name, help)) in Counters::descriptions().enumerate() {
        if let Some(cause) = name.strip_prefix("dropped_") {
            causes.push(cause);
            dropped.push(place);
            continue;
        }
        let read = Read::Core(OfCore::Tcp(vec![place]));
        families.push(Family::new(
            Kind::Counter,
            format!("janus_tcp_{name}"),
            help,
            read,
        ));
    }
    let read = Read::Core(OfCore::Tcp(dropped));
    let help = "Packets dropped by the stack.";
    let family = Family::new(Kind::Counter, "janus_tcp_dropped", help, read);
    families.push(family.by("cause", causes));
    families
}

fn of_shortages() -> Vec<Family> {
    families! {
        Shared Counter "janus_device_losses"
            "Frames that the device dropped for a wrong checksum, and times it had no packet buffer to receive into." =
            |shared| {
            let DeviceLosses { no_buffer, bad_checksum } = shared.device;
            vec![no_buffer, bad_checksum]
        }, by("cause", ["no_buffer", "bad_checksum"]);
        Shared Counter "janus_descriptors_missing"
            "Times a file descriptor was wanted and none was free." =
            |shared| vec![shared.shortages.descriptors];
        Shared Counter "janus_portal_clients_reset"
            "Clients of the portal whose connection was reset, as no descriptor came free for it." =
            |shared| vec![shared.shortages.clients_reset];
        Shared Counter "janus_portal_full"
            "Times the portal had as many connections as it can have, and another was wanted." =
            |shared| vec![shared.shortages.portal_full];
        Shared Counter "janus_trace_bursts_lost"
            "Bursts of frames that could not be written to the packet trace when they came." =
            |shared| vec![shared.shortages.trace_bursts];
    }
}

fn of_forwards() -> Vec<Family> {
    families! {
        core Counter "janus_forwarded_frames"
            "Frames handed to other cores because the flow was theirs." =
            |r| r.forwards.forwarded;
        core Counter "janus_forwarded_frames_waited"
            "Frames that waited for an update that gives a port to the other cores that listen on it." =
            |r| r.forwards.waited;
        parts Counter "janus_forwarded_frames_dropped" "Frames for other cores that were lost." =
            dropped_forwards, by("cause", ["full", "syn_room", "expired", "waiting", "over"]);
        core Counter "janus_moves_refused"
            "Flows from another core that were sent home, as they did not find here what they need." =
            |r| r.forwards.moves_refused;
        core Counter "janus_moves_lost"
            "Flows lost on the way to another core: that refused them, and their own had no room any more." =
            |r| r.forwards.moves_lost;
        parts Counter "janus_accept_offers"
            "Connections that waited to be accepted: offered to other cores, taken from others, come back, and accepted \
             late." =
            offers, by("outcome", ["offered", "claimed", "returned", "late"]);
    }
}

fn offers(report: &CoreReport) -> Vec<u64> {
    let OfferCounters {
        offered,
        claimed,
        returned,
        late,
    } = report.offers;
    vec![offered, claimed, returned, late]
}

fn dropped_forwards(report: &CoreReport) -> Vec<u64> {
    let ForwardCounters {
        forwarded: _,
        dropped_full,
        dropped_syn_room,
        dropped_expired,
        waited: _,
        dropped_waiting,
        dropped_over,
        moves_refused: _,
        moves_lost: _,
    } = report.forwards;
    vec![
        dropped_full,
        dropped_syn_room,
        dropped_expired,
        dropped_waiting,
        dropped_over,
    ]
}

fn of_polling() -> Vec<Family> {
    families! {
        Io Counter "janus_io_received_frames"
            "Frames that devices gave." =
            |io| vec![io.received.get()];
        Io Counter "janus_io_delivered_frames"
            "Frames handed to TCP cores; copies for every core count each." =
            |io| vec![io.delivered.get()];
        Io Counter "janus_io_sent_frames" "Frames given to devices." = |io| vec![io.sent.get()];
        Io Counter "janus_io_completed_frames" "Lent frames that devices gave back after sending." =
            |io| vec![io.completed.get()];
        Io Counter "janus_io_dropped_frames" "Frames dropped by the cores that poll devices." =
            dropped_on_arrival, by("cause", ON_ARRIVAL);
        Io Counter "janus_io_sleeps" "Times a polling core slept." = |io| vec![io.slept.get()];
    }
}

fn of_packet_buffers() -> Vec<Family> {
    families! {
        Shared Gauge "janus_packet_buffers"
            "Packet buffers: free ones, and those in use or in stock of a core." =
            |shared| vec![shared.buffers.free as u64, shared.buffers.outstanding as u64],
            by("state", ["free", "outstanding"]);
        Shared Gauge "janus_packet_buffers_capacity" "Packet buffers there can be." =
            |shared| vec![shared.buffers.capacity as u64];
        Shared Gauge "janus_packet_buffers_memory_bytes" "Memory committed for packet buffers." =
            |shared| vec![shared.buffers.committed_bytes as u64];
        Shared Counter "janus_packet_buffers_strays"
            "Packet buffers that came back one by one, the slow way." =
            |shared| vec![shared.buffers.strays];
        Shared Counter "janus_packet_buffers_late"
            "Times a core had to make memory for packet buffers ready itself." =
            |shared| vec![shared.buffers.late];
    }
}

const ON_ARRIVAL: [&str; 9] = [
    "full",
    "syn_room",
    "malformed",
    "unknown",
    "martian",
    "denied",
    "syn_rate",
    "no_shard",
    "no_buffer",
];

fn dropped_on_arrival(io: &IoCounters) -> Vec<u64> {
    let IoCounters {
        received: _,
        delivered: _,
        dropped_full,
        dropped_syn_room,
        dropped_malformed,
        dropped_unknown,
        dropped_martian,
        dropped_denied,
        dropped_syn_rate,
        dropped_no_shard,
        dropped_no_buffer,
        sent: _,
        completed: _,
        slept: _,
    } = io;
    let causes: [&Counter; ON_ARRIVAL.len()] = [
        dropped_full,
        dropped_syn_room,
        dropped_malformed,
        dropped_unknown,
        dropped_martian,
        dropped_denied,
        dropped_syn_rate,
        dropped_no_shard,
        dropped_no_buffer,
    ];
    causes.map(Counter::get).to_vec()
}

fn of_the_admin_port() -> Vec<Family> {
    families! {
        Shared Counter "janus_admin_requests" "Requests that the admin port answered." =
            |shared| vec![shared.admin.requests.get()];
        Shared Counter "janus_admin_connections_dropped"
            "Connections to the admin port that were ended because too many were open, or because they took too long." =
            |shared| {
            let AdminCounters { requests: _, crowded, slow } = shared.admin;
            vec![crowded.get(), slow.get()]
        }, by("cause", ["crowded", "slow"]);
    }
}
