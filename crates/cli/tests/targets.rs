//! The targets that `beamtune compare` can start, and their loads: products by name, other load generators, jobs.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use common::trials::{BeamtuneProcess, Target};
use common::{TIMEOUT, beamtune, copy_program, folder, is_root, otp, run, run_for, text, wait_until};
use serde_json::Value;

/// Returns a command that compares a target under the load of another generator.
fn driven_by(target: &Target, load: &str, more: &[&str]) -> Command {
    let mut command = beamtune();
    command.args(["compare", "--b", "+sbwt none", "--start", &target.start()]);
    command.args(["--ready", &format!("tcp:{}", target.port), "--load-cmd", load, "--for", "5s"]);
    command.args(["--study", &text(&target.study)]).args(more).current_dir(target.folder.path());
    command
}

/// Returns the measures of the first trial.
fn first_measures(target: &Target) -> Value {
    let output = run(beamtune().args(["study", "export"]).arg(&target.study));
    let line = output.stdout.lines().next().expect("a trial").to_owned();
    let trial: Value = serde_json::from_str(&line).expect("JSON");
    trial["outcome"]["measures"].clone()
}

#[test]
fn results_of_other_load_generators_are_read() {
    let Some(otp) = otp(25) else { return };
    let program = beamtune().get_program().to_str().expect("a path").to_owned();
    let load = |target: &Target| {
        let url = format!("tcp://127.0.0.1:{}", target.port);
        format!("{program} load {url} --rate 200 --connections 8 --for 9s --json")
    };
    // The results are read from standard output, and from a file in the trial's folder.
    let printed = Target::new(otp.clone());
    run_one_trial(driven_by(&printed, &load(&printed), &[]), &printed);
    let written = Target::new(otp.clone());
    let to_file = format!("{} > \"$BEAMTUNE_FOLDER/result\"", load(&written));
    run_one_trial(driven_by(&written, &to_file, &["--load-result", "result"]), &written);
    for target in [&printed, &written] {
        let measures = first_measures(target);
        let rate = measures["throughput"].as_f64().expect("a rate");
        assert!((150.0..250.0).contains(&rate), "{measures:#}");
        assert!(measures["cpu-per-request"].is_f64() && measures["p99"].is_f64(), "{measures:#}");
        assert!(measures["duration"].is_null());
    }
    // Without a result, only the duration can be measured.
    let silent = Target::new(otp);
    let no_objective = run_for(&mut driven_by(&silent, "sleep 2", &[]), 3 * TIMEOUT);
    no_objective.assert_refused(&["cpu-per-request was not measured", "--load-result", "duration"]);
    assert_eq!(silent.trials(), 0);
    fs::remove_file(&silent.study).expect("removed");
    let began = Instant::now();
    run_one_trial(driven_by(&silent, "sleep 3", &["--objective", "duration"]), &silent);
    let all_ns = began.elapsed().as_nanos() as f64;
    let duration_ns = first_measures(&silent)["duration"].as_f64().expect("a duration");
    assert!((3e9..all_ns).contains(&duration_ns), "{duration_ns} of {all_ns}");
}

/// Such VMs compile code, migrate a database or read a configuration.
#[test]
fn vms_that_run_before_the_node_are_not_mistaken_for_it() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let start = format!("erl -noinput -eval 'timer:sleep(1000), halt().' && {}", target.start());
    let mut command = beamtune();
    command.args(["compare", "--b", "+sbwt none", "--start", &start, "--ready", "node"]);
    command.args(["--load-cmd", "sleep 3", "--objective", "duration", "--study", &text(&target.study)]);
    run_one_trial(command, &target);
}

/// Runs until the first trial has ended, then kills beamtune.
fn run_one_trial(mut command: Command, target: &Target) {
    let mut process = BeamtuneProcess::start(&mut command);
    let line = process.expect_line("trial 1 ");
    assert!(!line.contains("failed"), "{line}");
    drop(process);
    wait_until("the target has ended", || target.processes() == 0);
}

#[test]
fn load_command_that_fails_or_hangs_is_reported_and_the_study_is_intact() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let refused = |load: &str, more: &[&str], words: &[&str]| {
        run_for(&mut driven_by(&target, load, more), 3 * TIMEOUT).assert_refused(words);
        assert_eq!((target.trials(), target.processes()), (0, 0));
        fs::remove_file(&target.study).expect("there was a study");
    };
    refused("echo no route; exit 3", &[], &["the load command failed: exited 3: no route"]);
    refused("echo slow; sleep 60", &["--within", "2s"], &["did not end within 2 s", "its output: slow"]);
    refused("true", &["--load-result", "none"], &["--load-result: cannot read"]);
}

