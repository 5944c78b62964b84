//! Which record a flow has: the table, and the records that are no connection (half-open, TIME-WAIT, stubs), with what is
//! kept by flow.

mod table;

use janus_mem::{Growth, MemError};
use janus_wire::TableHash;

use self::table::FlowTable;
use crate::rules::config::{Config, Secrets};
use crate::store::challenge::Limits;
use crate::store::half_open::HalfOpens;
use crate::store::keys::ConnSlot;
use crate::store::listener::Listeners;
use crate::store::moves::Moves;
use crate::store::stub::{STUBS_MAX, Stubs};
use crate::store::time_wait::TimeWaits;

/// The index of a stack.
pub(crate) struct Index {
    pub(crate) hash: TableHash,
    pub(crate) table: FlowTable,
    pub(crate) half_open: HalfOpens,
    pub(crate) time_wait: TimeWaits,
    pub(crate) stubs: Stubs,
    pub(crate) moves: Moves,
    pub(crate) listeners: Listeners,
    pub(crate) limits: Limits,
    /// The connection whose handshake ended last.
    pub(crate) established: Option<ConnSlot>,
}

impl Index {
    pub(crate) fn new(
        config: &Config,
        secrets: &Secrets,
        growth: &Growth,
    ) -> Result<Index, MemError> {
        let flows = config.max_connections.saturating_add(config.max_half_open);
        let flows = flows
            .saturating_add(config.max_time_wait)
            .saturating_add(STUBS_MAX);
        Ok(Index {
            hash: TableHash::new(secrets.table_key().0, secrets.table_key().1),
            table: FlowTable::new(flows, growth)?,
            half_open: HalfOpens::new(config.max_half_open, growth)?,
            time_wait: TimeWaits::new(config.max_time_wait, growth)?,
            stubs: Stubs::new(growth),
            moves: Moves::default(),
            listeners: Listeners::new(),
            limits: Limits::default(),
            established: None,
        })
    }
}
