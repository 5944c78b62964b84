//! One core's main as a task: what it tells the table of listeners by waiting, and the runtime by ending or panicking.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll};

use super::BoxError;
use crate::shard::core_context;
use crate::warning::{GET_TOKIO, wants_tokio, words_of};

/// Return values of a main: nothing, or a result.
#[diagnostic::on_unimplemented(
    message = "a main gives nothing or a `Result<(), E>`, not `{Self}`",
    note = "`E` is anything that `?` turns into a boxed error: `janus::Result` is a good choice"
)]
pub trait MainResult {
    /// The error, if it is one.
    ///
    /// # Errors
    /// The error that main returned.
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

/// How `#[janus::main]` ends the program: an error is told in its own words, and what caused it below, not as the fields it has.
#[doc(hidden)]
pub fn exit_code(result: Result<(), BoxError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {}", in_words(&*error));
            ExitCode::FAILURE
        }
    }
}

fn in_words(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        // Some errors say their cause in their own words already.
        if !text.contains(&why) {
            text.push_str("\n  because: ");
            text.push_str(&why);
        }
        cause = error.source();
    }
    text
}

/// The future that a core spawns first.
pub(crate) struct MainTask<F> {
    main: Option<Pin<Box<F>>>,
    /// The table of listeners knows that it has bound what it binds at its start, and need not hear of it again: the table is
    /// all cores', behind a lock.
    settled: bool,
}

impl<F: Future<Output: MainResult>> MainTask<F> {
    pub(crate) fn new(main: F) -> MainTask<F> {
        MainTask {
            main: Some(Box::pin(main)),
            settled: false,
        }
    }
}

impl<F: Future<Output: MainResult>> Future for MainTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(main) = &mut self.main else {
            return Poll::Ready(());
        };
        core_context::with(|ctx| {
            ctx.in_main.set(true);
            ctx.main_in_bind.set(false);
        });
        let polled = catch_unwind(AssertUnwindSafe(|| main.as_mut().poll(cx)));
        let in_bind = core_context::with(|ctx| {
            ctx.in_main.set(false);
            ctx.main_in_bind.get()
        });
        let result = match polled {
            Ok(Poll::Pending) => {
                if !self.settled {
                    let in_bind = in_bind == Some(true);
                    core_context::with(|ctx| ctx.shared.control.main_waits(ctx.core, in_bind));
                    self.settled = !in_bind;
                }
                return Poll::Pending;
            }
            Ok(Poll::Ready(output)) => output.into_result(),
            Err(panic) => Err(panicked(&*panic)),
        };
        // What main held is closed before its end is known: a listener's port, a stream's connection.
        self.main = None;
        core_context::with(|ctx| {
            ctx.main_over.set(true);
            ctx.shared.control.main_ended(ctx.core);
            ctx.shared.ending.main_ended(result);
        });
        Poll::Ready(())
    }
}

fn panicked(panic: &(dyn Any + Send)) -> BoxError {
    let core = core_context::with(|ctx| ctx.core).unwrap_or_default();
    let hint = match wants_tokio(panic) {
        true => format!("\n  {GET_TOKIO}"),
        false => String::new(),
    };
    let text = words_of(panic).unwrap_or("(no message)");
    format!("main panicked on core {core}: {text}{hint}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;
    use std::io;

    #[derive(Debug)]
    struct Outer(io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("no page today")
        }
    }

    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn an_error_is_told_in_words_with_its_cause() {
        let plain = io::Error::new(io::ErrorKind::AddrInUse, "port 80 is taken");
        assert_eq!(in_words(&plain), "port 80 is taken");
        assert_eq!(
            in_words(&Outer(plain)),
            "no page today\n  because: port 80 is taken"
        );
    }
}
