//! The kernel's own handshakes, to be compared with: one thread connects over loopback to a listener of its own, accepts, and
//! closes. `connect` comes back when both ends have worked through the handshake, in this thread. Nothing is sent, no
//! second thread must be woken to accept, and each connection is reset once it stands: the least that the kernel can
//! have to do, and half of the saturation rate is that of this thread. Connections come at random distances, each by a
//! blocking `connect`, and its time counts from when it was due: one that waits because another is not through yet
//! waits in the figure.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use super::far::pace::{self, Pace, Sample, Since};
use super::witness::Record;

/// Both ends of the kernel's connections.
pub struct Kernel {
    listener: TcpListener,
    at: SocketAddr,
}

impl Kernel {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
        let at = listener.local_addr().expect("bound");
        Self { listener, at }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).expect("the listener has room")
    }

    /// Ends a connection at both ends, with nothing left of it: else the ports run out.
    fn end(&self, connection: TcpStream) {
        let accepted = self.listener.accept().expect("a connection that stands").0;
        let _ = set_socket_linger(&connection, Some(Duration::ZERO));
        drop(connection);
        drop(accepted);
    }

    /// Connections a second when each begins as the one before has ended.
    pub fn capacity(&self, time: Duration) -> f64 {
        let start = Instant::now();
        let mut connections = 0;
        while start.elapsed() < time {
            self.end(self.connect());
            connections += 1;
        }
        f64::from(connections) / start.elapsed().as_secs_f64()
    }

    /// How long each took from when it was due until `connect` returned, and how the clock went on meanwhile.
    pub fn offer(&self, rate: f64, time: Duration, seed: u64) -> (Vec<Sample>, Record) {
        let start = Instant::now();
        let samples = (rate * time.as_secs_f64()) as usize;
        let since = Since {
            origin: start,
            shift: None,
        };
        let room = pace::room_for(samples);
        let mut pace = Pace::new(since, pace::due(), rate, room, seed);
        let mut last = Instant::now();
        while last.saturating_duration_since(start) < time {
            let Some(due_ns) = pace.next_due() else {
                let now = Instant::now();
                pace.readings.leaves(last, now, 0);
                last = now;
                continue;
            };
            pace.began(0, due_ns);
            let connection = self.connect();
            pace.answered(0);
            self.end(connection);
            last = Instant::now();
            pace.readings.enters(last);
        }
        pace.finish()
    }
}
