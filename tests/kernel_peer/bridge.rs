//! The kernel's TCP behind a veth pair whose other end is bridged to our TAP device: two namespaces, one with the peer, one
//! with the bridge. What the peer sends is forwarded, joined as it was sent and with checksums that nobody has filled in yet.

use crate::space::DEVICE;
use crate::support::privileged::run;
use janus::Runtime;
use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The namespace with the bridge. It goes with the value.
pub(crate) struct Bridge {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bridge {
    /// Makes the bridge, with the device of the runtime that `build` gives in it, and a cable from there to this thread's
    /// namespace, where it ends in `device`.
    pub(crate) fn new(
        device: &str,
        build: impl FnOnce() -> Runtime + Send + 'static,
    ) -> Result<(Bridge, Runtime), String> {
        let (over, until) = channel();
        let (built, runtime) = channel();
        let cable = format!(
            "link add cable type veth peer name {device} netns {}",
            gettid().as_raw_nonzero()
        );
        let thread = std::thread::spawn(move || {
            let made = make(&cable, build);
            let failed = made.is_err();
            if built.send(made).is_ok() && !failed {
                wait(&until);
            }
        });
        let bridge = Bridge {
            over: Some(over),
            thread: Some(thread),
        };
        let runtime = runtime.recv().map_err(|_| "no bridge was built")??;
        Ok((bridge, runtime))
    }
}

/// Until the sender is gone.
fn wait(until: &Receiver<()>) {
    let _ = until.recv();
}

fn make(cable: &str, build: impl FnOnce() -> Runtime) -> Result<Runtime, String> {
    // SAFETY: a network namespace shares no memory or descriptors with anything, and this thread opened none.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|errno| format!("no network namespace of its own ({errno}); run as root"))?;
    let ip = |command: &str| run(&format!("ip {command}"));
    ip("link add bridge type bridge")?;
    let runtime = build();
    ip(cable)?;
    for port in [DEVICE, "cable"] {
        ip(&format!("link set {port} master bridge up"))?;
    }
    ip("link set bridge up")?;
    Ok(runtime)
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.over.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
