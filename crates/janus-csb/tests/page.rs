//! `docs/csb.md` names functions and tests. Each must be there, so that the page does not go on saying what was true once.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path, found: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// What stands between backquotes.
fn names(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2)
}

#[test]
fn what_the_page_names_is_there() {
    let page = fs::read_to_string(root().join("docs/csb.md")).unwrap();
    let mut text = String::new();
    for dir in [
        "crates/janus-csb",
        "crates/janus-tcp",
        "crates/janus-rt",
        "research/src",
    ] {
        sources(&root().join(dir), &mut text);
    }
    let is_word = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let (mut missing, mut looked_for) = (Vec::new(), 0);
    for name in names(&page) {
        // `Type::function`, or the name of a test: lower case, with several words.
        let function = match name.split_once("::") {
            Some((kind, function)) if is_word(kind) && is_word(function) => {
                if !text.contains(&format!(" {kind}")) {
                    missing.push(name);
                }
                function
            }
            _ if is_word(name) && name.matches('_').count() > 1 => name,
            _ => continue,
        };
        looked_for += 1;
        let is_there =
            text.contains(&format!("fn {function}")) || text.contains(&format!("pub {function}:"));
        if !is_there && !text.contains(&format!("mod {function}")) {
            missing.push(name);
        }
    }
    assert!(
        looked_for > 30,
        "the page names {looked_for} functions and tests"
    );
    assert!(
        missing.is_empty(),
        "docs/csb.md names what is not there: {missing:?}"
    );
}
