//! Over devices of the kernel's: Janus by TAP, the kernel's sockets by veth.

use crate::client::{Client, Place};
use crate::server::{Program, Server};
use crate::{Bench, Samples};

const SERVER: &str = "192.0.2.1";
const CLIENT: &str = "192.0.2.2";

pub(crate) fn run(bench: &Bench) -> Result<Samples, String> {
    let mut samples = Samples::default();
    let mut programs: Vec<Program> = bench.works.iter().map(|work| work.program).collect();
    programs.dedup();
    for _ in 0..bench.rounds {
        for &program in &programs {
            let server = by_tap(bench, program)?;
            ask(bench, program, &server, true, &mut samples)?;
            drop(server);
            let server = by_veth(bench, program)?;
            ask(bench, program, &server, false, &mut samples)?;
            drop(server);
            bench.spaces.ip_far("link del v0")?;
        }
    }
    Ok(samples)
}

fn by_tap(bench: &Bench, program: Program) -> Result<Server, String> {
    let spaces = &bench.spaces;
    let variables = [
        ("LD_PRELOAD", bench.preload.display().to_string()),
        ("JANUS_BACKEND", "tap".into()),
        ("JANUS_TAP_NAME", "jt0".into()),
        ("JANUS_ADDRESS", format!("{SERVER}/24")),
        ("JANUS_TAP_KERNEL_ADDRESS", "none".into()),
    ];
    let server = Server::start(program, &bench.folder, &spaces.far, &variables, false)?;
    spaces.ip_far(&format!("addr add {CLIENT}/24 dev jt0"))?;
    spaces.ip_far("link set jt0 up")?;
    Ok(server)
}

fn by_veth(bench: &Bench, program: Program) -> Result<Server, String> {
    let spaces = &bench.spaces;
    let near = &spaces.near;
    spaces.ip_far(&format!("link add v0 type veth peer name v1 netns {near}"))?;
    spaces.ip_far(&format!("addr add {CLIENT}/24 dev v0"))?;
    spaces.ip_near(&format!("addr add {SERVER}/24 dev v1"))?;
    spaces.ip_far("link set v0 up")?;
    spaces.ip_near("link set v1 up")?;
    Server::start(program, &bench.folder, near, &[], false)
}

fn ask(
    bench: &Bench,
    program: Program,
    server: &Server,
    on_janus: bool,
    samples: &mut Samples,
) -> Result<(), String> {
    let place = Place {
        space: &bench.spaces.far,
        host: SERVER,
        pinned: false,
    };
    for &work in bench.works.iter().filter(|work| work.program == program) {
        for &client in Client::of(program) {
            let sample = client.measure(work, server, &place, bench.seconds)?;
            samples.add(work, client, on_janus, sample);
        }
    }
    Ok(())
}
