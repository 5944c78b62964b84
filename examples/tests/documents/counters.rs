//! The tables of counters in `docs/operating.md`: every counter of a drop stands there, and none that there is not.

use std::collections::BTreeSet;
use std::fs;

use crate::root;

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Names of a source file's counters: fields that are `pub`, and entries of the `counters!` macro.
fn counted(file: &str) -> BTreeSet<String> {
    let text = read(file);
    let names = text.lines().filter_map(|line| {
        let line = line.trim();
        let field = line
            .strip_prefix("pub ")
            .and_then(|rest| rest.split(':').next());
        let name = field.or_else(|| line.strip_suffix(','))?;
        let plain = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_';
        (!name.is_empty() && name.chars().all(plain)).then(|| name.to_owned())
    });
    names.collect()
}

/// Names in the first column of the table below a heading that holds `of`.
fn tabled(of: &str) -> BTreeSet<String> {
    let text = read("docs/operating.md");
    let sections = text.split("\n### ").skip(1);
    let mut section = sections.filter(|section| section.lines().next().unwrap().contains(of));
    let section = section.next().unwrap_or_else(|| panic!("a table of {of}"));
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

#[test]
fn every_drop_has_its_row() {
    for (of, file) in [
        ("io_counters()", "crates/janus-io/src/core/dispatch.rs"),
        (
            "report().forwards",
            "crates/janus-rt/src/shard/forwarder.rs",
        ),
        ("report().tcp", "crates/janus-tcp/src/store/counters.rs"),
    ] {
        let (counted, tabled) = (counted(file), tabled(of));
        let drops = counted.iter().filter(|name| name.starts_with("dropped_"));
        let missing: Vec<_> = drops.filter(|name| !tabled.contains(*name)).collect();
        assert!(counted.len() > 5, "{file} has counters");
        assert!(
            missing.is_empty(),
            "docs/operating.md, {of}: no row for {missing:?}"
        );
        let gone: Vec<_> = tabled.difference(&counted).collect();
        assert!(
            gone.is_empty(),
            "docs/operating.md, {of}: {file} has no {gone:?}"
        );
    }
}
