//! `#[janus::test]` as it is used: on one core, on several, with a result, with a panic that is expected.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Where a crate might have put its copy of the library.
mod elsewhere {
    pub(crate) use janus as library;
}

#[janus::test]
async fn one_core_unless_told_otherwise() {
    assert_eq!((janus::cores(), janus::core_id()), (Some(1), Some(0)));
}

#[janus::test(cores = 3)]
async fn a_copy_on_every_core() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    RUNS.fetch_add(1, Ordering::SeqCst);
    let begin = std::time::Instant::now();
    while RUNS.load(Ordering::SeqCst) < 3 {
        assert!(begin.elapsed() < Duration::from_secs(120), "not all ran");
        janus::time::sleep(Duration::from_millis(5)).await;
    }
}

#[janus::test(crate = "elsewhere::library", cores = 1)]
async fn questions_marks_work_and_the_library_may_be_elsewhere()
-> Result<(), std::num::ParseIntError> {
    let n: u32 = "42".parse()?;
    assert_eq!(janus::spawn(async move { n }).await.ok(), Some(42));
    Ok(())
}

#[janus::test]
#[should_panic(expected = "three is not four")]
async fn a_panic_fails_the_test_with_its_message() {
    janus::yield_now().await;
    panic!("three is not four");
}

#[janus::test]
#[should_panic(expected = "invalid digit")]
async fn an_error_fails_the_test_with_its_message() -> janus::Result<()> {
    "forty-two".parse::<u32>()?;
    Ok(())
}
