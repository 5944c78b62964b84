//! Web servers and a proxy, asked by curl and by what loads them.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::peers::{self, HTTP};
use crate::running::Running;
use crate::world::{PEER, PROGRAM, Sockets, Transcript, World, compare, compare_by};

pub(crate) fn site(world: &World) -> String {
    let site = world.path("site");
    fs::create_dir_all(&site).expect("a temporary directory");
    world.file("site/index.html", "hello\n");
    world.file("site/big", peers::big());
    site
}

/// curl fetches a page, a large file, a part of it and what is not there; then many requests come, new connections and kept ones.
pub(crate) fn asked(world: &World, port: u16) -> Transcript {
    peers::answers(port);
    let url = |path: &str| format!("http://{PROGRAM}:{port}/{path}");
    let out = world.path("got");
    let mut said = world
        .peer(&["curl", "-sS", &url("index.html")])
        .well()
        .to_string();
    for part in [&["-sS"][..], &["-sS", "-r", "1000000-1000999"]] {
        let mut words = vec!["curl", "-o", &out, "-w", "%{http_code} "];
        words.extend(part);
        let url = url("big");
        words.push(&url);
        said += &world.peer(&words).well().out;
        said += &peers::told("big", &fs::read(&out).expect("what was fetched"));
    }
    let none = url("none");
    let words = ["curl", "-sS", "-o", &out, "-w", "%{http_code}", &none];
    said += &world.peer(&words).well().out;
    said += &counted(world, &["-n", "400", "-c", "8"], &url("index.html"));
    said += &counted(world, &["-k", "-n", "2000", "-c", "16"], &url("index.html"));
    let load = world
        .peer(&["wrk", "-t1", "-c16", "-d1", &url("index.html")])
        .well();
    let errors = load.out.contains("Socket errors") || load.out.contains("Non-2xx");
    said + &format!("wrk saw errors: {errors}\n")
}

/// What ab counts.
pub(crate) fn counted(world: &World, how: &[&str], url: &str) -> Transcript {
    let mut words = vec!["ab", "-q"];
    words.extend(how);
    words.push(url);
    let ab = world.peer(&words).well();
    let wanted = ["Complete requests", "Failed requests", "HTML transferred"];
    let lines = ab.out.lines();
    let counts = lines.filter(|line| wanted.iter().any(|wanted| line.starts_with(wanted)));
    counts.map(|line| format!("{line}\n")).collect()
}

/// The configuration of nginx with a process that serves, or with one that has others serve.
pub(crate) fn nginx_config(world: &World, processes: &str) -> String {
    let site = site(world);
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|of| format!("{of}_temp_path {};\n", world.path(of)))
        .collect();
    world.file(
        "nginx.conf",
        format!(
            "error_log stderr crit; {processes}; user root; pid {};\nevents {{ worker_connections 256; }}\n\
             http {{ access_log off; sendfile on; tcp_nopush on;\n{temporary}\
             server {{ listen {PROGRAM}:80; root {site}; }} }}\n",
            world.path("pid"),
        ),
    )
}

pub(crate) fn start_nginx(world: &World, processes: &str) -> Running {
    let config = nginx_config(world, &format!("daemon off; {processes}"));
    let prefix = world.path("");
    world.start(&["nginx", "-p", &prefix, "-c", &config, "-e", "stderr"])
}

fn nginx(world: &World) -> Transcript {
    let server = start_nginx(world, "master_process off");
    let said = asked(world, 80);
    said + &server.terminated().to_string()
}

#[test]
fn nginx_with_sendfile() {
    compare(
        &["nginx -v", "curl --version", "ab -V", "wrk --version"],
        nginx,
    );
}

fn lighttpd(world: &World) -> Transcript {
    let site = site(world);
    let config = world.file(
        "lighttpd.conf",
        format!(
            "server.document-root = \"{site}\"\nserver.bind = \"{PROGRAM}\"\nserver.port = 8081\n"
        ),
    );
    let server = world.start(&["lighttpd", "-D", "-f", &config]);
    let said = asked(world, 8081);
    // Its exit code tells whether it still had connections.
    thread::sleep(Duration::from_millis(300));
    said + &server.terminated().code
}

#[test]
fn lighttpd_serves() {
    compare(
        &["lighttpd -v", "curl --version", "ab -V", "wrk --version"],
        lighttpd,
    );
}

fn haproxy_config(world: &World, threads: u8) -> String {
    world.file(
        "haproxy.cfg",
        format!(
            "global\n nbthread {threads}\n maxconn 200\ndefaults\n mode http\n timeout client 10s\n timeout server 10s\n \
             timeout connect 5s\nfrontend f\n bind {PROGRAM}:8080\n default_backend b\nbackend b\n server s {PEER}:{HTTP}\n"
        ),
    )
}

