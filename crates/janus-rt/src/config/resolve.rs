//! From what the sources say to settings: defaults, and what only makes sense together.

use std::net::IpAddr;

use janus_io::policy::{Rules, SynLimit};
use janus_tcp::BufferSizes;

use super::values::{Martians, PlacementName};
use super::{CORES_MAX, ConfigError, Partial, Placement, Settings, addresses, processors};

/// With fewer, what threads and devices have in stock would leave none for packets.
const PACKET_BUFFERS_MIN: u32 = 1024;

impl Partial {
    /// Returns the keys that TCP's own configuration has too, as it has them.
    pub(crate) fn of_tcp(config: &janus_tcp::Config) -> Partial {
        let sizes = config.buffer_sizes();
        Partial {
            max_connections: Some(config.max_connections),
            receive_buffer: Some(sizes.receive),
            receive_buffer_max: Some(sizes.receive_max),
            send_buffer: Some(sizes.send),
            send_buffer_max: Some(sizes.send_max),
            ..Partial::default()
        }
    }

    /// Fills the silent fields with defaults and checks what only makes sense together.
    pub(crate) fn resolve(mut self) -> Result<Settings, ConfigError> {
        self.check_counts()?;
        self.complete_placement()?;
        self.complete_syn_limit()?;
        // Where it can be, it is unless told otherwise: who asks for the feature has code that needs it.
        if self.tokio == Some(true) && !cfg!(feature = "tokio") {
            let problem =
                "this program has no tokio in it: build it with the feature `tokio` of janus-rt";
            return Err(ConfigError::value("tokio", problem.into()));
        }
        let filtered = [("trace_filter", self.trace_filter.is_some())];
        let problem = "means something only with a file in `trace`";
        ConfigError::lonely(&filtered, self.trace.is_some(), problem)?;
        let faults = self.link_faults()?;
        let mut settings = self.fill(faults, false);
        let threads = settings.cores.count + settings.io_cores.unwrap_or(0);
        settings.pin = threads <= processors() && threads > 1;
        addresses::check(&settings)?;
        Ok(settings)
    }

    /// Numbers that no form of theirs has checked where the builder gave them.
    fn check_counts(&self) -> Result<(), ConfigError> {
        let cores = self.cores.as_ref().map(|cores| cores.count);
        for (key, count) in [("cores", cores), ("io_cores", self.io_cores)] {
            if let Some(count) = count.filter(|count| !(1..=CORES_MAX).contains(count)) {
                let problem = format!("{count} is not between 1 and {CORES_MAX}");
                return Err(ConfigError::value(key, problem));
            }
        }
        if let Some(few) = self.packet_buffers.filter(|few| *few < PACKET_BUFFERS_MIN) {
            let problem = format!(
                "{few} is too few for cores that keep some in stock: {PACKET_BUFFERS_MIN} or more"
            );
            return Err(ConfigError::value("packet_buffers", problem));
        }
        if self.blocking_threads == Some(0) {
            let problem = "must be 1 at least".into();
            return Err(ConfigError::value("blocking_threads", problem));
        }
        Ok(())
    }

    /// Makes `placement` and `io_cores` agree: there is a number of I/O cores exactly where there are some.
    fn complete_placement(&mut self) -> Result<(), ConfigError> {
        if self.placement == Some(PlacementName::Combined) && self.io_cores.is_some() {
            let problem = "only `placement = \"split\"` has I/O cores".into();
            return Err(ConfigError::value("io_cores", problem));
        }
        if self.io_cores.is_some() || self.placement == Some(PlacementName::Split) {
            self.placement = Some(PlacementName::Split);
            self.io_cores.get_or_insert(1);
        }
        Ok(())
    }

    /// Gives all keys of the limit a value where there is one.
    fn complete_syn_limit(&mut self) -> Result<(), ConfigError> {
        let lonely = [
            ("admission_syn_burst", self.admission_syn_burst.is_some()),
            ("admission_syn_prefix", self.admission_syn_prefix.is_some()),
            (
                "admission_syn_prefix_v6",
                self.admission_syn_prefix_v6.is_some(),
            ),
        ];
        let problem = "means something only with `admission_syn_rate`";
        ConfigError::lonely(&lonely, self.admission_syn_rate.is_some(), problem)?;
        if let Some(usual) = self.admission_syn_rate.map(SynLimit::new) {
            self.admission_syn_burst.get_or_insert(usual.burst);
            self.admission_syn_prefix.get_or_insert(usual.prefix_v4);
            self.admission_syn_prefix_v6.get_or_insert(usual.prefix_v6);
        }
        Ok(())
    }
}

impl Settings {
    /// Returns the buffer sizes of connections whose options set none.
    pub(crate) fn buffers(&self) -> BufferSizes {
        BufferSizes {
            receive: self.receive_buffer,
            receive_max: self.receive_buffer_max,
            send: self.send_buffer,
            send_max: self.send_buffer_max,
        }
    }

    pub(crate) fn placement(&self) -> Placement {
        match self.io_cores {
            None => Placement::Combined,
            Some(io_cores) => Placement::Split { io_cores },
        }
    }

    /// Number of queues that the backend is asked for.
    pub(crate) fn queues(&self) -> usize {
        self.io_cores.unwrap_or(self.cores.count)
    }

    /// Returns the rules for a device. One that leads outside has no martians unless they are allowed; on one that does not, such as the
    /// portal's wire, loopback is what there is.
    pub(crate) fn rules(&self, leads_outside: bool, own: Vec<IpAddr>) -> Rules {
        if let Some(given) = &self.given_rules {
            return given.clone();
        }
        let usual = match leads_outside {
            true => Martians::Drop,
            false => Martians::Pass,
        };
        let syn_limit = self.admission_syn_rate.map(|rate| {
            let usual = SynLimit::new(rate);
            SynLimit {
                burst: self.admission_syn_burst.unwrap_or(usual.burst),
                prefix_v4: self.admission_syn_prefix.unwrap_or(usual.prefix_v4),
                prefix_v6: self.admission_syn_prefix_v6.unwrap_or(usual.prefix_v6),
                ..usual
            }
        });
        Rules {
            drop_martians: self.admission_martians.unwrap_or(usual) == Martians::Drop,
            own,
            allow: self.admission_allow.clone(),
            deny: self.admission_deny.clone(),
            syn_limit,
        }
    }
}
