//! `beamtune locks` where something gets in its way: the VM ends while it is looked at.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod common;

use std::process::Stdio;

use common::{PATIENCE, Running, beamtune, folder, loops, otp, text, wait_up_to};
use serde_json::Value;

#[test]
fn a_vm_that_ends_ends_the_look_and_what_was_seen_until_then_is_told() {
    let Some(otp) = otp(25) else { return };
    let mut node = loops::node(&otp, "erl", &["+S", "2:2"], loops::ASK);
    let folder = folder();
    let file = folder.path().join("locks.beamtune");
    let mut command = beamtune();
    command.args(["locks", &node.name, "--for", "10m", "--json", "-o", &text(&file)]);
    command.env("BEAMTUNE_COOKIE", &node.cookie).stderr(Stdio::null());
    let mut running = Running::start(&mut command);
    // The look begins with the recording.
    wait_up_to(PATIENCE, "a recording", || file.exists());
    node.running.child.kill().expect("kill the VM");
    let status = running.wait();
    assert!(matches!(status.code(), Some(0 | 1)), "{status:?}");
    let lines: Vec<String> = running.lines.take().expect("output").iter().collect();
    let page: Value = serde_json::from_str(&lines.join("\n")).expect("a page");
    assert!(page["look"]["seconds"].as_f64().is_some_and(|seconds| seconds < 60.0), "{page:#}");
    let means = page["look"]["means"].to_string();
    assert!(means.contains("the VM has ended after ") && means.contains("look once more"), "{means}");
    // Time in which it was not there is none in which it was watched.
    let shares =
        page["waits"].as_array().into_iter().flatten().filter_map(|row| row["duration_pct"].as_f64());
    assert!(shares.into_iter().all(|share| share <= 1_000.0), "{page:#}");
}
