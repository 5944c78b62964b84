//! Signals of the process, as tasks wait for them. Each core may wait for the same one, and all of them hear of it. Who
//! hears, and how a handler comes to tell them, is in `control/signals.rs`.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::process::Signal as Number;

use crate::control::signals::Signals;
use crate::shard::core_context;

/// The names that tokio has these under.
pub mod unix {
    pub use super::{Signal, SignalKind, signal};
}

/// Waits for the next Ctrl-C (SIGINT). From the first call on the process does not end by it any more.
///
/// ```no_run
/// # async fn serve() -> std::io::Result<()> {
/// janus::signal::ctrl_c().await?;
/// janus::handle().unwrap().shutdown(std::time::Duration::from_secs(10));
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`signal`].
///
/// # Cancel safety
/// An interrupt that comes after the future was dropped is lost: the process does not end by it.
/// [`Signal::recv`] loses none.
pub async fn ctrl_c() -> io::Result<()> {
    let mut signal = signal(SignalKind::interrupt())?;
    signal.recv().await;
    Ok(())
}

/// Listens for a signal from now on. For as long as the process lives it does not do what it does by default any more.
///
/// ```no_run
/// use janus::signal::{SignalKind, signal};
///
/// # async fn reload() -> std::io::Result<()> {
/// let mut hangup = signal(SignalKind::hangup())?;
/// while hangup.recv().await.is_some() {
///     println!("the configuration is read again");
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// Where no Janus core runs, and for signals that cannot be caught.
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    let signals =
        core_context::with(|ctx| ctx.shared.signals.clone()).ok_or_else(core_context::no_core)?;
    let listener = signals.listen(kind.0)?;
    Ok(Signal {
        seen: signals.came(kind.0),
        kind,
        listener,
        signals,
    })
}

/// Number of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SignalKind(i32);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $signal:ident,)*) => {
        impl SignalKind {
            $($(#[$doc])* pub const fn $name() -> SignalKind {
                SignalKind(Number::$signal.as_raw())
            })*
        }
    };
}

kinds! {
    /// SIGALRM.
    alarm = ALARM,
    /// SIGCHLD.
    child = CHILD,
    /// SIGHUP: the terminal is gone; by custom, read the configuration again.
    hangup = HUP,
    /// SIGINT: Ctrl-C.
    interrupt = INT,
    /// SIGIO.
    io = IO,
    /// SIGPIPE.
    pipe = PIPE,
    /// SIGQUIT.
    quit = QUIT,
    /// SIGTERM: what ends a service.
    terminate = TERM,
    /// SIGUSR1.
    user_defined1 = USR1,
    /// SIGUSR2.
    user_defined2 = USR2,
    /// SIGWINCH.
    window_change = WINCH,
}

impl SignalKind {
    /// By its number.
    pub const fn from_raw(number: i32) -> SignalKind {
        SignalKind(number)
    }

    /// Its number.
    pub const fn as_raw_value(&self) -> i32 {
        self.0
    }
}

/// See [`signal`]. Signals that arrive while no task waits count as one.
pub struct Signal {
    kind: SignalKind,
    /// How often it had come when it was last told.
    seen: u32,
    listener: u64,
    signals: Arc<Signals>,
}

impl Signal {
    /// Waits until the signal has come since the last time. Never `None`: that is for those who know this call from tokio.
    ///
    /// # Cancel safety
    /// No signal is lost when the future is dropped: the next call returns at once.
    pub async fn recv(&mut self) -> Option<()> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The poll of [`recv`](Signal::recv).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        if self.look() {
            return Poll::Ready(Some(()));
        }
        self.signals.wait(self.listener, cx.waker());
        // It may have come before the waker was there.
        if self.look() {
            self.signals.forget(self.listener);
            return Poll::Ready(Some(()));
        }
        Poll::Pending
    }

    fn look(&mut self) -> bool {
        let came = self.signals.came(self.kind.0);
        std::mem::replace(&mut self.seen, came) != came
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        self.signals.forget(self.listener);
    }
}
