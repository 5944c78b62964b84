//! Where the Linux kernel behaves otherwise than a script demands, the script's first comment says how and why; the page
//! `docs/linux-differences.md` is the list of those, made from the comments. This keeps it so.

use std::fmt::Write;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/linux-differences.md";
const DIFFERS: &str = "Linux differs";
const NOT_FOR_THE_TOOL: &str = "Not for the original tool";
const HEAD: &str = "# Where Linux differs, and what the original tool cannot run

The scripts under `tests/packetdrill` are written from the RFCs. Each that the original packetdrill can run was also run on
the Linux kernel (6.18), in a namespace of its own with the settings of [packetdrill.md](packetdrill.md). These are the ones
that do not pass there, with the reason their first comment gives. This page is made from those comments:
`JANUS_WRITE=1 cargo test --test linux_differences` writes it anew.
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn scripts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder of scripts") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            scripts(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "pkt") {
            found.push(path);
        }
    }
}

/// What a script's comments say from `mark` on, to the end of that comment or the other mark.
fn said(script: &str, mark: &str, other: &str) -> Option<String> {
    let mut comment = script
        .lines()
        .skip_while(|line| !(line.starts_with("//") && line.contains(mark)))
        .map_while(|line| line.strip_prefix("//"));
    let first = comment.next()?;
    let mut text = first[first.find(mark)?..].trim().to_owned();
    for line in comment.take_while(|line| !line.trim().is_empty() && !line.contains(other)) {
        text.push(' ');
        text.push_str(line.trim());
    }
    Some(text)
}

fn section(page: &mut String, title: &str, rows: &[(String, String)]) {
    write!(page, "\n## {title}\n\n| script | |\n|---|---|\n").expect("a string");
    for (name, text) in rows {
        let text = text.replace('|', "\\|");
        writeln!(page, "| `{name}` | {text} |").expect("a string");
    }
}

#[test]
fn the_page_lists_what_the_scripts_say() {
    let folder = root().join("tests/packetdrill");
    let mut found = Vec::new();
    scripts(&folder, &mut found);
    found.sort();
    let (mut differ, mut not_run) = (Vec::new(), Vec::new());
    for path in &found {
        let text = std::fs::read_to_string(path).expect("a readable script");
        let name = path
            .strip_prefix(&folder)
            .expect("below it")
            .display()
            .to_string();
        if let Some(how) = said(&text, DIFFERS, NOT_FOR_THE_TOOL) {
            differ.push((name.clone(), how));
        }
        if let Some(why) = said(&text, NOT_FOR_THE_TOOL, DIFFERS) {
            not_run.push((name, why));
        }
    }
    assert!(!differ.is_empty(), "no script says that Linux differs");
    let mut page = HEAD.to_owned();
    section(&mut page, "Linux differs", &differ);
    section(&mut page, "Not for the original tool", &not_run);
    let at = root().join(PAGE);
    if std::env::var_os("JANUS_WRITE").is_some() {
        std::fs::write(&at, &page).expect("a writable page");
    }
    let there = std::fs::read_to_string(&at).unwrap_or_default();
    assert!(
        there == page,
        "{PAGE} is not what the scripts say: JANUS_WRITE=1 cargo test --test linux_differences writes it anew"
    );
}
