//! A request all the way: a Janus client at the other end of the wire, or a kernel socket at the portal, against a
//! server of one and of three cores, in both placements.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc::channel;

use crate::support::*;
use janus::BackendChoice;
use janus::net::{TcpListener, TcpStream};

in_every_layout!(
    wire_echoes_many_connections,
    wire_carries_bulk_both_ways,
    wire_refuses_a_closed_port,
    wire_connects_from_every_core,
    wire_serves_a_port_of_one_core,
    portal_echoes_many_connections,
    portal_carries_bulk_and_half_close,
);

/// Where the wire's server stands.
fn server_on_wire(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn wire_echoes_many_connections(case: Case) {
    const CONNECTIONS: usize = 200;
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, cores) = serve(builder, 80, echo);
    run_clients(far, CONNECTIONS, |index| async move {
        let stream = TcpStream::connect(server_on_wire(80)).await.unwrap();
        for round in 0..3 {
            let sent = pattern(1 + (index * 37 + round * 1000) % 4000, index);
            stream.write_all(&sent).await.unwrap();
            let mut got = vec![0; sent.len()];
            stream.read_exact(&mut got).await.unwrap();
            assert!(got == sent, "connection {index}, round {round}");
        }
        stream.shutdown(Shutdown::Write).await.unwrap();
        assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    });
    server.stop().unwrap();
    let mut accepted = vec![0; case.cores];
    cores.iter().for_each(|core| accepted[core] += 1);
    assert_eq!(accepted.iter().sum::<usize>(), CONNECTIONS);
    assert!(
        accepted.iter().all(|count| *count > 0),
        "one loop on every core takes its share: {accepted:?}"
    );
}

fn wire_carries_bulk_both_ways(case: Case) {
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, _) = serve(builder, 80, echo);
    run_clients(far, 4, |index| async move {
        let stream = std::rc::Rc::new(TcpStream::connect(server_on_wire(80)).await.unwrap());
        let sent = pattern(1 << 20, index);
        let (writer, bytes) = (stream.clone(), sent.clone());
        janus::spawn(async move {
            writer.write_all(&bytes).await.unwrap();
            writer.shutdown(Shutdown::Write).await.unwrap();
        });
        let mut got = Vec::new();
        while let Some(piece) = stream.recv().await.unwrap() {
            got.extend_from_slice(&piece);
        }
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
    });
    server.stop().unwrap();
}

fn wire_refuses_a_closed_port(case: Case) {
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, _) = serve(builder, 80, echo);
    run_clients(far, 8, |_| async {
        let error = TcpStream::connect(server_on_wire(81)).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    });
    server.stop().unwrap();
}

/// The source port is chosen so that the answers come to the core that asked.
fn wire_connects_from_every_core(case: Case) {
    let (near, far) = wire_for(case);
    let far = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(far))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, _) = serve(far, 80, echo);
    let near = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.2/24".parse().unwrap());
    let clients = Running::start(near.build().unwrap(), || async {
        for round in 0..40 {
            let stream = TcpStream::connect(server_on_wire(80)).await?;
            let sent = pattern(3000, round);
            stream.write_all(&sent).await?;
            let mut got = vec![0; sent.len()];
            stream.read_exact(&mut got).await?;
            assert!(got == sent);
        }
        let report = janus::report().expect("this is a core");
        assert_eq!(report.tcp.connected, 40);
        assert_eq!(report.forwards, janus::ForwardCounters::default());
        std::io::Result::Ok(())
    });
    clients.join().unwrap();
    server.stop().unwrap();
}

/// Only the last core listens: it gets every connection, whatever queue it arrives in.
fn wire_serves_a_port_of_one_core(case: Case) {
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (ready, listening) = channel();
    let server = Running::start(builder.build().unwrap(), move || {
        let ready = ready.clone();
        async move {
            if janus::core_id() != Some(case.cores - 1) {
                return std::future::pending::<janus::Result>().await;
            }
            let listener = TcpListener::bind("0.0.0.0:80").await?;
            ready.send(())?;
            loop {
                let (stream, _) = listener.accept().await?;
                janus::spawn(echo(stream));
            }
        }
    });
    listening.recv_timeout(PATIENCE).unwrap();
    run_clients(far, 50, |index| async move {
        let stream = TcpStream::connect(server_on_wire(80)).await.unwrap();
        stream.write_all(&[index as u8]).await.unwrap();
        let mut got = [0];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(got, [index as u8]);
    });
    server.stop().unwrap();
}

fn portal_echoes_many_connections(case: Case) {
    let (server, address, cores) = serve(case.builder().backend(BackendChoice::Portal), 0, echo);
    let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
    let clients: Vec<_> = (0..4)
        .map(|thread| {
            std::thread::spawn(move || {
                for index in 0..25 {
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let sent = pattern(1 + index * 211, thread);
                    stream.write_all(&sent).unwrap();
                    let mut got = vec![0; sent.len()];
                    stream.read_exact(&mut got).unwrap();
                    assert!(got == sent, "client {thread}, connection {index}");
                }
            })
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    server.stop().unwrap();
    let mut accepted = vec![0; case.cores];
    cores.iter().for_each(|core| accepted[core] += 1);
    assert_eq!(accepted.iter().sum::<usize>(), 100);
    assert!(accepted.iter().all(|count| *count > 0), "{accepted:?}");
}

fn portal_carries_bulk_and_half_close(case: Case) {
    let (server, address, _) = serve(case.builder().backend(BackendChoice::Portal), 0, echo);
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent = pattern(2 << 20, 3);
    let (mut writer, bytes) = (stream.try_clone().unwrap(), sent.clone());
    let writing = std::thread::spawn(move || {
        writer.write_all(&bytes).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
    server.stop().unwrap();
    assert!(
        std::net::TcpStream::connect(("127.0.0.1", address.port())).is_err(),
        "the door is closed"
    );
}
