//! Common failures: the command ends with status 2 and a message that names the next step, and does no damage.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use beamtune_model::Tick;
use beamtune_recording::Reader;
use common::{
    Process, TestNode, all_otps, beamtune, folder, on_all_otps, otp, run, text, unique, wait_until,
};

/// Returns a `beamtune doctor` command that records for two seconds.
fn doctor(target: &str) -> Command {
    let mut command = beamtune();
    command.args(["doctor", target, "--for", "2s"]);
    command
}

#[test]
fn wrong_cookie_is_reported_as_such() {
    on_all_otps(|otp| {
        let node = TestNode::start(otp, &[], "ok");
        let output = run(doctor(&node.name).env("BEAMTUNE_COOKIE", "wrong"));
        output.assert_refused(&["cookie", "BEAMTUNE_COOKIE"]);
        assert!(!output.stderr.contains(&node.cookie));
    });
}

#[test]
fn absent_node_is_reported_with_a_list_of_existing_nodes() {
    let Some(otp) = otp(25) else { return };
    let node = TestNode::start(&otp, &[], "ok");
    let alive = node.name.split('@').next().expect("a name");
    let output = run(doctor("nobody_at_home@127.0.0.1").env("BEAMTUNE_COOKIE", "x"));
    output.assert_refused(&["nobody_at_home", alive]);
}

#[test]
fn frozen_node_is_distinguished_from_an_absent_one() {
    on_all_otps(|otp| {
        let node = TestNode::start(otp, &[], "ok");
        node.process.signal("STOP");
        let output = run(&mut doctor(&node.name));
        node.process.signal("CONT");
        // The node was recorded through /proc only, and its lack of response is a finding.
        assert_eq!(output.status, Some(1), "{}\n{}", output.stdout, output.stderr);
        assert!(
            output.stderr.contains("sent nothing for") && output.stderr.contains("SIGSTOP"),
            "{}",
            output.stderr
        );
        assert!(
            output.stdout.contains("BT065") && output.stdout.contains("stopped or hanging"),
            "{}",
            output.stdout
        );
    });
}

#[test]
fn named_node_on_another_host_needs_epmd() {
    // Nothing listens on this port of the loopback network.
    let output = run(doctor("app@127.0.0.9").env("ERL_EPMD_PORT", "4399").env("BEAMTUNE_COOKIE", "x"));
    output.assert_refused(&["EPMD"]);
}

#[test]
fn unreadable_cookie_file_is_reported_with_the_fix() {
    let Some(otp) = otp(25) else { return };
    let node = TestNode::start(&otp, &[], "ok");
    let folder = folder();
    let output = run(doctor(&node.name).arg("--cookie-file").arg(folder.path().join("missing")));
    output.assert_refused(&["missing"]);
    let path = folder.path().join("cookie");
    std::fs::write(&path, "cookie").expect("write");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("chmod");
    if std::fs::read(&path).is_ok() {
        // Root can read everything. So run as nobody, who cannot read the folder of the test either.
        let exe = beamtune().get_program().to_owned();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--clear-groups", "--"]).arg(exe);
        command.args(["doctor", &node.name, "--for", "2s", "--cookie-file"]).arg(&path);
        let output = run(&mut command);
        if output.stderr.contains("setpriv") {
            eprintln!("skipped, because the binary cannot be run as nobody: {}", output.stderr);
            return;
        }
        output.assert_refused(&["cookie", "ermission"]);
    } else {
        run(doctor(&node.name).arg("--cookie-file").arg(&path)).assert_refused(&["cookie", "ermission"]);
    }
}

#[test]
fn if_there_are_several_vms_and_no_target_they_are_listed() {
    let Some(otp) = otp(25) else { return };
    let (a, b) = (TestNode::start(&otp, &[], "ok"), TestNode::start(&otp, &[], "ok"));
    let output = run(beamtune().args(["doctor", "--for", "2s"]));
    output.assert_refused(&["name one", &a.name, &b.name]);
}

