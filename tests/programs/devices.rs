//! A program over AF_XDP, beside the kernel that has the same interface: what the others do over TAP is not done again.

use std::fs;
use std::process::Command;

use crate::library;
use crate::running::{self, Running};
use crate::support::privileged::{skip, tools};
use crate::veth::{NEAR, OURS, in_veth};

const PYTHON: &str = "/usr/bin/python3";

#[test]
fn python_over_af_xdp() {
    if let Err(why) = tools(&["/usr/bin/python3 --version", "curl --version"]) {
        return skip(&why);
    }
    in_veth(1, |veth| {
        let name = format!("janus-devices-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a temporary directory");
        fs::write(folder.join("sent"), crate::peers::big()).expect("a temporary file");
        let mut command = Command::new(PYTHON);
        command.args(["-m", "http.server", "8080", "--bind", OURS]);
        command.arg("--directory").arg(&folder);
        command.env("LD_PRELOAD", library::library());
        command.env("JANUS_BACKEND", "xdp");
        command.env("JANUS_XDP_INTERFACE", NEAR);
        command.env("JANUS_ADDRESS", format!("{OURS}/24"));
        command.env("JANUS_PROGRAM_REPORT", "on");
        let server = Running::start(command, "python3 -m http.server");
        let (got, sent) = (folder.join("got"), folder.join("sent"));
        let asks = "curl -sS --retry 20 --retry-delay 1 --retry-all-errors";
        let said = veth.far_run(&format!(
            "{asks} -o {} http://{OURS}:8080/sent",
            got.display()
        ));
        let same = said.is_ok() && fs::read(got).ok() == fs::read(sent).ok();
        let ended = server.terminated();
        let _ = fs::remove_dir_all(&folder);
        assert!(same, "{said:?}\n{ended}");
        let reports = running::reports();
        let all = (reports.iter()).any(|line| line.starts_with("janus: 2 sockets, 1 connections"));
        assert!(all, "{reports:?}");
    });
}
