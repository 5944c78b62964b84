//! A stream as two halves, one to read and one to write: borrowed from it ([`ReadHalf`], [`WriteHalf`]), or owning it together
//! ([`OwnedReadHalf`], [`OwnedWriteHalf`]), so that two tasks of a core can have one each. The methods of a half are those of
//! [`TcpStream`], with the same errors and the same cancel safety.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::recv_buf::RecvBuf;
use super::send_buf::SendBuf;
use super::stream::{
    AllocBuf, Give, Peek, Read, Recv, TcpStream, TrySendBufError, Write, WriteAll,
};
use super::{Interest, Ready};

/// The reading half of a borrowed stream; see [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a>(&'a TcpStream);

/// The writing half of a borrowed stream; see [`TcpStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a TcpStream);

/// The reading half that owns the stream together with its other half; see [`TcpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf {
    stream: Arc<TcpStream>,
}

/// The writing half that owns the stream together with its other half; see [`TcpStream::into_split`]. Dropping it shuts down the writing
/// side; reading goes on.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<TcpStream>,
    shuts: bool,
}

impl TcpStream {
    /// Splits the stream into two halves that borrow it, for one task.
    ///
    /// ```
    /// use janus::net::{TcpListener, TcpStream};
    ///
    /// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let mut client = TcpStream::connect(listener.reachable_at()).await?;
    /// let (mut read, mut write) = client.split();
    ///
    /// write.write_all(b"question").await?;
    /// write.shutdown().await?;
    ///
    /// let (stream, _peer) = listener.accept().await?;
    /// stream.write_all(b"answer").await?;
    /// let mut answer = [0; 6];
    /// read.read_exact(&mut answer).await?;
    /// assert_eq!(&answer, b"answer");
    /// # Ok::<(), janus::BoxError>(())
    /// # })?;
    /// # Ok::<(), janus::BoxError>(())
    /// ```
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (ReadHalf(self), WriteHalf(self))
    }

    /// Splits the stream into two halves that own it: it closes when both are dropped.
    ///
    /// ```
    /// use janus::net::{TcpListener, TcpStream};
    ///
    /// # janus::Runtime::builder().ignore_environment().cores(1).build()?.run(|| async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.reachable_at()).await?;
    /// let (mut read, mut write) = client.into_split();
    /// let writer = janus::spawn(async move { write.write_all(b"question").await });
    ///
    /// let (stream, _peer) = listener.accept().await?;
    /// let mut question = [0; 8];
    /// stream.read_exact(&mut question).await?;
    /// stream.write_all(b"answer").await?;
    /// let mut answer = [0; 6];
    /// read.read_exact(&mut answer).await?;
    /// writer.await??; // Its half is dropped now: the peer reads to the end.
    /// assert_eq!(stream.read(&mut [0]).await?, 0);
    /// # Ok::<(), janus::BoxError>(())
    /// # })?;
    /// # Ok::<(), janus::BoxError>(())
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let stream = Arc::new(self);
        let reading = OwnedReadHalf {
            stream: stream.clone(),
        };
        let writing = OwnedWriteHalf {
            stream,
            shuts: true,
        };
        (reading, writing)
    }
}

impl ReadHalf<'_> {
    pub(super) fn stream(&self) -> &TcpStream {
        self.0
    }
}

impl WriteHalf<'_> {
    pub(super) fn stream(&self) -> &TcpStream {
        self.0
    }
}

impl OwnedReadHalf {
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns the stream that both halves are of.
    ///
    /// # Errors
    /// Both halves, when they are of different streams.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        reunite(self, other)
    }
}

impl OwnedWriteHalf {
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns the stream that both halves are of.
    ///
    /// # Errors
    /// Both halves, when they are of different streams.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        reunite(other, self)
    }

    /// Drops this half without a shutdown of the writing side: that happens when the other half is dropped too.
    pub fn forget(mut self) {
        self.shuts = false;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.shuts {
            self.stream.shut_anywhere();
        }
    }
}

fn reunite(reading: OwnedReadHalf, mut writing: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
    if !Arc::ptr_eq(&reading.stream, &writing.stream) {
        return Err(ReuniteError(reading, writing));
    }
    writing.shuts = false;
    drop(writing);
    match Arc::try_unwrap(reading.stream) {
        Ok(stream) => Ok(stream),
        // There are two owners at most, and the other one is gone.
        Err(_) => unreachable!("a stream has two halves"),
    }
}

/// Two halves of different streams, returned by `reunite`.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves are not of one stream")
    }
}

impl Error for ReuniteError {}