#[test]
fn process_that_is_not_a_vm_is_refused() {
    run(&mut doctor("1")).assert_refused(&["not an Erlang VM", "beamtune nodes"]);
}

#[test]
fn files_that_are_not_recordings_are_refused() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "these are notes\n").expect("write");
    for command in ["diagnose", "show"] {
        run(beamtune().arg(command).arg(&path)).assert_refused(&["not a recording", "notes.txt"]);
    }
    run(beamtune().args(["diagnose", &text(&folder.path().join("absent"))])).assert_refused(&["absent"]);
    std::fs::write(&path, "").expect("write");
    run(beamtune().arg("diagnose").arg(&path)).assert_refused(&["notes.txt"]);
}

#[test]
fn existing_recording_is_not_overwritten() {
    let Some(otp) = otp(25) else { return };
    let node = TestNode::start(&otp, &[], "ok");
    let folder = folder();
    let path = folder.path().join("a.beamtune");
    std::fs::write(&path, "precious").expect("write");
    let output = run(doctor(&node.name).arg("-o").arg(&path));
    output.assert_refused(&["already exists"]);
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "precious");
}

/// Counts the samples that satisfy a condition; 0 while there is no file.
fn ticks(file: &Path, are: impl Fn(Tick) -> bool) -> usize {
    Reader::open(file).map_or(0, |reader| {
        reader.samples().filter(|sample| sample.as_ref().is_ok_and(|sample| are(sample.tick))).count()
    })
}

#[test]
fn node_that_ends_causes_a_gap_in_a_complete_recording() {
    let Some(otp) = otp(25) else { return };
    let node = TestNode::start(&otp, &[], "ok");
    let folder = folder();
    let path = folder.path().join("dies.beamtune");
    let mut command = beamtune();
    command.args(["record", &node.name, "-o"]).arg(&path);
    let mut recording = Process::start(&mut command);
    wait_until("two samples of the VM", || ticks(&path, |tick| tick.vm.is_some()) >= 2);
    let without = || ticks(&path, |tick| tick.vm.is_none());
    let before = without();
    node.process.signal("KILL");
    wait_until("two samples without the VM", || without() >= before + 2);
    recording.signal("INT");
    let status = recording.wait();
    assert!(status.code().is_some(), "{status}");
    let output = run(beamtune().args(["diagnose", "--json"]).arg(&path));
    let answer = output.json();
    assert!(answer["period"]["vm_samples"].as_u64().is_some_and(|n| n >= 2), "{answer:#}");
    let gaps = answer["gaps"].as_array().expect("gaps");
    assert!(gaps.iter().any(|gap| gap["source"] == "vm"), "{gaps:#?}");
}

#[test]
fn restarted_node_is_recorded_as_a_new_incarnation() {
    on_all_otps(|otp| {
        let node = TestNode::start(otp, &[], "ok");
        let (name, cookie) = (node.name.clone(), node.cookie.clone());
        let folder = folder();
        let path = folder.path().join("restart.beamtune");
        let mut command = beamtune();
        command.args(["record", &name, "-o"]).arg(&path).env("BEAMTUNE_COOKIE", &cookie);
        let mut recording = Process::start(&mut command);
        let samples =
            |incarnation: u32| ticks(&path, |tick| tick.incarnation == incarnation && tick.vm.is_some());
        wait_until("two samples", || samples(0) >= 2);
        drop(node);
        let mut command = otp.command("erl");
        command.args([
            "-name",
            &name,
            "-setcookie",
            &cookie,
            "-noinput",
            "-eval",
            "io:put_chars(\"ready\\n\").",
        ]);
        let mut restarted = Process::start(&mut command);
        restarted.expect_line("ready");
        wait_until("two samples of the next incarnation", || samples(1) >= 2);
        recording.signal("INT");
        let status = recording.wait();
        assert!(status.success(), "{status}");
        let answer = run(beamtune().args(["diagnose", "--json"]).arg(&path)).json();
        assert_eq!(answer["period"]["lives"], 2, "OTP {}: {answer:#}", otp.release);
    });
}

