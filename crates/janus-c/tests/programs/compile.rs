//! Compilers, and what they make of the sources.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::own;

const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

/// Name of a C compiler, and of the C++ compiler beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiler {
    c: &'static str,
    cpp: &'static str,
}

/// The form of the library that a program gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    Shared,
    Static,
}

fn is_there(name: &str) -> bool {
    let output = Command::new(name).arg("--version").output();
    output.is_ok_and(|output| output.status.success())
}

/// All compilers there are. Without any it is said, past what the test runner keeps to itself.
pub(crate) fn compilers() -> Vec<Compiler> {
    static FOUND: OnceLock<Vec<Compiler>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let known = [("gcc", "g++"), ("clang", "clang++")].map(|(c, cpp)| Compiler { c, cpp });
        let found: Vec<_> = known.into_iter().filter(|it| is_there(it.c)).collect();
        if found.is_empty() {
            let _ = writeln!(std::io::stderr(), "skipped: no C compiler");
        }
        found
    });
    found.clone()
}

/// A folder for what tests make.
pub(crate) fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The folder of what cargo has built for this test, the library among it.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a running program");
    test.parent().expect("it lies in a folder").to_owned()
}

impl Compiler {
    /// Compiles and links a program.
    pub(crate) fn program(self, source: &Path, link: Link) -> PathBuf {
        // Two tests may compile one source at a time.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = source.file_stem().expect("a name").to_string_lossy();
        let program = scratch().join(format!("{name}-{}-{number}", self.c));
        let (folder, library) = (built(), built().join("libjanus_c.a"));
        let mut command = self.command(self.c, "-std=c99");
        command.arg("-g").arg("-o").arg(&program).arg(source);
        match link {
            Link::Shared => {
                assert!(folder.join("libjanus_c.so").exists(), "cargo has built it");
                let mut run_path = OsString::from("-Wl,-rpath,");
                run_path.push(&folder);
                command
                    .arg("-L")
                    .arg(&folder)
                    .arg("-ljanus_c")
                    .arg(run_path);
            }
            Link::Static => {
                assert!(library.exists(), "cargo has built it");
                command.arg(library).args(["-ldl", "-lm"]);
            }
        }
        command.arg("-lpthread");
        succeeds(command);
        program
    }

    /// Looks whether a source is right.
    pub(crate) fn checks(self, source: &Path, more: &[&str]) {
        let mut command = self.command(self.c, "-std=c99");
        command.arg("-fsyntax-only").args(more).arg(source);
        succeeds(command);
    }

    pub(crate) fn checks_as_cpp(self, source: &Path) {
        if !is_there(self.cpp) {
            let _ = writeln!(std::io::stderr(), "skipped: no {}", self.cpp);
            return;
        }
        let mut command = self.command(self.cpp, "-std=c++11");
        command.args(["-fsyntax-only", "-x", "c++"]).arg(source);
        succeeds(command);
    }

    fn command(self, compiler: &str, standard: &str) -> Command {
        let mut command = Command::new(compiler);
        command.args(WARNINGS).arg(standard);
        command.arg("-I").arg(own().join("include"));
        command
    }
}

fn succeeds(mut command: Command) {
    let output = command.output().expect("a compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{said}");
}
