use super::*;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

#[derive(Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Front for Log {
    fn open(&mut self, address: SocketAddr) -> io::Result<u16> {
        if address.port() == 13 {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "taken outside"));
        }
        Ok(0)
    }
    fn steer(&mut self, port: u16, cores: &[u8], no_flows: bool) -> bool {
        let when = if no_flows { "" } else { " later" };
        let text = format!("{port} on {cores:?}{when}");
        self.0.lock().unwrap().push(text);
        no_flows
    }
    fn serve(&mut self, port: u16) {
        self.0.lock().unwrap().push(format!("{port} open"));
    }
    fn close(&mut self, port: u16) {
        self.0.lock().unwrap().push(format!("{port} closed"));
    }
}

struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn table(cores: usize) -> (Control, Arc<Mutex<Vec<String>>>) {
    let log = Log::default();
    let seen = log.0.clone();
    (Control::new(cores, Box::new(log)), seen)
}

fn any(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))
}

/// What a main does in `bind(..).await`.
fn waits(control: &Control, core: u8, port: u16) -> bool {
    let pending = control
        .poll_serving(core, port, true, Waker::noop())
        .is_pending();
    if pending {
        control.main_waits(core, true);
    }
    pending
}

fn serving(control: &Control, port: u16) -> bool {
    !control.state.lock().ports[&port].served.is_empty()
}

#[test]
fn a_port_serves_once_every_core_has_bound_it() {
    let (control, seen) = table(3);
    for core in 0..2 {
        assert_eq!(control.bind(core, any(80)).unwrap(), 80);
        assert!(waits(&control, core, 80));
    }
    control.bind(2, any(80)).unwrap();
    assert!(!waits(&control, 2, 80));
    assert_eq!(*seen.lock().unwrap(), ["80 on [0, 1, 2]", "80 open"]);
}

#[test]
fn a_core_that_waits_for_something_else_is_not_waited_for() {
    let (control, seen) = table(3);
    control.bind(1, any(80)).unwrap();
    assert!(waits(&control, 1, 80));
    control.main_waits(0, false);
    assert!(!serving(&control, 80));
    control.main_ended(2);
    assert!(serving(&control, 80));
    assert_eq!(*seen.lock().unwrap(), ["80 on [1]", "80 open"]);
}

/// By an update, because connections may be in the way; it waits until that is published.
#[test]
fn a_core_may_bind_a_port_that_serves_already() {
    let (control, seen) = table(3);
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    control.bind(1, any(80)).unwrap();
    assert!(waits(&control, 1, 80));
    control.main_waits(0, false);
    control.main_ended(2);
    control.main_waits(1, false);
    assert!(control.has_begun());
    control.bind(0, any(80)).unwrap();
    assert!(control.poll_serving(0, 80, false, &waker).is_pending());
    assert!(control.poll_serving(0, 80, false, &waker).is_pending());
    assert!(serving(&control, 80));
    control.served(&[(80, vec![0, 1])].into());
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(control.poll_serving(0, 80, false, &waker).is_ready());
    let told = ["80 on [1]", "80 open", "80 on [0, 1] later"];
    assert_eq!(*seen.lock().unwrap(), told);
}

#[test]
fn two_ports_one_after_the_other_are_both_bound_everywhere() {
    let (control, seen) = table(2);
    control.bind(0, any(80)).unwrap();
    assert!(waits(&control, 0, 80));
    control.bind(1, any(80)).unwrap();
    assert!(!waits(&control, 1, 80));
    // Core 0 has not run since; core 1 must not get 443 for itself.
    control.bind(1, any(443)).unwrap();
    assert!(waits(&control, 1, 443));
    control.bind(0, any(443)).unwrap();
    assert!(!waits(&control, 0, 443));
    let told = ["80 on [0, 1]", "80 open", "443 on [0, 1]", "443 open"];
    assert_eq!(*seen.lock().unwrap(), told);
}

#[test]
fn different_ports_on_different_cores_do_not_wait_for_each_other_for_ever() {
    let (control, _) = table(2);
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    control.bind(0, any(80)).unwrap();
    assert!(control.poll_serving(0, 80, true, &waker).is_pending());
    control.main_waits(0, true);
    control.bind(1, any(81)).unwrap();
    assert!(waits(&control, 1, 81));
    assert!(serving(&control, 80) && serving(&control, 81));
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
}

#[test]
fn port_zero_is_one_port_for_all_cores_and_a_new_one_afterwards() {
    let (control, _) = table(2);
    let port = control.bind(0, any(0)).unwrap();
    assert!(waits(&control, 0, port));
    assert_eq!(control.bind(1, any(0)).unwrap(), port);
    assert!(!waits(&control, 1, port));
    assert_ne!(control.bind(1, any(0)).unwrap(), port);
}

#[test]
fn refusals_say_why() {
    let (control, _) = table(2);
    control.bind(0, any(80)).unwrap();
    assert!(
        control
            .bind(0, any(80))
            .unwrap_err()
            .to_string()
            .contains("this core already")
    );
    let other = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
    assert!(
        control
            .bind(1, other)
            .unwrap_err()
            .to_string()
            .contains("bound as 0.0.0.0:80")
    );
    assert!(
        control
            .bind(0, any(13))
            .unwrap_err()
            .to_string()
            .contains("taken outside")
    );
}

#[test]
fn a_listener_may_leave_and_come_back() {
    let (control, seen) = table(2);
    for core in 0..2 {
        control.bind(core, any(80)).unwrap();
        waits(&control, core, 80);
    }
    control.release(0, 80);
    control.bind(0, any(80)).unwrap();
    assert!(!waits(&control, 0, 80));
    control.release(0, 80);
    control.release(1, 80);
    let told = [
        "80 on [0, 1]",
        "80 open",
        "80 on [1]",
        "80 on [0, 1]",
        "80 on [1]",
        "80 closed",
        "80 on []",
    ];
    assert_eq!(*seen.lock().unwrap(), told);
}

/// Until the steering no longer names it, or everybody has gone.
#[test]
fn a_core_that_lets_go_is_leaving_until_the_others_have_its_share() {
    let (control, _) = table(3);
    for core in 0..3 {
        control.bind(core, any(80)).unwrap();
        waits(&control, core, 80);
        assert!(!control.is_leaving(core, 80));
    }
    for core in 0..3 {
        control.main_waits(core, false);
    }
    assert!(control.release(0, 80) && control.is_leaving(0, 80));
    // Not by an update that was under way, which still names it.
    control.served(&[(80, vec![0, 1, 2])].into());
    assert!(control.is_leaving(0, 80) && !control.is_leaving(1, 80));
    control.served(&[(80, vec![1, 2])].into());
    assert!(!control.is_leaving(0, 80));
    // Nor one that is back.
    assert!(control.release(1, 80));
    control.bind(1, any(80)).unwrap();
    assert!(!control.is_leaving(1, 80));
    // The last one leaves nobody behind.
    assert!(control.release(1, 80));
    assert!(!control.release(2, 80));
    assert!(!control.is_leaving(1, 80) && !control.is_leaving(2, 80));
}

#[test]
fn a_bind_in_a_task_serves_without_its_main() {
    let (control, _) = table(1);
    control.main_waits(0, false);
    control.bind(0, any(80)).unwrap();
    assert!(
        control
            .poll_serving(0, 80, false, Waker::noop())
            .is_pending()
    );
    control.served(&[(80, vec![0])].into());
    assert!(control.poll_serving(0, 80, false, Waker::noop()).is_ready());
}