/// In front of a server on the kernel's sockets: connections from both sides are Janus's.
fn haproxy_asked(world: &World) -> Transcript {
    peers::answers(8080);
    let url = |path: &str| format!("http://{PROGRAM}:8080/{path}");
    let (out, sent) = (world.path("got"), world.file("sent", peers::big()));
    let mut said = world
        .peer(&["curl", "-sS", "-o", &out, &url("big")])
        .well()
        .to_string();
    said += &peers::told("big", &fs::read(&out).expect("what was fetched"));
    said += &world
        .peer(&["curl", "-sS", "-T", &sent, &url("put")])
        .well()
        .to_string();
    said += &counted(world, &["-n", "300", "-c", "8"], &url("small"));
    said + &counted(world, &["-k", "-n", "1000", "-c", "16"], &url("small"))
}

fn haproxy(world: &World) -> Transcript {
    peers::http();
    let server = world.start(&["haproxy", "-db", "-f", &haproxy_config(world, 2)]);
    let said = haproxy_asked(world);
    // SIGTERM ends it by that signal.
    server.signal(Signal::USR1);
    said + &server.end().code
}

/// Its first process binds and forks, and becomes another program: the worker is left alone with what listens, which all of its threads use at the same time.
fn haproxy_of_a_worker(world: &World) -> Transcript {
    peers::http();
    let server = world.start(&["haproxy", "-W", "-f", &haproxy_config(world, 4)]);
    let said = haproxy_asked(world);
    said + &server.terminated().code
}

/// The same; then another worker takes its place.
fn haproxy_reloaded(world: &World) -> Transcript {
    peers::http();
    let server = world.start(&["haproxy", "-W", "-f", &haproxy_config(world, 4)]);
    let mut said = haproxy_asked(world);
    server.signal(Signal::USR2);
    thread::sleep(Duration::from_secs(2));
    said += &haproxy_asked(world);
    said + &server.terminated().code
}

const HAPROXY: [&str; 3] = ["haproxy -v", "curl --version", "ab -V"];

#[test]
fn haproxy_of_two_threads() {
    compare(&HAPROXY, haproxy);
}

#[test]
fn haproxy_of_a_master_and_a_worker() {
    compare(&HAPROXY, haproxy_of_a_worker);
}

#[test]
fn haproxy_is_reloaded_with_a_daemon() {
    compare_by(Sockets::Member, &HAPROXY, haproxy_reloaded);
}

/// Binds in its first process, and listens in another, on threads with stacks of 80 KiB. It answers by itself, or asks another server.
fn varnish(world: &World) -> Transcript {
    peers::http();
    let config = world.file(
        "varnish.vcl",
        format!(
            "vcl 4.0; backend peer {{ .host = \"{PEER}\"; .port = \"{HTTP}\"; }}
             sub vcl_recv {{ if (req.url == \"/big\") {{ return (pass); }} return (synth(200)); }}
             sub vcl_synth {{ synthetic(\"asked for \" + req.url); return (deliver); }}\n"
        ),
    );
    let (at, folder) = (format!("{PROGRAM}:8081"), world.path("varnish"));
    let line = format!("varnishd -F -T none -j none -s malloc,16m -a {at} -f {config} -n {folder}");
    let server = world.start(&line.split(' ').collect::<Vec<_>>());
    peers::answers(8081);
    let url = |path: &str| format!("http://{at}/{path}");
    let asked = world.peer(&["curl", "-sS", &url("a"), &url("b")]);
    let mut said = asked.well().to_string();
    let out = world.path("got");
    said += &(world.peer(&["curl", "-sS", "-o", &out, &url("big")]))
        .well()
        .to_string();
    said += &peers::told("big", &fs::read(&out).expect("what was fetched"));
    said += &counted(world, &["-n", "300", "-c", "8"], &url("small"));
    said += &counted(world, &["-k", "-n", "1000", "-c", "16"], &url("small"));
    said + &server.terminated().code
}

const VARNISH: [&str; 3] = ["varnishd -V", "curl --version", "ab -V"];

#[test]
fn varnish_whose_child_listens() {
    compare(&VARNISH, varnish);
}

#[test]
fn varnish_with_a_daemon() {
    compare_by(Sockets::Member, &VARNISH, varnish);
}

fn node(world: &World) -> Transcript {
    let script = world.script("server.js");
    let mut server = world.start(&["node", &script, PROGRAM, "8082"]);
    server.says("listening");
    let url = |path: &str| format!("http://{PROGRAM}:8082/{path}");
    let file = world.file("sent", peers::big());
    let mut said = world.peer(&["curl", "-sS", &url("a")]).well().to_string();
    said += &world
        .peer(&["curl", "-sS", "-T", &file, &url("b")])
        .well()
        .to_string();
    said += &counted(world, &["-n", "300", "-c", "8"], &url("small"));
    said += &counted(world, &["-k", "-n", "1000", "-c", "16"], &url("small"));
    said + &server.terminated().to_string()
}

#[test]
fn node_as_a_server() {
    compare(&["node --version", "curl --version", "ab -V"], node);
}
