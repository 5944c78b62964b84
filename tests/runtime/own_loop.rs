//! Connections and datagrams from our own addresses to our own addresses, in every layout: none of their packets gets to the wire, which
//! has nobody on its other end, or a client that must not wait for them.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;
use janus::net::{TcpListener, TcpStream, UdpSocket};
use janus::time::timeout;
use janus::{BackendChoice, Builder, Placement};
use janus_io::wire;
use janus_wire::Link;

in_every_layout!(
    bulk_comes_back_in,
    many_connections_at_once,
    where_nobody_listens_it_is_refused,
    one_core_listens,
    hours_pass_between_words,
    datagrams_find_their_core,
    a_client_outside_is_served_meanwhile,
);

const FOUR_COMBINED: Case = Case {
    cores: 4,
    placement: Placement::Combined,
};
const FOUR_SPLIT: Case = Case {
    cores: 4,
    placement: Placement::Split { io_cores: 1 },
};

#[test]
fn four_cores_talk_to_each_other() {
    for case in [FOUR_COMBINED, FOUR_SPLIT] {
        bulk_comes_back_in(case);
        many_connections_at_once(case);
    }
}

const OWN: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// Sooner than the first repeat of a SYN and its answer.
const AT_ONCE: Duration = Duration::from_millis(900);

fn at(own: &str, port: u16) -> SocketAddr {
    SocketAddr::new(own.parse().unwrap(), port)
}

/// The plan of a runtime on a wire of this kind, which has our addresses, and the wire's other end.
fn alone_on(case: Case, link: Link) -> (Builder, wire::End) {
    let config = wire::Config {
        link,
        queues: [case.queues(), 1],
        depth: 2048,
        ..wire::Config::default()
    };
    let (near, far) = wire::pair(config).unwrap();
    let builder = case.builder().backend(BackendChoice::wire(near));
    let builder = builder
        .address("192.0.2.1/24".parse().unwrap())
        .address("2001:db8::1/64".parse().unwrap());
    (builder, far)
}

/// Runs `client` on every core while every core listens on port 80 and echoes. What has been handed to the device by then is none of it.
fn run<C, F>(case: Case, link: Link, client: C)
where
    C: Fn() -> F + Send + Sync + Copy + 'static,
    F: Future<Output = io::Result<()>> + 'static,
{
    let (builder, _far) = alone_on(case, link);
    run_as(case, builder, client);
}

/// [`run`] as the builder says.
fn run_as<C, F>(case: Case, builder: Builder, client: C)
where
    C: Fn() -> F + Send + Sync + Copy + 'static,
    F: Future<Output = io::Result<()>> + 'static,
{
    let runtime = builder.build().unwrap();
    let left = Arc::new(AtomicUsize::new(case.cores));
    let running = Running::start(runtime, move || {
        let left = left.clone();
        async move {
            let listener = TcpListener::bind("[::]:80").await?;
            janus::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    janus::spawn(echo(stream));
                }
            });
            client().await?;
            let report = janus::report().expect("this is a core");
            assert!(report.tcp.looped > 0 && report.tcp.frames_out == 0);
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                janus::handle().unwrap().stop();
            }
            std::future::pending::<io::Result<()>>().await
        }
    });
    running.join().unwrap();
}

/// Sends `bytes` to where they are echoed, and compares.
async fn echoed(to: SocketAddr, bytes: Vec<u8>) -> io::Result<()> {
    let stream = Rc::new(TcpStream::connect(to).await?);
    assert_eq!(stream.local_addr()?.ip(), to.ip());
    let (writer, sent) = (stream.clone(), bytes.clone());
    let writing = janus::spawn(async move {
        writer.write_all(&sent).await?;
        writer.shutdown(Shutdown::Write).await
    });
    let mut got = Vec::new();
    while let Some(piece) = stream.recv().await? {
        got.extend_from_slice(&piece);
    }
    assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
    writing.await?
}

fn bulk_comes_back_in(case: Case) {
    for link in [Link::Ip, Link::Ethernet] {
        run(case, link, || async {
            let core = janus::core_id().unwrap();
            for own in OWN {
                echoed(at(own, 80), pattern(1 << 20, core)).await?;
            }
            Ok(())
        });
    }
}

fn many_connections_at_once(case: Case) {
    const CONNECTIONS: usize = 200;
    run(case, Link::Ethernet, || async {
        let each = |index| echoed(at(OWN[index % 2], 80), pattern(3_000 + index, index));
        let all: Vec<_> = (0..CONNECTIONS).map(|i| janus::spawn(each(i))).collect();
        for one in all {
            one.await??;
        }
        Ok(())
    });
}

