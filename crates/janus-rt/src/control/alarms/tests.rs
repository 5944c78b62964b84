//! When a loss becomes a warning, and what it says, by a clock of the test's.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, channel};

use janus_io::park::Parker;
use janus_io::policy::Rules;
use janus_io::{DeviceLosses, IoCounters};

use super::*;
use crate::admission::Admission;

const CORES: usize = 2;

fn alarms() -> (Alarms, Receiver<Warning>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let hook = move |warning: &Warning| _ = tell.lock().unwrap().send(warning.clone());
    let mailbox = ControlMailbox::new(CORES, 0, Parker::new().unwrap().unparker());
    let ingress = Ingress {
        admission: Admission::new(Rules::default(), [1, 2]),
        counters: Vec::new(),
        trace: None,
        faults: None,
        device: None,
    };
    let warnings = Warnings::new(Some(Box::new(hook)));
    let alarms = Alarms::new(
        Arc::new(mailbox),
        Arc::new(ingress),
        Blocking::new(1),
        Arc::new(warnings),
    );
    (alarms, told)
}

impl Alarms {
    /// A core has lost so many of a kind since its start; answers whether it rang.
    fn loses(&self, core: u8, kind: Kind, count: u64) -> bool {
        let losses = self.mailbox.losses(core.into()).with(kind, count);
        self.mailbox.enter_losses(core, &losses, kind.bit());
        self.mailbox.takes_losses()
    }
}

fn full(core: Option<usize>, count: u64) -> Warning {
    Warning::AcceptQueueFull { core, count }
}

#[test]
fn the_first_loss_is_told_at_once_and_others_together_after_a_pause() {
    let (mut alarms, told) = alarms();
    let begin = Instant::now();
    let look = |alarms: &mut Alarms, seconds: f64| {
        alarms.look_at(begin + Duration::from_secs_f64(seconds));
        told.try_iter().collect::<Vec<_>>()
    };
    assert_eq!(look(&mut alarms, 0.0), []);
    assert!(alarms.loses(1, Kind::AcceptQueues, 3), "it rings");
    assert_eq!(look(&mut alarms, 1.0), [full(Some(1), 3)]);
    // Of this kind nobody rings now, and nothing is told.
    for step in 1..=900 {
        assert!(!alarms.loses(1, Kind::AcceptQueues, 3 + step));
        assert_eq!(look(&mut alarms, 1.0 + f64::from(step as u32) / 101.0), []);
    }
    // Another kind has its own pauses.
    assert!(alarms.loses(0, Kind::Checksums, 1));
    let bad = Warning::BadChecksums {
        core: Some(0),
        count: 1,
    };
    assert_eq!(look(&mut alarms, 10.5), [bad]);
    assert_eq!(look(&mut alarms, 11.0), [full(Some(1), 900)]);
    // Nothing happened in a whole pause: the next is a first one again.
    assert_eq!(look(&mut alarms, 21.0), []);
    assert!(alarms.loses(1, Kind::AcceptQueues, 904));
    assert!(alarms.loses(0, Kind::AcceptQueues, 1));
    assert_eq!(look(&mut alarms, 21.5), [full(None, 2)], "on two cores");
}

#[test]
fn a_core_that_begins_again_at_zero_has_lost_nothing() {
    let (mut alarms, told) = alarms();
    let begin = Instant::now();
    alarms.loses(0, Kind::SynFlood, 1000);
    alarms.look_at(begin);
    assert_eq!(told.try_iter().count(), 1);
    alarms.loses(0, Kind::SynFlood, 0);
    alarms.look_at(begin + PAUSE);
    assert_eq!(told.try_iter().count(), 0);
    alarms.loses(0, Kind::SynFlood, 2);
    alarms.look_at(begin + PAUSE);
    let warning = told.try_iter().next().expect("a warning");
    assert_eq!(warning.count(), Some(2));
}

#[test]
fn shortages_of_the_runtime_are_told_too_and_at_the_end_what_never_was() {
    let (mut alarms, told) = alarms();
    alarms.mailbox.no_descriptor();
    alarms.mailbox.no_descriptor();
    assert!(alarms.mailbox.takes_losses());
    alarms.look_at(Instant::now());
    let warning = told.try_recv().expect("a warning");
    let Warning::NoDescriptors { count: 2, limit } = warning else {
        panic!("{warning}");
    };
    assert_eq!(limit, getrlimit(Resource::Nofile).current);
    alarms.mailbox.no_descriptor();
    alarms.mailbox.portal_full();
    alarms.look_at_end();
    let last: Vec<Warning> = told.try_iter().collect();
    assert_eq!(last, [Warning::PortalFull { count: 1 }]);
}

