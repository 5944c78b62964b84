//! The files under `docs/deploy/`: read by the programs they are for where these are there, and what they grant a program is
//! all that it gets here, and enough.

use std::fs;
use std::io::Write;
use std::process::Command;

use crate::blocks::{Kind, documents};
use crate::root;
use crate::shell::{ALONE, Place, SERVERS, can_be_alone, has, janus, machine_has, script};
use crate::skip;

const UNITS: &[&str] = &["hello.service", "hello-tap.service", "janus-daemon.service"];
const YAML: &[&str] = &[
    "compose.yaml",
    "compose.tap.yaml",
    "compose.daemon.yaml",
    "kubernetes.yaml",
];

fn read(name: &str) -> String {
    let file = root().join("docs/deploy").join(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Reports that an optional program is missing.
fn without(program: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: there is no `{program}`");
}

/// The example, as it was built.
fn hello() -> String {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.set_file_name("examples");
    let path = path.join("hello");
    assert!(path.exists(), "`cargo test -p janus-examples` builds it");
    path.display().to_string()
}

/// The values of a key in a unit, comments included when they look like one.
fn said(unit: &str, key: &str) -> Vec<String> {
    let lines = unit.lines();
    let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

#[test]
fn systemd_understands_the_units() {
    if !has("systemd-analyze") {
        return without("systemd-analyze");
    }
    let place = Place::new("units");
    for name in UNITS {
        let unit = read(name).replace("/usr/local/bin/hello", &hello());
        // It is verified that there is such a program, not which.
        let unit = unit.replace("/usr/local/bin/janus", &hello());
        fs::write(place.path.join(name), unit).unwrap();
        let mut command = Command::new("systemd-analyze");
        command.arg("verify").arg(place.path.join(name));
        let output = command.output().unwrap();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {wrong}");
        assert!(!wrong.contains(name), "{name}: {wrong}");
    }
}

#[test]
fn the_yaml_is_yaml() {
    let program = r#"
import sys
try: import yaml
except ImportError: sys.exit(77)
for file in sys.argv[1:]:
    assert all(yaml.safe_load_all(open(file))), file
"#;
    let place = Place::new("yaml");
    let ours = YAML
        .iter()
        .map(|name| root().join("docs/deploy").join(name));
    let mut files: Vec<_> = ours.collect();
    for block in documents()
        .iter()
        .filter(|block| block.kind() == Kind::Yaml)
    {
        let file = place.path.join(format!("{}.yaml", files.len()));
        fs::write(&file, &block.text).unwrap();
        files.push(file);
    }
    let mut command = Command::new("python3");
    match command.args(["-c", program]).args(files).output() {
        Ok(output) if output.status.code() == Some(77) => without("python3 with yaml"),
        Err(_) => without("python3"),
        Ok(output) => {
            let wrong = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{wrong}");
        }
    }
}

/// Every supervisor waits longer than an end in order may take.
#[test]
fn supervisors_wait_long_enough() {
    let settings = janus::Runtime::builder()
        .ignore_environment()
        .effective()
        .unwrap();
    let ms = |key| settings.value(key).unwrap().parse::<u64>().unwrap();
    let needed = ms("shutdown_ms") + ms("close_ms");
    for (name, key) in [
        ("hello.service", "TimeoutStopSec="),
        ("hello-tap.service", "TimeoutStopSec="),
        ("compose.yaml", "stop_grace_period:"),
        ("compose.tap.yaml", "stop_grace_period:"),
        ("kubernetes.yaml", "terminationGracePeriodSeconds:"),
    ] {
        let text = read(name);
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
        let line = line.unwrap_or_else(|| panic!("{name} says {key}"));
        let seconds: u64 = line.trim().trim_end_matches('s').parse().unwrap();
        assert!(seconds * 1_000 > needed, "{name}: {needed} ms are needed");
    }
}

/// Every `JANUS_` variable of the files is a setting, with a value that it can have.
#[test]
fn variables_are_settings() {
    let Some(janus) = janus() else { return };
    let mut seen = 0;
    let folder = fs::read_dir(root().join("docs/deploy")).unwrap();
    for entry in folder {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = read(&name);
        let lines = text.lines().filter(|line| !line.trim().starts_with('#'));
        let mut command = Command::new(&janus);
        command.arg("config").current_dir(std::env::temp_dir());
        for line in lines {
            for found in line.split("JANUS_").skip(1) {
                let end = found.find(|c: char| !c.is_ascii_uppercase() && c != '_');
                let (key, rest) = found.split_at(end.unwrap_or(found.len()));
                let value = rest.trim_start_matches([':', '=', ',', ' ']);
                let value = value.trim_start_matches("value: ");
                let value = value.split([' ', '}']).next().unwrap().trim_matches('"');
                assert!(!value.is_empty(), "{name}: JANUS_{key} has a value");
                command.env(format!("JANUS_{key}"), value);
                seen += 1;
            }
        }
        let output = command.output().unwrap();
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && wrong.is_empty(),
            "{name}: {wrong}"
        );
    }
    assert!(seen > 5, "variables are found");
}

/// The image has one file of ours, which the build before it makes.
#[test]
fn the_image_has_the_program() {
    let file = read("Dockerfile");
    let line = |begins: &str| {
        let mut lines = file.lines();
        let line = lines.find(|line| line.starts_with(begins));
        line.unwrap_or_else(|| panic!("a line {begins}"))
    };
    let example = line("RUN cargo build --release")
        .rsplit(' ')
        .next()
        .unwrap();
    let copied = line("COPY --from=build").split(' ').nth(2).unwrap();
    assert_eq!(copied, format!("/janus/target/release/examples/{example}"));
    let entry = line("ENTRYPOINT").split('"').nth(1).unwrap();
    assert!(line("COPY --from=build").ends_with(&format!(" {entry}")));
    let manifest = fs::read_to_string(root().join("examples/Cargo.toml")).unwrap();
    assert!(manifest.contains(&format!("name = \"{example}\"")));
}

/// Two namespaces with a cable between them: `near0` here at 192.0.2.2, the other end in `far` at 192.0.2.9.
const CABLE: &str = "ip netns add far
ip link add near0 type veth peer name far0 netns far
ip link set near0 up
ip address add 192.0.2.2/24 dev near0
ip -n far address add 192.0.2.9/24 dev far0
ip -n far link set far0 up
from_far() { ip netns exec far curl -sS --max-time 10 \"$1\" | grep -F 'hello from Janus'; }
";

/// Runs what follows [`SERVERS`] in namespaces of its own, on a machine with these parts; says why not where it cannot.
fn alone(name: &str, parts: &[&str], programs: &[&str], text: &str) {
    let has_parts = || parts.iter().try_for_each(|part| machine_has(part));
    if let Err(why) = can_be_alone().and_then(|()| has_parts()) {
        return skip(&why);
    }
    if let Some(program) = programs.iter().find(|program| !has(program)) {
        return skip(&format!("there is no `{program}`"));
    }
    let place = Place::new(name);
    let head = format!("{SERVERS}{ALONE}cp {} hello\n", hello());
    script(&place.path, &(head + text), true).unwrap_or_else(|why| panic!("{name}: {why}"));
}

/// Runs the program as the image does: process 1, a root directory with the program and its libraries only, a user without any
/// privilege, a published port.
#[test]
fn the_program_runs_where_there_is_nothing_else() {
    let text = r#"
mkdir -p root
for file in $(ldd hello | grep -o '/[^ ]*'); do mkdir -p "root/$(dirname "$file")"; cp "$file" "root/$file"; done
cp hello root/
JANUS_PORTAL_LISTEN=any unshare --pid --fork --kill-child \
    setpriv --no-new-privs chroot --userspec=65532:65532 root /hello >log 2>&1 &
outer=$!
servers+=($outer)
ready log $outer
from_far http://192.0.2.2:8080/
inner=$(cat "/proc/$outer/task/$outer/children")
kill -TERM $inner
wait $outer
"#;
    let programs = ["curl", "ldd", "chroot", "setpriv"];
    alone("image", &[], &programs, &(CABLE.to_owned() + text));
}

/// Command prefix that grants what a unit grants: another user, the ambient capabilities that the file names, no others.
fn as_the_unit(capabilities: &str) -> String {
    let list: Vec<String> = capabilities
        .split(' ')
        .map(|name| "+".to_owned() + &name.trim_start_matches("CAP_").to_lowercase())
        .collect();
    let list = list.join(",");
    format!(
        "setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --bounding-set=-all,{list} \
         --inh-caps={list} --ambient-caps={list}"
    )
}

#[test]
fn the_unit_with_tap_has_the_capabilities_it_needs() {
    let unit = read("hello-tap.service");
    let capabilities = said(&unit, "AmbientCapabilities");
    assert_eq!(capabilities, said(&unit, "CapabilityBoundingSet"));
    let environment = &said(&unit, "Environment")[0];
    let text = format!(
        "{environment} {} ./hello >log 2>&1 &\nservers+=($!)\nready log $!\nask log 'hello from Janus'\nends $!\n",
        as_the_unit(&capabilities[0])
    );
    alone("unit-tap", &["TAP device"], &["setpriv"], &text);
}

#[test]
fn the_unit_s_comment_has_the_capabilities_of_af_xdp() {
    let unit = read("hello-tap.service");
    let capabilities = said(&unit, "# AmbientCapabilities");
    assert_eq!(capabilities, said(&unit, "# CapabilityBoundingSet"));
    let text = format!(
        "ip address del 192.0.2.2/24 dev near0\n\
         export JANUS_BACKEND=xdp JANUS_XDP_INTERFACE=near0 JANUS_ADDRESS=192.0.2.1/24 JANUS_CORES=1\n\
         {} ./hello >log 2>&1 &\nservers+=($!)\nready log $!\nfrom_far http://192.0.2.1:8080/\nends $!\n",
        as_the_unit(&capabilities[0])
    );
    alone(
        "unit-xdp",
        &["AF_XDP"],
        &["setpriv", "curl"],
        &(CABLE.to_owned() + &text),
    );
}

/// Runs the program as `compose.tap.yaml` does: root with one capability.
#[test]
fn the_container_with_tap_has_the_capability_it_needs() {
    let file = read("compose.tap.yaml");
    assert!(file.contains("cap_drop: [ALL]") && file.contains("cap_add: [NET_ADMIN]"));
    let text = "export JANUS_BACKEND=tap JANUS_ADDRESS=192.0.2.1/24\n\
                setpriv --bounding-set=-all,+net_admin --inh-caps=-all ./hello >log 2>&1 &\n\
                servers+=($!)\nready log $!\nask log 'hello from Janus'\nends $!\n";
    alone("container-tap", &["TAP device"], &["setpriv"], text);
}

/// Runs a daemon and a member of it as `compose.daemon.yaml` does: the daemon as root with one capability, the member as a user without any
/// and without a network, both with a PID namespace of their own, so that neither sees the other's process. One of the daemon's own user is lent
/// nothing there: its end would not be seen.
#[test]
fn a_member_in_a_container_of_its_own_is_served() {
    let file = read("compose.daemon.yaml");
    let (daemon, web) = file.split_once("\n  web:").unwrap();
    assert!(daemon.contains("cap_drop: [ALL]") && daemon.contains("cap_add: [NET_ADMIN]"));
    assert!(web.contains("cap_drop: [ALL]") && web.contains("network_mode: none"));
    assert!(daemon.contains("[daemon, --allow, \"65532:80\"]"));
    assert!(web.contains("[serve, --listen, \"0.0.0.0:80\"]"));
    let Some(janus) = janus() else { return };
    let text = format!(
        r#"
cp {} janus
mkdir -m 755 run
# In the place of the shell that it is begun in, so that it is what is ended.
contained() {{ exec unshare --pid --fork --kill-child --mount-proc "$@"; }}
JANUS_BACKEND=tap JANUS_ADDRESS=192.0.2.1/24 contained \
    setpriv --bounding-set=-all,+net_admin --inh-caps=-all ./janus daemon --socket run/io.sock --allow 65532:80 >daemon.log 2>&1 &
servers+=($!)
says() {{ for _ in $(seq 600); do ! grep -q "$1" "$2" || return 0; sleep 0.05; done; cat "$2"; return 1; }}
says 'may join' daemon.log
JANUS_BACKEND=daemon JANUS_DAEMON_SOCKET=$PWD/run/io.sock contained unshare --net \
    setpriv --pdeathsig=KILL --reuid=65532 --regid=65532 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
    ./janus serve --listen 0.0.0.0:80 >log 2>&1 &
servers+=($!)
says 'http://' log
curl -sS --max-time 10 http://192.0.2.1/ | grep -F 'TCP stack'
./janus members --socket run/io.sock | tee members.log
grep -E '^janus [0-9]+ +65532 +- +' members.log
JANUS_BACKEND=daemon JANUS_DAEMON_SOCKET=$PWD/run/io.sock contained ./janus serve --listen 0.0.0.0:81 >root.log 2>&1 &
servers+=($!)
says 'http://' root.log
curl -sS --max-time 10 http://192.0.2.1:81/ | grep -F 'TCP stack'
./janus members --socket run/io.sock --json | tee members.json
grep -F '"lent":0,' members.json
"#,
        janus.display()
    );
    alone(
        "container-daemon",
        &["TAP device"],
        &["setpriv", "curl"],
        &text,
    );
}

/// The image of the daemon and its members has one file of ours, which the build before it makes.
#[test]
fn the_image_has_the_command() {
    let file = read("daemon.Dockerfile");
    let built = "cargo build --release --locked -p janus-cli";
    assert!(file.contains(&format!("RUN {built}\n")));
    assert!(file.contains("COPY --from=build /janus/target/release/janus /usr/local/bin/janus\n"));
    assert!(file.contains("ENTRYPOINT [\"/usr/local/bin/janus\"]\n"));
    let manifest = fs::read_to_string(root().join("crates/janus-cli/Cargo.toml")).unwrap();
    assert!(manifest.contains("name = \"janus\""));
    // Docker takes it in place of the one that has the common name.
    let ignored = read("daemon.Dockerfile.dockerignore");
    assert_eq!(ignored, read("Dockerfile.dockerignore"));
}