fn where_nobody_listens_it_is_refused(case: Case) {
    run(case, Link::Ethernet, || async {
        for own in OWN {
            let connected = timeout(AT_ONCE, TcpStream::connect(at(own, 81))).await;
            let error = connected.expect("at once").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        Ok(())
    });
}

/// From every core to the last one, which alone has the port, with listeners that come while others connect.
fn one_core_listens(case: Case) {
    run(case, Link::Ip, || async {
        let cores = janus::cores().unwrap();
        if janus::core_id() == Some(cores - 1) {
            let listener = TcpListener::bind((OWN[0], 90)).await?;
            janus::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    janus::spawn(echo(stream));
                }
            });
        }
        for round in 0..20 {
            // Until it listens.
            while let Err(error) = echoed(at(OWN[0], 90), pattern(5_000, round)).await {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                janus::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(())
    });
}

/// Cores sleep, and the clock jumps, while nothing is under way, and only then: no word has to be sent twice.
fn hours_pass_between_words(case: Case) {
    let (builder, _far) = alone_on(case, Link::Ethernet);
    run_as(case, builder.start_paused(true), || async {
        let begin = janus::time::now();
        for own in OWN {
            let stream = TcpStream::connect(at(own, 80)).await?;
            for word in 0..20 {
                let sent = pattern(6_000, word);
                stream.write_all(&sent).await?;
                let mut got = vec![0; sent.len()];
                stream.read_exact(&mut got).await?;
                assert!(got == sent);
                janus::time::sleep(Duration::from_secs(3_600)).await;
            }
        }
        let passed = janus::time::now().saturating_since(begin);
        assert!(passed >= Duration::from_secs(40 * 3_600));
        let report = janus::report().expect("this is a core");
        assert_eq!((report.tcp.timeouts, report.tcp.tail_probes), (0, 0));
        Ok(())
    });
}

fn datagrams_find_their_core(case: Case) {
    run(case, Link::Ethernet, || async {
        let (core, cores) = (janus::core_id().unwrap(), janus::cores().unwrap());
        let port = |core: usize| 5_300 + core as u16;
        let answers = UdpSocket::bind(("::", port(core))).await?;
        janus::spawn(async move {
            let mut bytes = [0; 8_192];
            while let Ok((len, from)) = answers.recv_from(&mut bytes).await {
                let _ = answers.send_to(&bytes[..len], from).await;
            }
        });
        let asks = UdpSocket::bind("[::]:0").await?;
        for (other, own) in (0..cores).flat_map(|core| OWN.map(|own| (core, own))) {
            // One is longer than a packet.
            for len in [20, 5_000] {
                let (sent, mut got) = (pattern(len, other), [0; 8_192]);
                loop {
                    asks.send_to(&sent, at(own, port(other))).await?;
                    // Again, where it has not been bound yet; an answer may be to a question before this one.
                    let answer = timeout(Duration::from_millis(50), asks.recv_from(&mut got));
                    if let Ok(Ok((len, from))) = answer.await
                        && (from, &got[..len]) == (at(own, port(other)), &sent[..])
                    {
                        break;
                    }
                }
            }
        }
        Ok(())
    });
}

/// Every core is busy with itself, and its device is not forgotten.
fn a_client_outside_is_served_meanwhile(case: Case) {
    const CONNECTIONS: usize = 40;
    let (builder, far) = alone_on(case, Link::Ip);
    let runtime = builder.build().unwrap();
    let (over, bulks) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let (ends, carried) = (over.clone(), bulks.clone());
    let server = Running::start(runtime, move || {
        let (over, bulks) = (over.clone(), bulks.clone());
        async move {
            let listener = TcpListener::bind("[::]:80").await?;
            janus::spawn(async move {
                for round in 0.. {
                    let bulk = echoed(at(OWN[0], 80), pattern(1 << 20, round)).await;
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    bulk.expect("it is echoed");
                    bulks.fetch_add(1, Ordering::Relaxed);
                }
            });
            loop {
                let (stream, _) = listener.accept().await?;
                janus::spawn(echo(stream));
            }
            #[allow(unreachable_code)]
            io::Result::Ok(())
        }
    });
    let begin = Instant::now();
    while carried.load(Ordering::Relaxed) == 0 {
        assert!(begin.elapsed() < PATIENCE, "nothing is echoed");
        std::thread::sleep(Duration::from_millis(1));
    }
    run_clients(far, CONNECTIONS, |index| async move {
        let stream = TcpStream::connect(at(OWN[0], 80)).await.unwrap();
        let sent = pattern(3_000, index);
        stream.write_all(&sent).await.unwrap();
        let mut got = vec![0; sent.len()];
        stream.read_exact(&mut got).await.unwrap();
        assert!(got == sent);
    });
    ends.store(true, Ordering::Relaxed);
    server.stop().unwrap();
}
