//! A bound on the time of a tower service, by Janus's clock and no other.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use janus::compat::tower::TimeoutLayer;
use janus::time::Elapsed;
use janus_compat_tests::run;
use tower::{Layer, Service, ServiceExt};

/// Says when it is dropped.
struct Guard(Rc<Cell<u32>>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn what_takes_too_long_is_dropped() {
    run(|| async {
        let dropped = Rc::new(Cell::new(0));
        let counter = dropped.clone();
        let service = tower::service_fn(move |time: Duration| {
            let guard = Guard(counter.clone());
            async move {
                janus::time::sleep(time).await;
                drop(guard);
                Ok::<_, Infallible>(time)
            }
        });
        let mut service = TimeoutLayer::new(Duration::from_secs(5)).layer(service);
        let quick = Duration::from_millis(1);
        let answer = service.ready().await.unwrap().call(quick).await;
        assert_eq!(answer.unwrap(), quick);
        assert_eq!(dropped.get(), 1);
        let mut service = TimeoutLayer::new(Duration::from_millis(20)).layer(service);
        let answer = service
            .ready()
            .await
            .unwrap()
            .call(Duration::from_secs(3600))
            .await;
        assert!(answer.unwrap_err().is::<Elapsed>());
        assert_eq!(dropped.get(), 2, "and so is what it was doing");
    });
}
