//! `docs/conformance.md` is true: every numbered requirement of RFC 9293 has one row, every row names a function that is
//! there and a test that is there. Whether the test would fail without the function is for its author to try.

#[path = "support/ledger.rs"]
mod ledger;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ledger::{cells, declared, missing_test, names, root};

/// The numbered requirements of RFC 9293 (appendix B), first and last number of each kind without a gap.
const RFC_9293: [(&str, u32); 4] = [("MUST", 69), ("SHLD", 31), ("MAY", 18), ("REC", 1)];
/// The other RFCs whose every MUST and MUST NOT has a row.
const OTHERS: [&str; 9] = [
    "5482", "5681", "5961", "6298", "6528", "6675", "7323", "8985", "9438",
];
const COLUMNS: [&str; 6] = ["id", "section", "requirement", "kept", "where", "shown by"];
/// Where a function's file is looked for when it names no crate.
const ENGINE: &str = "crates/janus-tcp/src";
/// A reason takes words.
const REASON_MIN: usize = 12;

/// One row of the ledger.
struct Row<'a> {
    line: usize,
    id: &'a str,
    section: &'a str,
    requirement: &'a str,
    kept: &'a str,
    places: Vec<&'a str>,
    tests: Vec<&'a str>,
}

/// The rows, and the lines that look like rows and are none.
fn rows(ledger: &str) -> (Vec<Row<'_>>, Vec<String>) {
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    let lines = (1..).zip(ledger.lines());
    for (line, text) in lines {
        let Some(cells) = cells(text).filter(|cells| cells != &COLUMNS) else {
            continue;
        };
        let &[id, section, requirement, kept, places, tests] = cells.as_slice() else {
            wrong.push(format!(
                "line {line} has {} cells: write {}",
                cells.len(),
                COLUMNS.join(" | ")
            ));
            continue;
        };
        rows.push(Row {
            line,
            id,
            section,
            requirement,
            kept,
            places: names(places),
            tests: names(tests),
        });
    }
    (rows, wrong)
}

/// The file a function's path leads to.
fn file_of(path: &str) -> Option<String> {
    let tries = [root().join(path), root().join(ENGINE).join(path)];
    tries.iter().find_map(|path| fs::read_to_string(path).ok())
}

fn check_place(row: &Row<'_>, place: &str, wrong: &mut Vec<String>) {
    let (line, id) = (row.line, row.id);
    let Some((path, function)) = place.rsplit_once("::") else {
        wrong.push(format!(
            "line {line}, {id}: `{place}` is not `file.rs::function`"
        ));
        return;
    };
    match file_of(path) {
        None => wrong.push(format!(
            "line {line}, {id}: there is no {ENGINE}/{path} nor {path}: where is {function} now?"
        )),
        Some(text) if declared(&text, function).is_none() => wrong.push(format!(
            "line {line}, {id}: {path} has no `fn {function}`: write what keeps this requirement now"
        )),
        Some(_) => {}
    }
}

fn check_test(row: &Row<'_>, test: &str, wrong: &mut Vec<String>) {
    let missing = missing_test(test).map(|what| format!("line {}, {}: {what}", row.line, row.id));
    wrong.extend(missing);
}

fn check_row(row: &Row<'_>, wrong: &mut Vec<String>) {
    let (line, id) = (row.line, row.id);
    let mut say = |what: &str| wrong.push(format!("line {line}, {id}: {what}"));
    if row.section.is_empty() || row.requirement.is_empty() {
        say("say the section, and the requirement in a few words");
    }
    let reason = ["no: ", "not applicable: "]
        .iter()
        .find_map(|start| row.kept.strip_prefix(start));
    match (row.kept, reason) {
        ("yes", _) | (_, Some(_)) => {}
        _ if row.kept.starts_with("yes: ") => {}
        _ => say("`kept` is `yes`, `yes: how`, `no: why` or `not applicable: why`"),
    }
    match reason {
        Some(why) if why.len() < REASON_MIN => say("give the reason in words"),
        Some(_) => {}
        None if row.places.is_empty() => {
            say("name the function that keeps it, as `file.rs::function`")
        }
        None if row.tests.is_empty() => {
            say("name the test that fails when it is broken; if there is none, write one");
        }
        None => {}
    }
    for place in &row.places {
        check_place(row, place, wrong);
    }
    for test in &row.tests {
        check_test(row, test, wrong);
    }
}

