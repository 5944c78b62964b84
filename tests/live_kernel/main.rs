//! The kernel's TCP as the client while the cores' weights change every ten milliseconds: curl, wrk, and a crowd of
//! connections that stay open, over TAP and (with the feature `dpdk` or `dpdk-dlopen`) over DPDK's `net_tap`, in every
//! layout. No connection is lost and no byte is wrong, told by the hash of what clients got; the updates really move
//! flows. Needs root, curl and wrk: without them the tests say so in one line and pass, unless `JANUS_PRIVILEGED=1`
//! says that the machine must be able to. `JANUS_CROWD` is how many connections the crowd has.

mod clients;
mod server;
#[path = "../support/mod.rs"]
mod support;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use janus::{BackendChoice, Runtime};
use server::Server;
use support::changing::Changing;
use support::privileged::{in_own_space, run, skip, tools};
use support::reports::sum;
use support::*;

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
/// Connections of the crowd without `JANUS_CROWD`.
const CROWD: usize = 1_000;
/// What the clients are.
const TOOLS: [&str; 3] = ["curl --version", "ip -V", "wrk -v"];
/// A device's descriptors are inherited by programs that another test starts, and hold it open.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn the_kernel_is_served_over_tap_under_updates() {
    in_every_layout_over("TAP", |case, index| {
        let name = format!("jl{index}");
        let backend = BackendChoice::Tap { name: name.clone() };
        let runtime = addressed(case).backend(backend).build().unwrap();
        serve_the_kernel(case, runtime, &name);
        Ok(())
    });
}

#[cfg(any(feature = "dpdk", feature = "dpdk-dlopen"))]
#[test]
fn the_kernel_is_served_over_dpdk_under_updates() {
    in_every_layout_over("DPDK", |case, index| {
        let name = format!("jm{index}");
        let device = format!("net_tap{index},iface={name}");
        let backend = BackendChoice::Dpdk { device };
        match addressed(case).backend(backend).build() {
            Ok(runtime) => serve_the_kernel(case, runtime, &name),
            Err(error) if error.to_string().contains("not to be had") => {
                return Err(error.to_string());
            }
            Err(error) => panic!("{error}"),
        }
        Ok(())
    });
}

fn addressed(case: Case) -> janus::Builder {
    case.builder()
        .packet_buffers(64 * 1024)
        .address(format!("{SERVER}/24").parse().unwrap())
        .address(format!("{SERVER_V6}/64").parse().unwrap())
}

/// One layout after the other, each in a namespace of its own. An error is a want of privilege or tools.
fn in_every_layout_over(what: &str, test: fn(Case, usize) -> Result<(), String>) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let tun = Path::new("/dev/net/tun").exists();
    let there = tun.then_some(()).ok_or("no /dev/net/tun".to_owned());
    if let Err(why) = tools(&TOOLS).and(there) {
        return skip(&format!(
            "updates under the kernel's load over {what}: {why}"
        ));
    }
    let cases = [ONE_COMBINED, THREE_COMBINED, ONE_SPLIT, THREE_SPLIT];
    for (index, case) in cases.into_iter().enumerate() {
        let ended = in_own_space(move || test(case, index)).flatten();
        if let Err(why) = ended {
            return skip(&format!(
                "updates under the kernel's load over {what}: {why}"
            ));
        }
    }
}

/// The kernel's end gets its addresses, and all the clients are let loose one kind after the other.
fn serve_the_kernel(case: Case, runtime: Runtime, interface: &str) {
    for command in [
        format!("ip address replace {CLIENT}/24 dev {interface}"),
        format!("ip -6 address add {CLIENT_V6}/64 dev {interface} nodad"),
        format!("ip link set {interface} up"),
    ] {
        run(&command).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    }
    let crowd = std::env::var("JANUS_CROWD").map_or(CROWD, |text| {
        text.parse()
            .expect("JANUS_CROWD is a number of connections")
    });
    let changing = Changing::start(&runtime, case.cores);
    let server = Server::start(runtime);
    clients::curl(&SERVER.to_string(), 600);
    clients::curl(&format!("[{SERVER_V6}]"), 300);
    clients::wrk(&SERVER.to_string(), 64);
    clients::crowd(crowd);
    // On a machine where an update takes long.
    let enough = changing.enough(case);
    while !enough() {
        clients::crowd(crowd / 4);
    }
    changing.stop(case);
    let cores = server.reports.fresh(case.cores);
    println!(
        "{case:?}: {} connections accepted, {} frames forwarded, {} segments sent again",
        sum(&cores, |core| core.tcp.accepted),
        sum(&cores, |core| core.forwards.forwarded),
        sum(&cores, |core| core.tcp.retransmissions),
    );
    let all = cores.iter().all(|core| core.tcp.accepted > 0);
    assert!(all, "every core has its share: {cores:?}");
    assert_eq!(sum(&cores, |core| core.tasks_panicked), 0);
    server.stop();
}
