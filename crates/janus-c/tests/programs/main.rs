//! Programs in C over `janus.h` and mTCP's header, compiled with what compilers there are and run behind the portal, whose clients and servers
//! are the kernel's. They link against what cargo has built for this test.

mod compile;
mod kernel;
mod run;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use compile::{Compiler, Link, compilers, scratch};
use kernel::{ask, pages, read_all};
use run::Program;

/// The crate's folder.
fn own() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn test_source(name: &str) -> PathBuf {
    own().join("tests/c").join(name)
}

fn example(name: &str) -> PathBuf {
    own().join("../../examples/c").join(name)
}

/// The first compiler there is, for what need not be compiled by all.
fn any_compiler() -> Option<Compiler> {
    compilers().into_iter().next()
}

/// A program, started behind the portal.
fn start(source: &Path, arguments: &[&str]) -> Option<Program> {
    let program = any_compiler()?.program(source, Link::Shared);
    Some(Program::start(&program, arguments))
}

#[test]
fn each_call_answers_as_the_header_says() {
    for compiler in compilers() {
        for link in [Link::Shared, Link::Static] {
            let program = compiler.program(&test_source("unit.c"), link);
            let ended = Program::start(&program, &[]).end();
            assert!(ended.well(), "{compiler:?}, {link:?}: {ended:?}");
            assert_eq!(ended.said.trim(), "ok");
        }
    }
}

#[test]
fn programs_for_mtcp_compile_and_run() {
    for compiler in compilers() {
        let program = compiler.program(&test_source("mtcp.c"), Link::Shared);
        let ended = Program::start(&program, &[]).end();
        assert!(ended.well(), "{compiler:?}: {ended:?}");
    }
}

#[test]
fn headers_are_c_and_cpp() {
    for header in ["janus.h", "mtcp_api.h", "mtcp_epoll.h"] {
        let source = scratch().join(format!("{header}.c"));
        let include = format!("#include \"{header}\"\n");
        let text = format!("{include}{include}int main(void) {{ return 0; }}\n");
        fs::write(&source, text).expect("a file");
        for compiler in compilers() {
            compiler.checks(&source, &["-pedantic"]);
            compiler.checks_as_cpp(&source);
        }
    }
}

/// The words of a text that begin with `jn_`, in order and once each.
fn names(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut names: Vec<_> = words.filter(|word| word.starts_with("jn_")).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn header_and_manual_have_every_symbol() {
    let read = |file: &str| fs::read_to_string(own().join(file)).expect("a file");
    let symbols = read("src/symbols.rs");
    let header = read("include/janus.h");
    let code: String = header
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code))
        .collect();
    let mut declared = names(&code);
    declared.retain(|name| *name != "jn_ref");
    assert_eq!(names(&symbols), declared);
    let manual = read("man/janus.3");
    let untold: Vec<_> = declared
        .iter()
        .filter(|name| !manual.contains(*name))
        .collect();
    assert!(untold.is_empty(), "not in the manual: {untold:?}");
}

#[test]
fn programs_of_the_document_compile() {
    let text = fs::read_to_string(own().join("../../docs/c.md")).expect("a document");
    let blocks: Vec<_> = text.split("```c\n").skip(1).collect();
    assert!(blocks.len() >= 2, "the document has programs");
    for (number, block) in blocks.iter().enumerate() {
        let (program, _) = block.split_once("```").expect("the end of a block");
        let source = scratch().join(format!("document-{number}.c"));
        fs::write(&source, program).expect("a file");
        for compiler in compilers() {
            compiler.checks(&source, &[]);
        }
    }
}

/// A program that returns from `main` with a connection open, and whose threads call in their very end.
#[test]
fn what_was_written_arrives_although_the_program_leaves() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port().to_string();
    let Some(program) = start(&test_source("leaving.c"), &[&port]) else {
        return;
    };
    let (stream, _) = listener.accept().expect("a connection");
    let got = read_all(stream);
    let ended = program.end();
    assert!(ended.well(), "{ended:?}");
    assert_eq!(&got[..2], b"td");
    assert_eq!(got.len(), 2 + 199_999 + 1);
    assert!(got.ends_with(b"xe"));
}