/// Each requirement once, numbers without gaps.
fn check_ids(rows: &[Row<'_>], wrong: &mut Vec<String>) {
    let mut seen: BTreeMap<(&str, u32), usize> = BTreeMap::new();
    for row in rows {
        let id = row.id.rsplit_once('-');
        let parsed = id.and_then(|(kind, n)| Some((kind, n.parse::<u32>().ok()?)));
        let Some(id) = parsed else {
            wrong.push(format!(
                "line {}: `{}` is no id: MUST-1, SHLD-1, MAY-1, REC-1 or 5961-1",
                row.line, row.id
            ));
            continue;
        };
        if let Some(first) = seen.insert(id, row.line) {
            wrong.push(format!(
                "line {}: {} has a row already, in line {first}: make one of the two",
                row.line, row.id
            ));
        }
    }
    for (kind, last) in RFC_9293 {
        for n in (1..=last).filter(|&n| !seen.contains_key(&(kind, n))) {
            wrong.push(format!("{kind}-{n} of RFC 9293 has no row: add one"));
        }
        for (_, n) in seen
            .keys()
            .filter(|(k, n)| *k == kind && !(1..=last).contains(n))
        {
            wrong.push(format!("RFC 9293 has no {kind}-{n}: delete its row"));
        }
    }
    for kind in OTHERS {
        if !seen.contains_key(&(kind, 1)) {
            wrong.push(format!(
                "RFC {kind} has no rows: add one for each of its MUSTs"
            ));
        }
    }
    for &(kind, n) in seen.keys() {
        let numbered = RFC_9293.iter().any(|(k, _)| *k == kind);
        let is_rfc = kind.len() == 4 && kind.bytes().all(|b| b.is_ascii_digit());
        if !numbered && !is_rfc {
            wrong.push(format!(
                "{kind}-{n}: what is {kind}? MUST, SHLD, MAY, REC or an RFC's number"
            ));
        }
        if is_rfc && n > 1 && !seen.contains_key(&(kind, n - 1)) {
            wrong.push(format!(
                "{kind}-{n} comes without {kind}-{}: number them through",
                n - 1
            ));
        }
    }
}

/// All that is wrong with a ledger.
fn faults(ledger: &str) -> Vec<String> {
    let (rows, mut wrong) = rows(ledger);
    check_ids(&rows, &mut wrong);
    for row in &rows {
        check_row(row, &mut wrong);
    }
    wrong
}

fn ledger() -> String {
    fs::read_to_string(root().join("docs/conformance.md")).expect("docs/conformance.md is there")
}

#[test]
fn every_requirement_has_its_function_and_its_test() {
    let ledger = ledger();
    let wrong = faults(&ledger);
    assert!(
        wrong.is_empty(),
        "docs/conformance.md is not true any more:\n{}",
        wrong.join("\n")
    );
    let kinds = RFC_9293.map(|(kind, _)| kind);
    let of_9293 = rows(&ledger).0;
    let of_9293 = of_9293
        .iter()
        .filter(|row| kinds.contains(&row.id.split('-').next().unwrap_or("")));
    assert_eq!(of_9293.count(), 119);
}

/// The ids that the comment above `fn function` says it keeps.
fn kept_by(text: &str, function: &str) -> Vec<String> {
    let at = declared(text, function).unwrap_or(0);
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let above = text[..line].lines().rev().map(str::trim);
    let above: Vec<_> = above
        .take_while(|line| line.starts_with("///") || line.starts_with("#["))
        .filter_map(|line| line.strip_prefix("///"))
        .collect();
    let comment = above.into_iter().rev().collect::<String>();
    let kept = comment.split_once(" Keeps ").map_or("", |(_, ids)| ids);
    let ids = kept.trim_end_matches('.').split(',');
    ids.map(|id| id.trim().to_owned())
        .filter(|id| !id.is_empty())
        .collect()
}

/// A search for an id finds the ledger and the code: each says the same of the other.
#[test]
fn functions_name_the_requirements_that_they_keep() {
    let text = "    /// Waits.\n    /// Keeps MUST-1,\n    /// 6298-2.\n    #[inline]\n    fn wait(&self) {}\n";
    assert_eq!(kept_by(text, "wait"), ["MUST-1", "6298-2"]);
    let ledger = ledger();
    let mut owed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in rows(&ledger).0 {
        for place in row.places {
            owed.entry(place).or_default().insert(row.id);
        }
    }
    let mut wrong = Vec::new();
    let mut named = 0;
    for (place, ids) in owed {
        let (path, function) = place.rsplit_once("::").expect("checked with its row");
        let told = kept_by(&file_of(path).expect("checked with its row"), function);
        named += told.len();
        if !told.iter().map(String::as_str).eq(ids.iter().copied()) {
            let ids: Vec<_> = ids.into_iter().collect();
            wrong.push(format!("{place}: /// Keeps {}.", ids.join(", ")));
        }
    }
    assert!(
        wrong.is_empty(),
        "comments to write as the ledger has it:\n{}",
        wrong.join("\n")
    );
    // Nor does any other function claim one: each claim stands at one of the ledger's functions.
    let mut sources = Vec::new();
    source_files(&root().join("crates"), &mut sources);
    let is_id = |rest: &&str| {
        let word = rest.split([',', '.', ' ', '\n']).next().unwrap_or("");
        let number = word.rsplit_once('-').map_or("", |(_, number)| number);
        number.parse::<u32>().is_ok()
    };
    let claims = sources
        .iter()
        .map(|text| text.split("/// Keeps ").skip(1).filter(is_id).count());
    let functions = rows(&ledger).0;
    let functions: BTreeSet<_> = functions.iter().flat_map(|row| &row.places).collect();
    assert_eq!(claims.sum::<usize>(), functions.len());
    assert!(named > 200);
}

fn source_files(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            source_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(fs::read_to_string(path).expect("text"));
        }
    }
}

