//! The walk over the rings, tried in a small world: named traces and random schedules. Then traces of whole updates,
//! which the paper's protocol, or a tempting repair of it, does not survive.

mod schedules;
mod stage;
mod traces;
mod traces_paper;
mod traces_repairs;
mod world;
