//! Descriptors that Janus works with itself. They stand above the numbers that programs choose for themselves (a shell's `3>`, a daemon's
//! 0 to 2), and are known, so that a program that closes every number there is does not close them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

use crate::descriptors::FDS_MAX;
use crate::kernel;
use crate::numbers::Fixed;

/// The lowest number that Janus takes for itself, where the process may have twice as many.
const LEAST: RawFd = 300;

fn least() -> RawFd {
    let limit = getrlimit(Resource::Nofile).current;
    let half = limit.and_then(|limit| RawFd::try_from(limit / 2).ok());
    half.map_or(LEAST, |half| half.min(LEAST))
}

/// A process has one table of descriptors, whatever the number of cores in it.
static OWN: Fixed<{ FDS_MAX / 64 }> = Fixed::none();

/// Whether a descriptor is one that Janus works with.
#[inline]
pub(crate) fn is(fd: RawFd) -> bool {
    OWN.has(fd)
}

/// Held by each test that has descriptors of Janus's own. A program has one Janus, and what another opened while it began would be taken for its.
#[cfg(test)]
pub(crate) static BY_TURNS: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Files that Janus has open for long, and libraries of devices, by the kernel's names for them.
const FILES: [&str; 6] = [
    "/memfd:janus",
    "/dev/net/",
    "/dev/vfio",
    "/dev/hugepages",
    "/run/dpdk",
    "/var/run/dpdk",
];
/// Others that they have open; Janus's are closed on exec.
const OTHERS: [&str; 2] = ["socket:", "anon_inode:"];

/// Whether a descriptor that came [above](above()) all lower ones is Janus's, as far as can be seen. Another thread of the program may have opened it.
pub(crate) fn may_be(fd: RawFd) -> bool {
    let Ok(name) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else {
        return false;
    };
    let name = name.to_string_lossy();
    let is_one_of = |kinds: &[&str]| kinds.iter().any(|kind| name.starts_with(kind));
    fd >= least() && (is_one_of(&FILES) || is_one_of(&OTHERS) && kernel::closes_on_exec(fd))
}

/// Makes a descriptor Janus's, under a high number: the program's own are numbered as if it were not there.
pub fn keep(fd: OwnedFd) -> OwnedFd {
    // From the first moment: another thread of the program may be closing numbers that are not its own.
    note(fd.as_raw_fd());
    let Ok(high) = fcntl_dupfd_cloexec(&fd, least()) else {
        return fd;
    };
    note(high.as_raw_fd());
    forget(fd.as_raw_fd());
    kernel::close(fd);
    high
}

/// [`keep`] for the two ends of a pair.
pub(crate) fn keep_both((one, other): (OwnedFd, OwnedFd)) -> (OwnedFd, OwnedFd) {
    note(other.as_raw_fd());
    (keep(one), keep(other))
}

/// A descriptor of Janus's own that goes under whatever lock.
pub(crate) struct Own(Option<OwnedFd>);

impl Own {
    /// One that is kept.
    pub(crate) fn new(kept: OwnedFd) -> Own {
        Own(Some(kept))
    }
}

impl AsFd for Own {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("there until it is dropped").as_fd()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(fd) = self.0.take().map(OwnedFd::into_raw_fd) else {
            return;
        };
        // In a forked child it was closed, and the number may be another's.
        if is(fd) {
            forget(fd);
            kernel::close_number(fd);
        }
    }
}

/// A descriptor that is Janus's: a program that closes all that it has leaves it.
pub(crate) fn note(fd: RawFd) {
    OWN.add(fd);
}

pub(crate) fn forget(fd: RawFd) {
    OWN.remove(fd);
}

/// The process of which a thread brings Janus to life, and looks which descriptors that has opened; 0: none does. A child that is forked meanwhile has no
/// such thread.
static BEGINS: AtomicU32 = AtomicU32::new(0);
const LOOKS_AGAIN: Duration = Duration::from_micros(200);

/// While it lives, this thread brings it to life.
pub(crate) struct Begins(());

impl Begins {
    pub(crate) fn now() -> Begins {
        BEGINS.store(std::process::id(), Ordering::SeqCst);
        Begins(())
    }
}

impl Drop for Begins {
    fn drop(&mut self) {
        BEGINS.store(0, Ordering::SeqCst);
    }
}

/// The program is given this descriptor.
pub(crate) fn is_the_programs(fd: RawFd) {
    while BEGINS.load(Ordering::SeqCst) == std::process::id() {
        std::thread::sleep(LOOKS_AGAIN);
    }
    forget(fd);
}

/// All of them, in their order.
pub(crate) fn all() -> Vec<RawFd> {
    OWN.all()
}

/// In a forked child: the others are closed. Their owners in memory are of no use there, and are never dropped.
pub(crate) fn close_all_but(kept: &[RawFd]) {
    for fd in all() {
        if !kept.contains(&fd) {
            forget(fd);
            kernel::close_number(fd);
        }
    }
}

/// Calls what opens descriptors while all lower numbers are taken.
pub(crate) fn above<R>(file: &OwnedFd, open: impl FnOnce() -> R) -> R {
    let (mut taken, least) = (Vec::new(), least());
    while let Ok(fd) = fcntl_dupfd_cloexec(file, 0)
        && fd.as_raw_fd() < least
    {
        taken.push(fd);
    }
    let opened = open();
    drop(taken);
    opened
}
