//! Bodies that the traits of futures-io, tokio and hyper have in common for streams and their halves. Nothing is buffered on the way out, so there is nothing to flush.

/// Implements a library's trait `AsyncWrite`, or `Write`, whose last method is called `$end`; `extra` methods are added to each.
macro_rules! writes {
    ($write:ident, $end:ident, extra $extra:tt, $($writer:ty),+) => {
        $( $crate::net::poll_traits::writes!(@one $write, $end, $extra, $writer); )+
    };
    (@one $write:ident, $end:ident, { $($extra:tt)* }, $writer:ty) => {
        impl $write for $writer {
            #[inline]
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.stream().poll_write_some(cx, bytes)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.stream().poll_write_slices(cx, slices)
            }

            #[inline]
            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn $end(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.stream().shut())
            }

            $($extra)*
        }
    };
}

/// Implements a library's `AsyncBufRead` for a buffered stream.
#[cfg(any(feature = "futures-io", feature = "tokio-io"))]
macro_rules! buffered_reads {
    () => {
        impl AsyncBufRead for BufferedStream {
            fn poll_fill_buf(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<&[u8]>> {
                let this = self.get_mut();
                ready!(this.poll_fill(cx))?;
                Poll::Ready(Ok(this.at_hand()))
            }

            fn consume(mut self: Pin<&mut Self>, count: usize) {
                BufferedStream::consume(&mut self, count);
            }
        }
    };
}

#[cfg(any(feature = "futures-io", feature = "tokio-io"))]
pub(super) use buffered_reads;
pub(super) use writes;
