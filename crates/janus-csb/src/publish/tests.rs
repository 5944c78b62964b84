#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod plain;
