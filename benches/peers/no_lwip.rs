//! Stands for `lwip.rs` where lwIP is not installed.

use crate::behind::Echo;
use crate::support::far::packet::Ends;
use crate::support::stream::{Application, Dir, Server};
use janus_mem::{Frame, Pool};

const WHY: &str = "no headers of lwIP (Debian's liblwip-dev) or no C compiler";

/// Never exists.
pub enum LwipEcho {}

/// Never exists.
pub enum LwipStreams {}

impl LwipEcho {
    pub fn new(_: &Ends) -> Result<Self, String> {
        Err(WHY.into())
    }
}

impl LwipStreams {
    pub fn new(_: &Ends) -> Result<Self, String> {
        Err(WHY.into())
    }
}

impl Echo for LwipEcho {
    fn turn(&mut self, _: &[Frame]) {
        match *self {}
    }

    fn sent(&self) -> impl Iterator<Item = &[u8]> {
        match *self {}
        #[expect(unreachable_code, reason = "names the type")]
        std::iter::empty()
    }

    fn end_turn(&mut self) {
        match *self {}
    }
}

impl Server for LwipStreams {
    fn pool(&mut self) -> &mut Pool {
        match *self {}
    }

    fn turn(
        &mut self,
        _: janus_tcp::Instant,
        _: Option<Dir>,
        _: &mut Vec<Frame>,
        _: &mut Application,
    ) {
        match *self {}
    }

    fn sent(&self, _: &mut dyn FnMut(&[u8])) {
        match *self {}
    }

    fn end_turn(&mut self) {
        match *self {}
    }

    fn accept(&mut self) -> usize {
        match *self {}
    }
}
