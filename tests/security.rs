//! `SECURITY.md` is true: every promise in its tables names a test, every test that it names is there, and every counter.

#[path = "support/ledger.rs"]
mod ledger;

use std::fs;

use ledger::{cells, missing_test, names, root};

const COLUMNS: [&str; 3] = ["promise", "bound and counter", "shown by"];
/// Where counters are declared.
const COUNTERS: [&str; 6] = [
    "crates/janus-tcp/src/store/counters.rs",
    "crates/janus-io/src/core/dispatch.rs",
    "crates/janus-io/src/backend/tap.rs",
    "crates/janus-io/src/backend/dpdk.rs",
    "crates/janus-http/src/pool.rs",
    "crates/janus-daemon/src/lib.rs",
];
/// Tables and promises that there are at least: a page that has lost them says nothing wrong.
const TABLES_LEAST: usize = 10;
const PROMISES_LEAST: usize = 50;

/// The page without what stands in comments: promises that are not made yet.
fn shown(page: &str) -> String {
    let mut shown = String::new();
    for (part, text) in page.split("<!--").enumerate() {
        let visible = match part {
            0 => text,
            _ => text.split_once("-->").map_or("", |(_, rest)| rest),
        };
        shown.push_str(visible);
    }
    shown
}

/// Whether `counter` is a counter's name; `_memory` behind another one stands for one that ends so.
fn is_counter(declared: &str, counter: &str) -> bool {
    declared.lines().any(|line| {
        let line = line.trim().trim_start_matches("pub ");
        let name = line.split([',', ':']).next().unwrap_or_default();
        name == counter || counter.starts_with('_') && name.ends_with(counter)
    })
}

/// All that is wrong with the page, and how many tables and promises it has.
fn faults(page: &str) -> (Vec<String>, usize, usize) {
    let declared = COUNTERS.map(|file| fs::read_to_string(root().join(file)).expect(file));
    let declared = declared.concat();
    let (mut wrong, mut tables, mut promises) = (Vec::new(), 0, 0);
    for row in shown(page).lines().filter_map(cells) {
        let &[promise, bound, tests] = row.as_slice() else {
            wrong.push(format!("{row:?}: write {}", COLUMNS.join(" | ")));
            continue;
        };
        if row == COLUMNS {
            tables += 1;
            continue;
        }
        promises += 1;
        let mut say = |what: String| wrong.push(format!("\"{promise}\": {what}"));
        if names(tests).is_empty() {
            say("name the test that fails when it is broken; if there is none, write one".into());
        }
        names(tests)
            .into_iter()
            .filter_map(missing_test)
            .for_each(&mut say);
        let counters = names(bound).into_iter();
        for counter in counters.filter(|name| !is_counter(&declared, name)) {
            say(format!("nothing counts `{counter}`"));
        }
    }
    (wrong, tables, promises)
}

fn page() -> String {
    fs::read_to_string(root().join("SECURITY.md")).expect("SECURITY.md is there")
}

#[test]
fn every_promise_has_its_test() {
    let (wrong, tables, promises) = faults(&page());
    assert!(
        wrong.is_empty(),
        "SECURITY.md is not true any more:\n{}",
        wrong.join("\n")
    );
    assert!(
        tables >= TABLES_LEAST && promises >= PROMISES_LEAST,
        "{promises} in {tables}"
    );
}

#[test]
fn an_untrue_page_is_told_what_is_wrong_with_it() {
    let told = |row: &str, what: &str| {
        let (wrong, ..) = faults(&format!("{}\n{row}\n", page()));
        assert!(
            wrong.len() == 1 && wrong[0].contains(what),
            "{row}: {wrong:?}"
        );
    };
    let good = "`tests/security.rs::every_promise_has_its_test`";
    let in_macro = "`tests/corpora.rs::wire`, `tests/runtime/overload.rs::data_that_nobody_reads`";
    let in_attacks = "`crates/janus-tcp/tests/attack_list/list.rs::syn_flood`";
    for tests in [good, in_macro, in_attacks] {
        let row = format!("| Nothing breaks. | `cookies_sent` | {tests} |");
        assert!(faults(&format!("{}\n{row}\n", page())).0.is_empty());
    }
    told("| Nothing breaks. | | |", "name the test");
    told("| Nothing breaks. | 7 |", "write promise");
    told(
        &format!("| Nothing breaks. | `cookies_eaten` | {good} |"),
        "nothing counts `cookies_eaten`",
    );
    told(
        "| Nothing breaks. | | `tests/security.rs::page` |",
        "has no test `page`",
    );
    told(
        "| Nothing breaks. | | `tests/nowhere.rs::page` |",
        "where is page now?",
    );
    told(
        "| Nothing breaks. | | `tests/corpora.rs::wires` |",
        "has no test `wires`",
    );
    let later = format!("{}\n<!-- | Nothing breaks. | | |\n-->\n", page());
    assert!(
        faults(&later).0.is_empty(),
        "what is not promised yet is not looked at"
    );
}
