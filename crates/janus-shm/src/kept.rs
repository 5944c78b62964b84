//! Descriptors that are opened while a program runs that knows nothing of them: whoever started all this may want them under numbers that the program does
//! not use, and knows them until they are closed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;

struct Keeper {
    keep: fn(OwnedFd) -> OwnedFd,
    forget: fn(RawFd),
}

static BY: OnceLock<Keeper> = OnceLock::new();

/// Gives each line and each memory that is opened from now on the number that `keep` chooses, and tells `forget` of it before it is closed. The first who
/// says so does.
pub fn keep_descriptors_by(keep: fn(OwnedFd) -> OwnedFd, forget: fn(RawFd)) {
    let _only_once = BY.set(Keeper { keep, forget });
}

/// One that is kept.
#[derive(Debug)]
pub(crate) struct Kept(OwnedFd);

impl Kept {
    pub(crate) fn new(fd: OwnedFd) -> Kept {
        match BY.get() {
            Some(by) => Kept((by.keep)(fd)),
            None => Kept(fd),
        }
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Before: the number may be the program's a moment later.
        if let Some(by) = BY.get() {
            (by.forget)(self.0.as_raw_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn one_that_is_closed_is_forgotten() {
        static FORGOTTEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
        keep_descriptors_by(|fd| fd, |fd| FORGOTTEN.lock().unwrap().push(fd));
        let kept = Kept::new(std::fs::File::open("/dev/null").unwrap().into());
        let number = kept.as_fd().as_raw_fd();
        drop(kept);
        assert!(FORGOTTEN.lock().unwrap().contains(&number));
    }
}
