//! The attack list against one stack alone, over both families, and against one whose connections are at rest; and the observer, who
//! fights nobody.

#[macro_use]
#[path = "list.rs"]
mod list;

mod at_rest;
mod observer;

use list::arena::Arena;
use list::support::{Host, family, own_address};

/// Fights every attack against what `$target` makes of a host.
macro_rules! against {
    ([$target:path]
     $($(#[$doc:meta])* $module:ident::$name:ident, $buffers:expr $(, in $depot:expr)?;)*) => {
        $($(#[$doc])* #[test]
        fn $name() {
            family::over_both(|| {
                let host = Host::new(list::small(), own_address(), [$($depot,)? list::BUFFERS][0]);
                Arena::fight(Box::new($target(host)), $buffers, list::$module::$name);
            });
        })*
    };
}

attacks!(against[core::convert::identity]);

/// With connections that no reader waits for.
mod resting {
    use super::*;

    attacks!(against[at_rest::AtRest]);
}
