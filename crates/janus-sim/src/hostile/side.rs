//! One end of a connection and the application that has it: writes and reads in pieces of random sizes, with pauses, and
//! checks every byte it reads. What never lives here: when it writes, how much, and when it lets go (`flow`).

use super::plan::AppPlan;
use crate::net::{HostId, Network, stream_byte};
use janus_tcp::{ConnId, Error, Instant, Rest};
use std::time::Duration;

/// Pieces an application reads or writes at one moment at most; then it does something else for a while.
const PIECES_MAX: usize = 64;
const BREATH: Duration = Duration::from_micros(100);

/// An end.
pub(super) struct Side {
    pub(super) host: HostId,
    pub(super) conn: Option<ConnId>,
    app: AppPlan,
    /// Which stream it writes, and which it reads.
    writes: u64,
    reads: u64,
    pub(super) written: usize,
    pub(super) read: usize,
    /// The peer's end of stream was read.
    pub(super) ended: bool,
    pub(super) shut: bool,
    /// It has let go of the connection, or never got it.
    pub(super) gone: bool,
    pub(super) error: Option<Error>,
    paused_until: Instant,
    /// The connection is at rest.
    at_rest: bool,
}

impl Side {
    pub(super) fn new(host: HostId, app: AppPlan, writes: u64, reads: u64) -> Side {
        Side {
            host,
            conn: None,
            app,
            writes,
            reads,
            written: 0,
            read: 0,
            ended: false,
            shut: false,
            gone: false,
            error: None,
            paused_until: Instant::ZERO,
            at_rest: false,
        }
    }

    /// The connection, while it has it.
    fn open(&self) -> Option<ConnId> {
        self.conn.filter(|_| !self.gone && self.error.is_none())
    }

    pub(super) fn got(&mut self, network: &mut Network, conn: ConnId) {
        self.conn = Some(conn);
        if self.app.nodelay {
            let stack = &mut network.host(self.host).stack;
            let _ended = stack.set_nodelay(conn, true);
        }
    }

    pub(super) fn is_connected(&self, network: &mut Network) -> bool {
        let stack = &network.host(self.host).stack;
        self.open()
            .is_some_and(|conn| stack.is_connected(conn) == Ok(true))
    }

    /// Writes until `target` bytes are written in all.
    pub(super) fn write_to(&mut self, network: &mut Network, target: usize) {
        for _ in 0..PIECES_MAX {
            let Some(conn) = self.open().filter(|_| self.written < target) else {
                return;
            };
            let size = network.random().within(1..self.app.write_max) as usize;
            let end = target.min(self.written + size);
            let bytes: Vec<u8> = (self.written..end)
                .map(|at| stream_byte(self.writes, at))
                .collect();
            let now = network.now();
            match network.host(self.host).stack.write(now, conn, &bytes) {
                Ok(n) => self.written += n,
                Err(Error::WouldBlock) => return,
                Err(error) => self.error = Some(error),
            }
        }
        network.set_alarm(network.now() + BREATH);
    }

    /// Reads what there is, unless the application pauses.
    pub(super) fn read_all(&mut self, network: &mut Network) {
        for _ in 0..PIECES_MAX {
            let now = network.now();
            let Some(conn) = self
                .open()
                .filter(|_| !self.ended && now >= self.paused_until)
            else {
                return;
            };
            if self.at_rest && !network.host(self.host).roused.remove(&conn) {
                return;
            }
            self.at_rest = false;
            let mut chunk = vec![0; network.random().within(1..self.app.read_max) as usize];
            match network.host(self.host).stack.read(now, conn, &mut chunk) {
                Ok(0) => self.ended = true,
                Ok(n) => self.check(&chunk[..n]),
                Err(Error::WouldBlock) => return self.rest(network, conn),
                Err(error) => self.error = Some(error),
            }
            if network.random().chance(self.app.pauses) {
                let most = self.app.pause_max.as_micros() as u64;
                self.paused_until =
                    now + Duration::from_micros(network.random().within(1..most + 1));
                network.set_alarm(self.paused_until);
            }
        }
        network.set_alarm(network.now() + BREATH);
    }

    /// There is nothing to read: if the connection is one that rests, what comes must rouse it.
    fn rest(&mut self, network: &mut Network, conn: ConnId) {
        if self.app.rests {
            let now = network.now();
            let stack = &mut network.host(self.host).stack;
            self.at_rest = stack.rest(now, conn, Rest::new(0)).is_ok();
        }
    }

    fn check(&mut self, bytes: &[u8]) {
        for byte in bytes {
            assert_eq!(
                *byte,
                stream_byte(self.reads, self.read),
                "byte {} of stream {} is not what was written",
                self.read,
                self.reads
            );
            self.read += 1;
        }
    }

    pub(super) fn shut(&mut self, network: &mut Network) {
        let Some(conn) = self.open().filter(|_| !self.shut) else {
            return;
        };
        let now = network.now();
        self.shut = true;
        if let Err(error) = network.host(self.host).stack.shutdown_write(now, conn) {
            self.error = Some(error);
        }
    }

    /// Lets go, in good order or with a reset.
    pub(super) fn leave(&mut self, network: &mut Network, abort: bool) {
        if let Some(conn) = self.conn.filter(|_| !self.gone) {
            let now = network.now();
            let host = network.host(self.host);
            let stack = &mut host.stack;
            // As somebody who has it again.
            stack.wait_read(conn, None);
            host.roused.remove(&conn);
            match abort {
                true => stack.abort(now, conn),
                false => stack.close(now, conn),
            }
        }
        self.gone = true;
    }

    /// Whether the connection holds a hot block.
    pub(super) fn is_hot(&self, network: &mut Network) -> bool {
        let Some(conn) = self.conn.filter(|_| !self.gone) else {
            return false;
        };
        let info = network.host(self.host).stack.info(conn);
        info.is_ok_and(|info| info.hot)
    }

    /// For the message of a failure.
    pub(super) fn describe(&self, network: &mut Network) -> String {
        let stack = &network.host(self.host).stack;
        let info = self.conn.and_then(|conn| stack.info(conn).ok());
        format!(
            "written {} read {} ended {} shut {} gone {} error {:?} {info:?}",
            self.written, self.read, self.ended, self.shut, self.gone, self.error
        )
    }

    /// Asserts the bounds on the bytes one connection holds, whatever its peer does.
    pub(super) fn check_bounds(&self, network: &mut Network, receive_max: u32, send_max: u32) {
        let Some(conn) = self.conn.filter(|_| !self.gone) else {
            return;
        };
        let Ok(info) = network.host(self.host).stack.info(conn) else {
            return;
        };
        assert!(
            info.unread <= receive_max,
            "{} bytes unread, {receive_max} allowed",
            info.unread
        );
        assert!(
            info.unsent + info.in_flight <= send_max,
            "{} + {} bytes to send, {send_max} allowed",
            info.unsent,
            info.in_flight
        );
    }
}
