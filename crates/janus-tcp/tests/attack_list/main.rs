//! The attack list against one stack alone, over both families, and against one whose connections are at rest; and the observer, who
//! fights nobody.

#[macro_use]
#[path = "list.rs"]
mod list;

mod at_rest;
mod observer;

use list::arena::Arena;
use list::support::{Host, family, own_address};

macro_rules! against_one_stack {
    ($($(#[$doc:meta])* $module:ident::$name:ident, $buffers:expr $(, in $depot:expr)?;)*) => {
        $($(#[$doc])* #[test]
        fn $name() {
            family::over_both(|| {
                let host = Host::new(list::small(), own_address(), [$($depot,)? list::BUFFERS][0]);
                Arena::fight(Box::new(host), $buffers, list::$module::$name);
            });
        })*
    };
}

attacks!(against_one_stack);

/// With connections that no reader waits for.
mod resting {
    use super::at_rest::AtRest;
    use super::*;

    macro_rules! against_rests {
        ($($(#[$doc:meta])* $module:ident::$name:ident, $buffers:expr $(, in $depot:expr)?;)*) => {
            $($(#[$doc])* #[test]
            fn $name() {
                family::over_both(|| {
                    let host = Host::new(list::small(), own_address(), [$($depot,)? list::BUFFERS][0]);
                    Arena::fight(Box::new(AtRest(host)), $buffers, list::$module::$name);
                });
            })*
        };
    }

    attacks!(against_rests);
}
