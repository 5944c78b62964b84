//! Errno values as Linux numbers, names and describes them.

use janus_tcp::Error;
use std::fmt;

/// Why a call failed: Linux's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($value);)*

            /// The value a C program knows by `name`.
            pub fn by_name(name: &str) -> Option<Errno> {
                match name {
                    $(stringify!($name) => Some(Errno::$name),)*
                    "EWOULDBLOCK" => Some(Errno::EAGAIN),
                    _ => None,
                }
            }

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Errno::$name => stringify!($name),)*
                    _ => "an unknown errno",
                }
            }

            /// Returns the text that `strerror` gives.
            pub fn text(self) -> &'static str {
                match self {
                    $(Errno::$name => $text,)*
                    _ => "Unknown error",
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    EINTR = 4, "Interrupted system call";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    EEXIST = 17, "File exists";
    EINVAL = 22, "Invalid argument";
    EMFILE = 24, "Too many open files";
    ENOTTY = 25, "Inappropriate ioctl for device";
    ESPIPE = 29, "Illegal seek";
    EPIPE = 32, "Broken pipe";
    EDOM = 33, "Numerical argument out of domain";
    ELOOP = 40, "Too many levels of symbolic links";
    ENONET = 64, "Machine is not on the network";
    EPROTO = 71, "Protocol error";
    ENOTSOCK = 88, "Socket operation on non-socket";
    EDESTADDRREQ = 89, "Destination address required";
    EMSGSIZE = 90, "Message too long";
    ENOPROTOOPT = 92, "Protocol not available";
    EPROTONOSUPPORT = 93, "Protocol not supported";
    ESOCKTNOSUPPORT = 94, "Socket type not supported";
    EOPNOTSUPP = 95, "Operation not supported";
    EAFNOSUPPORT = 97, "Address family not supported by protocol";
    EADDRINUSE = 98, "Address already in use";
    EADDRNOTAVAIL = 99, "Cannot assign requested address";
    ENETUNREACH = 101, "Network is unreachable";
    ECONNABORTED = 103, "Software caused connection abort";
    ECONNRESET = 104, "Connection reset by peer";
    ENOBUFS = 105, "No buffer space available";
    EISCONN = 106, "Transport endpoint is already connected";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTDOWN = 112, "Host is down";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::WouldBlock => Errno::EAGAIN,
            Error::ConnectionRefused => Errno::ECONNREFUSED,
            Error::HostUnreachable => Errno::EHOSTUNREACH,
            Error::NetworkUnreachable => Errno::ENETUNREACH,
            Error::ProtocolUnreachable => Errno::ENOPROTOOPT,
            // As icmp_err_convert and icmpv6_err_convert map these.
            Error::HostUnknown => Errno::EHOSTDOWN,
            Error::HostIsolated => Errno::ENONET,
            Error::RouteFailed => Errno::EOPNOTSUPP,
            Error::Prohibited => Errno::EACCES,
            Error::HeaderRefused => Errno::EPROTO,
            Error::ConnectionReset => Errno::ECONNRESET,
            Error::TimedOut => Errno::ETIMEDOUT,
            Error::NotConnected => Errno::ENOTCONN,
            Error::BrokenPipe => Errno::EPIPE,
            Error::AddrInUse => Errno::EADDRINUSE,
            Error::AddrNotAvailable | Error::NoSourcePort => Errno::EADDRNOTAVAIL,
            // The kernel's error for a group or broadcast address in tcp_v4_connect.
            Error::InvalidAddress => Errno::ENETUNREACH,
            Error::NoBuffers | Error::TooManyConnections | Error::TooManyOptionSets => {
                Errno::ENOBUFS
            }
            Error::InvalidOption => Errno::EINVAL,
            Error::MessageTooLong => Errno::EMSGSIZE,
            // Handles never outlive their descriptor here.
            Error::Stale => Errno::EBADF,
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.text())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl std::error::Error for Errno {}
