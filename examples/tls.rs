//! HTTP/1.1 and HTTP/2 over TLS, by rustls. `cargo run --release --features tls --example tls`, then the printed line. After `--` it
//! takes another address than 0.0.0.0:8443, then two files in PEM: a chain of certificates and its key.
//!
//! Without files it makes a certificate of its own, for trials: a client that is to trust it needs the file that holds it.

use std::convert::Infallible;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use janus::BoxError;
use janus::net::{TcpListener, TcpStream};
use janus::time::timeout;
use janus_http::hyper::RequestBody;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Time for a handshake: a peer that only connects must not keep a connection.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// A certificate's file, and what is made of it: by the core that comes first, for all, so that a session that was begun on
/// one core is resumed on any.
static CONFIG: OnceLock<Result<(PathBuf, Arc<ServerConfig>), String>> = OnceLock::new();

#[janus::main]
async fn main() -> janus::Result<()> {
    let at = std::env::args().nth(1);
    let listener = TcpListener::bind(at.as_deref().unwrap_or("0.0.0.0:8443")).await?;
    let at = listener.reachable_at();
    let made = CONFIG.get_or_init(|| config(at.ip()).map_err(|error| error.to_string()));
    let (file, config) = made.clone()?;
    janus::once(|| println!("curl --cacert {} https://{at}/", file.display()));
    let acceptor = TlsAcceptor::from(config);
    loop {
        let (stream, _) = listener.accept().await?;
        // In the connection's own task, so that a slow handshake holds up no other.
        janus::spawn(serve(stream, acceptor.clone()));
    }
}

/// Serves one connection. An error ends it and no other.
async fn serve(stream: TcpStream, acceptor: TlsAcceptor) -> Result<(), BoxError> {
    let stream = timeout(HANDSHAKE, acceptor.accept(stream)).await??;
    let tls = stream.get_ref().1.protocol_version();
    let service = tower::service_fn(move |request: Request<RequestBody>| async move {
        let (http, core) = (request.version(), janus::core_id());
        let text = format!("hello over {tls:?} and {http:?} from core {core:?}\n");
        Ok::<_, Infallible>(Response::new(text))
    });
    // Which HTTP it is shows in the first bytes. When the runtime ends, what was asked is answered, then TLS and TCP end.
    janus_http::hyper::serve_connection(TokioIo::new(stream), service).await
}

/// The configuration for both versions of HTTP (ALPN: the client says which it knows, ours come in order of preference).
fn config(ip: IpAddr) -> Result<(PathBuf, Arc<ServerConfig>), BoxError> {
    let mut files = std::env::args_os().skip(2).map(PathBuf::from);
    let (file, chain, key) = match (files.next(), files.next()) {
        (Some(chain), Some(key)) => {
            let certificates = CertificateDer::pem_file_iter(&chain)?.collect::<Result<_, _>>()?;
            (chain, certificates, PrivateKeyDer::from_pem_file(key)?)
        }
        _ => own_certificate(ip)?,
    };
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((file, Arc::new(config)))
}

/// A certificate for this address, signed by itself, and a file that holds it. The key is never written.
fn own_certificate(
    ip: IpAddr,
) -> Result<
    (
        PathBuf,
        Vec<CertificateDer<'static>>,
        PrivateKeyDer<'static>,
    ),
    BoxError,
> {
    let own = rcgen::generate_simple_self_signed([ip.to_string(), "localhost".to_owned()])?;
    let file = std::env::temp_dir().join(format!("janus-tls-{}.pem", std::process::id()));
    // Fails if there is such a file, or a link of that name: the folder is everybody's.
    std::fs::File::create_new(&file)?.write_all(own.cert.pem().as_bytes())?;
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der())?;
    Ok((file, vec![own.cert.der().clone()], key))
}
