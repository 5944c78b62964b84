//! Runs a block of commands: by bash, in a temporary folder that looks like the repository's root, as root in namespaces of its own.
//! Stand-ins in front of PATH answer for cargo (the programs that are built already), curl (which waits until somebody
//! listens, as the reader does) and sudo.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::blocks::Block;
use crate::known::{BLOCKS, LINES, Line, Need};
use crate::{root, skip};

/// A folder that goes with the value.
pub(crate) struct Place {
    pub(crate) path: PathBuf,
}

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        let name = name.replace(['/', '.'], "-");
        let name = format!("janus-documents-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder of this process's own");
        Place { path }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Real cargo builds and runs what the documents say.
fn full() -> bool {
    std::env::var("JANUS_DOCUMENTS").is_ok_and(|value| value == "full")
}

/// The folder of what this test was built with: tests are in `deps` below it.
fn built() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path
}

/// The program `janus`; built, unless `cargo test --workspace` has. `None`, with a word, when there is no cargo.
pub(crate) fn janus() -> Option<PathBuf> {
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let janus = built().join("janus");
    if !janus.exists() {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "-p", "janus-cli"]);
        match command.current_dir(root()).status() {
            Ok(status) => assert!(status.success(), "janus-cli is built"),
            Err(error) => {
                skip(&format!("there is neither `janus` nor cargo: {error}"));
                return None;
            }
        }
    }
    Some(janus)
}

/// Whether a line of sh succeeds.
pub(crate) fn succeeds(line: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}

pub(crate) fn has(program: &str) -> bool {
    succeeds(&format!("command -v {program}"))
}

/// Whether namespaces of a test's own can be made: root, unshare and ip.
pub(crate) fn can_be_alone() -> Result<(), String> {
    match ["unshare", "ip", "mount"]
        .iter()
        .find(|program| !has(program))
    {
        Some(program) => Err(format!("there is no `{program}`")),
        None if succeeds("test $(id -u) = 0 && unshare -n -m true") => Ok(()),
        None => Err("no network namespace of its own; run as root".into()),
    }
}

