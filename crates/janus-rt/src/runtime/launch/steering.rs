//! Steering of packets: the balancer, and the steering of each core that polls the device.

use std::sync::Arc;

use janus_csb::policy::{HeatSampler, level};
use janus_csb::{Balancer, Ring, ShardEnd, ShardId};
use janus_io::policy::ClockFn;
use janus_io::steer::{SocketPorts, Steerer};
use janus_tcp::{Interface, Secrets};
use janus_wire::{FlowNames, Toeplitz};

use super::secrets;
use crate::admission::Admission;
use crate::clock::Clock;
use crate::config::Settings;
use crate::control::mailbox::ControlMailbox;
use crate::control::watch::PolicyName;
use crate::runtime::BoxError;

/// Points on the ring for each shard. Their places are chosen so that shares are even; with more of them what a shard
/// gives up goes to more others.
const POINTS: u16 = 32;

/// The balancer with its ends, and what polling cores ask.
pub(super) struct Steering {
    pub(super) balancer: Balancer,
    pub(super) ends: Vec<ShardEnd>,
    pub(super) toeplitz: Toeplitz,
    pub(super) flow_names: FlowNames,
    pub(super) admission: Admission,
    pub(super) sockets: Arc<SocketPorts>,
    /// Number of cores that timestamps name; `None`: they name none.
    pub(super) owner_bits_cores: Option<u16>,
}

impl Steering {
    pub(super) fn new(
        settings: &Settings,
        key: &[u8; 40],
        interface: &Interface,
        leads_outside: bool,
    ) -> Result<Steering, BoxError> {
        let cores = settings.cores.count;
        let points_seed = settings.seed.unwrap_or_default() as u32;
        let ring = level(&Ring::uniform(cores, POINTS, points_seed), &[]);
        let mut balancer = Balancer::new(
            ring,
            secrets::limits(settings.seed, settings.max_connections)?,
        );
        let shards = (0..cores).map(|core| ShardId(core as u8));
        let own = interface.addresses.iter().map(|own| own.addr).collect();
        let rules = settings.rules(leads_outside, own);
        Ok(Steering {
            ends: shards.map(|shard| balancer.shard_end(shard)).collect(),
            balancer,
            toeplitz: Toeplitz::new(key),
            flow_names: secrets::names(settings.seed)?,
            admission: Admission::new(rules, secrets::rates_secret(settings.seed)?),
            sockets: Arc::default(),
            // One core need not be named.
            owner_bits_cores: (settings.owner_bits && cores > 1).then_some(cores as u16),
        })
    }

    /// Makes a steerer for each queue of the device.
    pub(super) fn steerers(
        &mut self,
        settings: &Settings,
        interface: &Interface,
        secrets: &Secrets,
        mailbox: &Arc<ControlMailbox>,
        clock: Clock,
    ) -> Vec<Steerer> {
        let nanoseconds: Arc<ClockFn> = Arc::new(move || clock.now().as_nanos());
        let queues = settings.queues();
        let steerers = (0..queues).map(|_| {
            let (end, mailbox) = (self.balancer.io_end(), mailbox.clone());
            let heat = mailbox.heat().clone();
            let mut steerer =
                Steerer::new(self.toeplitz.clone(), self.flow_names, end, interface.link)
                    .with_sockets(self.sockets.clone())
                    .telling(Box::new(move || mailbox.adopted()))
                    .behind(self.admission.stage(queues, nanoseconds.clone()));
            if let Some(cores) = self.owner_bits_cores {
                steerer = steerer.by_echoes(*secrets.naming(0, cores).stamps());
            }
            match settings.balance {
                PolicyName::Fixed => steerer,
                _ => steerer.sampled(HeatSampler::new(heat)),
            }
        });
        steerers.collect()
    }
}
