//! A database driver inside Janus tasks: tokio-postgres, over the kernel's loopback, with a PostgreSQL server that the test
//! starts and ends. Where none is installed it says that it skips.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use janus_compat_tests::{PATIENCE, Running, portal};
use tokio_postgres::{Client, NoTls};

/// Where Debian puts what no user is to call.
const PLACES: &str = "/usr/lib/postgresql";
/// Who a server runs as that root starts: it refuses to be root.
const NOBODY: u32 = 65_534;

fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(PLACES).ok()?;
    let mut found: Vec<PathBuf> = versions
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    found.sort();
    found.pop()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn program(path: PathBuf) -> Command {
    let mut command = Command::new(path);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .current_dir("/");
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A server with an empty database in a folder of its own; both go with it.
struct Server {
    folder: PathBuf,
    process: Child,
    port: u16,
}

impl Server {
    fn start(bin: &Path) -> Server {
        let folder = std::env::temp_dir().join(format!("janus-database-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        if is_root() {
            std::os::unix::fs::chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let data = folder.join("data");
        let made = program(bin.join("initdb"))
            .args([
                "--username=janus",
                "--auth=trust",
                "--no-sync",
                "--no-locale",
                "--encoding=UTF8",
                "--pgdata",
            ])
            .arg(&data)
            .status()
            .unwrap();
        assert!(made.success(), "initdb: {made}");
        // Free a moment ago; nobody else on a test's machine is after it.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let process = program(bin.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "fsync=off",
                "-c",
                "unix_socket_directories=",
            ])
            .args(["-p", &port.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Server {
            folder,
            process,
            port,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The server takes a moment until it answers.
async fn connect(port: u16) -> Client {
    let config = format!("host=127.0.0.1 port={port} user=janus dbname=postgres");
    let begin = Instant::now();
    loop {
        match tokio_postgres::connect(&config, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                return client;
            }
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        janus::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn queries_from_tasks_of_ours() {
    let Some(bin) = programs() else {
        println!(
            "skipped: no PostgreSQL server below {PLACES} (Debian's package postgresql has one)"
        );
        return;
    };
    let server = Server::start(&bin);
    let port = server.port;
    let running = Running::start(portal(2), move || async move {
        let client = std::rc::Rc::new(connect(port).await);
        let table = format!("numbers_{}", janus::core_id().unwrap());
        client
            .batch_execute(&format!("create table {table} (number bigint, word text)"))
            .await?;
        let insert = client
            .prepare(&format!("insert into {table} values ($1, $2)"))
            .await?;
        // Pipelined: many tasks, one connection.
        let inserts = (0..200i64).map(|number| {
            let (client, insert) = (client.clone(), insert.clone());
            janus::spawn(async move {
                let word = format!("word {number}");
                client.execute(&insert, &[&number, &word]).await.unwrap()
            })
        });
        for insert in inserts.collect::<Vec<_>>() {
            assert_eq!(insert.await?, 1);
        }
        let rows = client
            .query(
                &format!("select number, word from {table} order by number"),
                &[],
            )
            .await?;
        assert_eq!(rows.len(), 200);
        for (number, row) in (0i64..).zip(&rows) {
            assert_eq!(row.get::<_, i64>(0), number);
            assert_eq!(row.get::<_, &str>(1), format!("word {number}"));
        }
        let error = client.query("select nothing", &[]).await.unwrap_err();
        assert!(error.as_db_error().is_some());
        let query = format!("select sum(number)::bigint from {table}");
        let sum = client.query_one(&query, &[]);
        let sum: i64 = janus::time::timeout(PATIENCE, sum).await??.get(0);
        assert_eq!(sum, 199 * 200 / 2);
        Ok::<(), janus::BoxError>(())
    });
    running.join();
    drop(server);
}
