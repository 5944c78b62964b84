//! hyper's runtime traits, besides those of streams (which implement hyper's `Read` and `Write` themselves): an executor and a timer.
//!
//! ```
//! # async fn example(stream: janus::net::TcpStream) -> Result<(), hyper::Error> {
//! use hyper::service::service_fn;
//! use janus::compat::hyper::Timer;
//!
//! let hello = service_fn(async |_request| {
//!     Ok::<_, std::convert::Infallible>(hyper::Response::new(String::from("hello")))
//! });
//! hyper::server::conn::http1::Builder::new()
//!     .timer(Timer)
//!     .serve_connection(stream, hello)
//!     .await
//! # }
//! ```

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Runs hyper's tasks on the core that spawns them. They need not be `Send`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl<F: Future + 'static> hyper::rt::Executor<F> for Executor {
    fn execute(&self, future: F) {
        crate::task::spawn(future);
    }
}

/// Gives hyper this core's timers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep(crate::time::sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(sleep) => {
                let duration = deadline.saturating_duration_since(Instant::now());
                sleep.get_mut().0 = crate::time::sleep(duration);
            }
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// A timer as hyper holds it: polled on another core, it is armed there.
struct Sleep(crate::time::Sleep);

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl hyper::rt::Sleep for Sleep {}
