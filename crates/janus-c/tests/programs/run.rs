//! Programs that run, for a bounded time: one that takes longer, or whose test has failed, is killed.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::compile::scratch;

/// No program here takes so long.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Program {
    child: Child,
    /// Standard output, which is read by lines at first.
    out: Option<BufReader<ChildStdout>>,
    /// All of standard error, at its end.
    complained: Receiver<String>,
}

/// What a program has left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    status: ExitStatus,
    pub(crate) said: String,
    pub(crate) complained: String,
}

impl Ended {
    pub(crate) fn well(&self) -> bool {
        self.status.success()
    }

    /// The number behind a name in the report of `epwget`.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let line = self.said.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        let number = number.and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }
}

impl Program {
    /// Starts a program behind the portal, whatever the environment says.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Program {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("JANUS_") {
                command.env_remove(name);
            }
        }
        // Cargo's, in which an older library may lie.
        command.env_remove("LD_LIBRARY_PATH");
        command
            .env("JANUS_BACKEND", "portal")
            .current_dir(scratch());
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it was just compiled");
        let out = child.stdout.take().map(BufReader::new);
        let mut error = child.stderr.take().expect("a pipe");
        let (tell, complained) = channel();
        thread::spawn(move || {
            let mut all = String::new();
            let _ = error.read_to_string(&mut all);
            let _ = tell.send(all);
        });
        Program {
            child,
            out,
            complained,
        }
    }

    /// The next line that it says.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let out = self.out.as_mut().expect("it runs");
        let read = out.read_line(&mut line).expect("text");
        if read == 0 {
            let complained = self.complained.recv_timeout(LONG);
            panic!("it ended: {complained:?}");
        }
        line
    }

    /// Asks it to end.
    pub(crate) fn stop(self) -> Ended {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a number of Linux's");
        // SAFETY: the call takes two numbers; the child is not waited for yet, so that nobody else has its number.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        self.end()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let mut out = self.out.take().expect("it runs");
        let (tell, said) = channel();
        thread::spawn(move || {
            let mut all = String::new();
            let _ = out.read_to_string(&mut all);
            let _ = tell.send(all);
        });
        let until = Instant::now() + LONG;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            thread::sleep(Duration::from_millis(2));
        };
        Ended {
            status,
            said: said.recv_timeout(LONG).expect("its output ends"),
            complained: self.complained.recv_timeout(LONG).expect("it ends"),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail for one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
