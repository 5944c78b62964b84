//! The numbers of Linux's socket interface that are understood here, as they are on x86-64 and arm64.
#![allow(missing_docs)]

macro_rules! numbers {
    ($($name:ident = $value:expr;)*) => {
        $(pub const $name: i32 = $value;)*

        /// The number a C program knows by `name`.
        pub fn by_name(name: &str) -> Option<i32> {
            match name {
                $(stringify!($name) => Some($name),)*
                _ => None,
            }
        }
    };
}

numbers! {
    AF_INET = 2;
    AF_INET6 = 10;

    SOCK_STREAM = 1;
    SOCK_DGRAM = 2;
    SOCK_NONBLOCK = 0o4000;
    SOCK_CLOEXEC = 0o2000000;

    IPPROTO_IP = 0;
    IPPROTO_TCP = 6;
    IPPROTO_UDP = 17;
    IPPROTO_IPV6 = 41;
    SOL_IPV6 = 41;
    IPV6_V6ONLY = 26;

    SHUT_RD = 0;
    SHUT_WR = 1;
    SHUT_RDWR = 2;

    SOMAXCONN = 4096;

    MSG_OOB = 0x1;
    MSG_PEEK = 0x2;
    MSG_DONTWAIT = 0x40;
    MSG_WAITALL = 0x100;
    MSG_NOSIGNAL = 0x4000;
    MSG_MORE = 0x8000;

    F_GETFD = 1;
    F_SETFD = 2;
    F_GETFL = 3;
    F_SETFL = 4;
    FD_CLOEXEC = 1;
    O_RDONLY = 0;
    O_RDWR = 2;
    O_NONBLOCK = 0o4000;

    SIOCATMARK = 0x8905;
    SIOCOUTQ = 0x5411;
    FIONREAD = 0x541b;
    SIOCINQ = 0x541b;
    FIONBIO = 0x5421;

    SOL_SOCKET = 1;
    SO_REUSEADDR = 2;
    SO_TYPE = 3;
    SO_ERROR = 4;
    SO_SNDBUF = 7;
    SO_RCVBUF = 8;
    SO_KEEPALIVE = 9;
    SO_OOBINLINE = 10;
    SO_LINGER = 13;
    SO_REUSEPORT = 15;
    SO_ACCEPTCONN = 30;
    SO_PROTOCOL = 38;
    SO_DOMAIN = 39;

    SOL_TCP = 6;
    TCP_NODELAY = 1;
    TCP_MAXSEG = 2;
    TCP_CORK = 3;
    TCP_KEEPIDLE = 4;
    TCP_KEEPINTVL = 5;
    TCP_KEEPCNT = 6;
    TCP_SYNCNT = 7;
    TCP_DEFER_ACCEPT = 9;
    TCP_INFO = 11;
    TCP_QUICKACK = 12;
    TCP_CONGESTION = 13;
    TCP_USER_TIMEOUT = 18;

    SOL_IP = 0;
    IP_TOS = 1;
    IP_TTL = 2;
    IPV6_UNICAST_HOPS = 16;
    IPV6_TCLASS = 67;
}
