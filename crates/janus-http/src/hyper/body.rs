//! Bodies of hyper's messages. A request's has a limit on how slowly it may come; a response's reports when its request is no longer in
//! hand.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use ::hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use janus::BoxError;
use janus::time::{Duration, Instant, Sleep, now, sleep};
use pin_project_lite::pin_project;

use super::outgoing::{Counted, Outgoing};
use super::watch::{InHand, Watch};
use crate::pace::Pace;
use crate::{Error, Reject};

/// The body of a request, within [`Options`](crate::Options)'s limits on a slow sender. Beyond them it ends with [`Reject::BodyTimeout`]
/// in an [`Error`]; a service that then returns an error, or an error's status, is taken to answer 408.
pub struct RequestBody {
    incoming: Incoming,
    pace: Pace,
    /// Start of a reader's wait, and the timer for it.
    wait: Option<(Instant, Sleep)>,
    watch: Arc<Watch>,
    late: Arc<AtomicBool>,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, watch: Arc<Watch>, late: Arc<AtomicBool>) -> RequestBody {
        RequestBody {
            incoming,
            pace: Pace::new(watch.options()),
            wait: None,
            watch,
            late,
        }
    }

    /// Waits for the next frame, as long as the sender's pace allows.
    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        // The bytes of a tunnel are not a body.
        if self.watch.is_released() {
            return Poll::Pending;
        }
        let Some(patience) = self.pace.patience() else {
            return Poll::Pending;
        };
        let (_, timer) = self.wait.get_or_insert_with(|| (now(), sleep(patience)));
        ready!(Pin::new(timer).poll(cx));
        self.late.store(true, Relaxed);
        Poll::Ready(Reject::BodyTimeout.into())
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.late.load(Relaxed) {
            return Poll::Ready(None);
        }
        let Poll::Ready(frame) = Pin::new(&mut this.incoming).poll_frame(cx) else {
            let late = ready!(this.poll_wait(cx));
            return Poll::Ready(Some(Err(late.into())));
        };
        let waited = match this.wait.take() {
            Some((since, _)) => now().saturating_since(since),
            None => Duration::ZERO,
        };
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            this.pace.received(bytes, waited);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

pin_project! {
    /// A response's body, or none for an answer that does not come from the service.
    pub(super) struct ResponseBody<B: Body> {
        #[pin]
        body: Option<B>,
        in_hand: InHand,
        outgoing: Option<Arc<Outgoing>>,
        // The body's end, until the peer has taken what comes before.
        end: Option<End<B>>,
    }
}

/// The trailers, if there are any.
type End<B> = Option<Result<Frame<Counted<<B as Body>::Data>>, <B as Body>::Error>>;

impl<B: Body> ResponseBody<B> {
    /// `outgoing` is a stream's of HTTP/2.
    pub(super) fn new(
        body: Option<B>,
        in_hand: InHand,
        outgoing: Option<Arc<Outgoing>>,
    ) -> ResponseBody<B> {
        ResponseBody {
            body,
            in_hand,
            outgoing,
            end: None,
        }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = Counted<B::Data>;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Counted<B::Data>>, B::Error>>> {
        let this = self.project();
        let Some(body) = this.body.as_pin_mut() else {
            return Poll::Ready(None);
        };
        if this.end.is_none() {
            let frame = ready!(body.poll_frame(cx));
            let outgoing = this.outgoing.as_ref();
            let frame = frame.map(|frame| {
                frame.map(|frame| frame.map_data(|data| Counted::new(data, outgoing.cloned())))
            });
            if matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
                return Poll::Ready(frame);
            }
            *this.end = Some(frame);
        }
        // Else what the peer has not taken would be left to the connection, where nothing can reset this stream.
        if let Some(outgoing) = this.outgoing {
            ready!(outgoing.poll_taken(cx));
        }
        Poll::Ready(this.end.take().flatten())
    }

    fn is_end_stream(&self) -> bool {
        let behind = self.outgoing.as_ref().is_some_and(|out| out.is_behind());
        !behind && self.end.is_none() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
