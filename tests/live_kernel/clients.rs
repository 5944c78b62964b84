//! The clients: curl that fetches contents, wrk that checks each answer in Lua, and a crowd of kernel sockets that stay
//! open and talk in rounds. Each compares hashes, and panics when one is wrong or a connection fails.

use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;

use crate::SERVER;
use crate::server::ECHO;
use crate::support::PATIENCE;
use crate::support::content::{content, hash, lua_hash, target};
use crate::support::privileged::{run, run_words};

/// Length of what curl fetches; each has a seed of its own.
const FETCHED: usize = 20_000;
/// What wrk fetches, again and again.
const ASKED: (usize, u64) = (3_000, 5);
/// Threads of the crowd.
const THREADS: usize = 8;
const ROUNDS: usize = 6;
/// Of the crowd's connections, one in so many is a new one in each round.
const CHURN: usize = 8;

/// A folder that goes with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("janus-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Fetches `count` contents over connections that are used again, and as many over new ones.
pub(crate) fn curl(host: &str, count: u64) {
    for connection in ["keep-alive", "close"] {
        let folder = Folder::new("curl");
        let url = format!("http://{host}/{FETCHED}/[1-{count}]");
        let into = format!("{}/#1", folder.0.display());
        let header = format!("Connection: {connection}");
        let words = [
            "curl",
            "-sS",
            "--fail",
            "--max-time",
            "300",
            "--parallel",
            "--parallel-max",
            "32",
            "-H",
            &header,
            "-o",
            &into,
            "-w",
            "%{http_code}\\n",
            &url,
        ];
        let codes = run_words(&words).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            codes.lines().filter(|code| *code == "200").count() as u64,
            count
        );
        for seed in 1..=count {
            let got = std::fs::read(folder.0.join(seed.to_string())).unwrap();
            let right = hash(&got) == hash(&content(FETCHED, seed));
            assert!(right, "content {seed} ({connection}): {} bytes", got.len());
        }
    }
}

/// `connections` at once for two seconds; every answer's body is hashed.
pub(crate) fn wrk(host: &str, connections: usize) {
    let (len, seed) = ASKED;
    let folder = Folder::new("wrk");
    let script = folder.0.join("check.lua");
    let expected = lua_hash(&content(len, seed));
    std::fs::write(&script, CHECK.replace("EXPECTED", &expected.to_string())).unwrap();
    let said = run(&format!(
        "wrk -t1 -c{connections} -d2s --timeout 60s -s {} http://{host}{}",
        script.display(),
        target(len, seed)
    ));
    let said = said.unwrap_or_else(|error| panic!("{error}"));
    let counted = |name: &str| -> u64 {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|number| number.trim().parse().ok());
        number.unwrap_or_else(|| panic!("no `{name}` in {said}"))
    };
    println!("wrk: {} answers", counted("right:"));
    assert!(counted("right:") > 0 && counted("wrong:") == 0, "{said}");
    let trouble = ["Socket errors", "Non-2xx"];
    assert!(!trouble.iter().any(|word| said.contains(word)), "{said}");
}

/// Counts in the thread that receives, sums up in the one that ends.
const CHECK: &str = r#"
local threads = {}
function setup(thread) table.insert(threads, thread) end
right, wrong = 0, 0
function response(status, headers, body)
  local sum = 0
  for i = 1, #body do sum = (sum * 257 + body:byte(i) + 1) % 2147483647 end
  if status == 200 and sum == EXPECTED then right = right + 1 else wrong = wrong + 1 end
end
function done()
  local sums = { right = 0, wrong = 0 }
  for _, thread in ipairs(threads) do
    for name in pairs(sums) do sums[name] = sums[name] + thread:get(name) end
  end
  io.write(string.format("right: %d\nwrong: %d\n", sums.right, sums.wrong))
end
"#;

/// One connection of the crowd, and the hashes of what it said and heard.
struct Talker {
    stream: TcpStream,
    said: DefaultHasher,
    heard: DefaultHasher,
}

impl Talker {
    fn new() -> Talker {
        let stream = TcpStream::connect((SERVER, ECHO)).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let said = DefaultHasher::new();
        let heard = said.clone();
        Talker {
            stream,
            said,
            heard,
        }
    }

    fn say(&mut self, text: &[u8]) {
        self.stream.write_all(text).expect("the server takes it");
        self.said.write(text);
    }

    fn hear(&mut self, len: usize) {
        let mut text = vec![0; len];
        self.stream.read_exact(&mut text).expect("it comes back");
        self.heard.write(&text);
    }

    /// All that was said came back, and nothing else.
    fn end(mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        self.stream
            .read_to_end(&mut rest)
            .expect("the server's end");
        assert_eq!(rest.len(), 0);
        assert_eq!(self.said.finish(), self.heard.finish());
    }
}

/// `count` connections, all open at a time, speak and are answered in rounds; some end and others take their places.
pub(crate) fn crowd(count: usize) {
    // Threads are in the namespace of the one that starts them.
    let threads = (0..THREADS).map(|thread| thread::spawn(move || part(thread, count / THREADS)));
    let threads: Vec<_> = threads.collect();
    let ended: Vec<_> = threads.into_iter().map(thread::JoinHandle::join).collect();
    assert!(
        ended.iter().all(Result::is_ok),
        "no connection of the crowd was let down"
    );
}

fn part(thread: usize, count: usize) {
    let mut talkers: Vec<Talker> = (0..count).map(|_| Talker::new()).collect();
    for round in 0..ROUNDS {
        let text = |at: usize| {
            let len = 1 + (at * 131 + round * 977) % 2_000;
            content(len, (thread * count + at + round) as u64)
        };
        for (at, talker) in talkers.iter_mut().enumerate() {
            talker.say(&text(at));
        }
        for (at, talker) in talkers.iter_mut().enumerate() {
            talker.hear(text(at).len());
        }
        for at in (round % CHURN..count).step_by(CHURN) {
            std::mem::replace(&mut talkers[at], Talker::new()).end();
        }
    }
    talkers.into_iter().for_each(Talker::end);
}
