//! What cannot be read is said, and the rest is told all the same.

use std::process::Command;

use beamtune_recording::Reader;
use serde_json::Value;

use super::common::containers::{Container, can_contain};
use super::common::{
    Running, TestNode, all_otps, beamtune, copy_program, folder, is_root, otp, run, text, unique, wait_until,
};
use super::{allocator, bytes, page, said};

/// That no more is unexplained than may be.
#[track_caller]
fn assert_explained(page: &Value) {
    let (resident, unexplained) = (bytes(&page["resident_bytes"]), bytes(&page["unexplained_bytes"]));
    assert!(unexplained <= (0.03 * resident).max(8e6), "{unexplained} of {resident}: {page:#}");
}

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
    let mut running = Running::start(&mut command);
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

#[test]
fn memory_is_explained_without_carriers_of_malloc_and_without_allocators() {
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
    if !can_contain() {
        return;
    }
    for otp in all_otps() {
        let name = format!("{}@127.0.0.1", unique("boxed"));
        let args =
            ["-name", &name, "-setcookie", "boxed", "-kernel", "prevent_overlapping_partitions", "false"];
        let container = Container::run(&otp, &["-n", "-m", "-u", "-p"], &[], &name, &args);
        let mut command = beamtune();
        let said =
            run(command.args(["memory", &container.pid_text(), "--json"]).env("BEAMTUNE_COOKIE", "boxed"));
        assert!(matches!(said.status, Some(0 | 1)), "OTP {}: {}", otp.release, said.stderr);
        let page = said.json();
        assert_explained(&page);
        // The VM in there answers, too.
        assert!(!page["kinds"].as_array().expect("kinds").is_empty(), "{page:#}");
    }
}

#[test]
fn another_user_is_told_what_is_missing_and_gets_the_rest() {
    let Some(otp) = otp(25) else { return };
    if !is_root() {
        eprintln!("skipped, because only root can become somebody else");
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
    let said = run(&mut other);
    assert!(matches!(said.status, Some(0 | 1)), "{}", said.stderr);
    for words in ["was not looked at: not allowed to read", "run beamtune as", "ll_alloc", "what the VM uses"]
    {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    assert!(!said.stdout.contains("not explained"), "{}", said.stdout);
}

#[test]
fn of_a_restarted_vm_one_life_is_told() {
    let Some(otp) = otp(25) else { return };
    let name = format!("{}@127.0.0.1", unique("lives"));
    let folder = folder();
    let file = folder.path().join(format!("{name}.btr"));
    let node = |eval: &str| TestNode::trusting(&otp, "lives", &["-name", &name], &name, &[], eval);
    let samples_of_life = |life: u32| {
        Reader::open(&file).map_or(0, |reader| {
            let samples = reader.samples().flatten();
            samples.filter(|sample| sample.tick.vm.is_some() && sample.tick.incarnation == life).count()
        })
    };
    // Of the first life 300 MB stay in memory, of the second none.
    let first = node("spawn(fun() -> B = binary:copy(<<1>>, 300000000), receive B -> ok end end)");
    let mut command = beamtune();
    command.env("BEAMTUNE_COOKIE", "lives").args(["record", "--keep", "1h", "--max-size", "20MB", &name]);
    let mut recorder = Running::start(command.arg("-o").arg(folder.path()));
    wait_until("samples of the first life", || samples_of_life(0) >= 3);
    drop(first);
    let second = node("ok");
    wait_until("samples of the second life", || samples_of_life(1) >= 3);
    recorder.signal("INT");
    recorder.wait();
    drop(second);
    let file = text(&file);
    let said = run(beamtune().args(["memory", &file]));
    assert!(said.stdout.contains("started 2 times"), "{}", said.stdout);
    let page = run(beamtune().args(["memory", &file, "--json"])).json();
    assert_explained(&page);
    assert!(bytes(&page["resident_bytes"]) < 200e6, "{page:#}");
}
