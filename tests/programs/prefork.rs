//! Servers whose children serve: some accept for themselves at what their parent listens at, some are given a connection each.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::peers;
use crate::running::Running;
use crate::support::privileged::skip;
use crate::web::{asked, counted, site, start_nginx};
use crate::world::{PROGRAM, Sockets, Transcript, World, compare, compare_by};

const WEB: [&str; 3] = ["curl --version", "ab -V", "wrk --version"];

/// New connections while a server begins its children anew, several times.
fn reloaded(world: &World, server: &Running, signal: Signal, port: u16) -> Transcript {
    let url = format!("http://{PROGRAM}:{port}/index.html");
    thread::scope(|scope| {
        let load = scope.spawn(|| counted(world, &["-n", "3000", "-c", "8"], &url));
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(150));
            server.signal(signal);
        }
        // Apache takes a SIGTERM for nothing while it begins anew: the load may end before that.
        thread::sleep(Duration::from_millis(150));
        load.join().expect("ab ends")
    })
}

fn nginx(world: &World) -> Transcript {
    let server = start_nginx(world, "worker_processes 4");
    let mut said = asked(world, 80);
    said += &reloaded(world, &server, Signal::HUP, 80);
    said += &asked(world, 80);
    server.signal(Signal::QUIT);
    said + &server.end().to_string()
}

#[test]
fn nginx_with_workers_is_reloaded() {
    compare(&[&["nginx -v"][..], &WEB].concat(), nginx);
}

#[test]
fn workers_of_nginx_are_members_each() {
    compare_by(Sockets::Member, &[&["nginx -v"][..], &WEB].concat(), nginx);
}

/// Apache with children that serve a connection at a time, or with children of several threads.
fn apache(world: &World, kind: &str) -> Transcript {
    const MODULES: &str = "/usr/lib/apache2/modules";
    let config = world.file(
        "apache.conf",
        format!(
            "ServerRoot {dir}\nServerName {PROGRAM}\nListen {PROGRAM}:80\nPidFile {dir}/pid\nMutex file:{dir} default\n\
             LoadModule mpm_{kind}_module {MODULES}/mod_mpm_{kind}.so\nLoadModule authz_core_module {MODULES}/mod_authz_core.so\n\
             StartServers 3\nErrorLog /dev/stderr\nLogLevel emerg\nUser www-data\nGroup www-data\nDocumentRoot {site}\nKeepAlive On\n",
            dir = world.path("."),
            site = site(world),
        ),
    );
    // It ends its whole group of processes.
    let server = world.start(&["setsid", "apache2", "-D", "FOREGROUND", "-f", &config]);
    let mut said = asked(world, 80);
    said += &reloaded(world, &server, Signal::USR1, 80);
    // Its lines have the time in them.
    said + &server.terminated().code
}

#[test]
fn apache_of_processes() {
    let needs = [&["apache2 -v"][..], &WEB].concat();
    compare(&needs, |world| apache(world, "prefork"));
}

#[test]
fn apache_of_processes_with_threads() {
    let needs = [&["apache2 -v"][..], &WEB].concat();
    compare(&needs, |world| apache(world, "event"));
}

#[test]
fn apache_of_both_kinds_with_a_daemon() {
    let needs = [&["apache2 -v"][..], &WEB].concat();
    compare_by(Sockets::Member, &needs, |world| {
        apache(world, "prefork") + &apache(world, "event")
    });
}

pub(crate) const PYTHON: &str = "def app(environ, start_response):
    body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [b'%s sent %d bytes\\n' % (environ['REMOTE_ADDR'].encode(), len(body))]
";

fn gunicorn(world: &World) -> Transcript {
    world.file("app.py", PYTHON);
    let at = format!("{PROGRAM}:8083");
    let line = format!("gunicorn --log-level critical -w 3 -b {at} app:app");
    let words: Vec<&str> = line.split(' ').collect();
    let server = world.start(&words);
    peers::answers(8083);
    let (url, file) = (
        format!("http://{at}/index.html"),
        world.file("sent", peers::big()),
    );
    let data = format!("@{file}");
    let mut said = String::new();
    for _ in 0..6 {
        let words = ["curl", "-sS", "--data-binary", &data, &url];
        said += &world.peer(&words).well().to_string();
    }
    said += &counted(world, &["-n", "300", "-c", "4"], &url);
    said += &reloaded(world, &server, Signal::HUP, 8083);
    said + &server.terminated().to_string()
}

#[test]
fn gunicorn_of_three_workers() {
    compare(&["gunicorn --version", "curl --version", "ab -V"], gunicorn);
}

#[test]
fn gunicorn_with_a_daemon() {
    let needs = ["gunicorn --version", "curl --version", "ab -V"];
    compare_by(Sockets::Member, &needs, gunicorn);
}

/// A folder below `/usr/lib/postgresql` with the server's programs.
fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let folders = versions.map(|version| version.path().join("bin"));
    folders.filter(|it| it.join("initdb").exists()).max()
}

