//! The end of a server that hyper serves: as in [`serve`](crate::serve()), a connection over which nothing goes is kept for the request
//! that may be on its way, and answers say that they are the last ones.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use ::hyper::header::{CONNECTION, HeaderValue};
use ::hyper::{Request, Response, StatusCode, Version};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::serve::LAST_REQUEST;

/// Drives `connection` to its end, which `close` brings about in order when the runtime ends.
pub(super) async fn to_the_end<C: Future>(connection: C, close: impl Fn(Pin<&mut C>)) -> C::Output {
    let mut connection = pin!(connection);
    let mut ends = pin!(async {
        janus::shutting_down().await;
        janus::time::sleep(LAST_REQUEST).await;
    });
    let mut closed = false;
    std::future::poll_fn(|cx| {
        if !closed && ends.as_mut().poll(cx).is_ready() {
            closed = true;
            close(connection.as_mut());
        }
        connection.as_mut().poll(cx)
    })
    .await
}

/// A service whose answers say `connection: close` while the runtime ends.
#[derive(Clone)]
pub(super) struct Leaving<S>(pub(super) S);

impl<S, Q, B> Service<Request<Q>> for Leaving<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Answer<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Answer<S::Future> {
        // HTTP/2 has a frame of its own for that.
        let in_the_head = request.version() <= Version::HTTP_11;
        Answer {
            answer: self.0.call(request),
            in_the_head,
        }
    }
}

pin_project! {
    pub(super) struct Answer<F> {
        #[pin]
        answer: F,
        in_the_head: bool,
    }
}

impl<F, B, E> Future for Answer<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let mut response = ready!(this.answer.poll(cx))?;
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if *this.in_the_head && !switches && janus::is_shutting_down() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        Poll::Ready(Ok(response))
    }
}
