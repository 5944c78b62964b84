//! The programs: their settings, their works, and one of them that runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::spaces::run;

/// On this port nginx and lighttpd keep connections, on the next one they close after each answer.
const PORT: u16 = 8080;
const CLOSING_PORT: u16 = 8081;
const REDIS_PORT: u16 = 6379;
/// Until a program that was started listens.
const STARTS_IN: Duration = Duration::from_millis(700);
/// The kind of a clock that is a process's processor time, in the kernel's encoding of clocks: `CPUCLOCK_SCHED`.
const OF_PROCESS: i32 = 2;
/// Key and value that redis-benchmark uses where it is not told otherwise.
const KEY: &str = "key:__rand_int__";
const VALUE: &str = "xxx";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    Nginx,
    Lighttpd,
    Redis,
}

impl Program {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::Nginx => "nginx",
            Program::Lighttpd => "lighttpd",
            Program::Redis => "redis",
        }
    }

    /// Programs without which it is not measured.
    pub(crate) fn needs(self) -> &'static [&'static str] {
        match self {
            Program::Nginx => &["ip", "taskset", "nginx", "wrk", "ab"],
            Program::Lighttpd => &["ip", "taskset", "lighttpd", "wrk", "ab"],
            Program::Redis => &[
                "ip",
                "taskset",
                "redis-server",
                "redis-cli",
                "redis-benchmark",
            ],
        }
    }

    /// The command that starts it.
    fn line(self, folder: &Path) -> String {
        let at = folder.display();
        match self {
            Program::Nginx => format!("nginx -c {at}/nginx.conf"),
            Program::Lighttpd => format!("lighttpd -D -f {at}/lighttpd.conf"),
            Program::Redis => format!("redis-server {at}/redis.conf"),
        }
    }
}

/// One thing that a program is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Work {
    pub(crate) program: Program,
    pub(crate) name: &'static str,
    pub(crate) port: u16,
}

impl Work {
    pub(crate) fn all() -> [Work; 6] {
        use Program::{Lighttpd, Nginx, Redis};
        let work = |program, name, port| Work {
            program,
            name,
            port,
        };
        [
            work(Nginx, "keep", PORT),
            work(Nginx, "close", CLOSING_PORT),
            work(Lighttpd, "keep", PORT),
            work(Lighttpd, "close", CLOSING_PORT),
            work(Redis, "set", REDIS_PORT),
            work(Redis, "get", REDIS_PORT),
        ]
    }

    pub(crate) fn closes(self) -> bool {
        self.name == "close"
    }

    /// A request as the clients send it, and how each answer begins and ends.
    pub(crate) fn words(self) -> [String; 3] {
        match self.name {
            "set" => {
                let (key, value) = (KEY.len(), VALUE.len());
                let request =
                    format!("*3\r\n$3\r\nSET\r\n${key}\r\n{KEY}\r\n${value}\r\n{VALUE}\r\n");
                [request, "+OK\r\n".into(), String::new()]
            }
            "get" => {
                let (key, value) = (KEY.len(), VALUE.len());
                let request = format!("*2\r\n$3\r\nGET\r\n${key}\r\n{KEY}\r\n");
                [request, format!("${value}\r\n"), format!("{VALUE}\r\n")]
            }
            _ => {
                let host = format!("192.0.2.1:{}", self.port);
                let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
                let end = format!("\r\n\r\n{PAGE}");
                [request, "HTTP/1.1 200 OK\r\n".into(), end]
            }
        }
    }
}

const PAGE: &str = "a page\n";

/// The programs' settings and data, which go with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(works: &[Work]) -> Result<Folder, String> {
        let name = format!("janus-programs-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        let html = folder.0.join("html");
        fs::create_dir_all(&html).map_err(|error| error.to_string())?;
        folder.write("html/index.html", PAGE)?;
        let at = folder.0.display();
        // Head and page leave in one segment (`tcp_nopush`), as Debian has it.
        folder.write(
            "nginx.conf",
            &format!(
                "daemon off; master_process off; error_log {at}/errors; pid {at}/pid;\n\
                 events {{ worker_connections 1024; }}\n\
                 http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000;\n\
                 server {{ listen {PORT}; root {at}/html; }}\n\
                 server {{ listen {CLOSING_PORT}; keepalive_timeout 0; root {at}/html; }} }}\n"
            ),
        )?;
        // The largest number of requests that it takes.
        folder.write(
            "lighttpd.conf",
            &format!(
                "server.document-root = \"{at}/html\"\nserver.port = {PORT}\n\
                 server.errorlog = \"{at}/errors\"\nindex-file.names = ( \"index.html\" )\n\
                 server.max-keep-alive-requests = 65535\n\
                 $SERVER[\"socket\"] == \":{CLOSING_PORT}\" {{ server.max-keep-alive-requests = 0 }}\n"
            ),
        )?;
        // Nothing is saved at the end: the one key keeps its value.
        folder.write(
            "redis.conf",
            &format!(
                "port {REDIS_PORT}\nprotected-mode no\ndir {at}\ndbfilename data.rdb\nsave \"\"\n"
            ),
        )?;
        if works.iter().any(|work| work.program == Program::Redis) {
            folder.fill_redis()?;
        }
        Ok(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        fs::write(self.path(name), text).map_err(|error| error.to_string())
    }

    /// Makes the file with the one key that is asked for.
    fn fill_redis(&self) -> Result<(), String> {
        let at = self.0.display();
        let line = format!("redis-server {at}/redis.conf --port 0 --unixsocket {at}/socket");
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| error.to_string())?;
        let server = Server(child);
        sleep(STARTS_IN);
        for call in [&format!("set {KEY} {VALUE}"), "save"] {
            run(&format!("redis-cli -s {at}/socket {call}"))?;
        }
        drop(server);
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that runs, and ends with the value.
pub(crate) struct Server(Child);

impl Server {
    /// Starts it in a namespace, with these variables; on the first processor only if `pinned`.
    pub(crate) fn start(
        program: Program,
        folder: &Folder,
        space: &str,
        variables: &[(&str, String)],
        pinned: bool,
    ) -> Result<Server, String> {
        let line = program.line(&folder.0);
        let pin = if pinned { "taskset -c 0 " } else { "" };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", space]);
        command.args(format!("{pin}env").split_whitespace());
        // The library is for the program alone.
        command.args(
            variables
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        command.args(line.split_whitespace());
        let log = fs::File::create(folder.path("stderr")).map_err(|error| error.to_string())?;
        command.stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|error| error.to_string())?;
        sleep(STARTS_IN);
        Ok(Server(child))
    }

    /// Seconds of processor time.
    pub(crate) fn cpu(&self) -> f64 {
        let pid = i32::try_from(self.0.id()).unwrap_or_default();
        let clock = ClockId::from_raw(!pid << 3 | OF_PROCESS);
        let time = clock_gettime(clock).map(Duration::from);
        time.map_or(f64::NAN, |time| time.as_secs_f64())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = run(&format!("kill -TERM {}", self.0.id()));
        let _ = self.0.wait();
    }
}
