use super::*;

#[test]
fn the_median_is_that_of_the_last_128() {
    let mut window = ServiceWindow::new();
    for n in 0..31 {
        window.record(n);
        assert_eq!(window.median(), None, "after {} connections", n + 1);
    }
    window.record(1_000);
    assert_eq!(window.median(), Some(16));
    // What was before the last 128 does not count: 64 old ones of 5, then 128 that are all larger.
    let mut window = ServiceWindow::new();
    for ns in std::iter::repeat_n(5, 64).chain(100..228) {
        window.record(ns);
    }
    assert_eq!(window.median(), Some(164));
    // One outlier in three does not move it far.
    for n in 0..128 {
        window.record(if n % 3 == 0 { 1_000_000 } else { 200 });
    }
    assert_eq!(window.median(), Some(200));
}
