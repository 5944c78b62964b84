//! One core's main as a task: what it tells the table of listeners by waiting, and the runtime by ending or panicking.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::BoxError;
use crate::shard::here;

/// What a main may return: nothing, or a result.
#[diagnostic::on_unimplemented(
    message = "a main gives nothing or a `Result<(), E>`, not `{Self}`",
    note = "`E` is anything that `?` turns into a boxed error: `janus::Result` is a good choice"
)]
pub trait MainResult {
    /// The error, if it is one.
    fn into_result(self) -> Result<(), BoxError>;
}

impl MainResult for () {
    fn into_result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError>> MainResult for Result<(), E> {
    fn into_result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

/// The future that a core spawns first.
pub(crate) struct MainTask<F> {
    main: Option<Pin<Box<F>>>,
}

impl<F: Future<Output: MainResult>> MainTask<F> {
    pub(crate) fn new(main: F) -> MainTask<F> {
        MainTask {
            main: Some(Box::pin(main)),
        }
    }
}

impl<F: Future<Output: MainResult>> Future for MainTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(main) = &mut self.main else {
            return Poll::Ready(());
        };
        here::with(|here| {
            here.in_main.set(true);
            here.main_in_bind.set(false);
        });
        let polled = catch_unwind(AssertUnwindSafe(|| main.as_mut().poll(cx)));
        let in_bind = here::with(|here| {
            here.in_main.set(false);
            here.main_in_bind.get()
        });
        let result = match polled {
            Ok(Poll::Pending) => {
                here::with(|here| here.control.main_waits(here.core, in_bind == Some(true)));
                return Poll::Pending;
            }
            Ok(Poll::Ready(output)) => output.into_result(),
            Err(panic) => Err(panicked(&*panic)),
        };
        // What main held is closed before its end is known: a listener's port, a stream's connection.
        self.main = None;
        here::with(|here| {
            here.main_over.set(true);
            here.control.main_ended(here.core);
            here.ending.main_ended(result);
        });
        Poll::Ready(())
    }
}

fn panicked(panic: &(dyn Any + Send)) -> BoxError {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let core = here::with(|here| here.core).unwrap_or_default();
    format!(
        "main panicked on core {core}: {}",
        text.unwrap_or("(no message)")
    )
    .into()
}
