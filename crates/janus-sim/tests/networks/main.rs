//! Networks in virtual time by subject, one file each, in one program.

mod ecn;
mod fairness;
mod goodput;
mod hostile;
mod loss_recovery;
mod path_mtu;
mod transfers;
mod tuning;
mod two_hosts;
