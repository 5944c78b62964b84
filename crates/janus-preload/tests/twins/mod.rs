//! Two processes that do the same: one with the library in front of libc and loopback Janus's, one without.

use std::env;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;

/// Cargo builds it for these tests, beside them.
pub(crate) fn library() -> PathBuf {
    let own = env::current_exe().expect("a path");
    own.with_file_name("libjanus_preload.so")
}

/// This program once more.
pub(crate) fn twin(preloaded: bool) -> Command {
    let mut command = Command::new(env::current_exe().expect("a path"));
    if preloaded {
        command
            .env("LD_PRELOAD", library())
            .env("JANUS_BACKEND", "none")
            .env("JANUS_PROGRAM_OURS", "any");
    }
    command
}

/// Whether this process is the twin that it should be, by a call that goes past libc: what stands for a socket of Janus's is one of
/// another family.
pub(crate) fn is_itself() -> bool {
    // SAFETY: the call takes numbers; what it gives is nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0)) };
    // Janus begins with that.
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::listen(fd.as_raw_fd(), 1) }, 0);
    let domain = rustix::net::sockopt::socket_domain(&fd).expect("a socket");
    // SAFETY: it is open, and closed by libc, which made it.
    unsafe { libc::close(fd.into_raw_fd()) };
    let is_kernels = domain == rustix::net::AddressFamily::INET;
    is_kernels == env::var_os("LD_PRELOAD").is_none()
}

/// The first step at which two transcripts of a plan differ.
pub(crate) fn first(theirs: &str, ours: &str) -> Option<(usize, String, String)> {
    let pairs = theirs.split(" | ").zip(ours.split(" | ")).enumerate();
    let mut differing = pairs.filter(|(_, (theirs, ours))| theirs != ours);
    differing
        .next()
        .map(|(at, (theirs, ours))| (at, theirs.to_owned(), ours.to_owned()))
}
