//! The addresses of the device: as they are given, or as a lease brings and takes them. Members are told here, and whoever asks while there
//! is none waits here.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use janus::{Addressing, Lease, OpenDevice};
use janus_io::park::Unparker;
use janus_shm::{Hello, Message, Network};
use janus_tcp::{IpCidr, Route};
use janus_wire::dhcp;
use rustix::io::Errno;

use crate::check::Identity;
use crate::desk::refused;
use crate::member::{Breach, Member, Stage, Waits};
use crate::ports::{KEPT, Port, Ports, Slot};
use crate::switch::Switch;

/// A longer wait is as good as none that ends, and no clock can hold all of them.
const WAIT_MAX: Duration = Duration::from_secs(1 << 32);

/// The way of leased addresses from the thread that has the lease to the loop.
#[derive(Clone)]
pub(crate) struct Leased(Arc<Shared>);

struct Shared {
    /// There is news.
    fresh: AtomicBool,
    /// The last one alone counts.
    news: Mutex<Option<News>>,
    /// Longest wait for the first lease.
    wait: Duration,
    wakes: Unparker,
}

/// Word of the addresses.
pub(crate) enum News {
    /// These are the device's from now on.
    Has(Network),
    /// There was no first lease: the reason.
    Failed(String),
}

impl Leased {
    pub(crate) fn new(wait: Duration, wakes: Unparker) -> Leased {
        Leased(Arc::new(Shared {
            fresh: AtomicBool::new(false),
            news: Mutex::new(None),
            wait: wait.min(WAIT_MAX),
            wakes,
        }))
    }

    pub(crate) fn tell(&self, news: News) {
        let mut place = self.0.news.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(news);
        drop(place);
        self.0.fresh.store(true, Ordering::Release);
        self.0.wakes.wake();
    }

    /// Longest wait for an address.
    pub(crate) fn wait(&self) -> Duration {
        self.0.wait
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.0.fresh.load(Ordering::Acquire)
    }

    fn take(&self) -> Option<News> {
        if !self.0.fresh.swap(false, Ordering::AcqRel) {
            return None;
        }
        let mut place = self.0.news.lock().unwrap_or_else(PoisonError::into_inner);
        place.take()
    }
}

/// The addresses at the start: those that are given. Where one is leased there is none yet, and what is said of it is the keeper's to hear.
pub(crate) fn first(device: &OpenDevice, leased: Option<&Leased>, ports: &mut Ports) -> Network {
    if leased.is_some() {
        ports.keep_for_keeper(Port {
            udp: true,
            number: dhcp::CLIENT_PORT,
        });
        return Network::default();
    }
    let interface = &device.interface;
    Network {
        addresses: (interface.addresses.iter()).map(pair).collect(),
        gateways: device.gateways().collect(),
        routes: (interface.routes.iter()).map(triple).collect(),
        ..Network::default()
    }
}

/// The addresses with a lease, or what is left without one.
pub(crate) fn leased(addressing: &Addressing, lease: Option<&Lease>) -> Network {
    let servers = lease.iter().flat_map(|it| &it.name_servers);
    let v4 = addressing.gateway.map(IpAddr::V4);
    let v6 = addressing.gateway_v6.map(IpAddr::V6);
    Network {
        addresses: addressing.addresses.iter().map(pair).collect(),
        gateways: v4.into_iter().chain(v6).collect(),
        routes: addressing.routes.iter().map(triple).collect(),
        name_servers: servers.copied().map(IpAddr::V4).collect(),
        mtu: addressing.mtu,
        wait_ms: 0,
    }
}

fn pair(own: &IpCidr) -> (IpAddr, u8) {
    (own.addr, own.prefix)
}

fn triple(route: &Route) -> (IpAddr, u8, IpAddr) {
    (route.to.addr, route.to.prefix, route.gateway)
}

impl Switch {
    /// Takes over what the lease has come to. An error: there was none in time, and there is nothing to serve.
    pub(crate) fn learns(&mut self) -> io::Result<()> {
        match self.leased.as_ref().and_then(Leased::take) {
            None => {}
            Some(News::Has(network)) if network == self.network => {}
            Some(News::Has(network)) => self.readdresses(network),
            Some(News::Failed(why)) => {
                for member in self.members.iter().flatten() {
                    if member.waits.is_some() {
                        // It is hung up on in any case.
                        let _ = member.say(&no_address(why.clone()));
                    }
                }
                return Err(io::Error::other(why));
            }
        }
        Ok(())
    }

    /// When the first of those is to be refused that wait for an address.
    pub(crate) fn refuses_next(&self) -> Option<Instant> {
        let waiting = self.members[..self.places].iter().flatten();
        waiting
            .filter_map(|it| Some(it.waits.as_ref()?.until))
            .min()
    }

    fn readdresses(&mut self, network: Network) {
        let addresses = network.addresses.iter().map(|(addr, _)| *addr).collect();
        self.identity = Identity::new(self.welcome.device, addresses);
        self.welcome.addresses.clone_from(&network.addresses);
        self.welcome.gateways.clone_from(&network.gateways);
        if self.network.addresses.is_empty() && self.quiet_until.is_some() {
            // Members of the daemon before could not join until now.
            self.quiet_until = Some(Instant::now() + KEPT);
        }
        self.network = network;
        for slot in 0..self.members.len() {
            let Some(mut member) = self.members[slot].take() else {
                continue;
            };
            let told = self.tells(slot as Slot, &mut member);
            self.members[slot] = Some(member);
            if let Err(breach) = told {
                self.cut_off(slot as Slot, &breach);
            }
        }
    }

    /// Tells a member of other addresses, or welcomes it at last.
    fn tells(&mut self, slot: Slot, member: &mut Member) -> Result<(), Breach> {
        if member.stage == Stage::Asks {
            return Ok(());
        }
        let has_none = self.network.addresses.is_empty();
        match member.waits.take_if(|_| !has_none) {
            Some(Waits { hello, .. }) => {
                member.since = Instant::now();
                self.welcomes(slot, member, &hello)
            }
            None if member.waits.is_some() => Ok(()),
            None => member.say(&Message::Network(self.network.clone())),
        }
    }

    /// Has one that asks wait if there is no address. False: it need not.
    pub(crate) fn has_it_wait(&self, member: &mut Member, hello: &Hello) -> Result<bool, Breach> {
        let Some(leased) = self
            .leased
            .as_ref()
            .filter(|_| self.network.addresses.is_empty())
        else {
            return Ok(false);
        };
        let wait = leased.wait();
        member.waits = Some(Waits {
            hello: hello.clone(),
            until: Instant::now() + wait,
        });
        member.say(&Message::Network(Network {
            wait_ms: u32::try_from(wait.as_millis()).unwrap_or(u32::MAX),
            ..Network::default()
        }))?;
        Ok(true)
    }

    /// Refuses a member that has waited for an address for too long. False: it has not.
    pub(crate) fn refuses_to_wait(&self, member: &Member) -> Result<bool, Breach> {
        let (Some(waits), Some(leased)) = (&member.waits, &self.leased) else {
            return Ok(false);
        };
        if Instant::now() < waits.until {
            return Ok(false);
        }
        let within = leased.wait().as_millis();
        let why = format!("no DHCP server has given the daemon an address within {within} ms");
        member.say(&no_address(why))?;
        Ok(true)
    }
}

fn no_address(why: String) -> Message {
    refused(0, Errno::ADDRNOTAVAIL, why)
}
