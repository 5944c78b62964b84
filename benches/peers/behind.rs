//! A stack that is not Janus's behind the load generator, in the turns that the engine has there.

use crate::support::engine::Engine;
use crate::support::far::packet::Ends;
use crate::support::far::plan::Plan;
use crate::support::far::{App, Far};
use janus_mem::{Depot, Frame, Growth, Pool};
use std::sync::Arc;

/// Frames exchanged at a time, as at the engine.
pub const BURST: usize = 64;
/// Buffers of the frames on their way to a server.
const BUFFERS: u32 = 1_024;

/// An echo server on a stack.
pub trait Echo {
    /// Takes frames in, echoes, and keeps what is to be sent.
    fn turn(&mut self, frames: &[Frame]);
    /// Returns the frames to be sent.
    fn sent(&self) -> impl Iterator<Item = &[u8]>;
    /// Ends the turn: what was sent is no longer needed.
    fn end_turn(&mut self);
}

/// A server and its far end on one thread.
pub trait Turns {
    fn turn(&mut self);
}

impl Turns for Engine {
    fn turn(&mut self) {
        Engine::turn(self);
    }
}

/// A peer's server and the far end.
pub struct Behind<S> {
    server: S,
    far: Far,
    pool: Pool,
    frames: Vec<Frame>,
}

impl<S> Behind<S> {
    /// Returns `server` with a far end for `held` connections that stay, and the far end's plan.
    pub fn new(server: S, ends: Ends, held: u32) -> (Self, Arc<Plan>) {
        let plan = Arc::new(Plan::new(1, held));
        let behind = Self {
            server,
            far: Far::new(ends, App::Echo, Arc::clone(&plan), 0, held),
            pool: buffers(BUFFERS),
            frames: Vec::with_capacity(BURST),
        };
        (behind, plan)
    }
}

impl<S: Echo> Turns for Behind<S> {
    fn turn(&mut self) {
        let frames = &mut self.frames;
        self.far
            .give(&mut self.pool, BURST, |frame| frames.push(frame));
        counted_turn(&mut self.server, frames);
        self.far.take_back(&mut self.pool, frames);
        self.far.take(self.server.sent());
        counted_end(&mut self.server);
    }
}

/// The server's part of a turn; [`valgrind`](crate::support::valgrind) counts it by its name.
#[inline(never)]
fn counted_turn(server: &mut impl Echo, frames: &[Frame]) {
    server.turn(frames);
}

/// The same at its end.
#[inline(never)]
fn counted_end(server: &mut impl Echo) {
    server.end_turn();
}

/// Returns a pool of `count` packet buffers.
pub fn buffers(count: u32) -> Pool {
    Depot::new(count, &Growth::Inline).expect("memory").pool()
}
