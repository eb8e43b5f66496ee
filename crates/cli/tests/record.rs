//! `beamtune record --keep`: keeps the last few hours of nodes, across restarts of node and recorder.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use beamtune_recording::Reader;
use common::group::ControlGroup;
use common::{Otp, Process, TestNode, beamtune, folder, on_all_otps, otp, run, text, unique, wait_until};

/// The cookie of all nodes, so that the recorder can attach to a restarted node.
const COOKIE: &str = "ring_cookie";

fn node(otp: &Otp, name: &str) -> TestNode {
    TestNode::with_cookie(otp, COOKIE, &["-name", name], name, &[], "ok")
}

fn recorder(targets: &[&str], path: &Path) -> Process {
    let mut command = beamtune();
    command.env("BEAMTUNE_COOKIE", COOKIE).args(["record", "--keep", "1h", "--max-size", "20MB"]);
    Process::start(command.args(targets).arg("-o").arg(path))
}

fn samples(file: &Path) -> usize {
    Reader::open(file).map_or(0, |reader| {
        reader.samples().filter(|sample| sample.as_ref().is_ok_and(|sample| sample.tick.vm.is_some())).count()
    })
}

#[test]
fn ring_continues_after_restarts_of_recorder_and_node() {
    on_all_otps(|otp| {
        let folder = folder();
        let name = format!("{}@127.0.0.1", unique("ring"));
        let file = folder.path().join(format!("{name}.btr"));
        let first = node(otp, &name);
        // A node that is not running does not prevent recording the other one.
        let targets = ["nobody_at_home@127.0.0.1", &name];
        let killed = recorder(&targets, folder.path());
        wait_until("three samples", || samples(&file) >= 3);
        killed.signal("KILL");
        drop(killed);
        let before = samples(&file);

        let mut second_recorder = recorder(&targets, folder.path());
        wait_until("more samples of the same node", || samples(&file) >= before + 3);
        let incarnations = || {
            Reader::open(&file).and_then(|reader| reader.recorded_incarnations()).map_or(0, |list| list.len())
        };
        assert_eq!(incarnations(), 1, "OTP {}: the node was not restarted", otp.release);
        drop(first);
        let second = node(otp, &name);
        wait_until("samples of the next incarnation", || incarnations() == 2);
        second_recorder.signal("INT");
        assert_eq!(second_recorder.wait().code(), Some(0));
        drop(second);

        let reader = Reader::open(&file).expect("opened");
        assert!(reader.is_closed());
        let gaps: Vec<_> = reader.samples().flat_map(|sample| sample.expect("readable").gaps).collect();
        let pauses = gaps.iter().filter(|gap| gap.reason.contains("beamtune did not run")).count();
        assert_eq!(pauses, 1, "OTP {}: {gaps:#?}", otp.release);
        let output = run(beamtune().arg("diagnose").arg(&file));
        assert!(output.stdout.contains(&name), "{}\n{}", output.stdout, output.stderr);
    });
}

#[test]
fn recorder_waits_for_a_node_that_starts_later() {
    let Some(otp) = otp(25) else { return };
    let folder = folder();
    let name = format!("{}@127.0.0.1", unique("later"));
    let file = folder.path().join("later.btr");
    let mut waiting = recorder(&[&name], &file);
    let node = node(&otp, &name);
    wait_until("a sample", || samples(&file) >= 1);
    waiting.signal("TERM");
    assert_eq!(waiting.wait().code(), Some(0));
    drop(node);
}

#[test]
fn nodes_are_recorded_up_to_the_number_of_available_threads() {
    let (Some(otp), Some(group)) = (otp(25), ControlGroup::new(&unique("ring"))) else { return };
    // One thread is for signals, one for the first node.
    group.limit(2);
    let folder = folder();
    let name = format!("{}@127.0.0.1", unique("ring"));
    let _node = node(&otp, &name);
    let mut command = beamtune();
    command.args(["record", "--keep", "1h", &name, "other@127.0.0.1", "-o"]).arg(folder.path());
    let mut command = group.command(&command);
    let mut recording = Process::start(command.env("BEAMTUNE_COOKIE", COOKIE).stderr(Stdio::piped()));
    wait_until("a sample", || samples(&folder.path().join(format!("{name}.btr"))) >= 1);
    recording.signal("INT");
    assert_eq!(recording.wait().code(), Some(2));
    let mut output = String::new();
    let mut stderr = recording.child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut output).expect("text");
    assert!(output.contains("other@127.0.0.1: not recorded: no thread can be started"), "{output}");
}

#[test]
fn file_with_other_content_is_refused() {
    let Some(otp) = otp(25) else { return };
    let folder = folder();
    let file = folder.path().join("doctor.btr");
    let name = format!("{}@127.0.0.1", unique("ring"));
    let node = node(&otp, &name);
    run(beamtune().env("BEAMTUNE_COOKIE", COOKIE).args(["doctor", &name, "--for", "1s", "-o"]).arg(&file));
    let output = run(beamtune()
        .env("BEAMTUNE_COOKIE", COOKIE)
        .args(["record", "--keep", "1h", &name, "-o"])
        .arg(&file));
    output.assert_refused(&["doctor.btr cannot be continued", "choose another file with -o"]);
    run(beamtune().args(["record", &name, "other", "-o"]).arg(&file)).assert_refused(&["--keep"]);
    drop(node);
}

#[test]
fn systemd_unit_runs_the_same_command_and_is_valid() {
    let output = run(beamtune().args(["record", "--systemd", "--keep", "6h", "shop@web1", "rabbit@web1"]));
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    let exec = output.stdout.lines().find(|line| line.starts_with("ExecStart=")).expect("a command");
    let tail =
        "record --keep 21600s --max-size 500000000 --every 1s -o %S/beamtune/ -- shop@web1 rabbit@web1";
    assert!(exec.ends_with(tail), "{exec}");
    // The unit runs in a different folder, so relative paths are made absolute.
    let secure =
        run(beamtune().args(["record", "--systemd", "--keep", "6h", "--tls-ca", "ca.pem", "shop@web1"]));
    let authority = std::path::absolute("ca.pem").expect("a path");
    assert!(secure.stdout.contains(&format!("--tls-ca {}", text(&authority))), "{}", secure.stdout);
    let folder = folder();
    let unit = folder.path().join("beamtune.service");
    std::fs::write(&unit, &output.stdout).expect("written");
    let tool = std::env::var("SYSTEMD_ANALYZE").unwrap_or_else(|_| "systemd-analyze".to_owned());
    if Command::new(&tool).arg("--version").output().is_err() {
        eprintln!("skipped in part, because there is no systemd-analyze (set its path with SYSTEMD_ANALYZE)");
        return;
    }
    let verified = run(Command::new(&tool).args(["verify", "--man=no", &text(&unit)]));
    let about = |line: &&str| line.contains("beamtune");
    let complaints: Vec<_> = verified.stderr.lines().filter(about).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}
