//! Socket options through the runtime: what is set is kept, what accepted connections begin with, and that a stream may
//! be told to reset.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::*;
use janus::BackendChoice;
use janus::net::TcpStream;

in_every_layout!(options_are_kept_and_a_look_shows_them,);

fn options_are_kept_and_a_look_shows_them(case: Case) {
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, _) = serve(builder, 80, echo);
    run_clients(far, 4, |index| async move {
        let server = SocketAddr::from(([192, 0, 2, 1], 80));
        let stream = TcpStream::connect(server).await.unwrap();
        let idle = Duration::from_secs(30 + index as u64);
        stream.set_keepalive(Some(idle)).unwrap();
        stream
            .set_user_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        stream.set_ttl(9).unwrap();
        let options = stream.options().unwrap();
        assert_eq!((options.keepalive, options.keepalive_idle), (true, idle));
        assert_eq!(options.ttl, Some(9));
        assert!(stream.set_ttl(0).is_err());
        assert!(stream.set_linger(Some(Duration::from_secs(1))).is_err());
        stream.write_all(b"still works").await.unwrap();
        let mut got = [0; 11];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"still works");
        let info = stream.info().unwrap();
        assert!(info.keepalive && info.sack && info.timestamps && info.window_scaling);
        stream.set_keepalive(None).unwrap();
        stream.set_linger(Some(Duration::ZERO)).unwrap();
    });
    server.stop().unwrap();
}