/// It must not run as root, and opens the device all the same.
const AS_POSTGRES: [&str; 5] = [
    "setpriv",
    "--reuid=postgres",
    "--clear-groups",
    "--inh-caps=+net_admin",
    "--ambient-caps=+net_admin",
];

fn postgres(world: &World) -> Transcript {
    let programs = postgres_programs().expect("found before");
    let program = |name: &str| programs.join(name).display().to_string();
    let folder = world.path("postgres");
    fs::create_dir(&folder).expect("a temporary directory");
    let user = world.peer(&["id", "-u", "postgres"]).well().out;
    let user = user.trim().parse().expect("a user");
    chown(&folder, Some(user), None).expect("it is ours");
    let (initdb, data) = (program("initdb"), format!("{folder}/data"));
    let begins = [&AS_POSTGRES[..3], &[&initdb, "-A", "trust", "-D", &data]].concat();
    world.peer(&begins).well();
    let rules = "host all all 192.0.2.0/24 trust\n";
    fs::write(format!("{data}/pg_hba.conf"), rules).expect("its folder");
    let server = program("postgres");
    let words = [
        "-D",
        &data,
        "-h",
        PROGRAM,
        "-k",
        &folder,
        "-c",
        "log_min_messages=fatal",
    ];
    let server = world.start(&[&AS_POSTGRES[..], &[&server], &words].concat());
    let (psql, bench) = (program("psql"), program("pgbench"));
    let asks = |text: &str| {
        let words = [&psql, "-h", PROGRAM, "-U", "postgres", "-Atc", text];
        world.peer_in_time(&words).well().to_string()
    };
    let mut said = asks("select 1 + 1, inet_client_addr(), inet_server_addr(), inet_server_port()");
    said += &asks("create table t as select a, repeat('x', 50) from generate_series(1, 50000) a");
    said += &asks("select * from t order by a");
    let benched = |how: &[&str]| {
        let words = [
            &[&bench, "-h", PROGRAM, "-U", "postgres", "-n"],
            how,
            &["postgres"],
        ]
        .concat();
        let said = world.peer(&words).well().out;
        let wanted = |line: &&str| line.contains("processed") || line.contains("failed");
        said.lines()
            .filter(wanted)
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    world
        .peer(&[
            &bench, "-h", PROGRAM, "-U", "postgres", "-i", "-q", "postgres",
        ])
        .well();
    said += &benched(&["-c", "8", "-t", "100"]);
    // A connection, and a process, for each.
    said += &benched(&["-C", "-S", "-c", "4", "-t", "20"]);
    server.signal(Signal::INT);
    said + &server.end().code
}

fn compare_postgres(sockets: Sockets) {
    match postgres_programs() {
        Some(_) => compare_by(sockets, &["setpriv --version", "id -u postgres"], postgres),
        None => skip("there is no PostgreSQL server below /usr/lib/postgresql"),
    }
}

#[test]
fn postgres_forks_for_each_connection() {
    compare_postgres(Sockets::Preloaded);
}

/// Those of its processes that last have TCP of their own.
#[test]
fn postgres_with_a_daemon() {
    compare_postgres(Sockets::Member);
}

/// A configuration of OpenSSH's server, and the words by which a client asks it for what follows.
pub fn openssh_for(world: &World) -> (String, Vec<String>) {
    let (host, me) = (world.path("host"), world.path("me"));
    for key in [&host, &me] {
        let words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key];
        world.peer(&words).well();
    }
    // Where it keeps a child that talks to strangers.
    fs::create_dir_all("/run/sshd").expect("root may");
    let config = world.file(
        "sshd_config",
        format!(
            "HostKey {host}\nAuthorizedKeysFile {me}.pub\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n\
             ListenAddress {PROGRAM}:22\nLogLevel FATAL\n"
        ),
    );
    let words = format!(
        "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i {me} root@{PROGRAM}"
    );
    (config, words.split(' ').map(str::to_owned).collect())
}

/// OpenSSH as a server of its own, and under one that starts it for each connection.
fn openssh(world: &World) -> Transcript {
    let (config, client) = openssh_for(world);
    let asks = |command: &str| {
        let mut words: Vec<&str> = client.iter().map(String::as_str).collect();
        words.push(command);
        world.peer_in_time(&words).well()
    };
    let big = world.file("big", peers::big());
    let mut said = String::new();
    let under = format!("TCP-LISTEN:22,bind={PROGRAM},reuseaddr,fork");
    let starts = format!("EXEC:/usr/sbin/sshd -i -f {config},nofork");
    for words in [
        &["/usr/sbin/sshd", "-D", "-e", "-f", &config][..],
        &["socat", &under, &starts],
    ] {
        let server = world.start(words);
        said += &asks("id -un; echo $SSH_CONNECTION | cut -d' ' -f1,3,4").to_string();
        let fetched = asks(&format!("cat {big}"));
        said += &format!("{} {:x}\n", fetched.out_len, fetched.out_sum);
        said += &server.terminated().code;
    }
    said
}

#[test]
fn openssh_alone_and_under_a_super_server() {
    let needs = ["ssh -V", "ls /usr/sbin/sshd", "socat -V"];
    compare(&needs, openssh);
}
