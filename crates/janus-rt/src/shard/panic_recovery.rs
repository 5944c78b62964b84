//! Recovery of a core whose loop panicked, which is an error of ours or of a device, not of a task's (those are
//! caught one by one). Its tasks and connections are lost: nothing of that state can be trusted. What leads to connections of other cores
//! stays: stubs, parcels that have not been sent yet, and those that have come, which go back. The thread goes on with
//! an otherwise empty stack, so that in the combined placement its queue is polled for the other shards, and so that peers get
//! resets instead of silence; its listeners' share of new connections goes to the others. The runtime gives the error at
//! its end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use janus_mem::{Frame, MemError};
use janus_tcp::Stack;

use super::Shard;
use crate::control::BoxError;

/// Makes a core's stack anew.
pub(crate) type RebuildStack = Box<dyn Fn() -> Result<Stack, MemError>>;

impl Shard {
    /// To be called when a turn has panicked, before the next.
    ///
    /// # Errors
    /// When it happens for the second time: then the thread, and the runtime, must end.
    #[cold]
    pub(crate) fn fall(&mut self) -> Result<(), BoxError> {
        let ctx = &*self.ctx;
        let error = format!(
            "the loop of core {} panicked, and its connections are lost; its message is on stderr",
            ctx.core
        );
        if ctx.fallen.replace(true) {
            return Err(format!("{error} (again)").into());
        }
        // Every drop below is of things that may be half changed, and may panic in turn.
        let executor = ctx.executor.take();
        attempt(|| drop(executor));
        attempt(|| ctx.drop_handlers());
        let waiters = ctx.waiters.take();
        attempt(|| drop(waiters));
        let work = &mut self.work;
        work.arrived.clear();
        work.looped.clear();
        let lent = work.leaving.drain(..).chain(work.done.drain(..));
        let lent: Vec<Frame> = lent.filter(Frame::is_lent).collect();
        // No connection is opened here any more, so this one lends no buffer, and what still comes home was lent by the
        // one before.
        let mut stack = ctx.stack.replace((self.rebuild)()?);
        // Others' connections are not lost with these (rule 14): packets that come here go on to them.
        let inherits = attempt(|| {
            let mut heir = ctx.stack.borrow_mut();
            heir.inherit(&mut stack);
            lent.into_iter().for_each(|it| heir.completed_before(it));
        });
        attempt(|| drop(stack));
        if !inherits {
            ctx.stack.replace((self.rebuild)()?);
        }
        ctx.steering.borrow_mut().traverse_anew();
        ctx.emptying.take();
        ctx.shared.control.fell(ctx.core);
        ctx.shared.ending.fell(ctx.main_over.get(), error.into());
        Ok(())
    }
}

/// Returns whether `f` came to its end.
fn attempt(f: impl FnOnce()) -> bool {
    let outcome = catch_unwind(AssertUnwindSafe(f));
    // The drop of what it panicked with might panic too.
    outcome.map_err(std::mem::forget).is_ok()
}
