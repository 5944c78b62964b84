//! What the interface, the kernel and its verifier must agree to: refusals and what they say, every kind of rules, and the
//! rights that are enough.

use janus_io::Backend;
use janus_io::xdp::{MAX_MTU, Xdp};
use janus_mem::{Depot, Growth};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::veth::*;
use crate::*;

#[test]
fn refusals_say_what_to_do() {
    in_veth(2, |_| {
        let depot = depot();
        let error = |xdp: Box<Xdp>, queues| xdp.open(queues).err().unwrap().to_string();
        let says = |found: String, words: &str| assert!(found.contains(words), "{found}");
        says(error(xdp(&depot), 1), "ethtool -L xnear combined 1");
        says(error(xdp(&depot), 0), "queues");
        let elsewhere = Box::new(Xdp::new("no-such-if", depot.clone()));
        says(error(elsewhere, 1), "`ip link` lists them");
        let nothing = Box::new(Xdp::new(NEAR, depot.clone()));
        says(error(nothing, 2), "needs an address");
        let kernels = || Box::new(xdp(&depot).with_address(NEAR_KERNEL.parse().unwrap()));
        says(error(kernels(), 2), "xdp_ports");
        assert!(Box::new(kernels().with_ports(80..=80)).open(2).is_ok());
        let tiny = Depot::new(64, &Growth::Inline).unwrap();
        says(error(xdp(&tiny), 2), "packet_buffers = 512");
        let open = xdp(&depot).open(2).unwrap();
        says(error(xdp(&depot), 2), "xdp off");
        drop(open);
        ip(&format!("link set {NEAR} mtu 9000")).unwrap();
        says(error(xdp(&depot), 2), &format!("at most {MAX_MTU}"));
        ip(&format!("link set {NEAR} mtu 1500 down")).unwrap();
        says(error(xdp(&depot), 2), "link set dev xnear up");
        assert!(!is_attached(), "nothing is left behind by what failed");
    });
}

/// From here on this thread has these rights only; it ends with the test.
fn keep(rights: CapabilitySet) {
    let mut sets = capabilities(None).unwrap();
    (sets.effective, sets.permitted) = (rights, rights);
    set_capabilities(None, sets).unwrap();
}

/// Whatever the rules, the verifier finds every instruction reachable and every load inside the packet.
#[test]
fn every_kind_of_rules_makes_a_program() {
    in_veth(1, |_| {
        let depot = depot();
        let addresses = [OURS, OURS_V6, NEAR_KERNEL, NEAR_KERNEL_V6];
        for chosen in 1..16_u32 {
            let bare = Xdp::new(NEAR, depot.clone());
            let named = addresses.into_iter().enumerate();
            let named = named.filter(|(bit, _)| chosen >> bit & 1 == 1);
            let with = named.fold(bare, |xdp, (_, own)| xdp.with_address(own.parse().unwrap()));
            if chosen < 4 {
                drop(Box::new(with.clone()).open(1).unwrap());
            }
            let udp = with.clone().with_udp_ports(53..=53);
            drop(Box::new(udp).open(1).unwrap());
            let with = with.with_ports(80..=80).with_ports(8000..=8080);
            drop(Box::new(with.clone()).open(1).unwrap());
            let both = with.with_udp_ports(53..=53).with_udp_ports(5000..=5010);
            drop(Box::new(both).open(1).unwrap());
        }
    });
}

#[test]
fn without_the_rights_the_error_names_them() {
    in_veth(1, |_| {
        let depot = depot();
        keep(CapabilitySet::empty());
        let error = xdp(&depot).open(1).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("setcap"), "{error}");
    });
}

#[test]
fn the_rights_it_asks_for_are_enough() {
    in_veth(1, |_| {
        let depot = depot();
        keep(
            CapabilitySet::NET_ADMIN
                | CapabilitySet::NET_RAW
                | CapabilitySet::BPF
                | CapabilitySet::IPC_LOCK,
        );
        drop(xdp(&depot).open(1).unwrap());
        // The longest program: ports, and addresses of both families and kinds.
        let shared = [NEAR_KERNEL, NEAR_KERNEL_V6].map(|address| address.parse().unwrap());
        let full = shared.into_iter().fold(*xdp(&depot), Xdp::with_address);
        let full = (0..28).fold(full, |xdp, n| xdp.with_address([198, 51, 100, n].into()));
        let full = (0..16).fold(full, |xdp, n| {
            let ports = 100 * n + 1..=100 * n + 50;
            xdp.with_ports(ports.clone()).with_udp_ports(ports)
        });
        drop(Box::new(full.clone()).open(1).unwrap());
        let over = Box::new(full.with_ports(80..=80)).open(1).err().unwrap();
        assert!(
            over.to_string().contains("at most 32 ranges of ports"),
            "{over}"
        );
    });
}
