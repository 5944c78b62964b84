//! Calls of the application and of the runtime: everything a connection, a listener or the balancer is asked from outside.

pub(crate) mod audit;
pub(crate) mod info;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod readdress;
pub(crate) mod rest;
pub(crate) mod socket;
pub(crate) mod status;
pub(crate) mod steering;
pub(crate) mod traverse;
pub(crate) mod udp;
pub(crate) mod write;
