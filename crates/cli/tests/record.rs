//! `beamtune record --keep`: the last hours of nodes, through the ends of everything that takes part.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use beamtune_recording::Reader;
use common::group::Group;
use common::{Otp, Running, TestNode, beamtune, folder, on_all_otps, otp, run, text, unique, wait_until};

/// The node's cookie, so that the next one of its name has the same.
const COOKIE: &str = "ring_cookie";

fn node(otp: &Otp, name: &str) -> TestNode {
    TestNode::trusting(otp, COOKIE, &["-name", name], name, &[], "ok")
}

fn recorder(targets: &[&str], output: &Path) -> Running {
    let mut command = beamtune();
    command.env("BEAMTUNE_COOKIE", COOKIE).args(["record", "--keep", "1h", "--max-size", "20MB"]);
    Running::start(command.args(targets).arg("-o").arg(output))
}

fn samples(file: &Path) -> usize {
    Reader::open(file).map_or(0, |reader| {
        reader.samples().filter(|sample| sample.as_ref().is_ok_and(|sample| sample.tick.vm.is_some())).count()
    })
}

#[test]
fn a_ring_outlives_its_recorder_and_its_node() {
    on_all_otps(|otp| {
        let folder = folder();
        let name = format!("{}@127.0.0.1", unique("ring"));
        let file = folder.path().join(format!("{name}.btr"));
        let first = node(otp, &name);
        // One that is not there does not keep the other from being recorded.
        let targets = ["nobody_at_home@127.0.0.1", &name];
        let killed = recorder(&targets, folder.path());
        wait_until("three samples", || samples(&file) >= 3);
        killed.signal("KILL");
        drop(killed);
        let before = samples(&file);

        let mut again = recorder(&targets, folder.path());
        wait_until("more samples of the same node", || samples(&file) >= before + 3);
        let lives = || Reader::open(&file).and_then(|reader| reader.lives()).map_or(0, |lives| lives.len());
        assert_eq!(lives(), 1, "OTP {}: the node is the same", otp.release);
        drop(first);
        let second = node(otp, &name);
        wait_until("samples of the node's next life", || lives() == 2);
        again.signal("INT");
        assert_eq!(again.wait().code(), Some(0));
        drop(second);

        let reader = Reader::open(&file).expect("opened");
        assert!(reader.is_closed());
        let gaps: Vec<_> = reader.samples().flat_map(|sample| sample.expect("readable").gaps).collect();
        let pauses = gaps.iter().filter(|gap| gap.reason.contains("beamtune did not run")).count();
        assert_eq!(pauses, 1, "OTP {}: {gaps:#?}", otp.release);
        let said = run(beamtune().arg("diagnose").arg(&file));
        assert!(said.stdout.contains(&name), "{}\n{}", said.stdout, said.stderr);
    });
}

#[test]
fn a_node_that_starts_later_is_waited_for() {
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
fn where_threads_are_short_as_many_nodes_are_recorded_as_there_are_threads() {
    let (Some(otp), Some(group)) = (otp(25), Group::new(&unique("ring"))) else { return };
    // One for signals, and the first.
    group.limit(2);
    let folder = folder();
    let name = format!("{}@127.0.0.1", unique("ring"));
    let _node = node(&otp, &name);
    let mut command = beamtune();
    command.args(["record", "--keep", "1h", &name, "other@127.0.0.1", "-o"]).arg(folder.path());
    let mut command = group.command(&command);
    let mut recording = Running::start(command.env("BEAMTUNE_COOKIE", COOKIE).stderr(Stdio::piped()));
    wait_until("a sample", || samples(&folder.path().join(format!("{name}.btr"))) >= 1);
    recording.signal("INT");
    assert_eq!(recording.wait().code(), Some(2));
    let mut said = String::new();
    let mut stderr = recording.child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut said).expect("text");
    assert!(said.contains("other@127.0.0.1: is not recorded, since no thread can be started"), "{said}");
}

#[test]
fn a_file_of_something_else_is_refused() {
    let Some(otp) = otp(25) else { return };
    let folder = folder();
    let file = folder.path().join("doctor.btr");
    let name = format!("{}@127.0.0.1", unique("ring"));
    let node = node(&otp, &name);
    run(beamtune().env("BEAMTUNE_COOKIE", COOKIE).args(["doctor", &name, "--for", "1s", "-o"]).arg(&file));
    let said = run(beamtune()
        .env("BEAMTUNE_COOKIE", COOKIE)
        .args(["record", "--keep", "1h", &name, "-o"])
        .arg(&file));
    said.assert_refused(&["doctor.btr cannot be continued", "choose another file with -o"]);
    run(beamtune().args(["record", &name, "other", "-o"]).arg(&file)).assert_refused(&["--keep"]);
    drop(node);
}

#[test]
fn the_unit_for_systemd_runs_the_same_command_and_is_valid() {
    let said = run(beamtune().args(["record", "--systemd", "--keep", "6h", "shop@web1", "rabbit@web1"]));
    assert_eq!(said.status, Some(0), "{}", said.stderr);
    let exec = said.stdout.lines().find(|line| line.starts_with("ExecStart=")).expect("a command");
    let tail =
        "record --keep 21600s --max-size 500000000 --every 1s -o %S/beamtune/ -- shop@web1 rabbit@web1";
    assert!(exec.ends_with(tail), "{exec}");
    // It runs in another folder than this.
    let secure =
        run(beamtune().args(["record", "--systemd", "--keep", "6h", "--tls-ca", "ca.pem", "shop@web1"]));
    let authority = std::path::absolute("ca.pem").expect("a path");
    assert!(secure.stdout.contains(&format!("--tls-ca {}", text(&authority))), "{}", secure.stdout);
    let folder = folder();
    let unit = folder.path().join("beamtune.service");
    std::fs::write(&unit, &said.stdout).expect("written");
    let tool = std::env::var("SYSTEMD_ANALYZE").unwrap_or_else(|_| "systemd-analyze".to_owned());
    if Command::new(&tool).arg("--version").output().is_err() {
        eprintln!("skipped, because there is no systemd-analyze (SYSTEMD_ANALYZE names one)");
        return;
    }
    let verified = run(Command::new(&tool).args(["verify", "--man=no", &text(&unit)]));
    let about = |line: &&str| line.contains("beamtune");
    let complaints: Vec<_> = verified.stderr.lines().filter(about).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}