macro_rules! reads {
    ($($half:ty),+) => { $(
        impl $half {
            /// Reads the bytes received so far, at least one; 0 means that the peer has shut down its side.
            ///
            /// # Errors
            /// Those of [`TcpStream::read`].
            pub fn read<'a>(&'a mut self, into: &'a mut [u8]) -> Read<'a> {
                self.stream().read(into)
            }

            /// Fills `into`; an end of the stream before that is [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
            ///
            /// # Errors
            /// Those of [`TcpStream::read_exact`].
            pub async fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
                self.stream().read_exact(into).await
            }

            /// Receives the next piece of the stream in the buffer it arrived in; `None` means that the peer has shut down.
            ///
            /// # Errors
            /// Those of [`TcpStream::recv`].
            pub fn recv(&mut self) -> Recv<'_> {
                self.stream().recv()
            }

            /// Copies the bytes received so far without consuming them.
            ///
            /// # Errors
            /// Those of [`TcpStream::peek`].
            pub fn peek<'a>(&'a mut self, into: &'a mut [u8]) -> Peek<'a> {
                self.stream().peek(into)
            }

            /// Polls for bytes to copy, as [`peek`](Self::peek) does.
            ///
            /// # Errors
            /// Those of [`TcpStream::peek`].
            pub fn poll_peek(
                &mut self,
                cx: &mut Context<'_>,
                into: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.stream().poll_peek(cx, into)
            }

            /// Waits until there is something to read.
            ///
            /// # Errors
            /// Those of [`TcpStream::readable`].
            pub async fn readable(&self) -> io::Result<()> {
                self.stream().readable().await
            }

            /// Reads the bytes received so far; `WouldBlock` when there are none.
            ///
            /// # Errors
            /// Those of [`TcpStream::try_read`].
            pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
                self.stream().try_read(into)
            }

            /// Like [`try_read`](Self::try_read), but into several slices.
            ///
            /// # Errors
            /// Those of [`TcpStream::try_read_vectored`].
            pub fn try_read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.stream().try_read_vectored(into)
            }

            /// Receives the next piece of the stream, if there is one.
            ///
            /// # Errors
            /// Those of [`TcpStream::try_recv`].
            pub fn try_recv(&self) -> io::Result<Option<RecvBuf>> {
                self.stream().try_recv()
            }
        }
    )+ };
}

macro_rules! writes {
    ($($half:ty),+) => { $(
        impl $half {
            /// Writes at least one byte of `bytes` to the send buffer; returns how many.
            ///
            /// # Errors
            /// Those of [`TcpStream::write`].
            pub fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Write<'a> {
                self.stream().write(bytes)
            }

            /// Writes all of `bytes` to the send buffer.
            ///
            /// # Errors
            /// Those of [`TcpStream::write_all`].
            pub fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> WriteAll<'a> {
                self.stream().write_all(bytes)
            }

            /// Allocates a packet buffer to be filled and sent.
            ///
            /// # Errors
            /// Those of [`TcpStream::alloc_buf`].
            pub fn alloc_buf(&mut self) -> AllocBuf<'_> {
                self.stream().alloc_buf()
            }

            /// Sends a packet buffer without copying it.
            ///
            /// # Errors
            /// Those of [`TcpStream::send_buf`].
            pub fn send_buf(&mut self, buf: impl Into<SendBuf>) -> Give<'_> {
                self.stream().send_buf(buf)
            }

            /// Like [`send_buf`](Self::send_buf), but returns the buffer when there is no room for it.
            ///
            /// # Errors
            /// Those of [`TcpStream::try_send_buf`].
            pub fn try_send_buf(&self, buf: impl Into<SendBuf>) -> Result<(), TrySendBufError> {
                self.stream().try_send_buf(buf)
            }

            /// Shuts down the writing side.
            ///
            /// # Errors
            /// Those of [`TcpStream::shutdown`].
            pub async fn shutdown(&mut self) -> io::Result<()> {
                self.stream().shutdown(Shutdown::Write).await
            }

            /// Waits until there is room to write.
            ///
            /// # Errors
            /// Those of [`TcpStream::writable`].
            pub async fn writable(&self) -> io::Result<()> {
                self.stream().writable().await
            }

            /// Writes as much of `bytes` as there is room for; `WouldBlock` when there is none.
            ///
            /// # Errors
            /// Those of [`TcpStream::try_write`].
            pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
                self.stream().try_write(bytes)
            }

            /// Like [`try_write`](Self::try_write), but of several slices.
            ///
            /// # Errors
            /// Those of [`TcpStream::try_write_vectored`].
            pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                self.stream().try_write_vectored(slices)
            }
        }
    )+ };
}

macro_rules! both {
    ($($half:ty),+) => { $(
        impl $half {
            /// Waits until the stream is ready for something in `interest`; returns the part it is ready for.
            ///
            /// # Errors
            /// Those of [`TcpStream::ready`].
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                self.stream().ready(interest).await
            }

            /// Returns the peer's address.
            ///
            /// # Errors
            /// Those of [`TcpStream::peer_addr`].
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.stream().peer_addr()
            }

            /// Returns this end's address.
            ///
            /// # Errors
            /// Those of [`TcpStream::local_addr`].
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.stream().local_addr()
            }
        }
    )+ };
}

reads!(ReadHalf<'_>, OwnedReadHalf);
writes!(WriteHalf<'_>, OwnedWriteHalf);
both!(ReadHalf<'_>, OwnedReadHalf, WriteHalf<'_>, OwnedWriteHalf);

impl AsRef<TcpStream> for OwnedReadHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsRef<TcpStream> for OwnedWriteHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}