/// The ledger with the first row of `id` changed: each way to be untrue is told.
fn with(id: &str, change: impl Fn(&str) -> String) -> Vec<String> {
    let ledger = ledger();
    let start = format!("| {id} |");
    let line = ledger.lines().find(|line| line.starts_with(&start));
    let line = line.expect("a row");
    let changed = ledger.replacen(line, &change(line), 1);
    assert_ne!(changed, ledger);
    faults(&changed)
}

/// A row of MUST-1 that is in order, but for what `kept`, `places` and `tests` say.
fn row(kept: &str, places: &str, tests: &str) -> String {
    format!("| MUST-1 | 3.1 | a window is unsigned | {kept} | {places} | {tests} |")
}

#[test]
fn an_untrue_ledger_is_told_what_is_wrong_with_it() {
    let place = "`conn/arrives/ack.rs::take_window`";
    let test = "`crates/janus-tcp/tests/engine/rfc9293_windows.rs::a_window_is_an_unsigned_number`";
    let script = "`tests/packetdrill/window/not_beyond.pkt`";
    let in_macro = "`crates/janus-wire/src/tcp/options/tests.rs::noise_never_panics`";
    for good in [test, script, in_macro] {
        assert_eq!(with("MUST-1", |_| row("yes", place, good)), [""; 0]);
    }
    assert_eq!(
        with("MUST-1", |_| row("no: because of a reason", "", "")),
        [""; 0]
    );
    let told = |ledger: Vec<String>, what: &str| {
        assert_eq!(ledger.len(), 1, "{ledger:?}");
        assert!(ledger[0].contains(what), "{ledger:?}");
    };
    told(
        with("MUST-1", |_| String::new()),
        "MUST-1 of RFC 9293 has no row: add one",
    );
    told(with("MUST-1", |r| format!("{r}\n{r}")), "has a row already");
    told(
        with("MUST-1", |r| {
            format!("{r}\n{}", r.replace("MUST-1", "MUST-70"))
        }),
        "delete its row",
    );
    told(
        with("MUST-1", |r| {
            format!("{r}\n{}", r.replace("MUST-1", "MIGHT-1"))
        }),
        "what is MIGHT",
    );
    told(
        with("MUST-1", |r| format!("{r}\n{}", r.replace("MUST-1", "one"))),
        "is no id",
    );
    told(
        with("MUST-1", |r| {
            format!("{r}\n{}", r.replace("MUST-1", "5961-900"))
        }),
        "number them through",
    );
    told(
        with("MUST-1", |r| format!("{r}\n{r} more |")),
        "cells: write id | section",
    );
    told(
        with("MUST-1", |_| row("maybe", place, test)),
        "`kept` is `yes`",
    );
    told(
        with("MUST-1", |_| row("open", place, test)),
        "`kept` is `yes`",
    );
    told(
        with("MUST-1", |_| row("no: why", "", "")),
        "give the reason in words",
    );
    told(
        with("MUST-1", |_| row("no", place, test)),
        "`kept` is `yes`",
    );
    told(
        with("MUST-1", |_| row("yes", "", test)),
        "name the function that keeps it",
    );
    told(
        with("MUST-1", |_| row("yes", place, "")),
        "if there is none, write one",
    );
    told(
        with("MUST-1", |_| row("yes", "`take_window`", test)),
        "is not `file.rs::function`",
    );
    told(
        with("MUST-1", |_| {
            row("yes", "`conn/arrives/ack.rs::take_windo`", test)
        }),
        "has no `fn take_windo`",
    );
    told(
        with("MUST-1", |_| row("yes", "`nowhere.rs::take_window`", test)),
        "where is take_window now?",
    );
    told(
        with("MUST-1", |_| {
            row("yes", place, "`tests/packetdrill/nothing.pkt`")
        }),
        "there is no script",
    );
    told(
        with("MUST-1", |_| row("yes", place, "`some test`")),
        "nor a script",
    );
    let no_test = test.replace("a_window_is_an", "filled");
    told(
        with("MUST-1", |_| row("yes", place, &no_test)),
        "has no test",
    );
    let helper = "`crates/janus-tcp/tests/engine/rfc9293_windows.rs::filled`";
    told(
        with("MUST-1", |_| row("yes", place, helper)),
        "has no test `filled`",
    );
}
