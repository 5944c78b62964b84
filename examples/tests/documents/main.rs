//! Runs what README and `docs/` tell a reader to run: every fenced block, but for those that `known.rs` lists with the reason. Rust
//! programs are doctests of `janus-rt` and `janus-compat-tests`. Here is the rest: command lines, configurations, manifests, scripts,
//! the files to deploy, the tables of counters, the figures of sizing.
//!
//! Needs the programs that `cargo test --workspace` builds: they stand in for `cargo run` and `cargo build`. (`cargo test --test documents`
//! builds no examples, and would run old ones.) With
//! `JANUS_DOCUMENTS=full` cargo itself builds and runs what the documents say.

mod blocks;
mod counters;
mod deploy;
mod known;
mod shell;
mod sizing;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use blocks::{Block, Kind, documents};
use shell::Place;

/// The repository's root.
fn root() -> &'static Path {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR"));
    examples.parent().expect("the folder is in the repository")
}

/// Says that a test, or a part of one, cannot run, past what the test runner keeps to itself; with `JANUS_PRIVILEGED=1` that is a
/// failure.
fn skip(why: &str) {
    let required = std::env::var("JANUS_PRIVILEGED").is_ok_and(|value| value == "1");
    assert!(!required, "JANUS_PRIVILEGED=1, but {why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Sources that include documents as doctests.
const DOCTESTS: [&str; 2] = [
    "crates/janus-rt/src/documents.rs",
    "crates/janus-compat-tests/src/lib.rs",
];

/// The document whose blocks of C are compiled.
const C_DOCUMENT: &str = "docs/c.md";

fn doctests() -> String {
    let read = |file| fs::read_to_string(root().join(file)).expect("a list of documents");
    DOCTESTS.map(read).concat()
}

/// Without these checks, blocks of an unknown kind, Rust that is no doctest and text without a reason would go stale.
#[test]
fn every_block_is_covered() {
    let doctests = doctests();
    let mut wrong = Vec::new();
    for block in documents() {
        let fault = match block.kind() {
            Kind::Rust if block.info.contains("ignore") => Some("is ignored".to_owned()),
            Kind::Rust => {
                let include = format!("include_str!(\"../../../{}\")", block.file);
                let included = doctests.contains(&include);
                (!included).then(|| format!("is no doctest: no `{include}` in {DOCTESTS:?}"))
            }
            Kind::Commands | Kind::Toml | Kind::Yaml | Kind::Script => None,
            Kind::C => (block.file != C_DOCUMENT).then(|| "is compiled by no test".to_owned()),
            Kind::Output => {
                let after = blocks::before(&block).map(|before| before.kind());
                (after != Some(Kind::Commands)).then(|| "follows no commands".to_owned())
            }
            Kind::Text => {
                let spoken_for = known::TEXTS
                    .iter()
                    .any(|(file, begins, _)| *file == block.file && block.text.starts_with(begins));
                (!spoken_for).then(|| "is text that known.rs does not list".to_owned())
            }
            Kind::Unknown => Some(format!("is of no known kind: `{}`", block.info)),
        };
        wrong.extend(fault.map(|fault| format!("{block}: {fault}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An entry for a block or line that is gone would hide the next mistake there.
#[test]
fn nothing_is_known_of_what_is_not_there() {
    let all = documents();
    let mut stale = Vec::new();
    for (file, begins, _) in known::TEXTS {
        let there = |block: &Block| block.file == *file && block.text.starts_with(begins);
        if !all.iter().any(there) {
            stale.push(format!("{file}: {begins}"));
        }
    }
    let commands = || all.iter().filter(|block| block.kind() == Kind::Commands);
    for known in known::BLOCKS {
        if !commands().any(|block| known.is(block)) {
            stale.push(format!("{}: {}", known.file, known.begins));
        }
    }
    for (line, _) in known::LINES {
        if !commands().any(|block| block.lines().iter().any(|there| there == line)) {
            stale.push((*line).to_owned());
        }
    }
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

/// A reason is for whoever reads the table; a class without one would be no class.
#[test]
fn what_is_not_run_has_a_reason() {
    let blocks = known::BLOCKS.iter().flat_map(|known| known.needs);
    let blocks = blocks.filter_map(|need| match need {
        known::Need::Never(why) => Some(*why),
        _ => None,
    });
    let lines = known::LINES.iter().filter_map(|(_, line)| match line {
        known::Line::Never(why) => Some(*why),
        _ => None,
    });
    let texts = known::TEXTS.iter().map(|(_, _, what)| *what);
    for why in blocks.chain(lines).chain(texts) {
        assert!(why.len() > 5, "a reason: {why}");
    }
}

/// One test for the commands of each document, so that they wait at the same time.
macro_rules! commands_of {
    ($($test:ident: $file:literal,)+) => {
        const WITH_COMMANDS: &[&str] = &[$($file),+];
        $(
            #[test]
            fn $test() {
                commands($file);
            }
        )+
    };
}

commands_of! {
    commands_of_readme: "README.md",
    commands_of_contributing: "CONTRIBUTING.md",
    commands_of_c: "docs/c.md",
    commands_of_configuration: "docs/configuration.md",
    commands_of_conformance_suites: "docs/conformance-suites.md",
    commands_of_deploying: "docs/deploying.md",
    commands_of_dpdk: "docs/dpdk.md",
    commands_of_metrics: "docs/metrics.md",
    commands_of_operating: "docs/operating.md",
    commands_of_packetdrill: "docs/packetdrill.md",
    commands_of_processes: "docs/processes.md",
    commands_of_programs: "docs/programs.md",
    commands_of_xdp: "docs/xdp.md",
}

#[test]
fn no_document_with_commands_is_forgotten() {
    let blocks = documents().into_iter();
    let files = blocks.filter(|block| block.kind() == Kind::Commands);
    for block in files {
        assert!(
            WITH_COMMANDS.contains(&block.file.as_str()),
            "{block}: add the file to `commands_of!`"
        );
    }
}

/// Runs the blocks of one document, each where the one before it left its files.
fn commands(file: &str) {
    let place = Place::new(file);
    let blocks = documents().into_iter();
    let mut said = None;
    for block in blocks.filter(|block| block.file == file) {
        match block.kind() {
            Kind::Commands => said = shell::run(&place, &block),
            Kind::Output => {
                if let Some(said) = &said {
                    blocks::is_said(&block, said).unwrap_or_else(|why| panic!("{block}: {why}"));
                }
            }
            _ => {}
        }
    }
}

/// A block of TOML is a part of a manifest, or a `janus.toml`.
#[test]
fn toml_is_understood() {
    let mut seen = BTreeSet::new();
    for (number, block) in documents().into_iter().enumerate() {
        // Cargo takes a moment for each.
        if block.kind() != Kind::Toml || !seen.insert(block.text.clone()) {
            continue;
        }
        let place = Place::new(&format!("toml-{number}"));
        if block.text.contains("[dependencies]") {
            resolves(&block, &place);
        } else {
            let file = place.path.join("janus.toml");
            fs::write(&file, &block.text).unwrap();
            let read = janus::Runtime::builder()
                .ignore_environment()
                .config_file(file)
                .effective();
            let read = read.unwrap_or_else(|error| panic!("{block}: {error}"));
            let keys = block.text.lines().filter_map(|line| line.split_once(" = "));
            for (key, _) in keys {
                assert!(read.value(key).is_some(), "{block}: {key} has no effect");
            }
        }
    }
    assert!(seen.len() > 2, "there are blocks of TOML");
}

/// Cargo finds the packages of a manifest's part, and their features, where the repository lies beside it as `janus`.
fn resolves(block: &Block, place: &Place) {
    let head = "[package]\nname = \"reader\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n";
    fs::write(
        place.path.join("Cargo.toml"),
        head.to_owned() + "\n" + &block.text,
    )
    .unwrap();
    fs::write(place.path.join("lib.rs"), "").unwrap();
    fs::copy(root().join("Cargo.lock"), place.path.join("Cargo.lock")).unwrap();
    std::os::unix::fs::symlink(root(), place.path.join("janus")).unwrap();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["update", "--workspace", "--offline"]);
    let output = command.current_dir(&place.path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{block}: {said}");
}

/// The scripts in the document about scripts pass.
#[test]
fn packetdrill_scripts_pass() {
    let place = Place::new("scripts");
    let mut seen = 0;
    for block in documents() {
        if block.kind() != Kind::Script {
            continue;
        }
        seen += 1;
        let file = place.path.join(format!("{seen}.pkt"));
        fs::write(&file, &block.text).unwrap();
        let Some(janus) = shell::janus() else { return };
        let output = Command::new(janus).arg("sim").arg(&file).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{block}: {said}");
    }
    assert!(seen > 0, "there is a script");
}
