//! What the calls of plain threads cost. `single`: one call alone, on a process's core and on the sockets of a host. `requests`: the whole
//! work of an echo server that waits by epoll, reads and sends, on sockets over the engine, on a core, on a core behind a lock, and on a
//! process. `cargo bench --bench calls -- requests` runs one part only; without a word both run.

mod requests;
mod single;
#[path = "../support/mod.rs"]
mod support;
mod ways;

use support::report::Report;

type Part = fn(&mut Report);

const PARTS: [(&str, Part); 2] = [("single", single::run), ("requests", requests::run)];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| wanted.iter().any(|word| word == name);
    let any = PARTS.iter().any(|(name, _)| is_wanted(name));
    let mut report = Report::new("calls");
    for (name, part) in PARTS {
        if !any || is_wanted(name) {
            report.progress(name);
            part(&mut report);
        }
    }
    report.finish();
}