#[test]
fn job_is_measured_from_start_to_end() {
    let Some(otp) = otp(25) else { return };
    let folder = folder();
    let work = match &otp.root {
        Some(root) => format!("chroot {} erl", root.display()),
        None => "erl".to_owned(),
    };
    // If other processes use the CPUs, the job needs more than 1.5 s to use 1.3 s of CPU time.
    let busy = "E=erlang:monotonic_time(millisecond)+1500, F=fun F()-> case erlang:monotonic_time(millisecond)<E \
        orelse element(1, statistics(runtime))<1300 of true-> F(); _-> halt() end end, F().";
    let compare = |work: &str| {
        let mut command = beamtune();
        command.args(["compare", "--b", "+sbwt none", "--study", "a.study", "--work", work]);
        command.current_dir(folder.path());
        command
    };
    let began = Instant::now();
    let mut process = BeamtuneProcess::start(&mut compare(&format!("{work} -noinput -eval '{busy}'")));
    let line = process.expect_line("trial 1 ");
    assert!(line.contains("duration") || line.contains("invalid"), "{line}");
    drop(process);
    let all_ns = began.elapsed().as_nanos() as f64;
    let output = run(beamtune().args(["study", "export", "a.study"]).current_dir(folder.path()));
    let trial: Value = serde_json::from_str(output.stdout.lines().next().expect("a trial")).expect("JSON");
    let measures = &trial["outcome"]["measures"];
    let duration_ns = measures["duration"].as_f64().expect("a duration");
    assert!((1.5e9..all_ns).contains(&duration_ns), "{all_ns}: {trial:#}");
    assert!(measures["cpu-time"].as_f64().is_some_and(|cpu_ns| cpu_ns > 1.2e9), "{trial:#}");
    assert!(measures["rss-peak"].is_f64() && measures["throughput"].is_null(), "{trial:#}");
    fs::remove_file(folder.path().join("a.study")).expect("removed");
    let failing =
        run_for(&mut compare(&format!("{work} -noinput -eval 'timer:sleep(1000), halt(4).'")), 3 * TIMEOUT);
    assert!(
        failing.stdout.contains("A does not work: the job exited 4"),
        "{}\n{}",
        failing.stdout,
        failing.stderr
    );
}

/// Runs the first trial of a product that is started by name, and returns it.
fn first_trial(product: &[&str], folder: &Path) -> Value {
    let mut command = beamtune();
    command.args(["compare", "--b", "+sbwt none", "--load-cmd", "sleep 3", "--objective", "duration"]);
    command.args(["--guard", "none", "--study", "a.study"]).args(product).current_dir(folder);
    let mut process = BeamtuneProcess::start(&mut command);
    let line = process.expect_line("trial 1 ");
    assert!(!line.contains("failed"), "{product:?}: {line}");
    drop(process);
    let output = run(beamtune().args(["study", "export", "a.study"]).current_dir(folder));
    fs::remove_file(folder.join("a.study")).expect("removed");
    serde_json::from_str(output.stdout.lines().next().expect("a trial")).expect("JSON")
}

#[test]
fn installed_products_are_started_with_a_separate_database() {
    let folder = folder();
    for (which, program) in
        [("--rabbitmq", "/usr/lib/rabbitmq/bin/rabbitmq-server"), ("--ejabberd", "/usr/sbin/ejabberdctl")]
    {
        if !Path::new(program).exists() || !is_root() {
            eprintln!(
                "skipped, because {program} is not installed, or the test does not run as root (scripts/install.sh test)"
            );
            continue;
        }
        let trial = first_trial(&[which], folder.path());
        let measures = &trial["outcome"]["measures"];
        assert!(measures["rss"].as_f64().is_some_and(|rss| rss > 3e7), "{which}: {trial:#}");
        assert!(measures["duration"].as_f64().is_some_and(|took_ns| took_ns > 3e9), "{which}: {trial:#}");
    }
}

#[test]
fn release_is_started_by_its_own_script() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let release = target.folder.path().join("release");
    fs::create_dir_all(release.join("bin")).expect("made");
    let script = release.join("bin/shop");
    // The script of `mix release`, reduced to the essential lines.
    let start = target.start();
    let written = format!(
        "#!/bin/sh\nRELEASE_COOKIE=x\n[ \"$1\" = start ] && [ -d \"$RELEASE_TMP\" ] && exec {start}\n"
    );
    let draft = release.join("draft");
    fs::write(&draft, written).expect("written");
    copy_program(&draft, &script);
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
    let trial = first_trial(
        &["--release", "release", "--ready", &format!("tcp:{}", target.port)],
        target.folder.path(),
    );
    assert!(trial["outcome"]["measures"]["reductions-per-request"].is_null(), "{trial:#}");
    wait_until("the target has ended", || target.processes() == 0);
    let nowhere =
        run(beamtune().args(["compare", "--b", "+A 1", "--load-cmd", "true", "--release", "/nowhere"]));
    nowhere.assert_refused(&["/nowhere is not a release"]);
}

#[test]
fn full_disk_is_reported_and_the_study_stays_intact() {
    let Some(otp) = otp(25) else { return };
    let mut target = Target::new(otp);
    let disk = target.folder.path().join("disk");
    fs::create_dir(&disk).expect("made");
    let size = |size: &str, how: &str| {
        let option = format!("{how}size={size}");
        Command::new("mount").args(["-t", "tmpfs", "-o", &option, "tmpfs"]).arg(&disk).status()
    };
    if !size("400k", "").is_ok_and(|status| status.success()) {
        return eprintln!("skipped, because no tmpfs can be mounted here, which needs root");
    }
    target.study = disk.join("a.study");
    let full = run_for(&mut driven_by(&target, "sleep 2", &["--objective", "duration"]), 3 * TIMEOUT);
    let trials = target.trials();
    let grown = size("4m", "remount,").expect("mount");
    let mut resumed = BeamtuneProcess::start(beamtune().args(["study", "resume"]).arg(&target.study));
    let line = resumed.expect_line(&format!("trial {} ", trials + 1));
    drop(resumed);
    wait_until("the target has ended", || target.processes() == 0);
    let unmounted = Command::new("umount").arg(&disk).status().expect("umount");
    assert!(grown.success() && unmounted.success());
    full.assert_refused(&["the disk is full", "beamtune study resume"]);
    assert!(!line.contains("failed"), "{line}");
}