/// Whether `janus doctor` finds this part of the machine.
pub(crate) fn machine_has(part: &str) -> Result<(), String> {
    static REPORT: OnceLock<String> = OnceLock::new();
    let report = REPORT.get_or_init(|| {
        let output = janus().and_then(|janus| Command::new(janus).arg("doctor").output().ok());
        output.map_or_else(String::new, |output| {
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    });
    let found = report.lines().find(|line| {
        let rest = line.strip_prefix("ok ").map(str::trim_start);
        rest.is_some_and(|rest| rest.starts_with(part))
    });
    let why = || format!("this machine has no {part}");
    found.map(|_| ()).ok_or_else(why)
}

/// Begins a script in namespaces of its own, where the interface lo is up, no other namespace has a name, and the device of TAP
/// interfaces is everybody's, as udev makes it.
pub(crate) const ALONE: &str = "ip link set lo up
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
if [ -e /dev/net/tun ]; then
    mount -t tmpfs tmpfs /dev/net
    mknod -m 666 /dev/net/tun c 10 200
fi
";

/// Defines what scripts of servers need. `ready LOG PID` waits until a server says where it is, `ask LOG TEXT` gets its answer, which
/// must hold the text, `ends PID` ends it in order.
pub(crate) const SERVERS: &str = r#"set -euo pipefail
servers=()
stop_all() { local p; for p in "${servers[@]:-}"; do [ -z "$p" ] || kill -KILL "$p" 2>/dev/null || true; done; }
trap stop_all EXIT
ready() {
    for _ in $(seq 20000); do
        grep -aqE 'curl http|^http://|programs may join' "$1" && return
        kill -0 "$2" 2>/dev/null || break
        sleep 0.05
    done
    echo "no server:"; cat "$1"; return 1
}
ask() {
    local at; at=$(grep -o 'http://[^/ ]*' "$1" | head -n 1); at=${at#http://}
    exec 3<>"/dev/tcp/${at%:*}/${at##*:}"
    printf 'GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n' >&3
    grep -F "$2" <&3
    exec 3>&-
}
ends() {
    local code=0
    kill -TERM "$1"; wait "$1" || code=$?
    [ $code = 0 ] || { echo "a server ends with $code"; return 1; }
}
"#;

/// Runs `script` by bash in `place`, in namespaces of its own where it can be `alone`. Returns its output, or why it failed with
/// all that it said.
pub(crate) fn script(place: &Path, script: &str, alone: bool) -> Result<String, String> {
    let file = place.join("script.bash");
    fs::write(&file, script).unwrap();
    let said = [place.join("output.txt"), place.join("errors.txt")];
    let [out, errors] = said.each_ref().map(|file| fs::File::create(file).unwrap());
    let mut command = match alone {
        true => Command::new("unshare"),
        false => Command::new("bash"),
    };
    if alone {
        command.args(["-n", "-m", "bash"]);
    }
    command.arg(&file).current_dir(place).process_group(0);
    // Ours, and no setting of the servers.
    command.env_remove("JANUS_DOCUMENTS");
    command.stdin(Stdio::null()).stdout(out).stderr(errors);
    let child = command.spawn().map_err(|error| format!("bash: {error}"))?;
    let ended = wait(child);
    let [out, errors] = said.map(|file| fs::read_to_string(file).unwrap());
    match ended {
        Ok(true) => Ok(out),
        Ok(false) => Err(format!("it fails:\n{out}{errors}")),
        Err(why) => Err(format!("{why}:\n{out}{errors}")),
    }
}

/// Waits for the leader of a process group, which is to be the last of it; after too long ends the group.
fn wait(mut child: Child) -> Result<bool, String> {
    let patience = Duration::from_secs(if full() { 1_800 } else { 180 });
    let begin = Instant::now();
    while begin.elapsed() < patience {
        match child.try_wait() {
            Ok(Some(status)) => return leaves_nothing(child.id()).map(|()| status.success()),
            Ok(None) => thread::sleep(Duration::from_millis(10)),
            Err(error) => return Err(error.to_string()),
        }
    }
    succeeds(&format!("kill -KILL -{}", child.id()));
    let _ = child.wait();
    Err("it does not end".into())
}

/// The others of a group have been ended by its leader, and are gone soon.
fn leaves_nothing(group: u32) -> Result<(), String> {
    let begin = Instant::now();
    while succeeds(&format!("kill -0 -{group}")) {
        if begin.elapsed() > Duration::from_secs(10) {
            succeeds(&format!("kill -KILL -{group}"));
            return Err("it leaves programs behind that run".into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Runs a block; `None` when it was not, which is said where it is not always so.
pub(crate) fn run(place: &Place, block: &Block) -> Option<String> {
    let known = BLOCKS.iter().find(|known| known.is(block));
    let alone = can_be_alone();
    for need in known.map_or(&[][..], |known| known.needs) {
        match need {
            Need::Never(_) => return None,
            Need::Full if !full() => return None,
            Need::Optional(program) if !has(program) => return None,
            Need::Program(program) if !has(program) => {
                skip(&format!("{block}: there is no `{program}`"));
                return None;
            }
            Need::Root | Need::Part(_) => {
                let part = match need {
                    Need::Part(part) => machine_has(part),
                    _ => Ok(()),
                };
                if let Err(why) = alone.clone().and(part) {
                    skip(&format!("{block}: {why}"));
                    return None;
                }
            }
            _ => {}
        }
    }
    if !has("bash") {
        skip(&format!("{block}: there is no `bash`"));
        return None;
    }
    furnish(&place.path)?;
    // Servers of two blocks want one port; and cargo puts a program built with other features where the first one still is.
    static ONE: Mutex<()> = Mutex::new(());
    let _one =
        (alone.is_err() || full()).then(|| ONE.lock().unwrap_or_else(PoisonError::into_inner));
    let text = text(
        place,
        block,
        known.map_or("", |known| known.given),
        alone.is_ok(),
    );
    if alone.is_err() && text.contains("\nready ") {
        let port = std::net::TcpListener::bind("127.0.0.1:8080");
        if let Err(error) = port {
            skip(&format!("{block}: port 8080: {error}"));
            return None;
        }
    }
    let said = script(&place.path, &text, alone.is_ok());
    Some(said.unwrap_or_else(|why| panic!("{block}: {why}")))
}

/// The script of a block.
fn text(place: &Place, block: &Block, given: &str, alone: bool) -> String {
    let bin = place.path.join("stand-in").display().to_string();
    let mut text = String::from(SERVERS);
    text += &format!("export PATH={bin}:$PATH\n");
    if alone {
        text += ALONE;
    }
    text += given;
    let mut left = 0;
    for line in block.lines() {
        let known = LINES.iter().find(|(known, _)| *known == line);
        let server = |line: &str, who: &str| {
            let log = "\"$PWD/server.log\"";
            format!("{who} env {line} >{log} 2>&1 &\nservers+=($!)\nready {log} $!\n")
        };
        let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
        let asked =
            |says| format!("ask server.log '{says}'\nends ${{servers[-1]}}\nunset 'servers[-1]'\n");
        text += &match known {
            Some((_, Line::Never(_))) => String::new(),
            Some((_, Line::Serves(says))) => server(&line, "") + &asked(says),
            Some((_, Line::ServesNobody(says))) => server(&line, nobody) + &asked(says),
            None => match line.strip_suffix('&') {
                Some(line) => {
                    left += 1;
                    server(line, "")
                }
                None => line + "\n",
            },
        };
    }
    for _ in 0..left {
        text += "ends ${servers[-1]}\nunset 'servers[-1]'\n";
    }
    text
}

/// Makes `place` look like the repository's root, with the stand-ins; `None` when something is missing that was told of.
fn furnish(place: &Path) -> Option<()> {
    let bin = place.join("stand-in");
    if bin.exists() {
        return Some(());
    }
    fs::create_dir(&bin).unwrap();
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name();
        let shown = name.to_string_lossy();
        if shown != "target" && shown != "janus.toml" && !shown.starts_with('.') {
            symlink(root().join(&name), place.join(&name)).unwrap();
        }
    }
    let write = |name: &str, text: String| {
        let file = bin.join(name);
        let text_of = bin.join(format!("{name}.text"));
        fs::write(&text_of, text).unwrap();
        // The copy was never open for writing here, where another test's child might inherit that ("Text file busy").
        let copied = Command::new("cp").arg(&text_of).arg(&file).status();
        assert!(copied.unwrap().success(), "a stand-in for {name}");
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let manifest = root().join("Cargo.toml").display().to_string();
    if full() {
        // It builds in namespaces without a network.
        let fetches = Command::new(&cargo)
            .args(["fetch", "--locked", "--target", "host-tuple"])
            .current_dir(root())
            .status();
        assert!(fetches.unwrap().success(), "the crates are fetched");
        let head = format!("#!/bin/sh\nset -e\ncargo={cargo}\nmanifest={manifest}\n");
        write("cargo", head + REAL_CARGO);
    } else {
        let examples = built().join("examples");
        assert!(
            examples.join("hello").exists(),
            "no example is built: `cargo test -p janus-examples` builds them, `--test documents` alone does not"
        );
        let head = format!(
            "#!/bin/sh\nset -e\nexamples={}\njanus={}\n",
            examples.display(),
            janus()?.display()
        );
        write("cargo", head + BUILT_CARGO);
    }
    write("curl", PATIENT_CURL.into());
    write("sudo", "#!/bin/sh\nexec \"$@\"\n".into());
    Some(())
}

/// Runs what is built already, and copies it where a release would be.
const BUILT_CARGO: &str = r#"what=$1; shift
example=; package=
while [ $# -gt 0 ]; do
    case $1 in
        --release) shift ;;
        --example) example=$2; shift 2 ;;
        -p) package=$2; shift 2 ;;
        --) shift; break ;;
        *) echo "the stand-in for cargo does not know $1" >&2; exit 2 ;;
    esac
done
if [ "$package" = janus-cli ]; then program=$janus
elif [ -n "$example" ]; then program=$examples/$example
else echo "the stand-in for cargo does not build $package" >&2; exit 2
fi
case $what in
    run) exec "$program" "$@" ;;
    build)
        mkdir -p target/release/examples
        if [ "$program" = "$janus" ]; then cp "$program" target/release/; else cp "$program" target/release/examples/; fi ;;
    *) echo "the stand-in for cargo does not know $what" >&2; exit 2 ;;
esac
"#;

/// Builds in the repository, and copies from there what the documents name.
const REAL_CARGO: &str = r#"what=$1; shift
case $what in
    run) exec "$cargo" run --manifest-path "$manifest" "$@" ;;
    build)
        "$cargo" build --manifest-path "$manifest" "$@"
        built=${CARGO_TARGET_DIR:-$(dirname "$manifest")/target}
        mkdir -p target/release/examples target/debug
        for file in release/examples/hello release/janus debug/libjanus_packetdrill.so; do
            [ ! -e "$built/$file" ] || cp "$built/$file" "target/$file"
        done ;;
    *) echo "not run by a document: cargo $what" >&2; exit 2 ;;
esac
"#;

/// Tries again until somebody answers.
const PATIENT_CURL: &str = r#"#!/bin/sh
here=$(dirname "$0")
PATH=$(printf %s "$PATH" | sed "s|$here:||")
tries=0
until said=$(curl -sS --max-time 5 "$@"); do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || exit 7
    sleep 0.1
done
printf '%s\n' "$said"
"#;
