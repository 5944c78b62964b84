//! Live updates in a small world: flows that open, close, change stores and collide, I/O cores and shards whose views
//! lag, packets that wait over swaps or get lost, shards that leave and come back, all of it in the order of a seed.

mod schedules;
mod store;
mod world;
