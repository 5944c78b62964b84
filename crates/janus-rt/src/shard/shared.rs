//! Parts of a runtime that all of its cores and handles share, made once at the start. Parts of one core are in `core_context`.

use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use janus_io::member::Ports;
use janus_mem::Depot;
use janus_tcp::BufferSizes;
use janus_wire::{FlowNames, Toeplitz};

use crate::admission::Ingress;
use crate::clock::Clock;
use crate::config::LiveSettings;
use crate::control::datagrams::Datagrams;
use crate::control::ending::Ending;
use crate::control::mailbox::ControlMailbox;
use crate::control::signals::Signals;
use crate::control::{Control, Passage};
use crate::lock::Lock;
use crate::task::Cores;
use crate::task::blocking::Blocking;

/// One for each runtime.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) settings: LiveSettings,
    /// Buffer sizes that the stacks began with.
    pub(crate) first_buffers: BufferSizes,
    /// The device does: the default rules of the polling cores depend on it.
    pub(crate) leads_outside: bool,
    /// A policy has watched the load from the start.
    pub(crate) watched: bool,
    pub(crate) toeplitz: Toeplitz,
    pub(crate) flow_names: FlowNames,
    pub(crate) control: Arc<Control>,
    pub(crate) mailbox: Arc<ControlMailbox>,
    pub(crate) ending: Arc<Ending>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) datagrams: Datagrams,
    pub(crate) ingress: Arc<Ingress>,
    pub(crate) cores: Cores,
    pub(crate) blocking: Arc<Blocking>,
    /// Weak, as a handle that outlives the runtime must not keep its packet buffers.
    pub(crate) depot: Weak<Depot>,
    /// Cores that one task keeps, by the watchdog.
    pub(crate) blocked: Arc<[AtomicBool]>,
    /// `None`: the device carries packets into a network itself.
    pub(crate) passage: Option<Box<dyn Passage>>,
    /// Where other programs have our addresses too.
    pub(crate) member: Option<Ports>,
    /// Parts of rooms above this one.
    pub(crate) slots: Slots,
}

/// Values of other rooms, one of each type.
#[derive(Default)]
pub(crate) struct Slots(Lock<Vec<Arc<dyn Any + Send + Sync>>>);

impl Slots {
    /// Returns the value of type `T`; the first call makes it.
    pub(crate) fn get<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        // Nothing in the lock's scope can be left half done.
        let mut values = self.0.lock();
        let known = values.iter().cloned();
        let known = known.filter_map(|value| value.downcast().ok()).next();
        known.unwrap_or_else(|| {
            let made = Arc::new(make());
            values.push(made.clone());
            made
        })
    }
}
