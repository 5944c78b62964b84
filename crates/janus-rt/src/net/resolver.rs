//! Looks up addresses of names. Order: addresses in the text itself, `localhost`, the hosts file, then name servers, queried over our own
//! device if it can reach any, else the system's resolver on a thread of its own. The last applies behind the portal, and where
//! `/etc/resolv.conf` only names a server on the kernel's loopback. Answers are cached for their time to live, and simultaneous queries
//! for one name share a search.

mod ask;
mod cache;
mod files;
mod message;
mod shared;

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use rustix::io::Errno;

use super::address::Target;
use crate::dhcp::Shown;
use crate::shard::core_context::{self, CoreContext};
use crate::spawn::spawn_blocking;
use ask::Wanted;
use cache::NameCache;
use files::{Conf, DNS_PORT};
use message::Family;
use shared::{Searches, Sought};

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Looks up the addresses of a name, or of anything else that names a destination.
///
/// ```no_run
/// # async fn look() -> std::io::Result<()> {
/// for address in janus::net::lookup_host("example.com:443").await? {
///     println!("{address}");
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`NotFound`](io::ErrorKind::NotFound) when the name has no address, else the error of the last name server.
///
/// # Cancel safety
/// Nothing is lost when the future is dropped; others that ask for the name go on.
pub async fn lookup_host(
    host: impl super::ToAddress,
) -> io::Result<impl Iterator<Item = SocketAddr>> {
    Ok(addresses(host.to_target()?).await?.into_iter())
}

/// Returns the target's addresses in the order in which they are to be tried; empty only when none were given.
pub(super) async fn addresses(target: Target) -> io::Result<Vec<SocketAddr>> {
    match target {
        Target::Address(address) => Ok(vec![address]),
        Target::Addresses(addresses) => Ok(addresses),
        Target::Name { host, port } => Ok(with_port(resolve(host, Wanted::All).await?, port)),
    }
}

/// Returns addresses to connect to as soon as there are any; of one family only when the other's answer is late.
pub(super) async fn addresses_soon(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(with_port(resolve(host, Wanted::Soon).await?, port))
}

fn with_port(found: Vec<IpAddr>, port: u16) -> Vec<SocketAddr> {
    found
        .into_iter()
        .map(|ip| SocketAddr::new(ip, port))
        .collect()
}

/// Error for a target without addresses.
pub(super) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no address was given")
}

/// Error for a name that does not exist.
fn unknown(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("`{name}` is no name of a host"),
    )
}

/// Names that the cores of a runtime have cached, and searches under way.
#[derive(Default)]
struct DnsCache {
    answers: NameCache,
    searches: Arc<Searches>,
}

fn dns_cache(ctx: &CoreContext) -> Arc<DnsCache> {
    ctx.shared.slots.get(DnsCache::default)
}

/// Name servers that a core can ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Ways {
    /// Configured servers; if there are any, no others are queried.
    configured: Vec<SocketAddr>,
    /// Servers from the DHCP lease, our own or the daemon's; if there are any, the system's are not queried.
    leased: Vec<SocketAddr>,
    families: Vec<Family>,
    /// Whether the device carries UDP.
    own: bool,
}

/// Result of reading the files.
enum Local {
    Addresses(Vec<IpAddr>),
    Ask(Conf),
    System,
}

async fn resolve(host: String, wanted: Wanted) -> io::Result<Vec<IpAddr>> {
    if is_localhost(&host) {
        // RFC 6761 section 6.3: this name may be answered without a query.
        return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
    }
    let known = |ctx: &CoreContext| {
        let ways = ways(ctx);
        let cache = dns_cache(ctx);
        let known = cache.answers.get(&ways, &host, ctx.now.get());
        known.ok_or_else(|| (ways, cache.searches.clone()))
    };
    let (ways, searches) = match core_context::with(known).ok_or_else(core_context::no_core)? {
        Ok(known) => return some_of(known, &host),
        Err(unknown) => unknown,
    };
    let sought = Sought {
        name: host.to_ascii_lowercase(),
        wanted,
        ways: ways.clone(),
    };
    let search = || search(host.clone(), ways.clone(), wanted);
    some_of(searches.join(sought, search).await?, &host)
}

