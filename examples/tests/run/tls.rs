//! The TLS example: both versions of HTTP by what ALPN agreed on, over both cores, with its own certificate and one from files.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::load;
use crate::process::{PATIENCE, Server};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A client's configuration that trusts the certificate in `file` only, and speaks `protocols`.
fn trusting(file: &Path, protocols: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(file).unwrap())
        .unwrap();
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    Arc::new(config)
}

fn connect(server: &Server, config: &Arc<ClientConfig>, name: &str) -> Stream {
    over(server.dial(), config, name)
}

fn over(stream: TcpStream, config: &Arc<ClientConfig>, name: &str) -> Stream {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(config.clone(), name).unwrap();
    StreamOwned::new(connection, stream)
}

/// Asks for a page by HTTP/1.1, and reads until the server has ended TLS as it should.
fn page(stream: &mut Stream) -> String {
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("an end that TLS announced");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    body.to_owned()
}

/// The file that the example says holds its certificate.
fn certificate(server: &Server) -> PathBuf {
    let file = server.said.split(' ').nth(2).expect("a file");
    PathBuf::from(file)
}

#[test]
fn both_versions_of_http_on_both_cores() {
    let server = Server::start("tls", |_| {});
    let file = certificate(&server);
    let config = trusting(&file, &["http/1.1"]);
    let begin = Instant::now();
    let mut pages = HashSet::new();
    while pages.len() < 2 {
        assert!(begin.elapsed() < PATIENCE, "only {pages:?}");
        let mut stream = connect(&server, &config, "localhost");
        pages.insert(page(&mut stream));
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    }
    let expected = [0, 1]
        .map(|core| format!("hello over Some(TLSv1_3) and HTTP/1.1 from core Some({core})\n"));
    assert_eq!(pages, HashSet::from(expected));

    // HTTP/2: the preface and an empty SETTINGS; the server's SETTINGS come first (RFC 9113 section 3.4).
    let mut stream = connect(&server, &trusting(&file, &["http/1.1", "h2"]), "127.0.0.1");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3..], [4, 0, 0, 0, 0, 0], "SETTINGS");
    drop(stream);

    // A client that trusts others only, or knows neither version, gets no further than the handshake.
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(stranger.cert.der().clone()).unwrap();
    let distrusts = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    for config in [Arc::new(distrusts), trusting(&file, &["imap"])] {
        let mut stream = connect(&server, &config, "localhost");
        assert!(stream.write_all(b"GET / HTTP/1.1\r\n\r\n").is_err());
    }
    server.ends_well();
    std::fs::remove_file(file).unwrap();
}

#[test]
fn curl_speaks_http_2() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("skipped: there is no curl");
        return;
    }
    let server = Server::start("tls", |_| {});
    let file = certificate(&server);
    let url = server.said.split(' ').nth(3).expect("a URL");
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--http2",
            "--noproxy",
            "*",
            "--cacert",
        ])
        .args([file.as_os_str(), url.as_ref()])
        .output()
        .unwrap();
    let (page, error) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{error}");
    let page = String::from_utf8(page).unwrap();
    let start = "hello over Some(TLSv1_3) and HTTP/2.0 from core Some(";
    assert!(page.starts_with(start), "{page}");
    server.ends_well();
    std::fs::remove_file(file).unwrap();
}

/// A certificate from files; a client that says nothing is not waited for, and one that was served before the signal is
/// answered after it.
#[test]
fn a_certificate_from_files_and_a_silent_client() {
    let own = rcgen::generate_simple_self_signed(["janus.example".to_owned()]).unwrap();
    let folder = std::env::temp_dir().join(format!("janus-tls-files-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (chain, key) = (folder.join("chain.pem"), folder.join("key.pem"));
    std::fs::write(&chain, own.cert.pem()).unwrap();
    std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    let server = Server::start("tls", |command| {
        command.args([&chain, &key]);
    });
    let begin = Instant::now();
    let mut silent = server.dial();
    let config = trusting(&chain, &[]);
    let mut stream = connect(&server, &config, "janus.example");
    stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0, "it is closed");
    assert!(begin.elapsed() >= Duration::from_secs(3));
    server.terminate();
    while TcpStream::connect(server.at).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "new connections are refused");
    }
    // The kernel refuses first; soon after, connections are told.
    thread::sleep(Duration::from_millis(500));
    stream.write_all(b"host: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.contains("\r\n\r\nhello over"), "{answer}");
    assert_eq!(server.end().code(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}

/// Handshakes that have begun are served, too.
#[test]
fn it_ends_under_load() {
    let server = Server::start("tls", |_| {});
    let file = certificate(&server);
    let config = trusting(&file, &["http/1.1"]);
    let speak = move |stream| over(stream, &config, "localhost");
    load::by_clients_over(server.at, speak, || server.terminate());
    assert_eq!(server.end().code(), Some(0));
    std::fs::remove_file(file).unwrap();
}

#[test]
fn it_ends_under_wrk() {
    if !load::has_wrk() {
        println!("skipped: there is no wrk");
        return;
    }
    let server = Server::start("tls", |_| {});
    load::by_wrk(&format!("https://{}/", server.at), || server.terminate());
    let file = certificate(&server);
    assert_eq!(server.end().code(), Some(0));
    std::fs::remove_file(file).unwrap();
}
