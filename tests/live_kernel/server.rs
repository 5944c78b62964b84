//! The server under the clients: an echo whose connections rest, and contents over HTTP, on two ports, on every core.

use std::net::Ipv6Addr;
use std::sync::mpsc::{Receiver, Sender, channel};

use janus::Runtime;
use janus::net::{TcpListener, TcpStream};

use crate::support::reports::Reports;
use crate::support::{PATIENCE, Running, content, echo_once};

pub(crate) const HTTP: u16 = 80;
pub(crate) const ECHO: u16 = 7;

pub(crate) struct Server {
    running: Running,
    pub(crate) reports: Reports,
}

impl Server {
    pub(crate) fn start(runtime: Runtime) -> Server {
        let (ready, listens): (Sender<()>, Receiver<()>) = channel();
        let reports = Reports::default();
        let of_cores = reports.clone();
        let running = Running::start(runtime, move || main(ready.clone(), of_cores.clone()));
        listens.recv_timeout(PATIENCE).expect("the server listens");
        Server { running, reports }
    }

    pub(crate) fn stop(self) {
        self.running.stop().unwrap();
    }
}

async fn main(ready: Sender<()>, reports: Reports) -> janus::Result {
    let http = TcpListener::bind((Ipv6Addr::UNSPECIFIED, HTTP)).await?;
    let echoes = TcpListener::bind((Ipv6Addr::UNSPECIFIED, ECHO)).await?;
    let _ = ready.send(());
    janus::spawn(janus::net::serve(echoes, echo_once));
    janus::spawn(accept(http, content::serve));
    reports.keep().await;
    Ok(())
}

async fn accept<F>(listener: TcpListener, serve: fn(TcpStream) -> F)
where
    F: Future<Output = ()> + 'static,
{
    while let Ok((stream, _)) = listener.accept().await {
        janus::spawn(serve(stream));
    }
}
