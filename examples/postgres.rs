//! Notes in a PostgreSQL database, over HTTP: `tokio-postgres` on Janus's TCP, with a pool of connections for each core.
//!
//! ```sh
//! cargo run --release --features postgres --example postgres -- 127.0.0.1:8080 "host=127.0.0.1 user=postgres dbname=postgres"
//! curl -d "a note" http://127.0.0.1:8080/; curl http://127.0.0.1:8080/
//! ```
//!
//! The driver is given a Janus stream (feature `tokio-io` of janus-rt), so it needs no tokio runtime: its connection is a task on
//! the core that opened it, and a query never leaves that core. A database takes few connections: `SESSIONS_MAX` times the
//! cores is what it must allow (`max_connections` of the server, 100 as a rule).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use janus::BoxError;
use janus::net::{TcpListener, TcpStream};
use janus::time::timeout;
use janus_http::{Request, Responder, Result, Sent};
use tokio::sync::Semaphore;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls, Statement};

/// Connections to the database, for each core.
const SESSIONS_MAX: usize = 4;
/// Time for a request to get one of them and its answer.
const PATIENCE: Duration = Duration::from_secs(5);
const NOTE_BYTES_MAX: u64 = 4096;
/// For every session, as none knows whether it is the first. The lock is for two that are at the same moment: `if not exists`
/// fails then.
const SCHEMA: &str = "begin; select pg_advisory_xact_lock(7); \
    create table if not exists notes (id bigint generated always as identity primary key, text text not null); commit";

#[janus::main]
async fn main() -> janus::Result<()> {
    let [at, database] = [1, 2].map(|place| std::env::args().nth(place));
    let listener = TcpListener::bind(at.as_deref().unwrap_or("0.0.0.0:8080")).await?;
    let database = database
        .as_deref()
        .unwrap_or("host=127.0.0.1 user=postgres");
    let pool = Rc::new(Pool::new(database.parse()?));
    janus::once(|| println!("curl http://{}/", listener.reachable_at()));
    janus::spawn(Pool::close_at_the_end(pool.clone()));
    loop {
        let (stream, _) = listener.accept().await?;
        let pool = pool.clone();
        janus::spawn(janus_http::serve(stream, async move |request, response| {
            answer(&pool, request, response).await
        }));
    }
}

async fn answer(
    pool: &Pool,
    mut request: Request<'_, TcpStream>,
    response: Responder<'_, TcpStream>,
) -> Result<Sent> {
    let mut note = Vec::new();
    if request.method() == "POST" {
        // A body in chunks does not say how long it is; the server's own bound is larger.
        if request
            .body()
            .remaining()
            .is_none_or(|bytes| bytes > NOTE_BYTES_MAX)
        {
            return response.status(413).send("a note is shorter\n").await;
        }
        request.body().read_to_end(&mut note).await?;
    }
    let work = async {
        match request.method() {
            "GET" => Ok((200, pool.list().await?)),
            "POST" => match String::from_utf8(note) {
                Ok(note) => Ok((201, pool.insert(&note).await?)),
                Err(_) => Ok((400, "a note is text\n".into())),
            },
            _ => Ok((405, "GET or POST\n".into())),
        }
    };
    // A query whose time is over goes on in the database; its session is dropped here, and with it the connection.
    let (status, body) = match timeout(PATIENCE, work).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => {
            let error: BoxError = error;
            eprintln!("postgres: {error}");
            (503, "the database does not answer\n".into())
        }
        Err(_) => (504, "the database took too long\n".into()),
    };
    response.status(status).send(body).await
}

/// A connection to the database, and what was prepared over it.
struct Session {
    client: Client,
    insert: Statement,
    list: Statement,
}

/// Sessions of one core.
struct Pool {
    config: Config,
    idle: RefCell<Vec<Session>>,
    /// One for each session that may be in use.
    permits: Semaphore,
}

impl Pool {
    fn new(config: Config) -> Pool {
        Pool {
            config,
            idle: RefCell::default(),
            permits: Semaphore::new(SESSIONS_MAX),
        }
    }

    async fn insert(&self, note: &str) -> Result<String, BoxError> {
        self.with(async |session| {
            let row = session.client.query_one(&session.insert, &[&note]).await?;
            Ok(format!("{}\n", row.get::<_, i64>(0)))
        })
        .await
    }

    async fn list(&self) -> Result<String, BoxError> {
        self.with(async |session| {
            let rows = session.client.query(&session.list, &[]).await?;
            let lines = rows.iter().map(|row| {
                let (id, text) = (row.get::<_, i64>(0), row.get::<_, &str>(1));
                format!("{id} {text}\n")
            });
            Ok(lines.collect())
        })
        .await
    }

    /// Does `work` over a session that is not shared meanwhile, and keeps it for others if it is still good.
    async fn with<R>(
        &self,
        work: impl AsyncFnOnce(&Session) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, BoxError> {
        let _permit = self.permits.acquire().await?;
        let idle = self.idle.borrow_mut().pop();
        let session = match idle.filter(|session| !session.client.is_closed()) {
            Some(session) => session,
            None => self.open().await?,
        };
        let done = work(&session).await;
        // At the end the runtime waits for connections, so none may be kept.
        if !session.client.is_closed() && !janus::is_shutting_down() {
            self.idle.borrow_mut().push(session);
        }
        Ok(done?)
    }

    async fn open(&self) -> Result<Session, BoxError> {
        let Some(Host::Tcp(host)) = self.config.get_hosts().first() else {
            return Err("a host is needed, as in `host=127.0.0.1`".into());
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        let (client, connection) = self.config.connect_raw(stream, NoTls).await?;
        // Ends when the client is dropped; what breaks it, the client's calls tell.
        janus::spawn(async { drop(connection.await) });
        client.batch_execute(SCHEMA).await?;
        let insert = "insert into notes (text) values ($1) returning id";
        let list = "select id, text from notes order by id desc limit 10";
        Ok(Session {
            insert: client.prepare(insert).await?,
            list: client.prepare(list).await?,
            client,
        })
    }

    async fn close_at_the_end(pool: Rc<Pool>) {
        janus::shutting_down().await;
        pool.idle.borrow_mut().clear();
    }
}
