//! Addresses that cannot work, found before a device is opened: packets for them would go nowhere, without a word.

use std::net::{IpAddr, Ipv4Addr};

use super::{BackendName, Cidr, ConfigError, KernelAddress, Settings};

/// The first thing said of addresses that cannot work.
pub(super) fn check(settings: &Settings) -> Result<(), ConfigError> {
    let own = &settings.address.given;
    let alone = own.iter().all(|cidr| cidr.address().is_loopback());
    if let (Some(cidr), true, false) = (own.first(), alone, settings.backend == BackendName::None) {
        let problem = format!(
            "{cidr} is loopback, for which no device has packets: give one of its own besides, or `backend = \"none\"`"
        );
        return Err(ConfigError::value("address", problem));
    }
    for cidr in own {
        if let Some(why) = cannot_be_ours(*cidr) {
            let problem = format!("{cidr} {why}");
            return Err(ConfigError::value("address", problem));
        }
        if let Some(KernelAddress::Given(kernel, _)) = settings.tap_kernel_address
            && cidr.address() == IpAddr::V4(kernel)
        {
            let problem =
                format!("{kernel} is ours (`address`): the kernel's end needs another one");
            return Err(ConfigError::value("tap_kernel_address", problem));
        }
    }
    // A link-local gateway is on the link whatever our addresses are.
    let v6 = settings
        .gateway_v6
        .filter(|gateway| !gateway.is_unicast_link_local());
    let gateways = [
        ("gateway", settings.gateway.map(IpAddr::V4)),
        ("gateway_v6", v6.map(IpAddr::V6)),
    ];
    for (key, gateway) in gateways {
        let Some(gateway) = gateway else { continue };
        let mut same = own
            .iter()
            .filter(|cidr| cidr.address().is_ipv4() == gateway.is_ipv4())
            .peekable();
        // A server, or the device's default, says what is not said here.
        if same.peek().is_none() || settings.address.dhcp {
            continue;
        }
        if !same.any(|cidr| cidr.network().contains(gateway)) {
            let problem = format!(
                "{gateway} is in no network of ours: `address` says how far they go (192.0.2.1/24)"
            );
            return Err(ConfigError::value(key, problem));
        }
    }
    Ok(())
}

fn cannot_be_ours(cidr: Cidr) -> Option<&'static str> {
    let address = cidr.address();
    if address.is_unspecified() || address.is_multicast() {
        return Some("is no single host's address");
    }
    if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Some("is everybody's");
    }
    if cidr.network().is_broadcast(address) {
        return Some("is for all hosts of its network, or the network itself");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::source::from_text;

    #[test]
    fn addresses_that_cannot_work_are_refused() {
        for (text, part) in [
            ("address = \"127.0.0.1/8\"", "loopback"),
            ("address = \"::1\"", "loopback"),
            ("address = \"0.0.0.0/0\"", "no single host"),
            ("address = \"224.0.0.5/24\"", "no single host"),
            ("address = \"255.255.255.255\"", "everybody"),
            ("address = \"192.0.2.255/24\"", "all hosts"),
            ("address = \"192.0.2.0/24\"", "the network itself"),
            (
                "address = \"192.0.2.1/24\"\ngateway = \"198.51.100.1\"",
                "in no network of ours",
            ),
            (
                "address = [\"192.0.2.1\", \"2001:db8::1/64\"]\ngateway_v6 = \"2001:db8:1::1\"",
                "in no network of ours",
            ),
            (
                "address = \"192.0.2.1/24\"\ntap_kernel_address = \"192.0.2.1/24\"",
                "is ours",
            ),
        ] {
            let error = from_text(text).unwrap().resolve().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for text in [
            "address = [\"192.0.2.0/31\", \"192.0.2.9\", \"2001:db8::/64\"]",
            "address = \"192.0.2.1/24\"\ngateway = \"192.0.2.254\"\ngateway_v6 = \"2001:db8::1\"",
            "address = \"2001:db8::1/64\"\ngateway_v6 = \"fe80::1\"",
            "address = [\"192.0.2.1/24\", \"127.0.0.1/8\"]",
            "address = \"127.0.0.1/8\"\nbackend = \"none\"",
            "address = [\"dhcp\", \"192.0.2.1/24\"]\ngateway = \"198.51.100.1\"",
        ] {
            from_text(text).unwrap().resolve().unwrap();
        }
    }
}
