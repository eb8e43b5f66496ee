//! `beamtune compare` and `study` as a whole: trials of a real target, and what happens when something goes wrong.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::trials::{Target, Watched};
use common::{PATIENCE, all_otps, beamtune, folder, otp, run, run_for, text, unique, wait_until};
use serde_json::Value;

#[test]
fn a_study_that_is_stopped_or_killed_goes_on_and_leaves_no_process() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let temporary = folder();
    let is_tidy = || fs::read_dir(temporary.path()).expect("the folder").next().is_none();
    let mut compare = target.compare(&target.start(), &["--b", "+sbwt none"]);
    let mut first = Watched::start(compare.env("TMPDIR", temporary.path()));
    first.expect_line("trial 1 ");
    wait_until("the second trial has begun", || target.processes() > 0);
    first.signal("INT");
    let told = first.expect_line("stopped after 1 trials");
    assert!(told.contains(&format!("beamtune study resume {}", text(&target.study))), "{told}");
    assert_eq!(first.child.wait().expect("ended").code(), Some(2));
    assert_eq!(target.processes(), 0, "what was started is ended before beamtune ends");
    assert!(is_tidy(), "its folders are removed");

    let resume = |words: &str| {
        let mut resume = beamtune();
        resume.args(["study", "resume"]).arg(&target.study).env("TMPDIR", temporary.path());
        let mut again = Watched::start(&mut resume);
        again.expect_line(words);
        again
    };
    let mut second = resume("trial 2 ");
    wait_until("the third trial has begun", || target.processes() > 0);
    // Another one may not add to it meanwhile, but look at it.
    let other = run(beamtune().args(["study", "resume"]).arg(&target.study));
    other.assert_refused(&["is in use by another beamtune"]);
    assert_eq!(target.trials(), 2);
    second.signal("KILL");
    second.child.wait().expect("ended");
    wait_until("the guard has ended what was left", || target.processes() == 0);
    wait_until("the guard has removed its folders", is_tidy);
    assert_eq!(target.trials(), 2, "no trial is lost, and none is there in half");

    drop(resume("trial 3 "));
    wait_until("the guard has ended what was left", || target.processes() == 0);
    let recordings = target.folder.path().join("recordings");
    let said =
        run(beamtune().args(["study", "export"]).arg(&target.study).arg("--recordings").arg(&recordings));
    let trials: Vec<Value> =
        said.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
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
        // Seconds in which the generator was the limit have no times, and on a busy machine that may be all of them.
        match measures["p50"].as_f64() {
            Some(p50) => assert!(p50 > 0.0, "{trial:#}"),
            None => {
                let reasons = trial["outcome"]["reasons"].as_array().expect("why it does not count");
                assert!(reasons.iter().any(|reason| reason["kind"] == "generator_bound"), "{trial:#}");
            }
        }
        let rate = measures["throughput"].as_f64().expect("a number");
        // What is only sent is no answer.
        assert!((150.0..250.0).contains(&rate), "{rate}");
        let recording = recordings.join(format!("{:03}-same.beamtune", number + 1));
        let said = run(beamtune().arg("show").arg(&recording));
        assert_eq!(said.status, Some(0), "{}", said.stderr);
    }
}

/// One trial on each release: flags reach the VM, and what it measures is there.
#[test]
fn flags_reach_the_vms_of_all_releases() {
    let targets: Vec<Target> = all_otps().into_iter().map(Target::new).collect();
    for target in targets {
        let arm = ["--a", "+sbwt none +MBas aoffcbf", "--b", "+sbwt long"];
        let mut running = Watched::start(&mut target.compare(&target.start(), &arm));
        let line = running.expect_line("trial 1 ");
        assert!(line.contains("cpu-per-request") || line.contains("does not count"), "{line}");
        drop(running);
        wait_until("all has ended", || target.processes() == 0);
        let said = run(beamtune().args(["study", "export"]).arg(&target.study));
        let trial: Value = serde_json::from_str(said.stdout.trim()).expect("one trial");
        let measures = &trial["outcome"]["measures"];
        assert!(measures["reductions-per-request"].is_f64(), "OTP {}: {trial:#}", target.otp.release);
    }
}

/// What the answer says of a target that does not work.
fn fails(target: &Target, start: &str, more: &[&str], words: &[&str]) {
    let said = run_for(&mut target.compare(start, more), 3 * PATIENCE);
    assert_eq!(said.status, Some(1), "{}\n{}", said.stdout, said.stderr);
    let told = said.stdout.replace("\n  ", " ");
    for word in words {
        assert!(told.contains(word), "no {word:?} in {told}");
    }
    assert_eq!(target.trials(), 2, "it was tried once more");
    assert_eq!(target.processes(), 0);
}

