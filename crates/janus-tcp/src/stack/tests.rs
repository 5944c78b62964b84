//! Parts of a stack, for tests of other rooms.

use crate::rules::Rules;
use crate::stack::Stack;
use crate::store::Store;
use crate::store::index::Index;
use crate::time::Instant;

impl Stack {
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(crate) fn rules_mut(&mut self) -> &mut Rules {
        &mut self.rules
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    pub(crate) fn now(&self) -> Instant {
        self.env.now
    }

    pub(crate) fn set_now(&mut self, now: Instant) {
        self.env.set_now(now);
    }
}
