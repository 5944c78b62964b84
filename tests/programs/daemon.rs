//! Several programs on the device of one daemon: by port, of two users.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Signal, getrlimit, setrlimit};

use crate::library;
use crate::running::Running;
use crate::support::privileged::{in_own_space, run, skip, tools};

pub const OURS: &str = "192.0.2.1";
const PATIENCE: Duration = Duration::from_secs(30);
pub const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A namespace with a TAP interface that stays when its daemon ends, and a folder that all users see.
pub struct Place {
    folder: PathBuf,
}

impl Place {
    pub fn new(name: &str) -> Place {
        let name = format!("janus-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("scratch")).expect("a temporary directory");
        for (path, mode) in [(folder.clone(), 0o755), (folder.join("scratch"), 0o777)] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(path, mode).expect("it is ours");
        }
        // Where cargo builds is root's alone, perhaps.
        fs::copy(library::library(), folder.join("library.so")).expect("the library");
        for line in [
            "ip link set lo up",
            "ip tuntap add dev janus0 mode tap",
            "ip address add 192.0.2.2/24 dev janus0",
            "ip link set janus0 up",
        ] {
            run(line).expect("a namespace of our own");
        }
        Place { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn daemon(&self) -> Running {
        self.daemon_at(&format!("{OURS}/24"))
    }

    /// A daemon whose device has these addresses.
    pub fn daemon_at(&self, addresses: &str) -> Running {
        let command = Command::new(library::janus());
        let mut daemon = Running::start(self.as_daemon(command, addresses), "janus daemon");
        daemon.says("programs may join");
        daemon
    }

    /// The words and settings of such a daemon, for a command that starts one.
    pub fn as_daemon(&self, mut command: Command, addresses: &str) -> Command {
        command
            .arg("daemon")
            .arg("--socket")
            .arg(self.path("io.sock"));
        command.args(["--allow", "any:80", "--allow", "any:1024-65535"]);
        command.env("JANUS_BACKEND", "tap");
        command.env("JANUS_TAP_NAME", "janus0");
        command.env("JANUS_TAP_KERNEL_ADDRESS", "none");
        command.env("JANUS_ADDRESS", addresses);
        command
    }

    pub fn member(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("JANUS_BACKEND", "daemon");
        command.env("JANUS_DAEMON_SOCKET", self.path("io.sock"));
        command
    }

    /// A program that knows nothing of Janus, of this user.
    pub fn program(&self, user: &str, words: &[&str]) -> Running {
        let mut command = self.member("setpriv");
        command.args([&format!("--reuid={user}"), "--clear-groups", "env"]);
        let library = self.path("library.so");
        command.arg(format!("LD_PRELOAD={}", library.display()));
        command.args(words).current_dir(self.path("scratch"));
        Running::start(command, &words.join(" "))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn in_time(line: &str) -> String {
    let begin = Instant::now();
    loop {
        match run(line) {
            Ok(said) => return said,
            Err(why) if begin.elapsed() > Duration::from_secs(20) => panic!("{why}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[test]
fn nginx_and_redis_of_two_users_by_port() {
    let needs = [
        "nginx -v",
        "redis-server --version",
        "redis-cli --version",
        "curl --version",
        "setpriv --version",
    ];
    if let Err(why) = tools(&needs) {
        return skip(&why);
    }
    if let Err(why) = in_own_space(two_users) {
        skip(&why);
    }
}

fn two_users() {
    let place = Place::new("two-users");
    let daemon = place.daemon();
    let config = "daemon off; master_process off; pid pid; error_log err; events {} http { access_log off; \
        client_body_temp_path a; proxy_temp_path b; fastcgi_temp_path c; uwsgi_temp_path d; scgi_temp_path e; \
        server { listen 80; location / { return 200 nginx; } } }";
    fs::write(place.path("nginx.conf"), config).expect("a temporary file");
    let (scratch, config) = (place.path("scratch"), place.path("nginx.conf"));
    let (scratch, config) = (scratch.display().to_string(), config.display().to_string());
    let nginx = ["nginx", "-p", &scratch, "-c", &config];
    let redis =
        "redis-server --port 6379 --bind 192.0.2.1 --maxmemory 16mb --protected-mode no --save ";
    let redis: Vec<&str> = redis.split(' ').collect();
    let web = place.program("33", &nginx);
    let store = place.program("34", &redis);
    let get = format!("curl -sS -m 5 http://{OURS}/");
    let ask = |words: &str| in_time(&format!("redis-cli -h {OURS} {words}"));
    assert_eq!(in_time(&get), "nginx");
    assert_eq!(ask("set key value").trim(), "OK");
    // The kernel has no part in it.
    let kernels = fs::read_to_string("/proc/thread-self/net/tcp").expect("it is there");
    let listens = kernels.lines().filter(|line| line.contains(" 0A ")).count();
    assert_eq!(listens, 0, "{kernels}");
    // Stopped, the daemon says nothing, and its figures are there.
    let members = format!(
        "{} members --socket {}",
        library::janus().display(),
        place.path("io.sock").display()
    );
    daemon.signal(Signal::STOP);
    let listed = run(&members).expect("the daemon is not asked");
    daemon.signal(Signal::CONT);
    for (user, port) in [("33", "80"), ("34", "6379")] {
        let is_it = |line: &str| {
            [user, port]
                .iter()
                .all(|word| line.split_whitespace().any(|it| it == *word))
        };
        assert!(listed.lines().any(is_it), "{listed}");
    }
    // One floods, and is killed; the other answers all the time.
    for round in 0..3 {
        let load = "redis-benchmark -q -t set -n 20000 -h";
        let load = std::thread::spawn({
            let line = format!("{load} {OURS}");
            move || run(&line)
        });
        for _ in 0..50 {
            assert_eq!(run(&get).expect("it answers"), "nginx", "round {round}");
        }
        let loaded = load.join().expect("an end");
        assert!(loaded.is_ok(), "{loaded:?}");
    }
    // It has all the memory that it may have, and no buffer left: it is stopped while it is asked.
    let fills = format!("redis-benchmark -q -t set -r 100000 -d 20000 -n 4000 -h {OURS}");
    let full = std::thread::spawn(move || run(&fills));
    for _ in 0..50 {
        assert_eq!(
            run(&get).expect("it answers"),
            "nginx",
            "beside one that is full"
        );
    }
    let said = format!("{:?}", full.join().expect("an end"));
    assert!(said.contains("OOM"), "{said}");
    let asks = format!("redis-benchmark -q -t get -P 64 -n 200000 -h {OURS}");
    let waits = std::thread::spawn(move || run(&asks));
    store.signal(Signal::STOP);
    for _ in 0..50 {
        assert_eq!(
            run(&get).expect("it answers"),
            "nginx",
            "beside one that is stopped"
        );
    }
    store.signal(Signal::CONT);
    let answered = waits.join().expect("an end");
    assert!(answered.is_ok(), "{answered:?}");
    assert_eq!(ask("get key").trim(), "value");
    web.signal(Signal::KILL);
    assert_eq!(web.end().code, "signal 9");
    assert_eq!(
        run(&format!("redis-cli -h {OURS} get key"))
            .expect("it answers")
            .trim(),
        "value"
    );
    let again = place.program("33", &nginx);
    assert_eq!(in_time(&get), "nginx", "another has the port");
    assert_eq!(ask("get key").trim(), "value");
    again.terminated();
    store.terminated();
    let ended = daemon.terminated().well();
    let told = "3 joined, 2 left, 1 died, 0 cut off";
    assert!(ended.out.contains(told), "{ended}");
}

/// A number that the environment may say.
pub fn said(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |it| it.parse().expect("a number"))
}

/// As many as this process may have.
pub fn more_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("no more than it may have");
}

/// A member that serves a greeting at this port.
pub fn serve(place: &Place, port: u16) -> Running {
    let mut command: Command = place.member(library::janus());
    let listens = format!("0.0.0.0:{port}");
    command.args(["serve", "--listen", &listens, "--cores", "1"]);
    Running::start(command, "janus serve")
}

pub fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((OURS, port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream
}

/// All of the greeting.
pub fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    while !answer.ends_with(b"TCP stack.\n") {
        let mut piece = [0; 1024];
        let got = stream.read(&mut piece).expect("it lives");
        assert!(got > 0, "closed after {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..got]);
    }
    answer
}
