//! Tests that need no privilege; the interface itself is tested in `tests/tap.rs`.

use super::*;

#[test]
fn every_refusal_says_what_to_do() {
    let text = |errno, step| explain(errno, step, "jns0", 4).to_string();
    for (errno, step, remedy) in [
        (Errno::NOENT, Step::OpenDevice, "modprobe tun"),
        (Errno::ACCESS, Step::OpenDevice, "chmod 666 /dev/net/tun"),
        (Errno::PERM, Step::Attach, "setcap cap_net_admin+ep"),
        (
            Errno::PERM,
            Step::Attach,
            "ip tuntap add dev jns0 mode tap user $USER multi_queue",
        ),
        (Errno::BUSY, Step::Attach, "choose another name"),
        (Errno::INVAL, Step::Attach, "takes 4 queues"),
        (Errno::INVAL, Step::Attach, "choose another name"),
        (Errno::TOOBIG, Step::Attach, "fewer I/O cores"),
        (Errno::PERM, Step::SetUp, "set it by hand"),
        (Errno::NOMEM, Step::Attach, "memory"),
    ] {
        assert!(
            text(errno, step).contains(remedy),
            "{step:?} {errno:?}: {}",
            text(errno, step)
        );
    }
    assert_eq!(
        explain(Errno::PERM, Step::Attach, "x", 1).kind(),
        io::ErrorKind::PermissionDenied
    );
}

#[test]
fn a_name_the_kernel_cannot_hold_is_refused() {
    for name in ["", "a_name_too_long_", "nul\0"] {
        let error = interface(name).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
    }
    assert!(
        interface("no-such-if")
            .unwrap_err()
            .to_string()
            .contains("ip link")
    );
}

#[test]
fn the_loopback_interface_can_be_read() {
    let lo = interface("lo").unwrap();
    assert!(lo.mtu >= 1500);
    let tap = Interface {
        mac: MacAddr([0x5a, 1, 2, 3, 4, 5]),
        mtu: 1500,
        up: true,
    };
    assert_eq!(tap.far_mac(), MacAddr([0x5a, 1, 2, 3, 4, 4]));
    assert!(!tap.far_mac().is_group());
}

#[test]
fn no_queue_and_too_many_queues_are_refused() {
    for queues in [0, MAX_QUEUES + 1] {
        let error = Box::new(Tap::new("jns0")).open(queues).err().unwrap();
        assert!(error.to_string().contains("queues"), "{error}");
    }
}

/// A device says what it loses, also from behind what is put around it.
#[test]
fn losses_can_be_read_while_it_is_open() {
    let tap = Tap::new("jns0");
    let counters = tap.counters();
    let trace = crate::wrap::trace::Trace::new(io::sink()).unwrap();
    let traced = crate::wrap::trace::TracedBackend::new(Box::new(tap), trace);
    let faults = crate::wrap::faults::Faults::default();
    let backend = crate::wrap::faults::FaultyBackend::new(Box::new(traced), faults);
    let losses = backend.losses().expect("it counts them");
    assert_eq!(losses(), DeviceLosses::default());
    counters.no_buffer.add(2);
    counters.lost_checksum.add(3);
    let (no_buffer, bad_checksum) = (2, 3);
    assert_eq!(
        losses(),
        DeviceLosses {
            no_buffer,
            bad_checksum
        }
    );
}
