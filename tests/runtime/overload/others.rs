//! The others: well-behaved clients that must be served whatever happens beside them.

use janus::net::TcpStream;

use super::scene::{ECHO, at};
use crate::support::{PATIENCE, pattern};

/// How many there are.
pub(crate) const OTHERS: usize = 16;
const CONNECTIONS: usize = 3;
const ROUNDS: usize = 8;

/// Each makes connections of its own and is answered on all.
pub(crate) async fn are_served() {
    let each: Vec<_> = (0..OTHERS).map(|other| janus::spawn(one(other))).collect();
    let all = async {
        for other in each {
            other.await.expect("it is served");
        }
    };
    let served = janus::time::timeout(2 * PATIENCE, all).await;
    served.expect("the others go on");
}

async fn one(other: usize) {
    for connection in 0..CONNECTIONS {
        let stream = TcpStream::connect(at(ECHO)).await.unwrap();
        for round in 0..ROUNDS {
            let sent = pattern(1 + (other * 97 + round * 331) % 1_400, other + connection);
            stream.write_all(&sent).await.unwrap();
            let mut got = vec![0; sent.len()];
            stream.read_exact(&mut got).await.unwrap();
            assert!(got == sent, "client {other}, connection {connection}");
        }
    }
}
