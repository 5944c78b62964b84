//! The walk over the rings, tried in a small world: named traces and random schedules.

mod schedules;
mod traces;
mod world;
