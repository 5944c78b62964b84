//! Three processes: a program asks another, both members of a daemon that is neither's. Each packet crosses two borders, and there are three threads
//! that poll, mostly on fewer processors.

use std::io::{BufRead, BufReader, Error, Result};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use janus::DaemonMemory;
use janus::net::{TcpListener, TcpStream};

use crate::Between;
use crate::support::far::App;
use crate::support::far::packet::Ends;
use crate::support::report::Report;
use crate::support::served::{Layout, builder};

pub(crate) const METRIC: &str = "apart_ns";
/// First argument of a program that this one has begun.
const CHILD: &str = "--apart";
const PORT: u16 = 7;
const BYTES: usize = 64;

pub(crate) fn is_child() -> bool {
    std::env::args().nth(1).as_deref() == Some(CHILD)
}

/// `--apart SOCKET MEMORY`: serves until it is killed. With `ROUNDS MILLISECONDS` behind it: asks, and says how long an answer takes.
pub(crate) fn child() {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let memory = match words[1].as_str() {
        "shared" => DaemonMemory::Shared,
        _ => DaemonMemory::Isolated,
    };
    let rounds: Vec<u64> = words[2..].iter().filter_map(|it| it.parse().ok()).collect();
    let runtime = super::member(PathBuf::from(&words[0]), memory).build();
    let runtime = runtime.expect("the daemon takes it in");
    let ran = match rounds[..] {
        [rounds, time] => runtime.run(move || ask(rounds, Duration::from_millis(time))),
        _ => runtime.run(serve),
    };
    ran.expect("an end");
}

async fn serve() -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    println!("serves");
    loop {
        let (stream, _) = listener.accept().await?;
        let mut bytes = [0; BYTES];
        while let count @ 1.. = stream.read(&mut bytes).await? {
            stream.write_all(&bytes[..count]).await?;
        }
    }
}

async fn ask(rounds: u64, time: Duration) -> Result<()> {
    let server = Ends::default().server_ip();
    let stream = TcpStream::connect((server, PORT)).await?;
    let mut said = [0_u8; BYTES];
    // The first warms up.
    for round in 0..=rounds {
        let (begin, mut count) = (Instant::now(), 0_u32);
        while begin.elapsed() < time {
            count += 1;
            said[..4].copy_from_slice(&count.to_ne_bytes());
            stream.write_all(&said).await?;
            let (mut heard, mut got) = ([0; BYTES], 0);
            while got < BYTES {
                match stream.read(&mut heard[got..]).await? {
                    0 => return Err(Error::other("no answer")),
                    some => got += some,
                }
            }
            if heard != said {
                return Err(Error::other("another answer"));
            }
        }
        if round > 0 {
            println!("{}", begin.elapsed().as_nanos() as f64 / f64::from(count));
        }
    }
    Ok(())
}

/// Runs this program again with these arguments; the lines that it says.
pub(crate) fn begins(words: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    command.args(words).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    let said = child.stdout.take().expect("what it says");
    (child, BufReader::new(said).lines().map_while(Result::ok))
}

pub(crate) fn compare(report: &mut Report, rounds: usize, time: Duration) {
    report.progress(METRIC);
    let (device, _) = builder(&Ends::default(), Layout::COMBINED, App::Echo, 0);
    let daemon = Between::start(device, "apart");
    let path = daemon.socket.display().to_string();
    let (rounds, time) = (rounds.to_string(), time.as_millis().to_string());
    for memory in ["shared", "isolated"] {
        let (mut server, mut said) = begins(&[CHILD, &path, memory]);
        assert_eq!(said.next().as_deref(), Some("serves"));
        let (mut client, times) = begins(&[CHILD, &path, memory, &rounds, &time]);
        let times: Vec<f64> = times.filter_map(|it| it.parse().ok()).collect();
        let ended = client.wait().expect("its end");
        server.kill().and_then(|()| server.wait()).expect("its end");
        assert!(ended.success(), "a wrong answer, or none");
        report.median(METRIC, &times, "ns", &[("memory", memory.into())]);
    }
    daemon.end();
}
