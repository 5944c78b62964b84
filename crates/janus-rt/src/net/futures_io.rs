//! The traits of `futures-io` for streams and their halves, and for shared references to a stream, which both sides of a
//! copy can hold.

use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};

use super::buffered::BufferedStream;
use super::poll_traits::{buffered_reads, writes};
use super::stream::TcpStream;
use super::tcp::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};

/// Copies pieces into slices, one after the other.
struct Filler<'a, 'b> {
    slices: &'a mut [IoSliceMut<'b>],
    slice: usize,
    at: usize,
}

impl Filler<'_, '_> {
    fn put(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let into = &mut self.slices[self.slice][self.at..];
            let count = piece.len().min(into.len());
            into[..count].copy_from_slice(&piece[..count]);
            piece = &piece[count..];
            self.at += count;
            if self.at == self.slices[self.slice].len() {
                (self.slice, self.at) = (self.slice + 1, 0);
            }
        }
    }
}

fn poll_read_slices(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    slices: &mut [IoSliceMut<'_>],
) -> Poll<io::Result<usize>> {
    let room = slices.iter().map(|slice| slice.len()).sum();
    let mut filler = Filler {
        slices,
        slice: 0,
        at: 0,
    };
    stream.poll_read_each(cx, room, |piece| filler.put(piece))
}

macro_rules! reads {
    ($($reader:ty),+) => { $(
        impl AsyncRead for $reader {
            #[inline]
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                into: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                let mut filled = 0;
                let room = into.len();
                self.stream().poll_read_each(cx, room, |piece| {
                    into[filled..filled + piece.len()].copy_from_slice(piece);
                    filled += piece.len();
                })
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                into: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                poll_read_slices(self.stream(), cx, into)
            }
        }
    )+ };
}

reads!(TcpStream, &TcpStream, ReadHalf<'_>, OwnedReadHalf);
writes!(
    AsyncWrite,
    poll_close,
    extra {},
    TcpStream,
    &TcpStream,
    WriteHalf<'_>,
    OwnedWriteHalf,
    BufferedStream
);
buffered_reads!();

impl AsyncRead for BufferedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let room = into.len();
        self.poll_take(cx, room, |bytes| into[..bytes.len()].copy_from_slice(bytes))
    }
}
