//! Datagrams between two runtimes: whichever core has the socket, it gets them.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::time::Duration;

use futures::FutureExt;
use janus::BackendChoice;
use janus::net::{Interest, UdpSocket};
use janus::time::timeout;
use janus_io::wire;

use crate::support::*;

/// A server on `case` whose last core answers on port 53, and a client that may say something.
fn with_echo<F: Future<Output = ()> + 'static>(case: Case, client: fn() -> F) {
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .address("2001:db8::1/64".parse().unwrap());
    let (ready, bound) = channel();
    let server = Running::start(builder.build().unwrap(), move || {
        let ready = ready.clone();
        async move {
            if janus::core_id() != Some(case.cores - 1) {
                return std::future::pending::<janus::Result>().await;
            }
            let socket = UdpSocket::bind("[::]:53").await?;
            ready.send(())?;
            loop {
                let datagram = socket.recv_datagram().await?;
                socket.send_to(datagram.bytes(), datagram.peer).await?;
            }
        }
    });
    bound.recv_timeout(PATIENCE).unwrap();
    run_client(far, client);
    server.stop().unwrap();
}

fn run_client<F: Future<Output = ()> + 'static>(far: wire::End, client: fn() -> F) {
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(far))
        .address("192.0.2.2/24".parse().unwrap())
        .address("2001:db8::2/64".parse().unwrap());
    let running = Running::start(builder.build().unwrap(), move || async move {
        timeout(PATIENCE, client()).await
    });
    running.join().unwrap();
}

fn server(v6: bool, port: u16) -> SocketAddr {
    if v6 {
        format!("[2001:db8::1]:{port}").parse().unwrap()
    } else {
        SocketAddr::from(([192, 0, 2, 1], port))
    }
}

async fn questions_and_answers() {
    for v6 in [false, true] {
        // Each from a port of its own, so from another place of every hash.
        for round in 0..20 {
            let socket = UdpSocket::bind(if v6 { "[::]:0" } else { "0.0.0.0:0" });
            let socket = socket.await.unwrap();
            assert!(socket.local_addr().unwrap().port() >= 49_152);
            let question = pattern(1 + round * 60, round);
            socket.send_to(&question, server(v6, 53)).await.unwrap();
            let mut into = [0; 2_000];
            let (count, from) = socket.recv_from(&mut into).await.unwrap();
            assert_eq!((&into[..count], from), (&question[..], server(v6, 53)));
        }
    }
}

#[test]
fn a_socket_of_any_core_gets_what_is_for_its_port() {
    for case in [ONE_COMBINED, THREE_COMBINED, THREE_SPLIT] {
        with_echo(case, questions_and_answers);
    }
}

#[test]
fn long_ones_are_put_together_wherever_their_pieces_come() {
    for case in [ONE_COMBINED, THREE_COMBINED, THREE_SPLIT] {
        with_echo(case, || async {
            let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            socket.connect(server(false, 53)).await.unwrap();
            for round in 0..12 {
                let question = pattern(2_000 + round * 3_000, round);
                assert_eq!(socket.send(&question).await.unwrap(), question.len());
                let mut into = vec![0; 60_000];
                let count = socket.recv(&mut into).await.unwrap();
                assert!(into[..count] == question, "round {round}");
            }
        });
    }
}

#[test]
fn a_port_that_nobody_has_is_an_error_of_the_connected_socket() {
    for case in [ONE_COMBINED, THREE_COMBINED] {
        with_echo(case, || async {
            for v6 in [false, true] {
                let any = if v6 { "[::]:0" } else { "0.0.0.0:0" };
                let socket = UdpSocket::bind(any).await.unwrap();
                socket.connect(server(v6, 99)).await.unwrap();
                assert_eq!(socket.peer_addr().unwrap(), server(v6, 99));
                socket.send(b"x").await.unwrap();
                let refused = socket.recv(&mut [0; 8]).await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
                socket.send(b"x").await.unwrap();
                socket.readable().await.unwrap();
                let told = socket.take_error().unwrap().unwrap();
                assert_eq!(told.kind(), ErrorKind::ConnectionRefused);
                assert!(socket.take_error().unwrap().is_none());
            }
        });
    }
}

