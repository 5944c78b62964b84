//! A program that runs: its output gathered while it does, its end waited for, and never for ever.

use std::cell::RefCell;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::peers::sum;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Opens the line of a program that says what went through its sockets.
const REPORT: &str = "janus: ";

thread_local! {
    /// Lines of programs of this thread's that have ended.
    static REPORTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

pub fn forget_reports() {
    REPORTS.take();
}

/// Lines by which programs that this thread has run said what went through their sockets.
pub fn reports() -> Vec<String> {
    REPORTS.take()
}

/// A program that was started; it is killed if its test ends before it does.
pub struct Running {
    child: Child,
    line: String,
    out: Gathered,
    err: Gathered,
}

/// The end of a program.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code, or the signal that ended it.
    pub code: String,
    pub out: String,
    pub err: String,
    /// The length of its output, and a sum of it: not all output is text.
    pub out_len: usize,
    pub out_sum: u64,
}

/// How it ended, and what it said.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "[{}]\n{}{}", self.code, self.out, self.err)
    }
}

impl Ended {
    /// Fails the test unless the program has ended well.
    #[track_caller]
    pub fn well(self) -> Ended {
        assert_eq!(self.code, "0", "{self}");
        self
    }
}

/// Output that has come so far, and the thread that reads more.
struct Gathered {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Gathered {
    fn from(mut pipe: impl Read + Send + 'static) -> Gathered {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let into = bytes.clone();
        let thread = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(got @ 1..) = pipe.read(&mut piece) {
                into.lock()
                    .expect("no reader panics")
                    .extend_from_slice(&piece[..got]);
            }
        });
        Gathered {
            bytes,
            thread: Some(thread),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no reader panics")).into_owned()
    }

    /// Waits for its end.
    fn finish(&mut self) {
        let thread = self.thread.take().expect("it is asked once");
        thread.join().expect("no reader panics");
    }
}

impl Running {
    pub fn start(mut command: Command, line: &str) -> Running {
        command.stdin(Stdio::piped());
        Running::start_reading(command, line)
    }

    /// Its standard input is what the command says.
    pub fn start_reading(mut command: Command, line: &str) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        let out = Gathered::from(child.stdout.take().expect("a pipe"));
        let err = Gathered::from(child.stderr.take().expect("a pipe"));
        Running {
            child,
            line: line.to_owned(),
            out,
            err,
        }
    }

    /// Writes to its standard input, from a thread of its own, and closes it.
    pub fn feed(&mut self, bytes: Vec<u8>) {
        let mut input = self.child.stdin.take().expect("it is fed once");
        // A program that reads no more of it says so by other means.
        thread::spawn(move || drop(input.write_all(&bytes)));
    }

    /// Writes a little to its standard input, which stays open.
    pub fn write(&mut self, bytes: &[u8]) {
        let input = self.child.stdin.as_mut().expect("it has not been fed");
        input.write_all(bytes).expect("a pipe that is read");
    }

    /// Waits until its output, either one, has this.
    #[track_caller]
    pub fn says(&mut self, text: &str) {
        let begin = Instant::now();
        loop {
            let (out, err) = (self.out.text(), self.err.text());
            if out.contains(text) || err.contains(text) {
                return;
            }
            let ended = self.child.try_wait().expect("a child of ours");
            assert!(
                ended.is_none() && begin.elapsed() < PATIENCE,
                "`{}` does not say `{text}`: {out}{err}",
                self.line
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a process that has not been waited for");
    }

    /// Sends SIGTERM, and waits for the end.
    #[track_caller]
    pub fn terminated(self) -> Ended {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Waits for the end.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        drop(self.child.stdin.take());
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                panic!(
                    "`{}` does not end; it has said: {}{}",
                    self.line,
                    self.out.text(),
                    self.err.text()
                );
            }
            thread::sleep(Duration::from_millis(5));
        };
        let code = match (status.code(), status.signal()) {
            (Some(code), _) => code.to_string(),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        };
        self.out.finish();
        self.err.finish();
        let (out, err) = (self.out.text(), self.err.text());
        let (out_len, out_sum) = {
            let bytes = self.out.bytes.lock().expect("no reader panics");
            (bytes.len(), sum(&bytes))
        };
        // Warnings count too ("janus: 3 packets dropped"), and which of them there are is a matter of time.
        let is_report = |line: &&str| {
            let words = line.strip_prefix(REPORT).unwrap_or_default();
            words.starts_with(|first: char| first.is_ascii_digit())
        };
        let told = err.lines().filter(is_report).map(str::to_owned);
        REPORTS.with_borrow_mut(|reports| reports.extend(told));
        // A program may begin before the kernel's end of the device is up.
        let is_early = |line: &&str| line.contains("answers neither ARP nor neighbor discovery");
        let rest = err
            .lines()
            .filter(|line| !is_report(line) && !is_early(line));
        let err = rest.map(|line| format!("{line}\n")).collect();
        Ended {
            code,
            out,
            err,
            out_len,
            out_sum,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
