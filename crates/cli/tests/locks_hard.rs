//! `beamtune locks` on a VM that ends during sampling.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod common;

use std::process::Stdio;

use common::{Process, TIMEOUT, beamtune, folder, loops, otp, text, wait_up_to};
use serde_json::Value;

#[test]
fn if_the_vm_ends_the_result_so_far_is_printed() {
    let Some(otp) = otp(25) else { return };
    let mut node = loops::node(&otp, "erl", &["+S", "2:2"], loops::ASK);
    let folder = folder();
    let file = folder.path().join("locks.beamtune");
    let mut command = beamtune();
    command.args(["locks", &node.name, "--for", "10m", "--json", "-o", &text(&file)]);
    command.env("BEAMTUNE_COOKIE", &node.cookie).stderr(Stdio::null());
    let mut process = Process::start(&mut command);
    // Sampling begins with the recording.
    wait_up_to(TIMEOUT, "a recording", || file.exists());
    node.process.child.kill().expect("kill the VM");
    let status = process.wait();
    assert!(matches!(status.code(), Some(0 | 1)), "{status:?}");
    let lines: Vec<String> = process.lines.take().expect("output").iter().collect();
    let page: Value = serde_json::from_str(&lines.join("\n")).expect("a page");
    assert!(page["look"]["seconds"].as_f64().is_some_and(|seconds| seconds < 60.0), "{page:#}");
    let means = page["look"]["means"].to_string();
    assert!(means.contains("the VM ended after ") && means.contains("repeat the command"), "{means}");
    // Time after the end of the VM does not count as sampled.
    let shares =
        page["waits"].as_array().into_iter().flatten().filter_map(|row| row["duration_pct"].as_f64());
    assert!(shares.into_iter().all(|share| share <= 1_000.0), "{page:#}");
}
