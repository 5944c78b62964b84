//! Settings that are read again while the runtime runs.

mod support;

use janus::net::TcpListener;
use janus::{BackendChoice, Runtime};
use support::*;

#[test]
fn what_can_change_live_does_and_the_rest_is_named() {
    let file = std::env::temp_dir().join(format!("janus-reload-{}.toml", std::process::id()));
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("backlog = 20\ndrain_ms = 100\nseed = 1\n");
    let builder = || Runtime::builder().alone().config_file(&file);
    let effective = builder().effective().unwrap();
    assert_eq!(effective.value("backlog"), Some("20"));
    assert!(
        effective
            .origin("backlog")
            .unwrap()
            .to_string()
            .ends_with(".toml")
    );
    assert!(effective.to_string().contains("# cores ="), "{effective}");
    assert_eq!(effective.value("blocking_threads"), Some("256"));
    let (near, _far) = wire_for(ONE_COMBINED);
    let runtime = builder()
        .cores(1)
        .packet_buffers(16 * 1024)
        .backend(BackendChoice::wire(near))
        .build()
        .unwrap();
    let at = file.clone();
    let running = Running::start(runtime, move || {
        let at = at.clone();
        async move {
            let handle = janus::handle().unwrap();
            assert_eq!(TcpListener::bind("0.0.0.0:80").await?.backlog()?, 20);
            assert_eq!(handle.reload()?, janus::Reloaded::default());
            std::fs::write(&at, "backlog = 30\ndrain_ms = 100\nseed = 2\ncores = 7\n")?;
            let done = handle.reload()?;
            assert_eq!(done.applied, ["backlog"]);
            assert_eq!(done.on_restart, ["cores", "seed"]);
            assert_eq!(TcpListener::bind("0.0.0.0:81").await?.backlog()?, 30);
            // With a mistake in it nothing changes.
            std::fs::write(&at, "backlog = 40\ndrain = 1\n")?;
            let refused = handle.reload().unwrap_err().to_string();
            assert!(refused.contains("did you mean `drain_ms`?"), "{refused}");
            assert_eq!(TcpListener::bind("0.0.0.0:82").await?.backlog()?, 30);
            janus::Result::<()>::Ok(())
        }
    });
    running.join().unwrap();
    std::fs::remove_file(&file).unwrap();
}

/// What the balancer, the polling cores and the threads for blocking calls are told, at once and together.
#[test]
fn policies_and_limits_change_live() {
    let file = std::env::temp_dir().join(format!("janus-levers-{}.toml", std::process::id()));
    std::fs::write(&file, "balance = \"queue\"\npolicy_deny = \"192.0.2.9\"\n").unwrap();
    let (near, _far) = wire_for(ONE_COMBINED);
    let runtime = Runtime::builder()
        .alone()
        .config_file(&file)
        .cores(1)
        .packet_buffers(16 * 1024)
        .backend(BackendChoice::wire(near))
        .build()
        .unwrap();
    let at = file.clone();
    let running = Running::start(runtime, move || {
        let at = at.clone();
        async move {
            let handle = janus::handle().unwrap();
            assert_eq!(handle.policy().rules().deny.len(), 1);
            let text = "balance = \"service\"\nbalance_interval_ms = 50\nblocking_threads = 1\n\
                        warn_blocked_ms = 0\npolicy_deny = \"192.0.2.9,10.0.0.0/8\"\n\
                        policy_syn_rate = 5\ndns = \"192.0.2.53\"\nsend_buffer = 70000\n";
            std::fs::write(&at, text)?;
            let done = handle.reload()?;
            let applied = [
                "dns",
                "blocking_threads",
                "warn_blocked_ms",
                "balance",
                "balance_interval_ms",
                "policy_deny",
                "policy_syn_rate",
            ];
            assert_eq!(done.applied, applied);
            assert_eq!(done.on_restart, ["send_buffer"]);
            let rules = handle.policy().rules();
            assert_eq!(
                (rules.deny.len(), rules.syn_limit.unwrap().per_second),
                (2, 5)
            );
            // One thread, where there could have been 256: two calls cannot meet.
            let gate = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let calls: Vec<_> = (0..4)
                .map(|_| {
                    let gate = gate.clone();
                    janus::spawn_blocking(move || {
                        let inside = gate.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        std::thread::sleep(std::time::Duration::from_millis(10));
                        gate.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        inside
                    })
                })
                .collect();
            for call in calls {
                assert_eq!(call.await?, 0);
            }
            // Back to nobody denied, and nobody watching.
            std::fs::write(&at, "balance = \"fixed\"\n")?;
            let done = handle.reload()?;
            assert!(done.applied.contains(&"balance"), "{done:?}");
            assert!(handle.policy().rules().deny.is_empty());
            janus::Result::<()>::Ok(())
        }
    });
    running.join().unwrap();
    std::fs::remove_file(&file).unwrap();
}
