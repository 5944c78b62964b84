//! Handlers of a core: what begins when something comes to a connection at rest. The record of such a connection names its handler by a
//! number, which is a place in this table. What a handler does is in `net/rest.rs`.

use std::any::TypeId;
use std::cell::RefCell;
use std::rc::Rc;

use janus_tcp::{ConnId, REST_HANDLERS, Rest};

use super::core_context::CoreContext;

/// A handler of connections at rest.
pub(crate) trait Serve {
    /// Begins a task for a connection that something has come to.
    fn begin(self: Rc<Self>, conn: ConnId, rest: Rest);
}

/// The table. A handler stays in it as long as anything may come back to it: its name in the program, a task of its, a connection
/// at rest.
#[derive(Default)]
pub(crate) struct Handlers(RefCell<Vec<Option<Registered>>>);

struct Registered {
    handler: Rc<dyn Serve>,
    name: HandlerName,
}

/// A handler's name on every core of a runtime: its type, and which of those of its type it was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandlerName {
    kind: TypeId,
    number: usize,
}

impl Handlers {
    fn get(&self, number: u8) -> Option<Rc<dyn Serve>> {
        let handlers = self.0.borrow();
        let registered = handlers.get(usize::from(number))?.as_ref()?;
        Some(registered.handler.clone())
    }

    /// The name of the handler with this number.
    pub(crate) fn name_of(&self, number: u8) -> Option<HandlerName> {
        let handlers = self.0.borrow();
        let registered = handlers.get(usize::from(number))?.as_ref()?;
        Some(registered.name)
    }

    /// The number of the handler with this name.
    pub(crate) fn named(&self, name: HandlerName) -> Option<u8> {
        let handlers = self.0.borrow();
        let is_named = |it: &Option<Registered>| it.as_ref().is_some_and(|it| it.name == name);
        handlers.iter().position(is_named).map(|at| at as u8)
    }

    /// A name for one more handler of this type.
    fn new_name<S: 'static>(&self) -> HandlerName {
        let handlers = self.0.borrow();
        let kind = TypeId::of::<S>();
        let like = handlers.iter().flatten().filter(|it| it.name.kind == kind);
        let numbers = like.map(|it| it.name.number + 1);
        HandlerName {
            kind,
            number: numbers.max().unwrap_or(0),
        }
    }

    fn free(&self) -> Option<u8> {
        let handlers = self.0.borrow();
        let free = handlers.iter().position(Option::is_none);
        let free = free.unwrap_or(handlers.len());
        (free < REST_HANDLERS).then_some(free as u8)
    }
}

impl CoreContext {
    /// Adds the handler that `make` makes of its number; `None`: all numbers are taken.
    pub(crate) fn add_handler<S: Serve + 'static>(
        &self,
        make: impl FnOnce(u8) -> S,
    ) -> Option<Rc<S>> {
        // Those whose last connections ended at rest.
        self.forget_where(|_, shares| shares == 1);
        let number = self.handlers.free()?;
        let name = self.handlers.new_name::<S>();
        let handler = Rc::new(make(number));
        let mut handlers = self.handlers.0.borrow_mut();
        let at = usize::from(number);
        if at == handlers.len() {
            handlers.push(None);
        }
        handlers[at] = Some(Registered {
            handler: handler.clone(),
            name,
        });
        Some(handler)
    }

    /// Forgets a handler to which nothing can come back when the share that asks has gone.
    #[cold]
    pub(crate) fn forget_handler(&self, number: u8) {
        self.forget_where(|at, shares| at == number && shares == 2);
    }

    fn forget_where(&self, is_left: impl Fn(u8, usize) -> bool) {
        let left = {
            let mut handlers = self.handlers.0.borrow_mut();
            let stack = self.stack.borrow();
            let places = (0..).zip(handlers.iter_mut());
            let left = places.filter_map(|(number, place)| {
                let shares = Rc::strong_count(&place.as_ref()?.handler);
                let left = is_left(number, shares) && stack.resting_at(number) == 0;
                left.then(|| place.take())
            });
            left.collect::<Vec<_>>()
        };
        // Outside of all borrows: the program's values in it may do anything.
        drop(left);
    }

    /// Ends all handlers, with the tasks.
    pub(crate) fn drop_handlers(&self) {
        let all = self.handlers.0.take();
        drop(all);
    }

    /// Begins a task for a connection that something has come to. Returns false when there is none.
    #[inline]
    pub(crate) fn begin_roused(&self) -> bool {
        let roused = self.stack.borrow_mut().pop_roused();
        let Some((conn, rest)) = roused else {
            return false;
        };
        match self.handlers.get(rest.handler()) {
            Some(handler) => handler.begin(conn, rest),
            // At the runtime's end.
            None => self.close(conn),
        }
        true
    }
}
