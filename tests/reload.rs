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
