//! Time limits of tower services by Janus's timers: tower's own need tokio's.
//!
//! ```
//! use std::time::Duration;
//!
//! use janus::compat::tower::TimeoutLayer;
//! use tower_layer::Layer;
//!
//! # fn example<S>(service: S) {
//! let bounded = TimeoutLayer::new(Duration::from_secs(5)).layer(service);
//! # }
//! ```

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::control::BoxError;
use crate::time::{Elapsed, Sleep, sleep};

/// Puts a [`Timeout`] around a service.
#[derive(Clone, Copy, Debug)]
pub struct TimeoutLayer {
    after: Duration,
}

impl TimeoutLayer {
    /// Limits each call to `after`.
    #[must_use]
    pub fn new(after: Duration) -> TimeoutLayer {
        TimeoutLayer { after }
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Timeout<S> {
        Timeout::new(inner, self.after)
    }
}

/// A service whose calls end with [`Elapsed`] when they take longer than the limit; the inner service's future is dropped then.
#[derive(Clone, Copy, Debug)]
pub struct Timeout<S> {
    inner: S,
    after: Duration,
}

impl<S> Timeout<S> {
    /// Limits each call of `inner` to `after`.
    pub fn new(inner: S, after: Duration) -> Timeout<S> {
        Timeout { inner, after }
    }
}

impl<S, Request> Service<Request> for Timeout<S>
where
    S: Service<Request, Error: Into<BoxError>>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ResponseFuture {
            inner: self.inner.call(request),
            sleep: sleep(self.after),
        }
    }
}

pin_project! {
    /// See [`Timeout`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<F> {
        #[pin]
        inner: F,
        sleep: Sleep,
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<R, E>>,
    E: Into<BoxError>,
{
    type Output = Result<R, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(answer) = this.inner.poll(cx) {
            return Poll::Ready(answer.map_err(Into::into));
        }
        Pin::new(this.sleep).poll(cx).map(|()| Err(Elapsed.into()))
    }
}
