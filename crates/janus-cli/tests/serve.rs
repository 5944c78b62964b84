//! `janus serve` told to end in the middle of load.

use std::process::Command;

#[path = "../../../examples/tests/run/load.rs"]
mod load;
#[allow(dead_code, reason = "it is for examples, too")]
#[path = "../../../examples/tests/run/process.rs"]
mod process;

use process::{Process, Server};

#[test]
fn it_ends_under_load() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_janus"));
    command.args(["serve", "--cores", "2", "--listen", "127.0.0.1:0"]);
    command.env_remove("NOTIFY_SOCKET");
    let server = Server::of(Process::run(command));
    load::until_the_end(server.at, || server.terminate());
    assert_eq!(server.end().code(), Some(0));
}
