//! `beamtune compare` and `study`: trials of a real target, and their behaviour if something fails.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::trials::{BeamtuneProcess, Target};
use common::{TIMEOUT, all_otps, beamtune, folder, otp, run, run_for, text, unique, wait_until};
use serde_json::Value;

#[test]
fn interrupted_or_killed_study_can_be_resumed_and_leaves_no_process() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let temporary = folder();
    let is_tidy = || fs::read_dir(temporary.path()).expect("the folder").next().is_none();
    let mut compare = target.compare(&target.start(), &["--b", "+sbwt none"]);
    let mut first = BeamtuneProcess::start(compare.env("TMPDIR", temporary.path()));
    first.expect_line("trial 1 ");
    wait_until("the second trial has begun", || target.processes() > 0);
    first.signal("INT");
    let line = first.expect_line("stopped after 1 trials");
    assert!(line.contains(&format!("beamtune study resume {}", text(&target.study))), "{line}");
    assert_eq!(first.child.wait().expect("ended").code(), Some(2));
    assert_eq!(target.processes(), 0, "the target ends before beamtune does");
    assert!(is_tidy(), "the temporary folders are removed");

    let resume = |words: &str| {
        let mut resume = beamtune();
        resume.args(["study", "resume"]).arg(&target.study).env("TMPDIR", temporary.path());
        let mut resumed = BeamtuneProcess::start(&mut resume);
        resumed.expect_line(words);
        resumed
    };
    let mut second = resume("trial 2 ");
    wait_until("the third trial has begun", || target.processes() > 0);
    // During the trials, another beamtune process can read the study, but not add to it.
    let other = run(beamtune().args(["study", "resume"]).arg(&target.study));
    other.assert_refused(&["is in use by another beamtune"]);
    assert_eq!(target.trials(), 2);
    second.signal("KILL");
    second.child.wait().expect("ended");
    wait_until("the guard has ended the target", || target.processes() == 0);
    wait_until("the guard has removed the temporary folders", is_tidy);
    assert_eq!(target.trials(), 2, "no trial is lost or incomplete");

    drop(resume("trial 3 "));
    wait_until("the guard has ended the target", || target.processes() == 0);
    let recordings = target.folder.path().join("recordings");
    let output =
        run(beamtune().args(["study", "export"]).arg(&target.study).arg("--recordings").arg(&recordings));
    let trials: Vec<Value> =
        output.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(trials.len(), 3);
    for (number, trial) in trials.iter().enumerate() {
        assert_eq!(trial["order"]["phase"], "same");
        assert_eq!(trial["order"]["arm"]["name"], "A");
        let measures = &trial["outcome"]["measures"];
        for name in
            ["cpu-per-request", "cpu-per-request/scheduler", "throughput", "rss", "reductions-per-request"]
        {
            assert!(measures[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {trial:#}");
        }
        // Latencies of seconds in which the generator was the bottleneck are dropped. On a busy host, these may be all seconds.
        match measures["p50"].as_f64() {
            Some(p50) => assert!(p50 > 0.0, "{trial:#}"),
            None => {
                let reasons = trial["outcome"]["reasons"].as_array().expect("reasons of an invalid trial");
                assert!(reasons.iter().any(|reason| reason["kind"] == "generator_bound"), "{trial:#}");
            }
        }
        let rate = measures["throughput"].as_f64().expect("a number");
        // A request without an answer is not counted.
        assert!((150.0..250.0).contains(&rate), "{rate}");
        let recording = recordings.join(format!("{:03}-same.beamtune", number + 1));
        let output = run(beamtune().arg("show").arg(&recording));
        assert_eq!(output.status, Some(0), "{}", output.stderr);
    }
}

/// Runs one trial on each release.
#[test]
fn flags_reach_the_vms_of_all_releases() {
    let targets: Vec<Target> = all_otps().into_iter().map(Target::new).collect();
    for target in targets {
        let arm = ["--a", "+sbwt none +MBas aoffcbf", "--b", "+sbwt long"];
        let mut process = BeamtuneProcess::start(&mut target.compare(&target.start(), &arm));
        let line = process.expect_line("trial 1 ");
        assert!(line.contains("cpu-per-request") || line.contains("invalid"), "{line}");
        drop(process);
        wait_until("the target has ended", || target.processes() == 0);
        let output = run(beamtune().args(["study", "export"]).arg(&target.study));
        let trial: Value = serde_json::from_str(output.stdout.trim()).expect("one trial");
        let measures = &trial["outcome"]["measures"];
        assert!(measures["reductions-per-request"].is_f64(), "OTP {}: {trial:#}", target.otp.release);
    }
}

/// Runs a comparison of a target that does not work, and asserts that the result contains `words`.
fn fails(target: &Target, start: &str, more: &[&str], words: &[&str]) {
    let output = run_for(&mut target.compare(start, more), 3 * TIMEOUT);
    assert_eq!(output.status, Some(1), "{}\n{}", output.stdout, output.stderr);
    let stdout = output.stdout.replace("\n  ", " ");
    for word in words {
        assert!(stdout.contains(word), "no {word:?} in {stdout}");
    }
    assert_eq!(target.trials(), 2, "the target is tried twice");
    assert_eq!(target.processes(), 0);
}

#[test]
fn target_that_does_not_start_is_reported_with_its_output() {
    let Some(otp) = otp(25) else { return };
    let b = ["--b", "+sbwt none"];
    let target = || Target::new(otp.clone());
    fails(
        &target(),
        "echo no such release >&2; exit 3",
        &b,
        &["A does not work", "did not start (exited 3): no such release"],
    );
    let (one, ready) = (target(), ["--b", "+sbwt none", "--ready-within", "2s"]);
    fails(
        &one,
        "sleep 60",
        &ready,
        &["was not ready within 2 s", "nothing accepts connections", "(no output)"],
    );
    let one = target();
    fails(
        &one,
        &one.start(),
        &["--a", "+sbwt nonsense", "--b", ""],
        &["A does not work: the target did not start"],
    );
    let one = target();
    let without_flags = format!("env -u ERL_ZFLAGS {}", one.start());
    fails(&one, &without_flags, &["--a", "+sbwt none", "--b", ""], &["the VM did not get +sbwt none"]);
}

#[test]
fn vm_that_ends_under_load_is_reported() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let start =
        target.start().replace("-noinput", "-noinput -eval 'spawn(fun()-> timer:sleep(4000), halt(7) end).'");
    fails(&target, &start, &["--b", "+sbwt none"], &["A does not work: the VM ended under the load"]);
}

#[test]
fn invalid_options_are_refused_before_anything_is_started() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let refused = |start: &str, more: &[&str], words: &[&str]| {
        run(&mut target.compare(start, more)).assert_refused(words);
        assert!(!target.study.exists() || more.is_empty());
    };
    refused("true", &["--b", "+sbwt none", "--pairs", "7"], &["--pairs 7 is too few", "the minimum is 8"]);
    refused("true", &["--b", ""], &["A and B are the same"]);
    refused("true", &["--b-env", "X"], &["not NAME=VALUE"]);
    refused("true", &["--b", "+A 1", "--guard", "p99:-5%"], &["p99:+5%"]);
    refused("true", &["--b", "+A 1", "--objective", "speed"], &["cpu-per-request, "]);
    refused("true", &["--b", "+A 1", "--objective", "errors"], &["--guard errors:+0.1%"]);
    refused("true", &["--b", "+A 1", "--load-cmd", "true"], &["--load"]);
    refused("true", &["--b", "+A 1", "--rabbitmq"], &["--start"]);
    let plan = run(&mut target.compare("true", &["--b", "+sbwt none", "--plan"]));
    assert_eq!(plan.status, Some(0), "{}", plan.stderr);
    assert!(plan.stdout.contains("trials: 28 to 72"), "{}", plan.stdout);
    assert!(!target.study.exists());

    let listener = TcpListener::bind(("127.0.0.1", target.port)).expect("the port");
    let taken = run(&mut target.compare("true", &["--b", "+sbwt none"]));
    taken.assert_refused(&[&format!("127.0.0.1:{} is in use", target.port)]);
    drop(listener);
    let exists = run(&mut target.compare("true", &["--b", "+sbwt none"]));
    exists.assert_refused(&["already exists", "beamtune study resume"]);
}

