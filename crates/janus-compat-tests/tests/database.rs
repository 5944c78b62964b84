//! A database driver inside Janus tasks: tokio-postgres, over the kernel's loopback, with a PostgreSQL server that the test
//! starts and ends. Where none is installed it says that it skips.

#[allow(dead_code, reason = "it is for the tests of an example, too")]
#[path = "support/postgres.rs"]
mod postgres;

use std::time::{Duration, Instant};

use janus_compat_tests::{PATIENCE, Running, portal};
use postgres::{PLACES, Server};
use tokio_postgres::{Client, NoTls};

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
    let Some(bin) = postgres::programs() else {
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
