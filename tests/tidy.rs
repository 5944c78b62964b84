//! What a reader may rely on everywhere in the repository, checked: files say what they are and stay short, unsafe code
//! stays in its rooms, links in the prose lead somewhere, README opens with the two lines that start and test.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of README: a front page.
const README_LINES_MAX: usize = 110;
/// "About 600".
const LINES_MAX: usize = 650;
/// Lines of a function.
const FUNCTION_LINES_MAX: usize = 100;
/// Comments in the crates' sources that open with a clause instead of a noun or a verb (CONTRIBUTING, Words), and that have a "nobody".
/// These numbers only fall.
const RIDDLES_MAX: (usize, usize) = (95, 26);
/// Crates whose `src` has shelves, from the top down: each may name those after it, and the flat files that are not listed, which stand
/// below all of them. A flat file may be a shelf too, and so may a room inside one, as `outer::inner`.
const SHELVES: &[(&str, &[&str])] = &[
    ("janus-io", &["machine", "wrap", "backend", "core"]),
    (
        "janus-rt",
        &[
            "lockstep",
            "debug",
            "runtime",
            "compat",
            "admin",
            "metrics",
            "balance",
            "signal",
            "net",
            "dhcp",
            "time",
            "spawn",
            "shard",
            "config",
            "portal",
            "control",
            "task",
            "inbox",
            "warning",
            "losses",
            "admission",
            "clock",
            "lock",
        ],
    ),
    (
        "janus-tcp",
        &[
            "stack::api",
            "stack::input",
            "stack",
            "conn::arrives",
            "conn::timer",
            "conn::output",
            "conn::loss",
            "conn::receive",
            "conn",
            "ip",
            "wire",
            "store",
            "rules",
            "congestion",
            "coded",
        ],
    ),
];
/// Files of `janus-tcp` with an `impl Stack`.
const STACK_FILES_MAX: usize = 17;
/// The rooms that may hold unsafe code.
const UNSAFE_ROOMS: &[&str] = &[
    "janus-mem",
    "janus-io",
    "janus-rt",
    "janus-dpdk-sys",
    "janus-packetdrill",
    "janus-c",
    "janus-preload",
    "janus-process",
    "janus-shm",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `dir` with this ending, without what was built.
fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files(&path, ending, found);
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

fn all(ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(root(), ending, &mut found);
    assert!(!found.is_empty(), "no {ending} anywhere");
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        (name, fs::read_to_string(path).unwrap())
    };
    found.into_iter().map(read).collect()
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut wrong = Vec::new();
    for (name, text) in all(".rs") {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!(
                "{name} has {lines} lines: are there two things in it?"
            ));
        }
        // A file of tests beside the code is explained by the code's file.
        let explained = text.lines().take(4).any(|line| line.starts_with("//!"));
        if !explained && !name.contains("/tests") {
            wrong.push(format!(
                "{name} does not open with a paragraph on what it is"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Names of the functions of a file that are longer than [`FUNCTION_LINES_MAX`], by the indentation that rustfmt gives.
fn long_functions(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let Some((before, rest)) = code.split_once("fn ") else {
            continue;
        };
        let words = [
            "pub",
            "pub(crate)",
            "pub(super)",
            "const",
            "async",
            "unsafe",
            "extern",
            "\"C\"",
        ];
        if !before.split_whitespace().all(|word| words.contains(&word)) {
            continue;
        }
        let end = format!("{indent}}}");
        let body = lines[first..].iter().position(|line| *line == end);
        if body.is_some_and(|body| body >= FUNCTION_LINES_MAX) && !code.ends_with(['}', ';']) {
            let name = rest.split(['(', '<']).next().unwrap_or(rest);
            long.push(name.to_owned());
        }
    }
    long
}

#[test]
fn functions_are_short() {
    let source = format!(
        "fn a() {{\n{}}}\nfn b() {{\n}}\n",
        "    x();\n".repeat(FUNCTION_LINES_MAX)
    );
    assert_eq!(long_functions(&source), ["a"]);
    let mut long = Vec::new();
    for (name, text) in all(".rs") {
        if name.starts_with("crates/") && name.contains("/src/") && !name.contains("/tests") {
            long.extend(
                long_functions(&text)
                    .into_iter()
                    .map(|function| (name.clone(), function)),
            );
        }
    }
    assert!(
        long.is_empty(),
        "more than {FUNCTION_LINES_MAX} lines: {long:?}"
    );
}

/// Whether a line begins a comment that opens with a clause: `before` is the line above it.
fn opens_with_a_clause(before: &str, line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!']);
    let openers = ["What ", "Who ", "Whose ", "Whom ", "So ", "The same "];
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    is_comment(line)
        && !is_comment(before)
        && openers
            .iter()
            .any(|opener| text.trim_start().starts_with(opener))
}

#[test]
fn comments_say_what_things_are() {
    assert!(opens_with_a_clause("}", "    /// What it is."));
    assert!(!opens_with_a_clause("/// A sentence.", "/// What it is."));
    let (mut clauses, mut nobodies) = (0, 0);
    for (name, text) in all(".rs") {
        if !(name.starts_with("crates/") && name.contains("/src/")) {
            continue;
        }
        let mut before = "";
        for line in text.lines() {
            clauses += usize::from(opens_with_a_clause(before, line));
            let words = line.to_lowercase();
            let comment = words.trim_start().starts_with("//");
            nobodies += usize::from(comment && words.contains("nobody"));
            before = line;
        }
    }
    let (clauses_max, nobodies_max) = RIDDLES_MAX;
    assert!(
        clauses <= clauses_max && nobodies <= nobodies_max,
        "{clauses} comments open with What, Who, Whose, Whom, So or The same (at most {clauses_max}), {nobodies} have a nobody (at most \
         {nobodies_max}): say what the thing is"
    );
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    for room in fs::read_dir(root().join("crates")).unwrap() {
        let room = room.unwrap();
        let name = room.file_name().to_string_lossy().into_owned();
        if UNSAFE_ROOMS.contains(&name.as_str()) {
            continue;
        }
        let src = room.path().join("src");
        let door = ["lib.rs", "main.rs"]
            .map(|file| src.join(file))
            .into_iter()
            .find(|file| file.exists());
        let text = fs::read_to_string(door.unwrap()).unwrap();
        assert!(
            text.contains("#![forbid(unsafe_code)]"),
            "{name} must forbid unsafe code"
        );
    }
}

/// Paths that `text` takes from its crate's root, as in `crate::name::inner`; of `crate::{...}` an empty one. Comments do not count.
fn paths_from_the_root(text: &str) -> Vec<&str> {
    let code = text
        .split_inclusive('\n')
        .filter(|line| !line.trim_start().starts_with("//"));
    let rest = code.flat_map(|line| line.split("crate::").skip(1));
    rest.filter_map(|rest| {
        rest.split(|c: char| !c.is_alphanumeric() && !['_', ':'].contains(&c))
            .next()
    })
    .collect()
}

/// The innermost of `shelves` that a module's path leads to, or else the first name of the path.
fn shelf_of<'a>(shelves: &[&'a str], path: &'a str) -> &'a str {
    let inside = |shelf: &str| {
        path.strip_prefix(shelf)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let inner = shelves.iter().filter(|shelf| inside(shelf));
    let first = path.split("::").next().unwrap();
    inner.max_by_key(|shelf| shelf.len()).map_or(first, |s| s)
}

#[test]
fn shelves_know_only_what_is_below_them() {
    assert_eq!(
        paths_from_the_root("use crate::core::x;\n    // crate::y\nlet z = crate::{a};\n"),
        ["core::x", ""]
    );
    let two = ["core::x", "core"];
    let shelf = |path: &'static str| shelf_of(&two, path);
    assert_eq!(
        ["core::x::y", "core::xy", "cores"].map(shelf),
        ["core::x", "core", "cores"]
    );
    let sources = all(".rs");
    let mut wrong = Vec::new();
    for (name, shelves) in SHELVES {
        let src = format!("crates/{name}/src/");
        let is_file = |module: &str| {
            sources
                .iter()
                .any(|(name, _)| *name == format!("{src}{module}.rs"))
        };
        let height = |module: &str| {
            shelves
                .iter()
                .position(|shelf| *shelf == module)
                .unwrap_or(shelves.len())
        };
        for (name, text) in &sources {
            let Some(inside) = name.strip_prefix(&src) else {
                continue;
            };
            let own = inside.trim_end_matches(".rs").replace('/', "::");
            let own = shelf_of(shelves, &own);
            if own == "lib" || own == "testing" || inside.contains("tests") {
                continue;
            }
            for path in paths_from_the_root(text) {
                let module = shelf_of(shelves, path);
                if !is_file(path.split("::").next().unwrap()) {
                    wrong.push(format!(
                        "{name}: crate::{path} goes by the front; name its shelf"
                    ));
                } else if height(module) < height(own) {
                    wrong.push(format!("{name}: {module} is above {own}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Names of the workspace's crates that a manifest depends on, without their common beginning. Those of tests count only for a crate
/// that is nothing else.
fn crates_of(manifest: &str, is_for_tests: bool) -> Vec<&str> {
    let tables = manifest.split("\n[").filter(|table| {
        table.starts_with("dependencies]") || is_for_tests && table.starts_with("dev-dependencies]")
    });
    let names =
        tables.flat_map(|table| table.lines().filter_map(|line| line.strip_prefix("janus-")));
    let mut names: Vec<_> = names
        .map(|name| name.split(['.', ' ']).next().unwrap())
        .collect();
    names.sort_unstable();
    names
}

/// The last column of the table of crates in ARCHITECTURE is what their manifests say.
#[test]
fn crates_know_what_the_table_says() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `janus-"));
    let (mut above, mut wrong) = (Vec::new(), Vec::new());
    for row in rows {
        let columns: Vec<_> = row.split('|').map(str::trim).collect();
        let name = columns[1].split('`').nth(1).unwrap();
        let mut said: Vec<&str> = match columns[3] {
            "nothing" => Vec::new(),
            known => known
                .split(", ")
                .map(|word| word.split(" (").next().unwrap())
                .map(|word| word.strip_prefix("with its features ").unwrap_or(word))
                .flat_map(|word| match word {
                    "all above" => above.clone(),
                    word => vec![word],
                })
                .collect(),
        };
        said.sort_unstable();
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).unwrap();
        let real = crates_of(&manifest, name.ends_with("-tests"));
        if said != real {
            wrong.push(format!(
                "{name}: the table says {said:?}, its manifest {real:?}"
            ));
        }
        above.push(name.strip_prefix("janus-").unwrap());
    }
    assert!(above.len() > 10, "the table is there");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A method of the stack may touch every connection, so they stand in few files: the calls, arrival, and the one that lends.
#[test]
fn few_files_hold_methods_of_the_stack() {
    let holds = |(name, text): &(String, String)| {
        name.starts_with("crates/janus-tcp/src/")
            && !name.contains("tests")
            && text.contains("\nimpl Stack {\n")
    };
    let found: Vec<_> = all(".rs").into_iter().filter(holds).collect();
    let names: Vec<_> = found.iter().map(|(name, _)| name).collect();
    assert!((1..=STACK_FILES_MAX).contains(&names.len()), "{names:?}");
}

/// Visibility of the field that a line declares, if it has one of the forms `pub(…) name: Type`.
fn field_visibility(line: &str) -> Option<&str> {
    let (visible, rest) = line.trim_start().strip_prefix("pub(")?.split_once(") ")?;
    let (name, _) = rest.split_once(": ")?;
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then_some(visible)
}

/// A private field is seen by the module that defines it and by those inside it: what works on it lies there, all others ask by
/// methods. The memory of the engine, `store`, is fields that its rooms share.
#[test]
fn fields_are_seen_from_inside_their_room_only() {
    assert_eq!(
        field_visibility("    pub(crate) now: Instant,"),
        Some("crate")
    );
    assert_eq!(field_visibility("    pub(crate) fn of(a: u8) {"), None);
    assert_eq!(field_visibility("pub(crate) const A: u8 = 0;"), None);
    let mut open = Vec::new();
    for (name, text) in all(".rs") {
        let Some(inside) = name.strip_prefix("crates/janus-tcp/src/") else {
            continue;
        };
        let room = inside.split(['/', '.']).next().unwrap();
        if room == "store" || room == "testing" {
            continue;
        }
        // Above a file that lies flat there is only the crate.
        let is_wide = |visible: &str| visible != "super" || !inside.contains('/');
        let wide = |line: &&str| field_visibility(line).is_some_and(is_wide);
        let fields = text.lines().filter(wide);
        open.extend(fields.map(|line| format!("{name}: {}", line.trim())));
    }
    assert!(open.is_empty(), "{}", open.join("\n"));
}

#[test]
fn links_in_the_prose_lead_somewhere() {
    let mut broken = Vec::new();
    for (name, text) in all(".md") {
        let here = root().join(&name);
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = target.split('#').next().unwrap_or_default();
            let local = !file.is_empty() && !target.contains("://");
            if local && !here.parent().unwrap().join(file).exists() {
                broken.push(format!("{name}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Paths in backquotes go stale as silently as links do.
#[test]
fn files_named_in_the_prose_exist() {
    let sources: Vec<String> = all(".rs").into_iter().map(|(name, _)| name).collect();
    let mut missing = Vec::new();
    for (name, text) in all(".md") {
        let named = text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| word.ends_with(".rs") && !word.contains(' '));
        for word in named.filter(|word| !word.starts_with("foo")) {
            let crate_path = word
                .split_once('/')
                .map(|(room, rest)| format!("crates/{room}/src/{rest}"));
            let known = sources.iter().any(|source| {
                source == word
                    || source.ends_with(&format!("/{word}"))
                    || Some(source) == crate_path.as_ref()
            });
            if !known {
                missing.push(format!("{name}: {word}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// A file beside a test program's `main.rs` that nothing names is compiled by nobody, and its tests pass by not running.
#[test]
fn each_file_of_a_test_program_is_a_part_of_it() {
    let sources = all(".rs");
    let mut left_out = Vec::new();
    for (main, _) in sources
        .iter()
        .filter(|(name, _)| name.ends_with("/main.rs"))
    {
        let folder = main.trim_end_matches("main.rs");
        let parent = folder.trim_end_matches('/').rsplit('/').nth(1);
        if parent != Some("tests") {
            continue;
        }
        let inside: Vec<_> = sources
            .iter()
            .filter(|(name, _)| name.starts_with(folder))
            .collect();
        for (name, _) in &inside {
            let rest = &name[folder.len()..];
            let module = rest
                .strip_suffix("/mod.rs")
                .or(rest.strip_suffix(".rs"))
                .unwrap_or(rest);
            let module = module.rsplit('/').next().unwrap_or(module);
            let named = format!("mod {module};");
            if module != "main" && !inside.iter().any(|(_, text)| text.contains(&named)) {
                left_out.push(name.clone());
            }
        }
    }
    assert!(left_out.is_empty(), "{}", left_out.join("\n"));
}

#[test]
fn readme_opens_with_the_two_lines_that_start_and_test() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let (before, rest) = text.split_once("```sh\n").unwrap();
    let block = rest.split_once("```").unwrap().0;
    assert_eq!(
        block,
        "cargo run --release --example hello\ncargo test --workspace\n"
    );
    assert_eq!(
        before.lines().filter(|line| !line.is_empty()).count(),
        2,
        "title, one line, then the block"
    );
    assert!(root().join("examples/hello.rs").exists());
    let lines = text.lines().count();
    assert!(lines <= README_LINES_MAX, "README has {lines} lines");
}

/// Test programs, each with all of its files.
fn test_programs() -> Vec<(String, String)> {
    let mut programs: Vec<(String, String)> = Vec::new();
    for (path, text) in all(".rs") {
        let Some((before, below)) = path.rsplit_once("tests/") else {
            continue;
        };
        if before.contains("/src/") || before.starts_with("benches/") {
            continue;
        }
        let name = below.split(['/', '.']).next().unwrap_or(below);
        let name = format!("{before}tests/{name}");
        match programs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => all.push_str(&text),
            None => programs.push((name, text)),
        }
    }
    programs
}

#[test]
fn what_may_be_skipped_is_run_where_skipping_is_failing() {
    let script = fs::read_to_string(root().join(".ci/run")).expect("the script");
    let words: Vec<&str> = script.split([' ', '(', ')', '\n']).collect();
    let mut found = 0;
    for (path, text) in test_programs() {
        let name = path.rsplit('/').next().unwrap_or(&path);
        let may_skip = text.contains("\"skipped: ") || text.contains("privileged::");
        if may_skip && !["tidy", "support"].contains(&name) {
            found += 1;
            assert!(
                words.contains(&name),
                "{path} may skip, and .ci/run does not name it"
            );
        }
    }
    assert!(found > 10, "{found} programs that may skip");
}

/// A reader who starts a bench is told how long it takes and how much memory, before it does anything.
#[test]
fn benches_tell_what_they_take() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let needs = fs::read_to_string(root().join("benches/needs.tsv")).expect("the table");
    let benches = manifest.split("[[bench]]\n").skip(1);
    let names: Vec<&str> = benches.filter_map(|it| it.split('"').nth(1)).collect();
    assert!(names.len() > 20, "{names:?}");
    let says_itself = |name: &str| {
        let files = [
            format!("benches/{name}.rs"),
            format!("benches/{name}/main.rs"),
        ];
        let mut texts = files
            .iter()
            .filter_map(|it| fs::read_to_string(root().join(it)).ok());
        texts.any(|text| text.contains("report.needs("))
    };
    for name in names.iter().filter(|name| !says_itself(name)) {
        for scale in ["quick", "full"] {
            let begins = format!("{name}\t{scale}\t");
            assert!(
                needs.lines().any(|line| line.starts_with(&begins)),
                "benches/needs.tsv has no line for {name}, {scale}"
            );
        }
    }
}
