//! The service as hyper calls it: each request is in hand until its answer is complete, its body keeps the time limits, and answers carry
//! `connection: close` while the runtime ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use ::hyper::body::{Body, Incoming};
use ::hyper::header::{CONNECTION, HeaderValue};
use ::hyper::{Method, Request, Response, StatusCode, Version};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::{RequestBody, ResponseBody};
use super::outgoing::Outgoing;
use super::watch::{InHand, Watch};

/// A service on a connection.
#[derive(Clone)]
pub(super) struct Watched<S> {
    pub(super) service: S,
    pub(super) watch: Arc<Watch>,
}

impl<S, B> Service<Request<Incoming>> for Watched<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = Answer<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Incoming>) -> Answer<S::Future> {
        // HTTP/2 has frames of its own for the end.
        let in_the_head = request.version() <= Version::HTTP_11;
        let in_hand = self.watch.begin(!in_the_head);
        let connects = request.method() == Method::CONNECT;
        let late = Arc::new(AtomicBool::new(false));
        let watch = &self.watch;
        let outgoing = (!in_the_head).then(|| watch.gives_outgoing());
        let request =
            request.map(|incoming| RequestBody::new(incoming, watch.clone(), late.clone()));
        Answer {
            answer: self.service.call(request),
            in_hand: Some(in_hand),
            in_the_head,
            connects,
            late,
            outgoing,
        }
    }
}

pin_project! {
    pub(super) struct Answer<F> {
        #[pin]
        answer: F,
        in_hand: Option<InHand>,
        in_the_head: bool,
        connects: bool,
        // Whether the request's body exceeded its time limit.
        late: Arc<AtomicBool>,
        outgoing: Option<Arc<Outgoing>>,
    }
}

impl<F, B, E> Future for Answer<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.answer.poll(cx));
        let Some(in_hand) = this.in_hand.take() else {
            return Poll::Pending;
        };
        let late = this.late.load(Relaxed);
        let failed = |status: StatusCode| status.is_client_error() || status.is_server_error();
        let mut response = match answer {
            Ok(response) if !(late && failed(response.status())) => {
                let status = response.status();
                if status == StatusCode::SWITCHING_PROTOCOLS
                    || *this.connects && status.is_success()
                {
                    in_hand.watch().release();
                }
                let outgoing = this.outgoing.take();
                response.map(|body| ResponseBody::new(Some(body), in_hand, outgoing))
            }
            Err(error) if !late => return Poll::Ready(Err(error)),
            Ok(_) | Err(_) => {
                let mut response = Response::new(ResponseBody::new(None, in_hand, None));
                *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
                response
            }
        };
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if *this.in_the_head && !switches && (late || janus::is_shutting_down()) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        Poll::Ready(Ok(response))
    }
}