/// A directory with two files; the second is large.
fn directory(name: &str) -> (PathBuf, Vec<u8>) {
    let folder = scratch().join(name);
    fs::create_dir_all(&folder).expect("a folder");
    let large: Vec<u8> = (0..1_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(folder.join("index.html"), "hello\n").expect("a file");
    fs::write(folder.join("large"), &large).expect("a file");
    (folder, large)
}

/// A server of a directory's files, and where it is.
fn server(folder: &Path) -> Option<(Program, String)> {
    let folder = folder.to_str().expect("a name");
    let mut program = start(&example("epserver.c"), &["-p", "0", folder])?;
    let line = program.line();
    let url = line.split_whitespace().last().expect("an address");
    let url = url.to_owned();
    assert!(line.starts_with("2 files at http://"), "{line}");
    Some((program, url))
}

#[test]
fn the_server_answers_clients_of_the_kernel() {
    let (folder, large) = directory("served");
    let Some((program, url)) = server(&folder) else {
        return;
    };
    let at = url
        .trim_start_matches("http://")
        .trim_end_matches('/')
        .to_owned();
    let once = |request: &str| ask(&at, request);
    let hello = once("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(hello.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n"));
    assert!(hello.ends_with("\r\n\r\nhello\n"));
    let head = once("HEAD /large HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(head.contains("Content-Length: 1000000\r\n") && head.ends_with("\r\n\r\n"));
    assert!(once("GET /none HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(once("GET /../epserver HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(once("POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let long = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(10_000));
    assert!(once(&long).starts_with("HTTP/1.1 431"));
    // Three requests at once, the last of which is an old one's.
    let two = "GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2);
    let three = once(&(two + "GET /?query HTTP/1.0\r\n\r\n"));
    assert_eq!(three.matches("\r\n\r\nhello\n").count(), 3);
    assert_eq!(three.matches("Connection: keep-alive").count(), 2);
    for _ in 0..3 {
        let stream = kernel::connect(&at);
        std::io::Write::write_all(&mut &stream, b"GET /large HTTP/1.0\r\n\r\n").expect("sent");
        let got = read_all(stream);
        assert!(got.ends_with(&large), "all of it comes");
    }
    let ended = program.stop();
    assert!(ended.well(), "{ended:?}");
    assert!(
        ended.said.contains("10 connections, 12 requests, "),
        "{ended:?}"
    );
}

#[test]
fn the_client_gets_pages_from_the_kernel() {
    if any_compiler().is_none() {
        return;
    }
    let get = |answer: &'static str, arguments: &[&str]| {
        let at = pages(answer);
        let url = format!("http://{at}/page");
        let arguments = [arguments, &[url.as_str()]].concat();
        start(&example("epwget.c"), &arguments)
            .map(Program::end)
            .expect("a compiler")
    };
    let right = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let ended = get(right, &["-n", "300", "-c", "30"]);
    assert!(ended.well(), "{ended:?}");
    assert_eq!(ended.figure("connections"), 300);
    assert_eq!(ended.figure("errors"), 0);
    assert_eq!(ended.figure("bytes"), 300 * right.len() as u64);
    for wrong in [
        "HTTP/1.1 500 Internal Server Error\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\n",
    ] {
        let ended = get(wrong, &["-n", "7", "-c", "3"]);
        assert!(!ended.well(), "{wrong}: {ended:?}");
        assert_eq!(ended.figure("errors"), 7, "{wrong}: {ended:?}");
    }
}

#[test]
fn the_client_says_that_it_was_refused() {
    // Bound and not listening: nobody else has it.
    let port = kernel::refuses();
    let url = format!("http://127.0.0.1:{}/", port.number);
    let Some(program) = start(&example("epwget.c"), &["-n", "5", "-c", "2", &url]) else {
        return;
    };
    let ended = program.end();
    assert!(!ended.well() && ended.figure("errors") == 5, "{ended:?}");
    assert!(
        ended.complained.contains("connect: Connection refused"),
        "{ended:?}"
    );
}

#[test]
fn the_client_gets_files_from_the_server() {
    let (folder, _) = directory("fetched");
    let Some((program, url)) = server(&folder) else {
        return;
    };
    for (path, total, len) in [("index.html", "500", 6), ("large", "20", 1_000_000)] {
        let url = format!("{url}{path}");
        let client = start(&example("epwget.c"), &["-n", total, "-c", "20", &url]);
        let ended = client.expect("a compiler").end();
        assert!(ended.well(), "{ended:?}");
        assert_eq!(ended.figure("connections").to_string(), total);
        assert!(ended.figure("bytes") > len * ended.figure("connections"));
    }
    let ended = program.stop();
    assert!(
        ended.well() && ended.said.contains("520 connections, 520 requests"),
        "{ended:?}"
    );
}
