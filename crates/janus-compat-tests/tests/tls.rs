//! rustls, by tokio-rustls with ring: over Janus's streams on both sides, and against a client over the kernel's.

use std::net::SocketAddr;
use std::sync::Arc;

use janus::net::{TcpListener, TcpStream};
use janus_compat_tests::{Running, over_a_wire, portal, told};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const NAME: &str = "janus.example";
const BYTES: usize = 1 << 20;

/// A certificate of its own for [`NAME`], and who trusts it.
fn ends() -> (TlsAcceptor, TlsConnector) {
    let own = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let certificate = own.cert.der().clone();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server).into(), Arc::new(client).into())
}

/// Sends back what it gets, until the peer says that this was all.
async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = acceptor.clone();
        let echo = async move {
            let stream = acceptor.accept(stream).await.unwrap();
            let (mut reading, mut writing) = tokio::io::split(stream);
            tokio::io::copy(&mut reading, &mut writing).await.unwrap();
            writing.shutdown().await.unwrap();
        };
        tokio::spawn(echo);
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(connector: TlsConnector, stream: S) {
    let name = ServerName::try_from(NAME).unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    let (mut reading, mut writing) = tokio::io::split(stream);
    let sent: Vec<u8> = (0..BYTES).map(|i| (i * 7 % 251) as u8).collect();
    let mut got = Vec::new();
    tokio::join!(
        async {
            writing.write_all(&sent).await.unwrap();
            writing.shutdown().await.unwrap();
        },
        async { reading.read_to_end(&mut got).await.unwrap() },
    );
    assert!(got == sent);
}

#[test]
fn over_our_streams_on_both_sides() {
    let (acceptor, connector) = ends();
    let serve = move |listener| serve(listener, acceptor.clone());
    over_a_wire(1, serve, move |address| {
        let connector = connector.clone();
        async move {
            for _ in 0..3 {
                let stream = TcpStream::connect(address).await.unwrap();
                talk(connector.clone(), stream).await;
            }
        }
    });
}

#[test]
fn with_a_client_over_the_kernels() {
    let (acceptor, connector) = ends();
    let (tell, address) = told::<SocketAddr>();
    let server = Running::start(portal(2), move || {
        let (tell, acceptor) = (tell.clone(), acceptor.clone());
        async move {
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            janus::once(|| tell.send(listener.reachable_at()).unwrap());
            serve(listener, acceptor).await;
            Ok::<(), janus::BoxError>(())
        }
    });
    let address = address.next();
    let client = Running::start(portal(1), move || {
        let connector = connector.clone();
        async move {
            let talks = (0..4).map(|_| {
                let connector = connector.clone();
                tokio::spawn(async move {
                    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
                    talk(connector, stream).await;
                })
            });
            for talk in talks.collect::<Vec<_>>() {
                talk.await.unwrap();
            }
        }
    });
    client.join();
    server.stop();
}
