//! The daemon, its members and the client.

use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::net::Shutdown;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use janus::net::{TcpListener, TcpStream};
use janus::{BackendChoice, Handle, Runtime, wire};
use janus_daemon::{Counters, Daemon, Settings, Stop};
use janus_wire::Link;

/// Says to a process what it is.
pub(crate) const MEMBER: &str = "DAEMON_TEST_MEMBER";
const OURS: &str = "192.0.2.1";
const LONG: Duration = Duration::from_secs(10);

pub(crate) struct World {
    pub(crate) socket: PathBuf,
    stop: Stop,
    counters: Arc<Counters>,
    daemon: JoinHandle<()>,
    client: Handle,
    client_thread: JoinHandle<()>,
}

/// A member in this process.
#[derive(Debug)]
pub(crate) struct Member {
    handle: Handle,
    thread: JoinHandle<()>,
}

/// A runtime on a thread, which waits to be told what to do.
fn start(runtime: Runtime) -> (Handle, JoinHandle<()>) {
    let handle = runtime.handle();
    let thread = std::thread::spawn(move || {
        runtime
            .run(std::future::pending::<()>)
            .expect("it is stopped");
    });
    (handle, thread)
}

/// Runs a future on a runtime, and waits for what it gives.
fn on<R, F>(handle: &Handle, make: impl FnOnce() -> F + Send + 'static) -> R
where
    R: Send + 'static,
    F: Future<Output = R> + 'static,
{
    let (tells, told) = channel();
    drop(handle.spawn_on(0, move || {
        let future = make();
        async move { tells.send(future.await).expect("it waits") }
    }));
    told.recv_timeout(3 * LONG).expect("an answer in time")
}

/// Answers each connection with a name and what it says.
async fn answers(listener: TcpListener, name: &'static str) {
    while let Ok((stream, _)) = listener.accept().await {
        drop(janus::spawn(async move {
            let _: Result<()> = async {
                stream.write_all(format!("{name}: ").as_bytes()).await?;
                let mut into = vec![0; 16_384];
                loop {
                    let got = stream.read(&mut into).await?;
                    if got == 0 {
                        return stream.shutdown(Shutdown::Write).await;
                    }
                    stream.write_all(&into[..got]).await?;
                }
            }
            .await;
        }));
    }
}

/// What a port says to one who says this, and no more.
fn asks(handle: &Handle, port: u16, text: &str, within: Duration) -> Result<String> {
    let text = text.to_owned();
    on(handle, move || async move {
        let asked = async {
            let stream = TcpStream::connect((OURS, port)).await?;
            let (mut reader, mut writer) = stream.into_split();
            let writes = janus::spawn(async move {
                writer.write_all(text.as_bytes()).await?;
                writer.shutdown().await
            });
            let (mut all, mut into) = (Vec::new(), vec![0; 16_384]);
            loop {
                let got = reader.read(&mut into).await?;
                if got == 0 {
                    break;
                }
                all.extend_from_slice(&into[..got]);
            }
            writes.await.map_err(Error::other)??;
            String::from_utf8(all).map_err(Error::other)
        };
        let late = |_| Error::from(ErrorKind::TimedOut);
        janus::time::timeout(within, asked).await.map_err(late)?
    })
}

fn member_runtime(socket: PathBuf) -> Runtime {
    let builder = Runtime::builder().ignore_environment().cores(1);
    let builder = builder.packet_buffers(4_096).max_connections(4_096);
    let built = builder.backend(BackendChoice::Daemon { socket }).build();
    built.expect("the daemon takes it in")
}

/// A process that is a member, for as long as it lives.
pub(crate) fn serve(socket: PathBuf, port: u16, name: &'static str) {
    let main = move || async move {
        let listener = TcpListener::bind((OURS, port)).await.expect("a port");
        answers(listener, name).await;
    };
    member_runtime(socket).run(main).expect("it is killed");
}

impl World {
    pub(crate) fn new(name: &str) -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("janus-daemon-{}-{number}-{name}", std::process::id());
        let socket = std::env::temp_dir().join(folder).join("io.sock");
        let config = wire::Config {
            link: Link::Ethernet,
            ..wire::Config::default()
        };
        let (near, far) = wire::pair(config).expect("a wire");
        let on = |end, address: &str| {
            let builder = Runtime::builder().ignore_environment().cores(1);
            let builder = builder.packet_buffers(8_192).max_connections(4_096);
            let address = address.parse().expect("an address");
            builder.address(address).backend(BackendChoice::wire(end))
        };
        let settings = Settings {
            socket: socket.clone(),
            allow: Vec::new(),
            signals: false,
        };
        let daemon = Daemon::open(on(near, "192.0.2.1/24"), &settings).expect("a daemon");
        let (stop, counters) = (daemon.stop(), daemon.counters());
        let daemon = std::thread::spawn(move || daemon.run().expect("it is stopped"));
        let client = on(far, "192.0.2.2/24").build().expect("a client");
        let (client, client_thread) = start(client);
        World {
            socket,
            stop,
            counters,
            daemon,
            client,
            client_thread,
        }
    }

    /// A member that serves a port.
    pub(crate) fn try_member(&self, port: u16, name: &'static str) -> Result<Member> {
        let (handle, thread) = start(member_runtime(self.socket.clone()));
        let member = Member { handle, thread };
        let bound = on(&member.handle, move || async move {
            let listener = TcpListener::bind((OURS, port)).await?;
            drop(janus::spawn(answers(listener, name)));
            Ok(())
        });
        match bound {
            Ok(()) => Ok(member),
            Err(error) => {
                member.ends();
                Err(error)
            }
        }
    }

    pub(crate) fn member(&self, port: u16, name: &'static str) -> Member {
        self.try_member(port, name).expect("its port")
    }

    /// A member that is a process, and serves.
    pub(crate) fn process(&self, port: u16) -> Child {
        let this = std::env::current_exe().expect("a path");
        let text = format!("{} {port}", self.socket.display());
        let child = Command::new(this)
            .args(["--exact", "a_member_that_is_killed"])
            .env(MEMBER, text)
            .stdout(Stdio::null())
            .spawn()
            .expect("it runs");
        let begin = Instant::now();
        while self.asks_for(port, "", Duration::from_millis(200)).is_err() {
            assert!(begin.elapsed() < LONG, "it does not serve");
        }
        child
    }

    /// What is answered at a port.
    pub(crate) fn asks(&self, port: u16, text: &str) -> Result<String> {
        self.asks_for(port, text, LONG)
    }

    pub(crate) fn asks_for(&self, port: u16, text: &str, within: Duration) -> Result<String> {
        asks(&self.client, port, text, within)
    }

    /// The client takes connections, and closes them.
    pub(crate) fn client_listens(&self) -> u16 {
        on(&self.client, || async {
            let listener = TcpListener::bind("192.0.2.2:0").await.expect("a port");
            let port = listener.local_addr().expect("it is bound").port();
            drop(janus::spawn(async move {
                while listener.accept().await.is_ok() {}
            }));
            port
        })
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn ends(self) -> Arc<Counters> {
        self.stop.stop();
        self.daemon.join().expect("an end");
        self.client.stop();
        self.client_thread.join().expect("an end");
        assert!(!self.socket.exists(), "the socket is left");
        let _ = std::fs::remove_dir(self.socket.parent().expect("a folder"));
        self.counters
    }
}

impl Member {
    /// A connection to the client: the port that it has.
    pub(crate) fn connects(&self, port: u16) -> u16 {
        on(&self.handle, move || async move {
            let stream = TcpStream::connect(("192.0.2.2", port)).await;
            let stream = stream.expect("the client takes it");
            stream.local_addr().expect("it is connected").port()
        })
    }

    pub(crate) fn asks(&self, port: u16, text: &str) -> Result<String> {
        asks(&self.handle, port, text, LONG)
    }

    pub(crate) fn ends(self) {
        self.handle.stop();
        self.thread.join().expect("an end");
    }
}
