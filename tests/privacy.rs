//! Whether the engine's rooms keep their secrets: source that reaches for what it must not know does not compile. Each case is a
//! copy of `janus-tcp` with a few lines more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &place),
            false => drop(fs::copy(entry.path(), place).unwrap()),
        }
    }
}

/// The engine as a package of its own, beside the crates that it needs.
fn engine() -> PathBuf {
    let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join("privacy");
    let _ = fs::remove_dir_all(&at);
    copy(&root().join("crates/janus-tcp/src"), &at.join("src"));
    fs::copy(root().join("Cargo.lock"), at.join("Cargo.lock")).unwrap();
    let needs = |name: &str| {
        let path = root().join("crates").join(name);
        format!("{name} = {{ path = {path:?} }}\n")
    };
    let manifest = format!(
        "[package]\nname = \"janus-tcp\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n{}{}",
        needs("janus-mem"),
        needs("janus-wire")
    );
    fs::write(at.join("Cargo.toml"), manifest).unwrap();
    at
}

/// Returns what the compiler says against the copy; nothing when it compiles.
fn complaint(at: &Path) -> Option<String> {
    let cargo = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--target-dir"])
        .arg(at.with_file_name("privacy-target"))
        .current_dir(at)
        .output()
        .unwrap();
    (!cargo.status.success()).then(|| String::from_utf8_lossy(&cargo.stderr).into_owned())
}

#[test]
#[ignore = "compiles the engine eight times; `.ci/run` asks it"]
fn rules_do_not_reach_beyond_their_rooms() {
    let at = engine();
    assert_eq!(complaint(&at), None, "as it is");
    let cases = [
        (
            "conn/loss/rack.rs",
            "use crate::store::index::table::FlowTable as _;",
            "module `table` is private",
        ),
        (
            "conn/loss/rack.rs",
            "impl Conn<'_> { fn f(&mut self) { self.index.stubs.len(); } }",
            "no field `index`",
        ),
        (
            "congestion/cubic.rs",
            "fn f(window: &mut crate::congestion::Congestion) { window.arrivals.quick(); }",
            "no field `arrivals`",
        ),
        (
            "ip/icmp.rs",
            "impl Ip<'_> { fn f(&mut self) { self.store.tcbs.len(); } }",
            "no field `store`",
        ),
        (
            "stack/api/socket.rs",
            "impl Stack { fn f(&mut self, conn: ConnSlot) { self.with(conn, |c| c.hot.dup_acks = 0); } }",
            "field `hot` of struct `Conn` is private",
        ),
        (
            "conn/loss/rack.rs",
            "fn f(window: &mut crate::congestion::Congestion) { window.cwnd = 1; }",
            "field `cwnd` of struct `Congestion` is private",
        ),
        (
            "conn/output/resend.rs",
            "impl Conn<'_> { fn f(&mut self) { self.blocks.recovery[self.id].lost = 0; } }",
            "cannot be indexed by `HotId`",
        ),
    ];
    for (file, lines, reason) in cases {
        let path = at.join("src").join(file);
        let kept = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{kept}\n{lines}\n")).unwrap();
        let told = complaint(&at).unwrap_or_else(|| panic!("{file} compiles with: {lines}"));
        assert!(told.contains(reason), "{file}: {told}");
        fs::write(&path, kept).unwrap();
    }
}
