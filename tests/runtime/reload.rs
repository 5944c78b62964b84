//! Settings that are read again while the runtime runs.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::file::File;
use crate::support::*;
use janus::net::{TcpListener, TcpSocket};
use janus::{BackendChoice, Builder, Runtime};

fn builder(file: &File) -> Builder {
    Runtime::builder().ignore_environment().config_file(&file.0)
}

/// Runs `main` on one core begun with the settings of `file`; it may write others there.
fn run<F>(file: File, main: fn(PathBuf) -> F)
where
    F: Future<Output = janus::Result> + 'static,
{
    let (near, _far) = wire_for(ONE_COMBINED);
    let builder = builder(&file).cores(1).packet_buffers(16 * 1024);
    let runtime = builder.backend(BackendChoice::wire(near)).build().unwrap();
    let at = file.0.clone();
    let running = Running::start(runtime, move || main(at.clone()));
    running.join().unwrap();
}

/// What the settings come to after the file says `text`.
fn reloaded(at: &Path, text: &str) -> std::io::Result<janus::Reloaded> {
    std::fs::write(at, text)?;
    janus::handle().unwrap().reload()
}

#[test]
fn what_can_change_live_does_and_the_rest_is_named() {
    let file = File::new("reload.toml", "backlog = 20\nclose_ms = 100\nseed = 1\n");
    let effective = builder(&file).effective().unwrap();
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
    run(file, |at| async move {
        assert_eq!(TcpListener::bind("0.0.0.0:80").await?.backlog()?, 20);
        let unchanged = janus::handle().unwrap().reload()?;
        assert_eq!(unchanged, janus::Reloaded::default());
        let done = reloaded(&at, "backlog = 30\nclose_ms = 100\nseed = 2\ncores = 7\n")?;
        assert_eq!(done.applied, ["backlog"]);
        assert_eq!(done.on_restart, ["cores", "seed"]);
        assert_eq!(TcpListener::bind("0.0.0.0:81").await?.backlog()?, 30);
        // With a mistake in it nothing changes.
        let refused = reloaded(&at, "backlog = 40\nclose = 1\n");
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("did you mean `close_ms`?"), "{refused}");
        assert_eq!(TcpListener::bind("0.0.0.0:82").await?.backlog()?, 30);
        Ok(())
    });
}

/// What the balancer, the polling cores and the threads for blocking calls are told, at once and together.
#[test]
fn policies_and_limits_change_live() {
    let file = File::new(
        "levers.toml",
        "balance = \"queue\"\nadmission_deny = \"192.0.2.9\"\n",
    );
    run(file, |at| async move {
        let handle = janus::handle().unwrap();
        assert_eq!(handle.admission().rules().deny.len(), 1);
        let text = "balance = \"service\"\nbalance_interval_ms = 50\nblocking_threads = 1\n\
                        warn_blocked_ms = 0\nadmission_deny = \"192.0.2.9,10.0.0.0/8\"\n\
                        admission_syn_rate = 5\ndns = \"192.0.2.53\"\npacket_buffers = 70000\n";
        let done = reloaded(&at, text)?;
        let applied = [
            "dns",
            "blocking_threads",
            "warn_blocked_ms",
            "balance",
            "balance_interval_ms",
            "admission_deny",
            "admission_syn_rate",
        ];
        assert_eq!(done.applied, applied);
        assert_eq!(done.on_restart, ["packet_buffers"]);
        let rules = handle.admission().rules();
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
        let done = reloaded(&at, "balance = \"fixed\"\n")?;
        assert!(done.applied.contains(&"balance"), "{done:?}");
        assert!(handle.admission().rules().deny.is_empty());
        Ok(())
    });
}

/// Receiving, sending: what a connection may hold at first.
async fn are_sizes(receive: u32, send: u32) {
    let sizes = || -> std::io::Result<(u32, u32)> {
        let socket = TcpSocket::new_v4()?;
        Ok((socket.recv_buffer_size()?, socket.send_buffer_size()?))
    };
    // A core hears of them when it reads its messages.
    while sizes().unwrap() != (receive, send) {
        janus::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn buffers_change_live_unless_no_window_as_large_can_be_offered() {
    let file = File::new(
        "buffers.toml",
        "receive_buffer = 10000\nreceive_buffer_max = 100000\n",
    );
    run(file, |at| async move {
        are_sizes(10_000, 64 << 10).await;
        let done = reloaded(
            &at,
            "receive_buffer = 20000\nreceive_buffer_max = 130000\nsend_buffer = 5000\n",
        )?;
        let sizes = ["receive_buffer", "receive_buffer_max", "send_buffer"];
        assert_eq!(
            (&done.applied[..], &done.on_restart[..]),
            (&sizes[..], &[][..])
        );
        are_sizes(20_000, 5_000).await;
        // The usual size of the second is 6 MiB, for which windows count in larger units.
        let done = reloaded(&at, "receive_buffer = 30000\nsend_buffer_max = 100000\n")?;
        assert_eq!(done.applied, ["send_buffer", "send_buffer_max"]);
        assert_eq!(done.on_restart, ["receive_buffer", "receive_buffer_max"]);
        are_sizes(20_000, 64 << 10).await;
        Ok(())
    });
}
