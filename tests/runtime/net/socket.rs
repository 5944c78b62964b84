//! A socket's options and local address before it is a connection or a listener.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use janus::BackendChoice;
use janus::net::{TcpListener, TcpSocket, TcpStream};

use super::server_address;
use crate::support::*;

/// A client of one core at the far end, against an echo.
fn with_echo<F: Future<Output = ()> + 'static>(client: fn() -> F) {
    let (near, far) = wire_for(ONE_COMBINED);
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, _) = serve(builder, 80, echo);
    run_clients(far, 1, move |_| client());
    server.stop().unwrap();
}

async fn echoes(stream: &TcpStream) {
    stream.write_all(b"there").await.unwrap();
    let mut got = [0; 5];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"there");
}

#[test]
fn options_hold_from_the_first_segment_on() {
    with_echo(|| async {
        let mut socket = TcpSocket::new_v4().unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_keepalive(true).unwrap();
        socket.set_ttl(7).unwrap();
        socket.set_tos(0x10).unwrap();
        socket.set_recv_buffer_size(10_000).unwrap();
        socket.set_send_buffer_size(20_000).unwrap();
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        assert!(socket.set_linger(Some(Duration::from_secs(1))).is_err());
        socket.options_mut().max_segment = Some(500);
        assert_eq!(socket.recv_buffer_size().unwrap(), 10_000);
        let stream = socket.connect(server_address()).await.unwrap();
        let options = stream.options().unwrap();
        assert!(options.nodelay && options.keepalive && options.reset_on_close);
        assert_eq!((options.ttl, options.tos), (Some(7), 0x10));
        assert_eq!(stream.ttl().unwrap(), 7);
        assert_eq!(stream.linger().unwrap(), Some(Duration::ZERO));
        assert!(stream.nodelay().unwrap());
        let info = stream.info().unwrap();
        assert!(
            info.receive_buffer <= 10_000 && info.receive_mss <= 500,
            "{info:?}"
        );
        echoes(&stream).await;
        stream.set_quickack(true).unwrap();
        assert!(stream.quickack().unwrap());
        stream.set_recv_buffer_size(Some(30_000)).unwrap();
        assert_eq!(stream.options().unwrap().receive_buffer, Some(30_000));
        assert_eq!(
            stream.keepalive().unwrap(),
            Some(Duration::from_secs(7_200))
        );
    });
}

#[test]
fn a_local_port_can_be_chosen_and_is_taken_then() {
    with_echo(|| async {
        let local: SocketAddr = "192.0.2.2:5555".parse().unwrap();
        let open = || async {
            let mut socket = TcpSocket::new_v4()?;
            socket.bind(local)?;
            assert_eq!(socket.local_addr()?, local);
            socket.connect(server_address()).await
        };
        let stream = open().await.unwrap();
        assert_eq!(stream.local_addr().unwrap(), local);
        echoes(&stream).await;
        assert_eq!(open().await.unwrap_err().kind(), ErrorKind::AddrInUse);
    });
}

/// RFC 6056: who gets some connections of ours does not know the ports of the others.
#[test]
fn ports_that_the_stack_chooses_are_in_no_order() {
    with_echo(|| async {
        let mut ports = Vec::new();
        for _ in 0..8 {
            let stream = TcpStream::connect(server_address()).await.unwrap();
            ports.push(stream.local_addr().unwrap().port());
            echoes(&stream).await;
        }
        assert!(ports.iter().all(|&port| port >= 49_152));
        let next = ports
            .windows(2)
            .filter(|two| two[1].wrapping_sub(two[0]) == 1);
        assert!(next.count() < 5, "{ports:?}");
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    with_echo(|| async {
        let mut socket = TcpSocket::new_v4().unwrap();
        let wrong = socket.bind("[::1]:80".parse().unwrap()).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
        let socket = TcpSocket::new_v6().unwrap();
        let wrong = socket.connect(server_address()).await.unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
        let mut socket = TcpSocket::new_v4().unwrap();
        socket.bind("198.51.100.7:80".parse().unwrap()).unwrap();
        let not_ours = socket.clone().connect(server_address()).await.unwrap_err();
        assert_eq!(not_ours.kind(), ErrorKind::AddrNotAvailable);
        let not_ours = socket.listen(8).await.err().unwrap();
        assert_eq!(not_ours.kind(), ErrorKind::AddrNotAvailable);
        let mut socket = TcpSocket::new_v4().unwrap();
        socket.set_ttl(0).unwrap();
        let wrong = socket.connect(server_address()).await.unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
    });
}

/// Behind the portal, where nobody would come to any other address.
#[test]
fn behind_the_portal_listeners_are_on_loopback_or_everywhere() {
    let runtime = ONE_COMBINED.builder().backend(BackendChoice::Portal);
    let running = Running::start(runtime.build().unwrap(), || async {
        for there in ["127.0.0.1:0", "0.0.0.0:0"] {
            TcpListener::bind(there).await.unwrap();
        }
        for elsewhere in ["127.0.0.2:0", "192.0.2.1:0", "[2001:db8::1]:0"] {
            let refused = TcpListener::bind(elsewhere).await.err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::AddrNotAvailable);
            assert!(refused.to_string().contains("bind 127.0.0.1"), "{refused}");
        }
    });
    running.join().unwrap();
}

#[test]
fn a_listener_has_its_backlog_and_gives_its_options_on() {
    let (near, far) = wire_for(ONE_COMBINED);
    let runtime = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (ready, listens) = std::sync::mpsc::channel();
    let server = Running::start(runtime.build().unwrap(), move || {
        let ready = ready.clone();
        async move {
            let mut socket = TcpSocket::new_v4()?;
            socket.bind("0.0.0.0:80".parse()?)?;
            socket.set_nodelay(true)?;
            socket.set_ttl(33)?;
            let listener: TcpListener = socket.listen(17).await?;
            assert_eq!(listener.backlog()?, 17);
            assert_eq!(listener.ttl()?, 33);
            listener.set_backlog(19)?;
            assert_eq!(listener.backlog()?, 19);
            ready.send(())?;
            let (stream, _) = listener.accept().await?;
            assert!(stream.nodelay()?);
            assert_eq!(stream.ttl()?, 33);
            // The port is this listener's.
            assert!(TcpListener::bind("0.0.0.0:80").await.is_err());
            drop(listener);
            let again = TcpListener::bind("0.0.0.0:80").await?;
            stream.write_all(b"y").await?;
            stream.read(&mut [0]).await?;
            drop(again);
            janus::Result::<()>::Ok(())
        }
    });
    listens.recv_timeout(PATIENCE).expect("it listens");
    run_clients(far, 1, |_| async {
        let stream = TcpStream::connect(server_address()).await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
    });
    server.join().unwrap();
}
