//! What cannot be read is said, and the rest is told all the same.

use super::common::{TestNode, all_otps, beamtune, folder, otp, run, text};
use super::{allocator, page, said};

#[test]
fn a_disabled_allocator_is_named_and_the_others_are_told() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &["+MBe", "false"], "ok");
        let page = page(&node, &[]);
        assert!(allocator(&page, "binary_alloc").is_null(), "{page:#}");
        assert!(allocator(&page, "eheap_alloc")["instances"].as_u64() > Some(0), "{page:#}");
        assert!(page["kinds"].as_array().expect("kinds").is_empty(), "erlang:memory() has no answer then");
        let said = said(&node, &[]);
        assert!(said.stdout.contains("erlang:memory() is not known"), "{}", said.stdout);
    }
}

#[test]
fn a_vm_that_is_no_node_is_told_from_outside() {
    let Some(otp) = otp(25) else { return };
    let mut command = otp.command("erl");
    command.args(["-noinput", "-eval", "io:put_chars(\"ready\\n\")."]);
    let mut running = super::common::Running::start(&mut command);
    running.expect_line("ready");
    let said = run(beamtune().args(["memory", &running.pid().to_string()]));
    assert!(matches!(said.status, Some(0 | 1)), "{}", said.stderr);
    assert!(said.stdout.contains("resident"), "{}", said.stdout);
    assert!(said.stderr.contains("has no distribution"), "{}", said.stderr);
}

#[test]
fn a_recording_tells_the_same_later() {
    let Some(otp) = otp(25) else { return };
    let node = TestNode::start(&otp, &[], "ok");
    let folder = folder();
    let file = text(&folder.path().join("kept"));
    let now = page(&node, &["-o", &file]);
    let later = run(beamtune().args(["memory", &file, "--json"])).json();
    assert_eq!(now, later);
    run(beamtune().args(["memory", &file, "-o", "other"])).assert_refused(&["is a recording already"]);
    run(beamtune().args(["memory", &node.name, "--from", "02:00"]).env("BEAMTUNE_COOKIE", &node.cookie))
        .assert_refused(&["for a running node there is --for"]);
}
