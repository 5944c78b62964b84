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
    AF_UNSPEC = 0;
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
    MSG_DONTROUTE = 0x4;
    MSG_CTRUNC = 0x8;
    MSG_TRUNC = 0x20;
    MSG_DONTWAIT = 0x40;
    MSG_EOR = 0x80;
    MSG_WAITALL = 0x100;
    MSG_CONFIRM = 0x800;
    MSG_ERRQUEUE = 0x2000;
    MSG_NOSIGNAL = 0x4000;
    MSG_MORE = 0x8000;
    MSG_WAITFORONE = 0x1_0000;
    MSG_ZEROCOPY = 0x400_0000;
    MSG_FASTOPEN = 0x2000_0000;
    MSG_CMSG_CLOEXEC = 0x4000_0000;
    SO_EE_ORIGIN_ZEROCOPY = 5;
    SO_EE_CODE_ZEROCOPY_COPIED = 1;

    POLLIN = 0x1;
    POLLPRI = 0x2;
    POLLOUT = 0x4;
    POLLERR = 0x8;
    POLLHUP = 0x10;
    POLLNVAL = 0x20;
    POLLRDNORM = 0x40;
    POLLRDBAND = 0x80;
    POLLWRNORM = 0x100;
    POLLWRBAND = 0x200;
    POLLRDHUP = 0x2000;

    EPOLL_CLOEXEC = 0o2000000;
    EPOLL_CTL_ADD = 1;
    EPOLL_CTL_DEL = 2;
    EPOLL_CTL_MOD = 3;
    EPOLLIN = 0x1;
    EPOLLPRI = 0x2;
    EPOLLOUT = 0x4;
    EPOLLERR = 0x8;
    EPOLLHUP = 0x10;
    EPOLLRDNORM = 0x40;
    EPOLLRDBAND = 0x80;
    EPOLLWRNORM = 0x100;
    EPOLLWRBAND = 0x200;
    EPOLLMSG = 0x400;
    EPOLLRDHUP = 0x2000;
    EPOLLEXCLUSIVE = 1 << 28;
    EPOLLWAKEUP = 1 << 29;
    EPOLLONESHOT = 1 << 30;
    EPOLLET = i32::MIN;

    F_DUPFD = 0;
    F_DUPFD_CLOEXEC = 1030;
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
    SIOCOUTQNSD = 0x894b;
    FIONREAD = 0x541b;
    SIOCINQ = 0x541b;
    FIONBIO = 0x5421;

    SOL_SOCKET = 1;
    SO_REUSEADDR = 2;
    SO_TYPE = 3;
    SO_ERROR = 4;
    SO_DONTROUTE = 5;
    SO_BROADCAST = 6;
    SO_SNDBUF = 7;
    SO_RCVBUF = 8;
    SO_KEEPALIVE = 9;
    SO_OOBINLINE = 10;
    SO_PRIORITY = 12;
    SO_LINGER = 13;
    SO_REUSEPORT = 15;
    SO_RCVLOWAT = 18;
    SO_SNDLOWAT = 19;
    SO_RCVTIMEO = 20;
    SO_SNDTIMEO = 21;
    SO_ACCEPTCONN = 30;
    SO_SNDBUFFORCE = 32;
    SO_RCVBUFFORCE = 33;
    SO_MARK = 36;
    SO_PROTOCOL = 38;
    SO_DOMAIN = 39;
    SO_BUSY_POLL = 46;
    SO_MAX_PACING_RATE = 47;
    SO_INCOMING_CPU = 49;
    SO_ZEROCOPY = 60;

    SCM_RIGHTS = 1;
    SCM_CREDENTIALS = 2;

    SOL_TCP = 6;
    TCP_CLOSE = 7;
    TCP_LISTEN = 10;
    TCP_NODELAY = 1;
    TCP_MAXSEG = 2;
    TCP_CORK = 3;
    TCP_KEEPIDLE = 4;
    TCP_KEEPINTVL = 5;
    TCP_KEEPCNT = 6;
    TCP_SYNCNT = 7;
    TCP_LINGER2 = 8;
    TCP_DEFER_ACCEPT = 9;
    TCP_WINDOW_CLAMP = 10;
    TCP_INFO = 11;
    TCP_QUICKACK = 12;
    TCP_CONGESTION = 13;
    TCP_USER_TIMEOUT = 18;
    TCP_FASTOPEN = 23;
    TCP_NOTSENT_LOWAT = 25;
    TCP_FASTOPEN_CONNECT = 30;
    TCP_INQ = 36;
    TCP_CM_INQ = 36;

    SOL_IP = 0;
    IP_TOS = 1;
    IP_TTL = 2;
    IP_MTU_DISCOVER = 10;
    IP_RECVERR = 11;
    IP_MTU = 14;
    IP_FREEBIND = 15;
    IP_PMTUDISC_DONT = 0;
    IP_PMTUDISC_WANT = 1;
    IP_PMTUDISC_DO = 2;
    IP_PMTUDISC_PROBE = 3;
    IPV6_MTU_DISCOVER = 23;
    IPV6_MTU = 24;
    IPV6_RECVERR = 25;
    IPV6_UNICAST_HOPS = 16;
    IPV6_TCLASS = 67;
}
