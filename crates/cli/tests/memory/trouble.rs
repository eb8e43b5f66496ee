//! If some data cannot be read, this is reported, and the rest is shown.

use std::process::Command;

use beamtune_recording::Reader;
use serde_json::Value;

use super::common::containers::{Container, can_create_namespaces};
use super::common::{
    Process, TestNode, all_otps, beamtune, copy_program, folder, is_root, otp, run, text, unique, wait_until,
};
use super::{allocator, bytes, memory, page};

/// Asserts that almost all resident memory is explained.
#[track_caller]
fn assert_explained(page: &Value) {
    let (resident, unexplained) = (bytes(&page["resident_bytes"]), bytes(&page["unexplained_bytes"]));
    assert!(unexplained <= (0.03 * resident).max(8e6), "{unexplained} of {resident}: {page:#}");
}

#[test]
fn disabled_allocator_is_reported_and_the_others_are_shown() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &["+MBe", "false"], "ok");
        let page = page(&node, &[]);
        assert!(allocator(&page, "binary_alloc").is_null(), "{page:#}");
        assert!(allocator(&page, "eheap_alloc")["instances"].as_u64() > Some(0), "{page:#}");
        assert!(
            page["kinds"].as_array().expect("kinds").is_empty(),
            "erlang:memory() fails without this allocator"
        );
        let output = memory(&node, &[]);
        assert!(output.stdout.contains("erlang:memory() is unknown"), "{}", output.stdout);
    }
}

#[test]
fn vm_without_distribution_is_read_through_proc() {
    let Some(otp) = otp(25) else { return };
    let mut command = otp.command("erl");
    command.args(["-noinput", "-eval", "io:put_chars(\"ready\\n\")."]);
    let mut process = Process::start(&mut command);
    process.expect_line("ready");
    let output = run(beamtune().args(["memory", &process.pid().to_string()]));
    assert!(matches!(output.status, Some(0 | 1)), "{}", output.stderr);
    assert!(output.stdout.contains("resident"), "{}", output.stdout);
    assert!(output.stderr.contains("has no distribution"), "{}", output.stderr);
}

#[test]
fn page_of_a_recording_is_the_same_as_that_of_the_node() {
    let Some(otp) = otp(25) else { return };
    let node = TestNode::start(&otp, &[], "ok");
    let folder = folder();
    let file = text(&folder.path().join("memory.btr"));
    let now = page(&node, &["-o", &file]);
    let later = run(beamtune().args(["memory", &file, "--json"])).json();
    assert_eq!(now, later);
    run(beamtune().args(["memory", &file, "-o", "other"])).assert_refused(&["is a recording"]);
    run(beamtune().args(["memory", &node.name, "--from", "02:00"]).env("BEAMTUNE_COOKIE", &node.cookie))
        .assert_refused(&["for a running node, use --for"]);
}

#[test]
fn memory_is_explained_without_sys_alloc_carriers_and_without_allocators() {
    for otp in all_otps() {
        let without_malloc = page(&TestNode::start(&otp, &["+Musac", "false"], "ok"), &[]);
        assert_explained(&without_malloc);
        assert!(
            allocator(&without_malloc, "eheap_alloc")["instances"].as_u64() > Some(0),
            "{without_malloc:#}"
        );
        let without_any = page(&TestNode::start(&otp, &["+Mea", "min"], "ok"), &[]);
        assert_explained(&without_any);
        assert!(without_any["kinds"].as_array().expect("kinds").is_empty(), "{without_any:#}");
    }
}

#[test]
fn memory_of_a_container_is_explained_from_its_host() {
    if !can_create_namespaces() {
        return;
    }
    for otp in all_otps() {
        let name = format!("{}@127.0.0.1", unique("boxed"));
        let args =
            ["-name", &name, "-setcookie", "boxed", "-kernel", "prevent_overlapping_partitions", "false"];
        let container = Container::run(&otp, &["-n", "-m", "-u", "-p"], &[], &name, &args);
        let mut command = beamtune();
        let output =
            run(command.args(["memory", &container.pid_text(), "--json"]).env("BEAMTUNE_COOKIE", "boxed"));
        assert!(matches!(output.status, Some(0 | 1)), "OTP {}: {}", otp.release, output.stderr);
        let page = output.json();
        assert_explained(&page);
        // The agent also works in the container.
        assert!(!page["kinds"].as_array().expect("kinds").is_empty(), "{page:#}");
    }
}

#[test]
fn missing_rights_are_reported_and_the_other_data_are_shown() {
    let Some(otp) = otp(25) else { return };
    if !is_root() {
        eprintln!("skipped, because only root can become another user");
        return;
    }
    let node = TestNode::start(&otp, &[], "ok");
    let folder = folder();
    run(Command::new("chmod").arg("755").arg(folder.path()));
    let program = folder.path().join("beamtune");
    copy_program(beamtune().get_program(), &program);
    let mut other = Command::new("setpriv");
    other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
    other.args(["memory", &node.name]).env("BEAMTUNE_COOKIE", &node.cookie).env("HOME", "/nonexistent");
    let output = run(&mut other);
    assert!(matches!(output.status, Some(0 | 1)), "{}", output.stderr);
    for words in
        ["pages were not read: not allowed to read", "run beamtune as", "ll_alloc", "code, atoms, literals"]
    {
        assert!(output.stdout.contains(words), "{words}: {}", output.stdout);
    }
    assert!(!output.stdout.contains("not explained"), "{}", output.stdout);
}

#[test]
fn page_of_a_restarted_vm_shows_the_last_incarnation() {
    let Some(otp) = otp(25) else { return };
    let name = format!("{}@127.0.0.1", unique("restarted"));
    let folder = folder();
    let file = folder.path().join(format!("{name}.btr"));
    let node = |eval: &str| TestNode::with_cookie(&otp, "restarted", &["-name", &name], &name, &[], eval);
    let samples_of = |incarnation: u32| {
        Reader::open(&file).map_or(0, |reader| {
            let samples = reader.samples().flatten();
            samples
                .filter(|sample| sample.tick.vm.is_some() && sample.tick.incarnation == incarnation)
                .count()
        })
    };
    // The first VM uses 300 MB more than the second.
    let first = node("spawn(fun() -> B = binary:copy(<<1>>, 300000000), receive B -> ok end end)");
    let mut command = beamtune();
    command.env("BEAMTUNE_COOKIE", "restarted").args(["record", "--keep", "1h", "--max-size", "20MB", &name]);
    let mut recorder = Process::start(command.arg("-o").arg(folder.path()));
    wait_until("samples of the first incarnation", || samples_of(0) >= 3);
    drop(first);
    let second = node("ok");
    wait_until("samples of the second incarnation", || samples_of(1) >= 3);
    recorder.signal("INT");
    recorder.wait();
    drop(second);
    let file = text(&file);
    let output = run(beamtune().args(["memory", &file]));
    assert!(output.stdout.contains("started 2 times"), "{}", output.stdout);
    let page = run(beamtune().args(["memory", &file, "--json"])).json();
    assert_explained(&page);
    assert!(bytes(&page["resident_bytes"]) < 200e6, "{page:#}");
}
