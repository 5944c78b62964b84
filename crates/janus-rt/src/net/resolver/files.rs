//! The host's own files on names: `/etc/hosts`, and `/etc/resolv.conf` with the name servers and how to query them. Lines that cannot be
//! parsed are skipped, as other resolvers do.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Port of name servers.
pub(super) const DNS_PORT: u16 = 53;
/// Most servers and search domains that are read (resolv.conf(5)).
const SERVERS_MAX: usize = 3;
const SEARCH_MAX: usize = 6;
/// Most bytes of a hosts file that are read: some lists of unwanted names are long.
pub(super) const FILE_MAX: u64 = 16 << 20;

/// Returns the addresses that a hosts file has for `name`.
pub(super) fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// Name servers, and how to query them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conf {
    pub(super) servers: Vec<SocketAddr>,
    /// Domains appended to a name that is not complete.
    pub(super) search: Vec<String>,
    /// Dots from which on a name is complete and queried as it is first.
    pub(super) ndots: usize,
    /// How long to wait for an answer.
    pub(super) timeout: Duration,
    /// How often all servers are queried.
    pub(super) attempts: u32,
}

impl Default for Conf {
    fn default() -> Conf {
        Conf {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
        }
    }
}

impl Conf {
    /// Parses a `resolv.conf`.
    pub(super) fn read(text: &str) -> Conf {
        let mut conf = Conf::default();
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") if conf.servers.len() < SERVERS_MAX => {
                    let server = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    conf.servers
                        .extend(server.map(|ip| SocketAddr::new(ip, DNS_PORT)));
                }
                // The last of these lines counts.
                Some("search" | "domain") => {
                    conf.search = words.take(SEARCH_MAX).map(str::to_owned).collect();
                }
                Some("options") => words.for_each(|word| conf.option(word)),
                _ => {}
            }
        }
        conf
    }

    fn option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else {
            return;
        };
        let Ok(value) = value.parse::<u32>() else {
            return;
        };
        match name {
            "ndots" => self.ndots = value.min(15) as usize,
            "timeout" => self.timeout = Duration::from_secs(value.clamp(1, 30).into()),
            "attempts" => self.attempts = value.clamp(1, 5),
            _ => {}
        }
    }

    /// Returns the names to query, in order, for the name that the user wrote.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let dots = name.bytes().filter(|byte| *byte == b'.').count();
        let searched = self.search.iter().map(|domain| format!("{name}.{domain}"));
        let mut names: Vec<String> = searched.collect();
        let place = if dots >= self.ndots { 0 } else { names.len() };
        names.insert(place, name.to_owned());
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_file_has_all_addresses_of_a_name() {
        let text = "# comment\n127.0.0.1 localhost\n192.0.2.7\tweb web.example # the first\n\
                    2001:db8::7 WEB.example\nnonsense web\n192.0.2.7 web\n";
        let expected: Vec<IpAddr> = ["192.0.2.7", "2001:db8::7"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        assert_eq!(in_hosts(text, "web.example"), expected);
        assert_eq!(in_hosts(text, "WEB.EXAMPLE."), expected);
        assert_eq!(in_hosts(text, "web"), expected[..1]);
        assert!(in_hosts(text, "first").is_empty());
    }

    #[test]
    fn a_resolv_conf_names_servers_domains_and_options() {
        let text = "nameserver 192.0.2.53\n; old\nnameserver not-an-address\nnameserver 2001:db8::53\n\
                    search old.example\nsearch a.example b.example\n\
                    options ndots:2 timeout:3 attempts:9 rotate\nnameserver 192.0.2.54\nnameserver 192.0.2.55";
        let conf = Conf::read(text);
        let servers: Vec<String> = conf.servers.iter().map(SocketAddr::to_string).collect();
        assert_eq!(
            servers,
            ["192.0.2.53:53", "[2001:db8::53]:53", "192.0.2.54:53"]
        );
        assert_eq!(conf.search, ["a.example", "b.example"]);
        assert_eq!((conf.ndots, conf.attempts), (2, 5));
        assert_eq!(conf.timeout, Duration::from_secs(3));
        assert_eq!(Conf::read(""), Conf::default());
    }

    #[test]
    fn short_names_are_looked_for_in_the_domains_first() {
        let conf = Conf::read("search a.example b.example");
        assert_eq!(
            conf.candidates("web"),
            ["web.a.example", "web.b.example", "web"]
        );
        assert_eq!(conf.candidates("web.c")[0], "web.c");
        assert_eq!(conf.candidates("web."), ["web."]);
    }
}
