//! The addresses of the daemon's device, as the daemon told them last, and the program's part that is told of others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use janus_shm::{Network, Welcome};

/// Is told of other addresses. The line to the daemon is not heard before it returns.
pub type TellFn = dyn FnMut(&Network) + Send;

/// Addresses that may change.
pub(super) struct Addresses(Mutex<Known>);

struct Known {
    now: Network,
    tell: Option<Box<TellFn>>,
}

impl Addresses {
    pub(super) fn new(now: Network) -> Addresses {
        Addresses(Mutex::new(Known { now, tell: None }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Network {
        self.known().now.clone()
    }

    /// Takes over what the daemon says, which may be what is known.
    pub(super) fn learn(&self, network: Network) {
        let known = &mut *self.known();
        if known.now == network {
            return;
        }
        known.now = network;
        // In the lock, so that the last word told is the last one heard.
        if let Some(tell) = &mut known.tell {
            tell(&known.now);
        }
    }

    pub(super) fn follow(&self, told: &Network, mut tell: Box<TellFn>) {
        let known = &mut *self.known();
        if known.now != *told {
            tell(&known.now);
        }
        known.tell = Some(tell);
    }
}

/// The addresses that a welcome tells, which are all where nothing else was said before.
pub(super) fn of_welcome(welcome: &Welcome) -> Network {
    Network {
        addresses: welcome.addresses.clone(),
        gateways: welcome.gateways.clone(),
        ..Network::default()
    }
}
