//! Descriptors that are opened while a program runs that knows nothing of them: whoever started all this may want them under numbers that the program does
//! not use.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

type Keep = fn(OwnedFd) -> OwnedFd;

static BY: OnceLock<Keep> = OnceLock::new();

/// Gives each line and each memory that is opened from now on the number that `keep` chooses. The first who says so does.
pub fn keep_descriptors_by(keep: Keep) {
    let _only_once = BY.set(keep);
}

pub(crate) fn kept(fd: OwnedFd) -> OwnedFd {
    match BY.get() {
        Some(keep) => keep(fd),
        None => fd,
    }
}