/// Of these nobody rings: they are compared at every look.
#[test]
fn what_the_device_and_polling_cores_lose_is_told_without_a_core() {
    let (mut alarms, told) = alarms();
    let (bad, io) = (Arc::new(AtomicU64::new(0)), Arc::<IoCounters>::default());
    let ingress = Arc::get_mut(&mut alarms.ingress).expect("nobody else has it");
    let read = bad.clone();
    ingress.device = Some(Box::new(move || DeviceLosses {
        no_buffer: 0,
        bad_checksum: read.load(Ordering::Relaxed),
    }));
    ingress.counters.push(io.clone());
    let begin = Instant::now();
    alarms.look_at(begin);
    assert_eq!(told.try_iter().count(), 0);
    bad.store(4, Ordering::Relaxed);
    io.dropped_full.add(5);
    io.dropped_syn_room.add(6);
    io.dropped_no_buffer.add(7);
    alarms.loses(1, Kind::Buffers, 1);
    alarms.look_at(begin);
    let core = None;
    let expected = [
        Warning::BadChecksums { core, count: 4 },
        Warning::NoPacketBuffers { core, count: 8 },
        Warning::CoreOverrun { core, count: 11 },
    ];
    assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn while_all_cores_sleep_nobody_looks_and_a_loss_after_that_is_told() {
    let (mut alarms, told) = alarms();
    let io = Arc::<IoCounters>::default();
    let ingress = Arc::get_mut(&mut alarms.ingress).expect("nobody else has it");
    ingress.counters.push(io.clone());
    let begin = Instant::now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    alarms.mailbox.rests().falls_asleep(0);
    alarms.look_at(begin);
    assert_eq!(alarms.doze(), None, "one core works");
    alarms.mailbox.rests().falls_asleep(1);
    alarms.look_at(begin);
    // No look is due in ten seconds, or ever, and no core has rung.
    assert_eq!(alarms.doze(), Some(None));
    assert!(!alarms.mailbox.has_news());
    // A core takes frames, and loses some, for which no core rings.
    alarms.mailbox.works(1);
    assert!(alarms.mailbox.has_news(), "the thread is awake");
    io.dropped_full.add(5);
    alarms.mailbox.rests().falls_asleep(1);
    assert_eq!(alarms.doze(), None, "it worked since the look");
    alarms.look_at(at(10));
    let (core, count) = (None, 5);
    assert_eq!(told.try_recv(), Ok(Warning::CoreOverrun { core, count }));
    assert_eq!(alarms.doze(), Some(None));
    // A loss that waits for its time to be told keeps the thread looking.
    alarms.mailbox.works(0);
    io.dropped_full.add(1);
    alarms.mailbox.rests().falls_asleep(0);
    alarms.look_at(at(11));
    assert_eq!((told.try_recv().ok(), alarms.doze()), (None, None));
    alarms.look_at(at(20));
    let count = 1;
    assert_eq!(told.try_recv(), Ok(Warning::CoreOverrun { core, count }));
    assert_eq!(alarms.doze(), Some(None));
}

#[test]
fn a_device_that_counts_losses_is_asked_each_minute() {
    let (mut alarms, _told) = alarms();
    let ingress = Arc::get_mut(&mut alarms.ingress).expect("nobody else has it");
    ingress.device = Some(Box::new(DeviceLosses::default));
    for core in 0..CORES {
        alarms.mailbox.rests().falls_asleep(core);
    }
    alarms.look_at(Instant::now());
    assert_eq!(alarms.doze(), Some(Some(LOOK_ASLEEP)));
}

/// A warning says what happened, how often, where, and what to do.
#[test]
fn each_kind_names_a_remedy() {
    let (alarms, _told) = alarms();
    let at = "192.0.2.9".parse().ok();
    let remedies = [
        "LimitNOFILE",
        "`backend`",
        "`blocking_threads`",
        "`trace_filter`",
        "ethtool -K",
        "`packet_buffers`",
        "`gateway`",
        "`backlog`",
        "`admission_syn_rate`",
        "more cores",
    ];
    for (kind, remedy) in Kind::ALL.into_iter().zip(remedies) {
        let warning = alarms.warning(kind, 7, Some(1), at);
        let text = warning.to_string();
        assert!(text.contains(remedy) && text.contains('7'), "{text}");
        assert_eq!(text.contains("core 1"), warning.core().is_some(), "{text}");
        let neighbor = kind == Kind::Neighbors;
        assert_eq!(text.contains("192.0.2.9"), neighbor, "{text}");
    }
}
