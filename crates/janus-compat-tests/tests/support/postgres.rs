//! A PostgreSQL server for a test, where one is installed. The tests of the examples use it too.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where Debian puts what no user is to call.
pub(crate) const PLACES: &str = "/usr/lib/postgresql";
/// User that runs a server which root starts: it refuses to be root.
const NOBODY: u32 = 65_534;

/// The newest that is installed, `initdb` and all.
pub(crate) fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(PLACES).ok()?;
    let mut found: Vec<PathBuf> = versions
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    found.sort();
    found.pop()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn program(path: PathBuf) -> Command {
    let mut command = Command::new(path);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .current_dir("/");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A server with an empty database in a folder of its own; both go with it.
pub(crate) struct Server {
    folder: PathBuf,
    process: Child,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start(bin: &Path) -> Server {
        let folder = std::env::temp_dir().join(format!("janus-database-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        if is_root() {
            std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let data = folder.join("data");
        let made = program(bin.join("initdb"))
            .args([
                "--username=janus",
                "--auth=trust",
                "--no-sync",
                "--no-locale",
                "--encoding=UTF8",
                "--pgdata",
            ])
            .arg(&data)
            .status()
            .unwrap();
        assert!(made.success(), "initdb: {made}");
        // Free a moment ago; nothing else on a test's machine wants it.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let process = serve(bin, &folder, port);
        Server {
            folder,
            process,
            port,
        }
    }

    /// Ends it, which ends its connections, and starts it again with the same data.
    pub(crate) fn restart(&mut self, bin: &Path) {
        // At once, but in order: what is killed may leave memory behind that the next one refuses.
        let command = format!("kill -INT {}", self.process.id());
        let told = Command::new("sh").args(["-c", &command]).status();
        assert!(told.unwrap().success());
        self.process.wait().unwrap();
        self.process = serve(bin, &self.folder, self.port);
    }
}

fn serve(bin: &Path, folder: &Path, port: u16) -> Child {
    program(bin.join("postgres"))
        .arg("-D")
        .arg(folder.join("data"))
        .args([
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "fsync=off",
            "-c",
            "unix_socket_directories=",
        ])
        .args(["-p", &port.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
