//! Sizes of the futures a task awaits. A future is as large as the largest value it keeps, so these sizes decide what a waiting
//! connection's task takes, and are kept as any promise is.

use super::stream::{Recv, Write, WriteAll};
use super::{RecvBuf, TcpStream};

/// Bytes that a slot of 64 bytes leaves for the future.
const ONE_LINE: usize = 48;

/// Returns the size of the future that `_make` makes.
fn size<F: Future>(_make: impl FnOnce(TcpStream) -> F) -> usize {
    size_of::<F>()
}

#[test]
fn what_is_awaited_is_a_reference_and_its_argument() {
    assert_eq!(size_of::<TcpStream>(), 12);
    assert_eq!(size_of::<RecvBuf>(), 8);
    assert_eq!(size_of::<Option<RecvBuf>>(), 8);
    assert_eq!(size_of::<Recv<'_>>(), 8);
    assert_eq!(size_of::<Write<'_>>(), 24);
    assert_eq!(size_of::<WriteAll<'_>>(), 24);
}

#[test]
fn an_echo_fits_one_line() {
    let echo = |stream: TcpStream| async move {
        loop {
            let Ok(Some(piece)) = stream.recv().await else {
                return;
            };
            if stream.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    assert_eq!(size(echo), ONE_LINE);
}

#[test]
fn an_echo_of_the_buffers_themselves_fits_one_line() {
    let echo = |stream: TcpStream| async move {
        loop {
            let Ok(Some(piece)) = stream.recv().await else {
                return;
            };
            if stream.send_buf(piece).await.is_err() {
                return;
            }
        }
    };
    assert_eq!(size(echo), ONE_LINE);
}

#[test]
fn an_echo_in_a_function_of_its_own_fits_a_line_and_a_half() {
    // The compiler keeps a function's argument twice: as it was passed, and as the variable it becomes.
    async fn copies(stream: TcpStream) -> std::io::Result<()> {
        loop {
            let Some(piece) = stream.recv().await? else {
                return Ok(());
            };
            stream.write_all(&piece).await?;
        }
    }
    async fn passes_on(stream: TcpStream) -> std::io::Result<()> {
        loop {
            let Some(piece) = stream.recv().await? else {
                return Ok(());
            };
            stream.send_buf(piece).await?;
        }
    }
    assert_eq!(
        (size(copies), size(passes_on)),
        (ONE_LINE + 16, ONE_LINE + 16)
    );
}
