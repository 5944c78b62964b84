//! The body of a client's request, in the framing that its head has announced.

use super::{Connection, Response};
use crate::response::push_hex;
use crate::transport::{self, Transport};
use crate::{Error, Result};

const LESS: Error = Error::Misuse("less was written than the length given for the body");
const MORE: Error = Error::Misuse("more was written than the length given for the body");

/// Writes the body of a request piece by piece; see [`Connection::begin`]. Dropped before [`RequestBody::finish`], it leaves the
/// request incomplete and the connection of no further use.
pub struct RequestBody<'a, S: Transport> {
    connection: &'a mut Connection<S>,
    /// Bytes still to be written; `None`: the body is sent in chunks.
    left: Option<u64>,
    /// Whether the method is HEAD: the response has no body.
    to_head: bool,
}

impl<'a, S: Transport> RequestBody<'a, S> {
    pub(super) fn new(connection: &'a mut Connection<S>, left: Option<u64>, to_head: bool) -> Self {
        Self {
            connection,
            left,
            to_head,
        }
    }

    /// Adds `bytes` to the body, and waits until the connection has taken them.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) beyond the announced length, [`Error::Io`](crate::Error::Io) when the connection fails.
    ///
    /// # Cancel safety
    /// A part of `bytes` may have been written when the future is dropped: the request cannot go on, so drop the [`RequestBody`] too.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Connection { stream, output, .. } = &mut *self.connection;
        match &mut self.left {
            Some(left) => *left = left.checked_sub(bytes.len() as u64).ok_or(MORE)?,
            // An empty chunk would end the body (RFC 9112 section 7.1).
            None if bytes.is_empty() => return Ok(()),
            None => {
                output.clear();
                push_hex(output, bytes.len());
                output.extend_from_slice(b"\r\n");
                transport::write_all(stream, None, output).await?;
            }
        }
        transport::write_all(stream, None, bytes).await?;
        if self.left.is_none() {
            transport::write_all(stream, None, b"\r\n").await?;
        }
        Ok(())
    }

    /// Ends the body and receives the head of the response.
    ///
    /// # Errors
    /// Those of [`Connection::send`]; a misuse before the announced length.
    ///
    /// # Cancel safety
    /// The connection is not [open](Connection::is_open) when the future is dropped.
    pub async fn finish(self) -> Result<Response<'a, S>> {
        match self.left {
            Some(0) => {}
            Some(_) => return Err(LESS),
            None => transport::write_all(&self.connection.stream, None, b"0\r\n\r\n").await?,
        }
        self.connection.receive(self.to_head).await
    }
}
