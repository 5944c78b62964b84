//! A daemon on a thread of the test's process.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use janus::{BackendChoice, Builder};
use janus_daemon::{Counters, Settings, Stop};

/// One that runs.
pub struct Daemon {
    counters: Arc<Counters>,
    settings: Settings,
    stop: Stop,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Daemon {
    /// Opens the device in this thread's namespace; its socket is in a folder of this name.
    pub fn open(device: Builder, name: &str, lends: u32) -> Result<Daemon, janus::BoxError> {
        let folder = format!("janus-{name}-{}", std::process::id());
        let settings = Settings {
            socket: std::env::temp_dir().join(folder).join("io.sock"),
            allow: Vec::new(),
            limits: Vec::new(),
            lends,
            patience: None,
            signals: false,
        };
        let daemon = janus_daemon::Daemon::open(device, &settings)?;
        Ok(Daemon {
            counters: daemon.counters(),
            settings,
            stop: daemon.stop(),
            thread: std::thread::spawn(move || daemon.run()),
        })
    }

    pub fn backend(&self) -> BackendChoice {
        let socket = self.settings.socket.clone();
        BackendChoice::Daemon { socket }
    }

    /// The folder of its socket.
    pub fn folder(&self) -> PathBuf {
        let folder = self.settings.socket.parent();
        folder.expect("it was joined").to_owned()
    }

    /// What it has counted.
    pub fn ends(self) -> Arc<Counters> {
        self.stop.stop();
        let ended = self.thread.join().expect("it does not panic");
        ended.expect("it was told to end");
        self.counters
    }
}
