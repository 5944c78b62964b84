//! What a page of promises names: functions and tests, between backticks. Each must be there, so that the page does not go on
//! saying what was true once. Whether a test would fail without what it shows is for its author to try.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::fs;
use std::path::Path;

/// Macros that make a test of each name they are given.
const MACROS: [&str; 3] = ["in_every_layout!", "$test!", "corpora!"];

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What stands between backticks.
pub fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The cells of a table's row; `None` for a line that is none, or the one below a table's head.
pub fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
    let is_rule = cells.iter().all(|cell| cell.trim_matches('-').is_empty());
    (!is_rule).then_some(cells)
}

/// Whether `text` declares a function of that name, and where.
pub fn declared(text: &str, name: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text[from..].find(&format!("fn {name}")) {
        let end = from + at + 3 + name.len();
        if text[end..].starts_with(['(', '<']) {
            return Some(from + at);
        }
        from = end;
    }
    None
}

/// A function under `#[test]`, also within `proptest!`, or one that a macro makes a test of.
fn is_test(text: &str, name: &str) -> bool {
    let under_attribute = declared(text, name).is_some_and(|at| {
        let attributes = text[..at].lines().rev();
        let mut attributes = attributes
            .map(str::trim)
            .skip_while(|line| line.is_empty())
            .take_while(|line| {
                line.starts_with("#[") || line.starts_with("//") || line.starts_with("reason")
            });
        attributes.any(|line| line.starts_with("#[test]"))
    });
    under_attribute || MACROS.iter().any(|made| is_given_to(text, made, name))
}

/// Whether a macro is called with `name` among what it is given.
fn is_given_to(text: &str, called: &str, name: &str) -> bool {
    let calls = text.split(called).skip(1);
    let mut bodies = calls.filter_map(|rest| {
        let rest = rest.trim_start();
        let close = match rest.chars().next()? {
            '(' => ')',
            '{' => '}',
            _ => return None,
        };
        rest.split(close).next()
    });
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    bodies.any(|body| body.split(|c| !is_word(c)).any(|word| word == name))
}

/// What is wrong with the name of a test, `path.rs::test` or a script, both from the repository's root; `None`: it is there.
pub fn missing_test(test: &str) -> Option<String> {
    if test.ends_with(".pkt") {
        let is_there = root().join(test).is_file();
        return (!is_there)
            .then(|| format!("there is no script {test}: write it, or name what shows this now"));
    }
    let Some((path, function)) = test.rsplit_once("::") else {
        return Some(format!("`{test}` is neither `path.rs::test` nor a script"));
    };
    match fs::read_to_string(root().join(path)) {
        Err(_) => Some(format!(
            "there is no {path} (from the repository's root): where is {function} now?"
        )),
        Ok(text) if !is_test(&text, function) => Some(format!(
            "{path} has no test `{function}`: write it, or name what shows this now"
        )),
        Ok(_) => None,
    }
}
