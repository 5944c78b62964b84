//! The scripts of this repository: which there are, and which of them are true of both families.

use janus_sim::script::{Action, Script};
use std::path::{Path, PathBuf};

/// Folders may nest this deep.
const DEPTH_MAX: usize = 6;

/// What differs between the families, so that a script is true of one only.
const ONLY_V4: [&str; 3] = [
    // 536 bytes; over IPv6 1,220: `ipv6/segment_sizes.pkt`.
    "options/mss_default.pkt",
    "handshake/peer_without_options.pkt",
    // The first guess of a silent path's size is 1,064 bytes; over IPv6 every path carries 1,280.
    "pmtu/black_hole.pkt",
];

fn scripts(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() && depth < DEPTH_MAX {
            scripts(&path, depth + 1, found);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            found.push(path);
        }
    }
}

/// The scripts, in order.
pub(crate) fn all() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packetdrill");
    let folder = folder.canonicalize().expect("the folder of scripts");
    let mut found = Vec::new();
    scripts(&folder, 0, &mut found);
    found.sort();
    let wanted = std::env::var("JANUS_SCRIPT").unwrap_or_default();
    found.retain(|path| path.to_string_lossy().contains(&wanted));
    assert!(!found.is_empty(), "no script matches `{wanted}`");
    found
}

/// The script over IPv6, if it makes sense there: not if it is about IPv4's addresses or about its ICMP.
pub(crate) fn over_v6(path: &Path) -> Option<Script> {
    let text = std::fs::read_to_string(path).expect("a readable script");
    if ONLY_V4.iter().any(|name| path.ends_with(name)) {
        return None;
    }
    // The other test tells what is wrong with one that does not parse.
    let mut script = Script::parse(&text).ok()?;
    let is_icmp =
        |action: &Action| matches!(action, Action::InboundIcmp(_) | Action::OutboundIcmp(_));
    let names_v4 = ["AF_INET", "inet_addr", "IPPROTO_IP,", "--ip_version=ipv4"];
    if script.events.iter().any(|event| is_icmp(&event.action))
        || names_v4.iter().any(|name| text.contains(name))
    {
        return None;
    }
    script.settings = script.settings.moved_to_v6()?;
    Some(script)
}
