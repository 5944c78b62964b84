//! A runtime that asks for its address: on one switch with a server that the test plays and a client that wants to reach it, and,
//! as root, over TAP with dnsmasq as the server. `JANUS_PRIVILEGED=1` makes skipping that a failure.

mod again;
mod dnsmasq;
mod names;
mod server;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::support::*;
use janus::net::TcpStream;
use janus::{BackendChoice, Builder, Handle};
use janus_io::wire::switch::{self, Port, switch};
use server::{Server, Wish};

in_every_layout!(an_address_is_given_prolonged_and_taken_away);

const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 78);

/// Ports of one switch: ours, and others.
fn ports<const N: usize>(case: Case) -> [Port; N] {
    let config = switch::Config {
        queues: case.queues(),
        ..switch::Config::default()
    };
    let ports = switch(N, config).unwrap();
    ports.try_into().expect("as many as were asked for")
}

fn asking(case: Case, port: Port) -> Builder {
    case.builder()
        .backend(BackendChoice::Custom(Box::new(port)))
        .dhcp()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn address_of(handle: &Handle) -> Option<Ipv4Addr> {
    handle.lease().map(|lease| lease.address)
}

fn an_address_is_given_prolonged_and_taken_away(case: Case) {
    let [ours, servers, clients] = ports(case);
    let server = Server::start(servers, FIRST);
    let runtime = asking(case, ours).build().unwrap();
    let handle = runtime.handle();
    let lease = handle.lease().expect("no runtime without a lease");
    assert_eq!(
        (lease.address, lease.prefix, lease.server),
        (FIRST, 24, server::ADDRESS)
    );
    assert_eq!(lease.name_servers, [Ipv4Addr::new(192, 0, 2, 53)]);
    let (running, _, _) = serve_on(runtime, 80, echo);

    let client = ONE_COMBINED
        .builder()
        .backend(BackendChoice::Custom(Box::new(clients)))
        .address("192.0.2.2/24".parse().unwrap())
        .build()
        .unwrap();
    let (talk, heard) = std::sync::mpsc::channel();
    let mover = server.wish();
    let at_home = handle.clone();
    let client = Running::start(client, move || {
        let (talk, mover, at_home) = (talk.clone(), mover.clone(), at_home.clone());
        async move {
            let old = TcpStream::connect(SocketAddr::from((FIRST, 80))).await?;
            said_and_heard(&old).await?;
            // It is prolonged, and the connection lives.
            until_async(|| mover.renewals() >= 2).await;
            said_and_heard(&old).await?;
            // It is taken away, and another given.
            mover.refuse_then_give(SECOND);
            until_async(|| address_of(&at_home) == Some(SECOND)).await;
            let new = connected(SECOND).await?;
            said_and_heard(&new).await?;
            let _ = talk.send(());
            std::future::pending::<janus::Result>().await
        }
    });
    let done = heard.recv_timeout(PATIENCE);
    if done.is_err() {
        panic!("the client: {:?}", client.stop());
    }
    client.stop().unwrap();
    running.stop().unwrap();
    let counts = server.stop();
    assert!(counts.discovers >= 2 && counts.renewals >= 2, "{counts:?}");
}

/// The cores learn a little later than the handle what the address is.
async fn connected(address: Ipv4Addr) -> std::io::Result<TcpStream> {
    let begin = Instant::now();
    loop {
        match TcpStream::connect(SocketAddr::from((address, 80))).await {
            Ok(stream) => return Ok(stream),
            Err(error) if begin.elapsed() > PATIENCE => return Err(error),
            Err(_) => janus::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn until_async(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "it does not come about");
        janus::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn said_and_heard(stream: &TcpStream) -> std::io::Result<()> {
    let said = pattern(5_000, 3);
    stream.write_all(&said).await?;
    let mut heard = vec![0; said.len()];
    stream.read_exact(&mut heard).await?;
    assert!(heard == said);
    Ok(())
}

#[test]
fn a_connection_of_an_address_that_is_gone_tells_its_owner() {
    let [ours, servers, clients] = ports(ONE_COMBINED);
    let server = Server::start_with(servers, FIRST, Wish::short_leases());
    let runtime = asking(ONE_COMBINED, ours).build().unwrap();
    let handle = runtime.handle();
    let (tell, told) = std::sync::mpsc::channel();
    let running = Running::start(runtime, move || {
        let tell = tell.clone();
        async move {
            let listener = janus::net::TcpListener::bind("0.0.0.0:80").await?;
            let _ = tell.send(Ok(0));
            let (stream, _) = listener.accept().await?;
            let _ = tell.send(Ok(0));
            let _ = tell.send(
                stream
                    .read(&mut [0; 16])
                    .await
                    .map_err(|error| error.kind()),
            );
            std::future::pending::<janus::Result>().await
        }
    });
    let client = ONE_COMBINED
        .builder()
        .backend(BackendChoice::Custom(Box::new(clients)))
        .address("192.0.2.2/24".parse().unwrap())
        .build()
        .unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Ok(0)));
    let client = Running::start(client, || async {
        let _silent = TcpStream::connect(SocketAddr::from((FIRST, 80))).await?;
        std::future::pending::<janus::Result>().await
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Ok(0)));
    // From now on no server answers, and the lease ends.
    server.wish().be_silent();
    until("the lease ends", || handle.lease().is_none());
    let error = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(error, Err(std::io::ErrorKind::NetworkUnreachable));
    client.stop().unwrap();
    running.stop().unwrap();
    server.stop();
}

#[test]
fn without_a_server_it_says_so() {
    let [ours, _servers, _clients] = ports(ONE_COMBINED);
    let begin = Instant::now();
    let error = asking(ONE_COMBINED, ours).dhcp_wait(Duration::from_millis(50));
    let error = error
        .build()
        .expect_err("no server, no runtime")
        .to_string();
    assert!(
        error.contains("no DHCP server") && error.contains("dhcp_wait_ms"),
        "{error}"
    );
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn a_link_without_addresses_has_no_dhcp() {
    let (near, _far) = wire_for(ONE_COMBINED);
    let builder = ONE_COMBINED.builder().backend(BackendChoice::wire(near));
    let error = builder.dhcp().build().err().unwrap().to_string();
    assert!(error.contains("Ethernet"), "{error}");
    let xdp = BackendChoice::Xdp {
        interface: "lo".into(),
        ports: janus::XdpPorts::default(),
    };
    let builder = ONE_COMBINED.builder().backend(xdp);
    let error = builder.dhcp().build().err().unwrap().to_string();
    assert!(error.contains("AF_XDP"), "{error}");
}

#[test]
fn a_static_address_beside_it_is_there_too() {
    let [ours, servers, clients] = ports(ONE_COMBINED);
    let server = Server::start(servers, FIRST);
    let runtime = asking(ONE_COMBINED, ours)
        .address("192.0.2.80/24".parse().unwrap())
        .build()
        .unwrap();
    let (running, _, _) = serve_on(runtime, 80, echo);
    run_clients_on(
        BackendChoice::Custom(Box::new(clients)),
        2,
        |index| async move {
            let at = [FIRST, Ipv4Addr::new(192, 0, 2, 80)][index];
            let stream = TcpStream::connect(SocketAddr::from((at, 80)))
                .await
                .unwrap();
            said_and_heard(&stream).await.unwrap();
        },
    );
    running.stop().unwrap();
    server.stop();
}

#[test]
fn a_server_that_talks_nonsense_is_outlasted() {
    let [ours, servers, _clients] = ports(ONE_COMBINED);
    let server = Server::start_with(servers, FIRST, Wish::nonsense_first());
    let runtime = asking(ONE_COMBINED, ours).build().unwrap();
    assert_eq!(address_of(&runtime.handle()), Some(FIRST));
    drop(runtime);
    assert!(server.stop().nonsense > 5);
}
