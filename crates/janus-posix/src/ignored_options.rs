//! Options that are taken and told as Linux does, and that change nothing here: there is no queueing discipline, no routing by
//! mark, no device to look at. A program that sets them goes on working; `docs/sockets.md` names each.

use crate::abi;
use crate::errno::Errno;

/// Values of the kept options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IgnoredOptions {
    priority: i32,
    mark: i32,
    /// IP_MTU_DISCOVER, IPV6_MTU_DISCOVER.
    discover: i32,
    receive_error: bool,
    broadcast: bool,
    free_bind: bool,
    busy_poll: i32,
}

impl Default for IgnoredOptions {
    fn default() -> IgnoredOptions {
        IgnoredOptions {
            priority: 0,
            mark: 0,
            // ip_no_pmtu_disc is 0.
            discover: abi::IP_PMTUDISC_WANT,
            receive_error: false,
            broadcast: false,
            free_bind: false,
            busy_poll: 0,
        }
    }
}

impl IgnoredOptions {
    /// Changes what `name` is. `None`: it is none of these.
    pub(crate) fn change(
        &mut self,
        level: i32,
        name: i32,
        value: i32,
    ) -> Result<Option<()>, Errno> {
        match (level, name) {
            // More needs CAP_NET_ADMIN; programs here have no capabilities (sk_setsockopt).
            (abi::SOL_SOCKET, abi::SO_PRIORITY) => match value {
                0..=6 => self.priority = value,
                _ => return Err(Errno::EPERM),
            },
            (abi::SOL_SOCKET, abi::SO_MARK) => self.mark = value,
            (abi::SOL_SOCKET, abi::SO_BROADCAST) => self.broadcast = value != 0,
            (abi::IPPROTO_IP, abi::IP_FREEBIND) => self.free_bind = value != 0,
            (abi::SOL_SOCKET, abi::SO_BUSY_POLL) => match value {
                0.. => self.busy_poll = value,
                _ => return Err(Errno::EINVAL),
            },
            (abi::IPPROTO_IP, abi::IP_MTU_DISCOVER)
            | (abi::IPPROTO_IPV6, abi::IPV6_MTU_DISCOVER) => match value {
                0..=5 => self.discover = value,
                _ => return Err(Errno::EINVAL),
            },
            (abi::IPPROTO_IP, abi::IP_RECVERR) | (abi::IPPROTO_IPV6, abi::IPV6_RECVERR) => {
                self.receive_error = value != 0;
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// Returns the value of option `name`.
    pub(crate) fn value(&self, level: i32, name: i32) -> Option<i32> {
        Some(match (level, name) {
            (abi::SOL_SOCKET, abi::SO_PRIORITY) => self.priority,
            (abi::SOL_SOCKET, abi::SO_MARK) => self.mark,
            (abi::SOL_SOCKET, abi::SO_BROADCAST) => i32::from(self.broadcast),
            (abi::IPPROTO_IP, abi::IP_FREEBIND) => i32::from(self.free_bind),
            (abi::SOL_SOCKET, abi::SO_BUSY_POLL) => self.busy_poll,
            (abi::IPPROTO_IP, abi::IP_MTU_DISCOVER)
            | (abi::IPPROTO_IPV6, abi::IPV6_MTU_DISCOVER) => self.discover,
            (abi::IPPROTO_IP, abi::IP_RECVERR) | (abi::IPPROTO_IPV6, abi::IPV6_RECVERR) => {
                i32::from(self.receive_error)
            }
            _ => return None,
        })
    }
}