/// Queries files and servers; an empty list when they say that the name has no address.
async fn search(host: String, ways: Ways, wanted: Wanted) -> io::Result<Vec<IpAddr>> {
    let (name, asked) = (host.clone(), ways.clone());
    let files = spawn_blocking(move || look_in_files(&name, &asked));
    let looked = files.await.map_err(io::Error::other)?;
    let looked =
        looked.inspect_err(|_| _ = core_context::with(|ctx| ctx.shared.mailbox.no_descriptor()));
    let mut conf = match looked? {
        Local::Addresses(found) => return Ok(found),
        Local::Ask(conf) => conf,
        Local::System => return ask_system(host).await,
    };
    let reachable = |server: &SocketAddr| {
        let ip = server.ip();
        let reached = core_context::with(|ctx| ctx.stack.borrow().interface().reaches(ip));
        !ip.is_loopback() && reached == Some(true)
    };
    conf.servers.retain(reachable);
    if conf.servers.is_empty() && ways.configured.is_empty() {
        return ask_system(host).await;
    }
    let found = ask::addresses(&conf, &ways.families, &host, wanted).await?;
    core_context::with(|ctx| {
        dns_cache(ctx)
            .answers
            .put(&ways, &host, &found, ctx.now.get());
    });
    Ok(found.addresses)
}

/// Returns the addresses found, or the error that there is no such name.
fn some_of(found: Vec<IpAddr>, host: &str) -> io::Result<Vec<IpAddr>> {
    match found.is_empty() {
        true => Err(unknown(host)),
        false => Ok(found),
    }
}

fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let tail = host.len().checked_sub("localhost".len());
    tail.and_then(|at| host.get(at..).map(|tail| (at, tail)))
        .is_some_and(|(at, tail)| {
            tail.eq_ignore_ascii_case("localhost") && (at == 0 || host.as_bytes()[at - 1] == b'.')
        })
}

fn ways(ctx: &CoreContext) -> Ways {
    let stack = ctx.stack.borrow();
    let own = &stack.interface().addresses;
    let speaks = |v4: bool| own.iter().any(|own| own.addr.is_ipv4() == v4);
    let mut families = Vec::new();
    // RFC 6724 section 2.1: IPv6 goes first where there is both.
    families.extend(speaks(false).then_some(Family::V6));
    families.extend(speaks(true).then_some(Family::V4));
    Ways {
        configured: ctx.shared.settings.get().dns.clone(),
        leased: (ctx.shared.slots.get(Shown::default)).name_servers(DNS_PORT),
        families,
        own: ctx.shared.passage.is_none(),
    }
}

/// Looks in the files; called on a thread that may block.
fn look_in_files(name: &str, ways: &Ways) -> io::Result<Local> {
    let found = files::in_hosts(&text_of(HOSTS)?, name);
    if !found.is_empty() {
        return Ok(Local::Addresses(found));
    }
    if !ways.own {
        return Ok(Local::System);
    }
    let mut conf = Conf::read(&text_of(RESOLV_CONF)?);
    let told = [&ways.configured, &ways.leased];
    if let Some(servers) = told.into_iter().find(|servers| !servers.is_empty()) {
        conf.servers.clone_from(servers);
    }
    Ok(Local::Ask(conf))
}

/// Reads a file as text, lossily; one that cannot be opened is empty. Running out of descriptors is an error, since the file may
/// hold the only answer.
fn text_of(path: &str) -> io::Result<String> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => _ = file.take(files::FILE_MAX).read_to_end(&mut text),
        Err(error) if is_short_of_descriptors(&error) => {
            let text = format!("{path} cannot be read: {error}");
            return Err(io::Error::new(error.kind(), text));
        }
        Err(_) => {}
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn is_short_of_descriptors(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

async fn ask_system(host: String) -> io::Result<Vec<IpAddr>> {
    let name = host.clone();
    let asked = spawn_blocking(move || {
        let found = (name.as_str(), 0).to_socket_addrs()?;
        io::Result::Ok(found.map(|address| address.ip()).collect::<Vec<_>>())
    });
    let mut found = asked.await.map_err(io::Error::other)??;
    let mut seen = Vec::new();
    found.retain(|ip| {
        !seen.contains(ip) && {
            seen.push(*ip);
            true
        }
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_known_in_every_spelling() {
        for yes in ["localhost", "LocalHost.", "a.localhost", "x.y.localhost."] {
            assert!(is_localhost(yes), "{yes}");
        }
        for no in [
            "",
            "host",
            "notlocalhost",
            "localhost.example",
            "älocalhost",
        ] {
            assert!(!is_localhost(no), "{no}");
        }
    }
}
