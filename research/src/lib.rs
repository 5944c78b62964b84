//! Research beside the balancer, on which nothing that ships depends: the other ways to steer packets ([`rivals`]) and
//! the other sets of flow keys ([`filters`]), and the paper's balancer ([`reference`](mod@reference)). The benches of this package measure them, its tests show that each keeps
//! the figure published for it.

#![allow(missing_docs)]

pub mod filters;
pub mod reference;
#[path = "../../benches/support/report.rs"]
pub mod report;
pub mod rivals;
#[path = "../../benches/support/scale.rs"]
pub mod scale;
#[path = "../../benches/support/thread_time.rs"]
pub mod thread_time;

pub use scale::Scale;
