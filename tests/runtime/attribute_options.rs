//! What `config` and `cores` in an attribute's brackets come to: a file that is read, processors that threads stay on.

use crate::support::file::File;
use janus::{BackendChoice, Runtime};

fn cores_of(runtime: Runtime) -> usize {
    let (tell, told) = std::sync::mpsc::channel();
    let main = move || {
        let tell = tell.clone();
        async move { tell.send(janus::cores().expect("a core")) }
    };
    runtime.run(main).expect("it ends well");
    told.recv().expect("somebody ran")
}

#[test]
fn the_file_that_code_names_is_read_and_only_that() {
    let file = File::new("cores.toml", "cores = 3\nbackend = \"portal\"\n");
    let builder = Runtime::builder().ignore_environment().config_file(&file.0);
    assert_eq!(cores_of(builder.build().expect("a runtime")), 3);
    // What is said in code goes before.
    let builder = Runtime::builder()
        .ignore_environment()
        .config_file(&file.0)
        .cores(2);
    assert_eq!(cores_of(builder.build().expect("a runtime")), 2);
    let missing = Runtime::builder()
        .ignore_environment()
        .config_file("/nowhere/janus.toml");
    let error = missing.build().map(|_| ()).expect_err("there is none");
    assert!(error.to_string().contains("/nowhere/janus.toml"), "{error}");
    let wrong = File::new("wrong.toml", "cores = \"0-1,1\"\n");
    let error = Runtime::builder()
        .ignore_environment()
        .config_file(&wrong.0)
        .build();
    let error = error.map(|_| ()).expect_err("it is wrong");
    assert!(
        error.to_string().contains("processor 1 is named twice"),
        "{error}"
    );
}

/// The processors this thread may run on, as the kernel says them.
fn allowed() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("a line of processors").trim().to_owned()
}

#[test]
fn cores_stay_on_the_processors_that_were_named() {
    let all = allowed();
    let first: usize = all
        .split([',', '-'])
        .next()
        .and_then(|first| first.parse().ok())
        .expect("a processor");
    let text = format!("cores = \"{first}-{first}\"\n");
    let file = File::new("pinned.toml", &text);
    let builders = [
        Runtime::builder().ignore_environment().processors(&[first]),
        Runtime::builder().ignore_environment().config_file(&file.0),
    ];
    for builder in builders {
        let runtime = builder.backend(BackendChoice::Portal).build();
        let runtime = runtime.expect("a runtime");
        runtime
            .run(move || async move {
                assert_eq!(janus::cores(), Some(1));
                assert_eq!(allowed(), first.to_string());
            })
            .expect("it ends well");
    }
    assert_eq!(allowed(), all, "no other thread is bound");
}

#[test]
fn a_processor_that_is_not_there_is_refused_with_those_that_are() {
    let error = Runtime::builder()
        .ignore_environment()
        .processors(&[0, 9999])
        .build();
    let error = error.map(|_| ()).expect_err("nobody has so many");
    assert!(error.to_string().contains("9999"), "{error}");
}
