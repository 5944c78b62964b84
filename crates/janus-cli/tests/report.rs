//! `janus report` as a user calls it: a page of all that is there, or what is wrong with it.

mod place;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use place::Place;

fn file(place: &Place, name: &str, text: &str) {
    fs::write(place.0.join(name), text).expect("a file");
}

fn report(from: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_janus"));
    command.arg("report").arg("--from").arg(from);
    command.output().expect("janus runs")
}

fn fails(from: &Path) -> String {
    let output = report(from);
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const ONE: &str = r#"{"bench": "one", "commit": "0123", "command": "JANUS_BENCH=quick cargo bench --bench one", "rows": [
  {"metric": "speed", "value": 1234567.891, "unit": "1/s", "params": {"held": 1000000, "who": "<them & us>"}},
  {"metric": "none", "value": null, "unit": "ns", "params": {}}
],
"at_s": [0, 0.5]}
"#;

#[test]
fn all_benches_are_on_one_page() {
    let place = Place::new("page");
    file(&place, "one.json", ONE);
    file(&place, "two.json", &ONE.replace("\"one\"", "\"two\""));
    file(&place, "one.rates.svg", "<svg id=\"picture\"></svg>");
    file(&place, "onerous.svg", "<svg id=\"another\"></svg>");
    let output = report(&place.0);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("2 benches: "), "{said}");
    let page = fs::read_to_string(place.0.join("index.html")).expect("a page");
    for part in [
        "<h2 id=\"one\">",
        "<h2 id=\"two\">",
        "<svg id=\"picture\">",
        "<td class=\"n\">1234568</td><td>1/s</td><td>held 1000000, who &lt;them &amp; us&gt;</td>",
        "<td>none</td><td class=\"n\">–</td>",
        "JANUS_BENCH=quick cargo bench --bench one",
        "<code>0123</code>",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("another"), "a picture of no bench");
    assert_eq!(
        page.matches("<details open>").count(),
        1,
        "the one without a picture"
    );
}

#[test]
fn what_is_wrong_is_said() {
    let place = Place::new("wrong");
    let told = fails(&place.0);
    assert!(told.contains("cargo bench --bench"), "{told}");
    let told = fails(&place.0.join("away"));
    assert!(told.contains("--from") && told.contains("away"), "{told}");
    for (text, why) in [
        ("{", "broken.json: EOF"),
        ("{\"rows\": []}", "no `bench`"),
        ("[1, 2]", "no `rows`"),
        (
            "{\"bench\": \"a\", \"commit\": \"b\", \"command\": \"c\", \"rows\": [7]}",
            "no `metric`",
        ),
    ] {
        file(&place, "broken.json", text);
        let told = fails(&place.0);
        assert!(told.contains(why), "{told}");
    }
}