#[test]
fn what_does_not_wait_says_so() {
    with_echo(ONE_COMBINED, || async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        let mut into = [0; 8];
        let nothing = socket.try_recv(&mut into).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        assert!(socket.readable().now_or_never().is_none());
        let not_connected = socket.try_send(b"x").unwrap_err();
        assert_eq!(not_connected.kind(), ErrorKind::NotConnected);
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = socket.ready(both).await.unwrap();
        assert!(ready.is_writable() && !ready.is_readable());
        assert_eq!(socket.try_send_to(b"abc", server(false, 53)).unwrap(), 3);
        socket.readable().await.unwrap();
        assert_eq!(socket.peek(&mut into).await.unwrap(), 3);
        // What does not fit is lost, as with every datagram socket.
        assert_eq!(socket.try_recv(&mut into[..2]).unwrap(), 2);
        assert!(socket.try_recv(&mut into).is_err());
        let too_long = socket.send_to(&[0; 65_508], server(false, 53)).await;
        assert_eq!(too_long.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

/// Two cores want the same port: the first has it, and it is free when its socket is gone, wherever that was dropped.
#[test]
fn a_port_is_of_the_core_that_bound_it_first() {
    let (near, _far) = wire_for(THREE_COMBINED);
    let builder = THREE_COMBINED
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (bound, first) = channel();
    let first = std::sync::Arc::new(std::sync::Mutex::new(first));
    let running = Running::start(builder.build().unwrap(), move || {
        let (bound, first) = (bound.clone(), first.clone());
        async move {
            match janus::core_id().unwrap() {
                0 => bound.send(UdpSocket::bind("0.0.0.0:53").await?)?,
                1 => {
                    let socket = loop {
                        if let Ok(socket) = first.lock().unwrap().try_recv() {
                            break socket;
                        }
                        janus::yield_now().await;
                    };
                    let taken = UdpSocket::bind("0.0.0.0:53").await.unwrap_err();
                    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
                    let foreign = socket.try_recv(&mut [0]).unwrap_err();
                    assert!(foreign.to_string().contains("another core"));
                    drop(socket);
                    while UdpSocket::bind("0.0.0.0:53").await.is_err() {
                        janus::yield_now().await;
                    }
                }
                _ => {}
            }
            janus::Result::<()>::Ok(())
        }
    });
    running.join().unwrap();
}

#[test]
fn the_portal_has_none_and_says_so() {
    let runtime = ONE_COMBINED.builder().backend(BackendChoice::Portal);
    let running = Running::start(runtime.build().unwrap(), || async {
        let refused = UdpSocket::bind("0.0.0.0:0").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
    });
    running.join().unwrap();
}

#[test]
fn what_is_for_many_is_refused_in_so_many_words() {
    let (near, _far) = wire_for(ONE_COMBINED);
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let running = Running::start(builder.build().unwrap(), || async {
        let socket = UdpSocket::bind("0.0.0.0:5353").await.unwrap();
        let (group, any) = (Ipv4Addr::new(224, 0, 0, 251), Ipv4Addr::UNSPECIFIED);
        let group_v6 = "ff02::fb".parse().unwrap();
        let refused = [
            socket.set_broadcast(true),
            socket.join_multicast_v4(group, any),
            socket.leave_multicast_v4(group, any),
            socket.join_multicast_v6(&group_v6, 0),
            socket.leave_multicast_v6(&group_v6, 0),
        ];
        for refused in refused {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            assert!(refused.to_string().contains("feature `tokio`"), "{refused}");
        }
        assert!(socket.set_broadcast(false).is_ok() && !socket.broadcast().unwrap());
        for to in [
            "255.255.255.255:9",
            "192.0.2.255:9",
            "224.0.0.251:5353",
            "[ff02::fb]:5353",
        ] {
            let refused = socket.send_to(b"to all", to).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{to}");
        }
    });
    running.join().unwrap();
}

/// Pieces are no matter of ports, so what they make is carried to the core of the socket; one that is busy is not buried in it.
#[test]
fn a_busy_core_is_not_sent_more_than_a_socket_holds() {
    const SENT: usize = 60;
    const LEN: usize = 20_000;
    let case = Case {
        cores: 2,
        ..ONE_COMBINED
    };
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (told, heard) = channel();
    let (ready, bound) = channel();
    let (over, all_sent) = channel::<()>();
    let all_sent = std::sync::Arc::new(std::sync::Mutex::new(all_sent));
    let running = Running::start(builder.build().unwrap(), move || {
        let (told, ready, all_sent) = (told.clone(), ready.clone(), all_sent.clone());
        async move {
            if janus::core_id() == Some(1) {
                let socket = UdpSocket::bind("0.0.0.0:53").await?;
                ready.send(())?;
                // Keeps this core until the client has sent everything and the other core has carried what it may.
                let _ = all_sent.lock().unwrap().recv_timeout(PATIENCE);
                let mut taken = 0;
                while timeout(Duration::from_millis(500), socket.recv_datagram())
                    .await
                    .is_ok()
                {
                    taken += 1;
                }
                told.send((taken, janus::report().unwrap().tcp))?;
                return std::future::pending::<janus::Result>().await;
            }
            loop {
                janus::time::sleep(Duration::from_millis(1)).await;
                let tcp = janus::report().unwrap().tcp;
                if tcp.dropped_datagrams_astray > 0 {
                    told.send((0, tcp))?;
                    return std::future::pending::<janus::Result>().await;
                }
            }
        }
    });
    bound.recv_timeout(PATIENCE).unwrap();
    run_client(far, || async {
        let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        for round in 0..SENT {
            socket.writable().await.unwrap();
            let text = pattern(LEN, round);
            let sent = socket.send_to(&text, server(false, 53)).await;
            assert_eq!(sent.unwrap(), LEN);
            janus::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let (_, lost) = heard.recv_timeout(PATIENCE).expect("something is dropped");
    assert!(lost.dropped_datagrams_astray > 0);
    over.send(()).unwrap();
    let (taken, _) = heard.recv_timeout(PATIENCE).expect("the busy core");
    assert!(taken > 0 && taken < SENT, "{taken} of {SENT}");
    running.stop().unwrap();
}
