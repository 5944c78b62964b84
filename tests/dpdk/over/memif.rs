//! Two processes, a runtime in each, joined by `net_memif`.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use janus::net::TcpStream;

use super::{Folder, MEGABYTES, ONE_AT_A_TIME, SERVER, build, byte, no_copies, port};
use crate::support::{ONE_COMBINED, PATIENCE, echo, serve_on};

/// Where the second process of `two_processes_over_memif` finds the first one's socket.
const SOCKET: &str = "JANUS_TEST_MEMIF";

fn memif(role: &str, socket: &Path) -> String {
    format!(
        "net_memif0,role={role},socket={},socket-abstract=no,bsize=2048",
        socket.display()
    )
}

#[test]
fn two_processes_over_memif() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = std::env::temp_dir().join(format!("janus-memif-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder = Folder(folder);
    let socket = folder.0.join("wire.sock");
    let builder = ONE_COMBINED
        .builder()
        .address(format!("{SERVER}/24").parse().unwrap());
    let Some(runtime) = build(builder, memif("server", &socket)) else {
        return;
    };
    let (server, _, _) = serve_on(runtime, 7007, echo);
    let mut second = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "over::memif::the_second_process_of_memif",
            "--ignored",
        ])
        .env(SOCKET, &socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + 3 * PATIENCE;
    let status = loop {
        if let Some(status) = second.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            second.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut said = String::new();
    let out = second.stdout.as_mut().unwrap();
    out.read_to_string(&mut said).unwrap();
    assert!(status.success() && said.contains("1 passed"), "{said}");
    let device = port("net_memif0");
    no_copies(&device, ONE_COMBINED, (2 * MEGABYTES) << 20);
    server.stop().unwrap();
}

#[test]
#[ignore = "the other half of `two_processes_over_memif`, which starts it"]
fn the_second_process_of_memif() {
    let Some(socket) = std::env::var_os(SOCKET) else {
        return;
    };
    let builder = ONE_COMBINED
        .builder()
        .address("192.0.2.2/24".parse().unwrap());
    let Some(runtime) = build(builder, memif("client", Path::new(&socket))) else {
        return;
    };
    let device = port("net_memif0");
    assert!(device.status.is_up(), "{:?}", device.status);
    runtime
        .run(|| async {
            let stream = TcpStream::connect((SERVER, 7007)).await?;
            let stream = std::rc::Rc::new(stream);
            let sending = stream.clone();
            let sender = janus::spawn(async move {
                let mut piece = vec![0; 65_536];
                for start in (0..MEGABYTES << 20).step_by(piece.len()) {
                    for (at, place) in piece.iter_mut().enumerate() {
                        *place = byte(start + at);
                    }
                    sending.write_all(&piece).await?;
                }
                sending.shutdown(std::net::Shutdown::Write).await
            });
            let mut got = 0;
            while let Some(piece) = stream.recv().await? {
                let right = piece.iter().zip(got..).all(|(read, at)| *read == byte(at));
                assert!(right, "between bytes {got} and {}", got + piece.len());
                got += piece.len();
            }
            assert_eq!(got, MEGABYTES << 20);
            sender.await.unwrap()?;
            Ok::<(), janus::BoxError>(())
        })
        .unwrap();
    no_copies(&device, ONE_COMBINED, (2 * MEGABYTES) << 20);
}