#[test]
fn full_disk_is_reported_and_the_recording_stays_readable() {
    let Some(otp) = otp(25) else { return };
    let folder = folder();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=400k", "tmpfs"]).arg(folder.path()).status();
    if !mount.is_ok_and(|status| status.success()) {
        eprintln!("skipped, because a small file system cannot be mounted here (needs root)");
        return;
    }
    struct Mounted<'a>(&'a Path);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
    let _mounted = Mounted(folder.path());
    let node = TestNode::start(&otp, &[], "ok");
    let path = folder.path().join("full.beamtune");
    let mut command = beamtune();
    command.args(["record", &node.name, "--for", "60s", "--every", "100ms", "-o"]).arg(&path);
    let output = run(&mut command);
    output.assert_refused(&["disk is full"]);
    let answer = run(beamtune().args(["diagnose", "--json"]).arg(&path)).json();
    assert!(answer["period"]["samples"].as_u64().is_some_and(|n| n >= 1), "{answer:#}");
}

#[test]
fn vm_without_distribution_is_diagnosed_from_host_data() {
    let Some(otp) = otp(25) else { return };
    let mut command = otp.command("erl");
    command.args(["-noinput", "-eval", "io:put_chars(\"ready\\n\")."]);
    let mut process = Process::start(&mut command);
    process.expect_line("ready");
    let output = run(beamtune().args(["doctor", &process.pid().to_string(), "--for", "3s", "--json"]));
    let answer = output.json();
    let findings = answer["findings"].as_array().expect("findings");
    let above: Vec<_> = findings.iter().filter(|finding| finding["level"] != "notice").collect();
    assert_eq!(output.status, Some(if above.is_empty() { 0 } else { 1 }), "{}", output.stderr);
    // If other processes use the CPUs, a VM that waits for one is a true finding.
    assert!(above.iter().all(|finding| finding["code"] == "BT004"), "{above:#?}");
    let not_judged = answer["not_judged"].as_array().expect("a list");
    assert!(not_judged.iter().any(|rule| rule["code"] == "BT006"), "{answer:#}");
    assert!(answer["healthy"].as_array().is_some_and(|list| list.iter().any(|rule| rule["code"] == "BT002")));
}

/// No matter when the command is killed, the agent restores the node's flags and unloads itself.
#[test]
fn killed_doctor_leaves_nothing_on_the_node() {
    let kills: u32 = 50;
    on_all_otps(|otp| {
        let node = TestNode::start(otp, &[], "ok");
        let each = kills.div_ceil(all_otps().len() as u32);
        for turn in 0..each {
            let mut doctor = Process::start(&mut doctor(&node.name));
            // Between the start of the command and the middle of sampling.
            std::thread::sleep(std::time::Duration::from_millis(u64::from(turn * 997 % 1500)));
            doctor.signal("KILL");
            doctor.wait();
        }
        let is_clean = "lists:filter(fun({M, _}) -> lists:prefix(\"beamtune\", atom_to_list(M)) end, code:all_loaded()) \
            =:= [] andalso lists:filter(fun(N) -> lists:prefix(\"beamtune\", atom_to_list(N)) end, registered()) =:= []";
        wait_until("the agent has left", || common::eval_in(&node, is_clean) == "true");
        assert_eq!(common::eval_in(&node, "erlang:system_flag(scheduler_wall_time, false)"), "false");
        assert_eq!(common::eval_in(&node, "erlang:system_flag(microstate_accounting, false)"), "false");
    });
}

#[test]
fn unknown_targets_and_options_are_explained() {
    run(&mut doctor("what is this")).assert_refused(&["invalid target"]);
    run(beamtune().args(["doctor", "x@y", "--for", "soon"])).assert_refused(&["not a duration"]);
    run(beamtune().args(["lab", "run", &unique("nolab")])).assert_refused(&["beamtune lab list"]);
}
