//! An example as a process: started on a free port, told to end, waited for.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that has much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An example that runs, killed with the value.
pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts an example, with its output to be read.
    pub(crate) fn start(example: &str, change: impl FnOnce(&mut Command)) -> Process {
        // Tests are in `deps` beside `examples`.
        let mut program = std::env::current_exe().unwrap();
        program.pop();
        program.pop();
        let mut command = Command::new(program.join("examples").join(example));
        command.env("JANUS_CORES", "2").env_remove("NOTIFY_SOCKET");
        change(&mut command);
        Process::run(command)
    }

    /// Runs a program, with its output to be read.
    pub(crate) fn run(mut command: Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().expect(
            "`cargo test` builds examples unless it is given a name: `cargo build --examples` does",
        );
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Process { child, output }
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn terminate(&self) {
        // The shell's own: not every machine has a program of that name.
        let command = format!("kill -TERM {}", self.child.id());
        let status = Command::new("sh").args(["-c", &command]).status();
        assert!(status.unwrap().success());
    }

    /// Waits until it has ended by itself; how, and what else it printed.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut rest = String::new();
                self.output.read_to_string(&mut rest).unwrap();
                return (status, rest);
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An example that serves.
pub(crate) struct Server {
    process: Process,
    /// The first line it printed.
    pub(crate) said: String,
    pub(crate) at: SocketAddr,
}

impl Server {
    /// Starts an example on a free port, and waits until it says where it is reached.
    pub(crate) fn start(example: &str, change: impl FnOnce(&mut Command)) -> Server {
        let process = Process::start(example, |command| {
            command.arg("127.0.0.1:0");
            change(command);
        });
        Server::of(process)
    }

    /// A program that says in its first line where it is reached.
    pub(crate) fn of(mut process: Process) -> Server {
        let said = process.line();
        // As a URL has it, or as the arguments of `nc`.
        let words = said.split(['/', ' ']).collect::<Vec<_>>();
        let one = words.iter().find_map(|word| word.parse().ok());
        let two = || words.windows(2).find_map(|two| two.join(":").parse().ok());
        let at = one.or_else(two).expect("where it is");
        Server { process, said, at }
    }

    /// A connection to it, over which nothing is waited for for ever.
    pub(crate) fn dial(&self) -> TcpStream {
        dial(self.at)
    }

    pub(crate) fn terminate(&self) {
        self.process.terminate();
    }

    pub(crate) fn end(self) -> ExitStatus {
        self.end_and_say().0
    }

    /// How it ended, and what it printed behind its first line.
    pub(crate) fn end_and_say(self) -> (ExitStatus, String) {
        self.process.end()
    }

    /// Tells it to end, which it does in order.
    pub(crate) fn ends_well(self) {
        self.terminate();
        let (status, rest) = self.process.end();
        assert_eq!(status.code(), Some(0), "{status}: {} {rest}", self.said);
    }
}

/// A connection over which nothing is waited for for ever.
pub(crate) fn dial(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}
