//! `beamtune nodes` on real VMs.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use common::{TestNode, all_otps, beamtune, otp, run, unique};
use serde_json::Value;

fn row(pid: u32) -> Value {
    let rows = run(beamtune().args(["nodes", "--json"])).json();
    let row = rows.as_array().into_iter().flatten().find(|row| row["pid"] == pid).cloned();
    row.unwrap_or_else(|| panic!("process {pid} is not in {rows:#}"))
}

#[test]
fn nodes_of_every_release_are_listed_with_name_and_version() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &[], "ok");
        let row = row(node.pid());
        assert_eq!(row["node"], node.name.as_str(), "OTP {}", otp.release);
        assert_eq!(row["attachable"], true, "{row:#}");
        let version = row["otp"].as_str().unwrap_or_default();
        assert!(version.split('.').next() == Some(&otp.release.to_string()), "{version}");
        assert!(row["rss_bytes"].as_i64().is_some_and(|bytes| bytes > 5_000_000), "{row:#}");
    }
}

#[test]
fn vm_without_distribution_is_listed_as_not_attachable() {
    let Some(otp) = otp(25) else { return };
    let mut command = otp.command("erl");
    command.args(["-noinput", "-eval", "io:put_chars(\"ready\\n\")."]);
    let mut process = common::Process::start(&mut command);
    process.expect_line("ready");
    let row = row(process.pid());
    assert_eq!((&row["node"], &row["attachable"]), (&Value::Null, &Value::Bool(false)));
    assert!(row["why_not"].as_str().is_some_and(|why| why.contains("-sname or -name")), "{row:#}");
}

#[test]
fn short_name_is_shown_with_its_host() {
    let Some(otp) = otp(25) else { return };
    let alive = unique("short");
    let node = TestNode::named(&otp, &["-sname", &alive], &alive, &[], "ok");
    let name = row(node.pid())["node"].as_str().map(str::to_owned).expect("a name");
    assert!(name.starts_with(&format!("{alive}@")), "{name}");
}

#[test]
fn table_lists_each_vm_once() {
    let Some(otp) = otp(25) else { return };
    let node = TestNode::start(&otp, &[], "ok");
    let output = run(beamtune().arg("nodes"));
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    assert_eq!(output.stdout.matches(&node.name).count(), 1, "{}", output.stdout);
    assert!(!output.stdout.contains(&node.cookie), "the output contains the cookie");
    assert!(!output.stdout.contains('\x1b'), "colours without a terminal");
}