#[test]
fn a_target_that_does_not_start_is_told_with_its_own_words() {
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
        &["was not ready within 2 s", "nothing accepts connections", "(nothing)"],
    );
    let one = target();
    fails(
        &one,
        &one.start(),
        &["--a", "+sbwt nonsense", "--b", ""],
        &["A does not work: the target did not start"],
    );
    let one = target();
    let deaf = format!("env -u ERL_ZFLAGS {}", one.start());
    fails(&one, &deaf, &["--a", "+sbwt none", "--b", ""], &["+sbwt none did not reach the VM"]);
}

#[test]
fn a_vm_that_ends_under_the_load_is_told() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let start =
        target.start().replace("-noinput", "-noinput -eval 'spawn(fun()-> timer:sleep(4000), halt(7) end).'");
    fails(&target, &start, &["--b", "+sbwt none"], &["A does not work: the VM ended under the load"]);
}

#[test]
fn what_is_wrong_with_the_question_is_told_before_anything_is_started() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let refused = |start: &str, more: &[&str], words: &[&str]| {
        run(&mut target.compare(start, more)).assert_refused(words);
        assert!(!target.study.exists() || more.is_empty());
    };
    refused("true", &["--b", "+sbwt none", "--pairs", "7"], &["--pairs 7 is too few", "8 are the least"]);
    refused("true", &["--b", ""], &["A and B are the same"]);
    refused("true", &["--b-env", "X"], &["no NAME=VALUE"]);
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
    taken.assert_refused(&[&format!("something listens at 127.0.0.1:{} already", target.port)]);
    drop(listener);
    let exists = run(&mut target.compare("true", &["--b", "+sbwt none"]));
    exists.assert_refused(&["already exists", "beamtune study resume"]);
}

/// A guard of what a shell does.
fn guard(log: &Path, script: &str) -> Child {
    Command::new(beamtune().get_program())
        .args(["guard", "--log", &text(log), "--", "bash", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started")
}

/// How many processes have this name.
fn named(name: &str) -> usize {
    let is_there = |path: &Path| {
        fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).starts_with(name))
    };
    let entries = fs::read_dir("/proc").expect("/proc");
    entries.filter_map(|entry| is_there(&entry.ok()?.path()).then_some(())).count()
}

/// A guard ends what has detached itself, too.
#[test]
fn a_guard_ends_what_has_detached_itself() {
    let folder = folder();
    let name = unique("detached");
    let script = format!("setsid bash -c 'exec -a {name} sleep 300' & exit 0");
    let mut guard = guard(&folder.path().join("log"), &script);
    let mut told = String::new();
    BufReader::new(guard.stdout.take().expect("a pipe")).read_line(&mut told).expect("told");
    assert!(told.starts_with("exited 0 after "), "{told}");
    wait_until("it runs", || named(&name) == 1);
    drop(guard.stdin.take());
    guard.wait().expect("ended");
    assert_eq!(named(&name), 0);
}

/// Signals that are meant for all that is called beamtune, or for a whole unit, reach it, too.
#[test]
fn a_guard_that_is_signalled_ends_what_it_guards() {
    for signal in ["INT", "TERM", "HUP"] {
        let folder = folder();
        let name = unique("guarded");
        let script = format!("setsid bash -c 'exec -a {name} sleep 300' & wait");
        let mut guard = guard(&folder.path().join("log"), &script);
        wait_until("it runs", || named(&name) == 1);
        let sent = Command::new("kill").args(["-s", signal, &guard.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        wait_until("what it guards has ended", || named(&name) == 0);
        assert!(guard.try_wait().expect("looked at").is_none(), "{signal}: it waits for who has started it");
        drop(guard.stdin.take());
        assert_eq!(guard.wait().expect("ended").code(), Some(0), "{signal}");
    }
}

#[test]
fn what_cannot_be_tuned_is_told_before_anything_is_started() {
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
        "too little to conclude anything",
        "trials of some",
        "are the least",
    ]);
    fs::write(folder.path().join("new.args"), "").expect("written");
    tune(&["-o", "new.args"]).assert_refused(&["new.args exists already"]);
    tune(&["--vm-args", "old.args"]).assert_refused(&["cannot read old.args"]);
    let plan = tune(&["--plan", "--budget", "1h"]);
    assert_eq!(plan.status, Some(0), "{}", plan.stderr);
    assert!(plan.stdout.contains("12 of the target against itself"), "{}", plan.stdout);
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1, "nothing but what we wrote");
}
