//! `janus csb plan` as a user calls it.

use std::process::{Command, Output};

fn plan(args: &[&str]) -> Output {
    let janus = env!("CARGO_BIN_EXE_janus");
    let mut command = Command::new(janus);
    command.args(["csb", "plan"]).args(args);
    command.output().expect("janus runs")
}

#[test]
fn the_plan_meets_the_weights() {
    let output = plan(&[
        "--shards",
        "3",
        "--weights",
        "0,1,3",
        "--flows",
        "1000",
        "--changes",
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let will: Vec<f64> = text
        .lines()
        .filter_map(|line| {
            line.trim_start()
                .strip_prefix('s')?
                .split_whitespace()
                .nth(5)?
                .parse()
                .ok()
        })
        .collect();
    assert_eq!(will.len(), 3, "{text}");
    assert!(
        will[0] == 0.0 && (will[1] - 25.0).abs() < 0.3 && (will[2] - 75.0).abs() < 0.8,
        "{text}"
    );
    let changes = text.lines().filter(|line| line.starts_with("  ")).count();
    assert!(text.contains("points change") && changes > 16, "{text}");
}

#[test]
fn weights_that_leave_nobody_are_refused() {
    for weights in ["0,0", "1,2,3", "-1,1", "NaN,1"] {
        let output = plan(&["--shards", "2", &format!("--weights={weights}")]);
        assert!(!output.status.success(), "{weights}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("--weights"),
            "{weights}"
        );
    }
}