/// Starts a guard that runs a shell script.
fn guard(log: &Path, script: &str) -> Child {
    Command::new(beamtune().get_program())
        .args(["guard", "--log", &text(log), "--", "bash", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started")
}

/// Counts the processes whose command line begins with `name`.
fn count_processes(name: &str) -> usize {
    let is_there = |path: &Path| {
        fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).starts_with(name))
    };
    let entries = fs::read_dir("/proc").expect("/proc");
    entries.filter_map(|entry| is_there(&entry.ok()?.path()).then_some(())).count()
}

#[test]
fn guard_also_ends_daemonized_processes() {
    let folder = folder();
    let name = unique("detached");
    let script = format!("setsid bash -c 'exec -a {name} sleep 300' & exit 0");
    let mut guard = guard(&folder.path().join("log"), &script);
    let mut line = String::new();
    BufReader::new(guard.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("exited 0 after "), "{line}");
    wait_until("it runs", || count_processes(&name) == 1);
    drop(guard.stdin.take());
    guard.wait().expect("ended");
    assert_eq!(count_processes(&name), 0);
}

/// A guard gets such a signal from `pkill beamtune`, or when systemd stops a unit.
#[test]
fn guard_that_receives_a_signal_ends_its_processes() {
    for signal in ["INT", "TERM", "HUP"] {
        let folder = folder();
        let name = unique("guarded");
        let script = format!("setsid bash -c 'exec -a {name} sleep 300' & wait");
        let mut guard = guard(&folder.path().join("log"), &script);
        wait_until("it runs", || count_processes(&name) == 1);
        let sent = Command::new("kill").args(["-s", signal, &guard.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        wait_until("its processes have ended", || count_processes(&name) == 0);
        assert!(
            guard.try_wait().expect("a status").is_none(),
            "{signal}: the guard must wait until its parent closes its input"
        );
        drop(guard.stdin.take());
        assert_eq!(guard.wait().expect("ended").code(), Some(0), "{signal}");
    }
}

#[test]
fn tune_with_too_little_time_or_invalid_files_is_refused() {
    let folder = folder();
    let tune = |more: &[&str]| {
        let mut command = beamtune();
        command.args([
            "tune",
            "--start",
            "true",
            "--ready",
            "tcp:1",
            "--load",
            "tcp://127.0.0.1:1",
            "--rate",
            "10",
        ]);
        run(command.args(more).current_dir(folder.path()))
    };
    tune(&["--budget", "5m"]).assert_refused(&[
        "is too short for any conclusion",
        "trials of",
        "the minimum is",
    ]);
    fs::write(folder.path().join("new.args"), "").expect("written");
    tune(&["-o", "new.args"]).assert_refused(&["new.args already exists"]);
    tune(&["--vm-args", "old.args"]).assert_refused(&["cannot read old.args"]);
    let plan = tune(&["--plan", "--budget", "1h"]);
    assert_eq!(plan.status, Some(0), "{}", plan.stderr);
    assert!(plan.stdout.contains("12 of the target against itself"), "{}", plan.stdout);
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "nothing but the file of this test");
}
