//! The library that is preloaded, and the `janus` command: built by cargo as this test was, and made now where they are missing or older
//! than their sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Where cargo puts what it builds: this test's own path is `PLACE/deps/programs-...`.
fn place() -> PathBuf {
    let own = std::env::current_exe().expect("a path of this test");
    let place = own.parent().and_then(Path::parent);
    place.expect("a directory of cargo's").to_owned()
}

/// The time of the last change below a directory.
fn changed(dir: &Path) -> Option<SystemTime> {
    let entries = fs::read_dir(dir).ok()?;
    let times = entries.flatten().filter_map(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => changed(&path),
            false => entry.metadata().and_then(|meta| meta.modified()).ok(),
        }
    });
    times.max()
}

/// Whether a file is there, and newer than all sources.
fn is_fresh(file: &Path) -> bool {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let sources = fs::read_dir(crates).into_iter().flatten().flatten();
    let newest = sources.filter_map(|it| changed(&it.path().join("src")));
    let made = fs::metadata(file).and_then(|meta| meta.modified()).ok();
    made.is_some_and(|made| newest.max().is_none_or(|newest| newest < made))
}

fn made(package: &str, file: &str) -> PathBuf {
    let place = place();
    let path = place.join(file);
    if !is_fresh(&path) {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "-p", package]);
        if place.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        let built = cargo.output().expect("cargo, which has built this test");
        let complaint = String::from_utf8_lossy(&built.stderr);
        assert!(
            built.status.success(),
            "`cargo build -p {package}`: {complaint}"
        );
    }
    path
}

/// The library.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| made("janus-preload", "libjanus_preload.so"))
}

/// The command.
pub fn janus() -> &'static Path {
    static JANUS: OnceLock<PathBuf> = OnceLock::new();
    JANUS.get_or_init(|| made("janus-cli", "janus"))
}
