//! tonic's trait for streams: a request knows both addresses of the connection it came over, as with tokio's streams.

use tonic::transport::server::{Connected, TcpConnectInfo};

use super::stream::TcpStream;

impl Connected for TcpStream {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo {
            local_addr: self.local_addr().ok(),
            remote_addr: self.peer_addr().ok(),
        }
    }
}
