//! An FTP server with a process for each connection, whose processes make sockets themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::peers;
use crate::world::{PEER, PROGRAM, Sockets, Transcript, World, compare, compare_by};

/// The server connects (`PORT`, `EPRT`), or listens (`PASV`, `EPSV`).
const WAYS: [&[&str]; 4] = [
    &["--ftp-port", PEER],
    &["--ftp-port", PEER, "--disable-eprt"],
    &["--ftp-pasv"],
    &["--ftp-pasv", "--disable-epsv"],
];

fn vsftpd(world: &World) -> Transcript {
    let (root, inbox, empty) = (world.path("ftp"), world.path("ftp/in"), world.path("empty"));
    for folder in [&inbox, &empty] {
        fs::create_dir_all(folder).expect("a temporary directory");
    }
    fs::set_permissions(&inbox, fs::Permissions::from_mode(0o777)).expect("a folder of ours");
    world.file("ftp/big", peers::big());
    let sent = world.file("sent", peers::big());
    let config = world.file(
        "vsftpd.conf",
        format!(
            "listen=YES\nlisten_address={PROGRAM}\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\nanon_root={root}\nwrite_enable=YES\n\
             anon_upload_enable=YES\nsecure_chroot_dir={empty}\nseccomp_sandbox=NO\nconnect_from_port_20=YES\n"
        ),
    );
    let server = world.start(&["vsftpd", &config]);
    peers::answers(21);
    let (url, got) = (format!("ftp://{PROGRAM}/"), world.path("got"));
    let mut said = String::new();
    for (way, number) in WAYS.iter().zip(0..) {
        let ask = |more: &[&str]| {
            let words = [&["curl", "-sS", "--interface", PEER], *way, more].concat();
            world.peer(&words).well()
        };
        said += &ask(&[&format!("{url}big"), "-o", &got]).to_string();
        said += &peers::told("big", &fs::read(&got).expect("what was fetched"));
        said += &ask(&["-T", &sent, &format!("{url}in/{number}")]).to_string();
        let came = fs::read(format!("{inbox}/{number}"));
        said += &peers::told("sent", &came.expect("what was sent"));
        // A session with several transfers, one after the other.
        let (big, none) = (format!("{url}big"), "/dev/null");
        said += &ask(&["-l", &big, "-o", none, &big, "-o", none, &url]).to_string();
    }
    said + &server.terminated().code
}

const NEEDS: [&str; 2] = ["vsftpd -v", "curl --version"];

#[test]
fn vsftpd_whose_sessions_make_sockets() {
    compare(&NEEDS, vsftpd);
}

#[test]
fn vsftpd_with_a_daemon() {
    compare_by(Sockets::Member, &NEEDS, vsftpd);
}
