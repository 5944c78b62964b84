//! Namespaces of the benchmark's own, which go with the value, and programs that are run in them.

use std::process::Command;

/// Runs a line of words; its output.
pub(crate) fn run(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a program");
    let ended = Command::new(name).args(words).output();
    let ended = ended.map_err(|error| format!("{name}: {error}"))?;
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(format!(
            "{line}: {}",
            String::from_utf8_lossy(&ended.stderr).trim()
        )),
    }
}

/// `far` has the clients, and TAP; `near` has the kernel's server.
pub(crate) struct Spaces {
    pub(crate) far: String,
    pub(crate) near: String,
}

impl Spaces {
    pub(crate) fn new() -> Result<Spaces, String> {
        let id = std::process::id();
        let (far, near) = (format!("jb{id}"), format!("jc{id}"));
        let spaces = Spaces { far, near };
        for space in [&spaces.far, &spaces.near] {
            run(&format!("ip netns add {space}"))?;
            run(&format!("ip -n {space} link set lo up"))?;
            // Else clients run out of ports, for a minute, where each request has a connection.
            run(&format!(
                "ip netns exec {space} sysctl -qw net.ipv4.tcp_tw_reuse=1"
            ))?;
        }
        Ok(spaces)
    }

    /// Runs `ip` in `far`.
    pub(crate) fn ip_far(&self, words: &str) -> Result<String, String> {
        run(&format!("ip -n {} {words}", self.far))
    }

    /// Runs `ip` in `near`.
    pub(crate) fn ip_near(&self, words: &str) -> Result<String, String> {
        run(&format!("ip -n {} {words}", self.near))
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for space in [&self.far, &self.near] {
            let _ = run(&format!("ip netns del {space}"));
        }
    }
}
