//! `beamtune compare` and `study` as a whole: trials of a real target, and what happens when something goes wrong.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{Otp, PATIENCE, all_otps, beamtune, folder, otp, run, run_for, text, unique, wait_until};
use serde_json::Value;

/// A server that gives back each line.
const ECHO: &str = "{ok,L}=gen_tcp:listen(PORT,[binary,{active,false},{packet,line},{reuseaddr,true}]), \
    F=fun F()-> {ok,S}=gen_tcp:accept(L), P=spawn(fun()-> receive go-> \
    G=fun G()-> case gen_tcp:recv(S,0) of {ok,D}-> gen_tcp:send(S,D), G(); _-> ok end end, G() end end), \
    ok=gen_tcp:controlling_process(S,P), P!go, F() end, F().";

/// A target of a test: what it listens on and how it is told from all other processes.
struct Target {
    port: u16,
    name: String,
    otp: Otp,
    folder: tempfile::TempDir,
}

impl Target {
    fn new(otp: Otp) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        Target { port, name: unique("compare"), otp, folder: folder() }
    }

    /// The command line that starts it.
    fn start(&self) -> String {
        let erl = match &self.otp.root {
            Some(root) => format!("chroot {} erl", root.display()),
            None => "erl".to_owned(),
        };
        let echo = ECHO.replace("PORT", &self.port.to_string());
        format!("{erl} -noinput -name {0}@127.0.0.1 -setcookie {0} -eval '{echo}'", self.name)
    }

    fn study(&self) -> PathBuf {
        self.folder.path().join("a.study")
    }

    /// The command with the shortest trials that there are.
    fn compare(&self, start: &str, more: &[&str]) -> Command {
        let mut command = beamtune();
        command.args(["compare", "--start", start, "--ready", &format!("tcp:{}", self.port)]);
        command.args([
            "--load",
            &format!("tcp://127.0.0.1:{}", self.port),
            "--rate",
            "200",
            "--connections",
            "8",
        ]);
        command.args(["--for", "10s", "--warm-up", "10s", "--study", &text(&self.study())]).args(more);
        command.current_dir(self.folder.path());
        command
    }

    /// Its processes.
    fn processes(&self) -> usize {
        let is_it = |entry: std::io::Result<fs::DirEntry>| {
            let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line);
            // Its VMs alone: command lines of shells and of beamtune name it as well.
            (line.contains("beam.smp") && line.contains(&self.name)).then_some(())
        };
        fs::read_dir("/proc").expect("/proc").filter_map(is_it).count()
    }

    fn trials(&self) -> usize {
        let said = run(beamtune().args(["study", "show", "--json"]).arg(self.study()));
        said.json()["trials"].as_u64().expect("a number") as usize
    }
}

/// A run of beamtune whose lines on standard error are waited for.
struct Watched {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Watched {
    fn start(command: &mut Command) -> Watched {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        Watched { child, lines }
    }

    fn expect_line(&mut self, words: &str) -> String {
        let mut seen = Vec::new();
        for line in self.lines.by_ref().map_while(Result::ok) {
            if line.contains(words) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line with {words:?} in {seen:#?}");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_study_that_is_stopped_or_killed_goes_on_and_leaves_no_process() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let mut first = Watched::start(&mut target.compare(&target.start(), &["--b", "+sbwt none"]));
    first.expect_line("trial 1 ");
    wait_until("the second trial has begun", || target.processes() > 0);
    first.signal("INT");
    let told = first.expect_line("stopped after 1 trials");
    assert!(told.contains(&format!("beamtune study resume {}", text(&target.study()))), "{told}");
    assert_eq!(first.child.wait().expect("ended").code(), Some(2));
    assert_eq!(target.processes(), 0, "what was started is ended before beamtune ends");

    let resume = |words: &str| {
        let mut again = Watched::start(beamtune().args(["study", "resume"]).arg(target.study()));
        again.expect_line(words);
        again
    };
    let mut second = resume("trial 2 ");
    wait_until("the third trial has begun", || target.processes() > 0);
    // Another one may not add to it meanwhile, but look at it.
    let other = run(beamtune().args(["study", "resume"]).arg(target.study()));
    other.assert_refused(&["is being worked on by another beamtune"]);
    assert_eq!(target.trials(), 2);
    second.signal("KILL");
    second.child.wait().expect("ended");
    wait_until("the guard has ended what was left", || target.processes() == 0);
    assert_eq!(target.trials(), 2, "no trial is lost, and none is there in half");

    drop(resume("trial 3 "));
    wait_until("the guard has ended what was left", || target.processes() == 0);
    let recordings = target.folder.path().join("recordings");
    let said =
        run(beamtune().args(["study", "export"]).arg(target.study()).arg("--recordings").arg(&recordings));
    let trials: Vec<Value> =
        said.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(trials.len(), 3);
    for (number, trial) in trials.iter().enumerate() {
        assert_eq!(trial["order"]["phase"], "same");
        assert_eq!(trial["order"]["arm"]["name"], "A");
        let measures = &trial["outcome"]["measures"];
        for name in [
            "cpu-per-request",
            "cpu-per-request/scheduler",
            "throughput",
            "p50",
            "rss",
            "reductions-per-request",
        ] {
            assert!(measures[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {trial:#}");
        }
        let rate = measures["throughput"].as_f64().expect("a number");
        // Of a line two steps are counted: that it was sent, and that it came back.
        assert!((300.0..500.0).contains(&rate), "{rate}");
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
        let said = run(beamtune().args(["study", "export"]).arg(target.study()));
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
        assert!(!target.study().exists() || more.is_empty());
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
    assert!(!target.study().exists());

    let listener = TcpListener::bind(("127.0.0.1", target.port)).expect("the port");
    let taken = run(&mut target.compare("true", &["--b", "+sbwt none"]));
    taken.assert_refused(&[&format!("something listens at 127.0.0.1:{} already", target.port)]);
    drop(listener);
    let exists = run(&mut target.compare("true", &["--b", "+sbwt none"]));
    exists.assert_refused(&["exists already", "beamtune study resume"]);
}

/// A target that another generator drives.
fn driven_by(target: &Target, load: &str, more: &[&str]) -> Command {
    let mut command = beamtune();
    command.args(["compare", "--b", "+sbwt none", "--start", &target.start()]);
    command.args(["--ready", &format!("tcp:{}", target.port), "--load-cmd", load, "--for", "5s"]);
    command.args(["--study", &text(&target.study())]).args(more).current_dir(target.folder.path());
    command
}

/// The measures of the first trial.
fn first_measures(target: &Target) -> Value {
    let said = run(beamtune().args(["study", "export"]).arg(target.study()));
    let line = said.stdout.lines().next().expect("a trial").to_owned();
    let trial: Value = serde_json::from_str(&line).expect("JSON");
    trial["outcome"]["measures"].clone()
}

#[test]
fn another_generator_drives_the_load_and_its_results_are_read() {
    let Some(otp) = otp(25) else { return };
    let program = beamtune().get_program().to_str().expect("a path").to_owned();
    let load = |target: &Target| {
        let url = format!("tcp://127.0.0.1:{}", target.port);
        format!("{program} load {url} --rate 200 --connections 8 --for 9s --json")
    };
    // What it prints, and what it writes to a file in the folder of the trial.
    let printed = Target::new(otp.clone());
    drop_after_one(driven_by(&printed, &load(&printed), &[]), &printed);
    let written = Target::new(otp.clone());
    let to_file = format!("{} > \"$BEAMTUNE_FOLDER/result\"", load(&written));
    drop_after_one(driven_by(&written, &to_file, &["--load-result", "result"]), &written);
    for target in [&printed, &written] {
        let measures = first_measures(target);
        let rate = measures["throughput"].as_f64().expect("a rate");
        // Two steps for each arrival: it sends a line, and gets one.
        assert!((300.0..500.0).contains(&rate), "{measures:#}");
        assert!(measures["cpu-per-request"].is_f64() && measures["p99"].is_f64(), "{measures:#}");
        assert!(measures["duration"].is_null());
    }
    // One that tells nothing is measured as a whole.
    let silent = Target::new(otp);
    let no_objective = run_for(&mut driven_by(&silent, "sleep 2", &[]), PATIENCE);
    no_objective.assert_refused(&["cpu-per-request was not measured", "--load-result", "duration"]);
    assert_eq!(silent.trials(), 0);
    fs::remove_file(silent.study()).expect("removed");
    drop_after_one(driven_by(&silent, "sleep 3", &["--objective", "duration"]), &silent);
    let duration_ns = first_measures(&silent)["duration"].as_f64().expect("a duration");
    assert!((3e9..4e9).contains(&duration_ns), "{duration_ns}");
}

/// Runs until the first trial has ended.
fn drop_after_one(mut command: Command, target: &Target) {
    let mut running = Watched::start(&mut command);
    let line = running.expect_line("trial 1 ");
    assert!(!line.contains("failed"), "{line}");
    drop(running);
    wait_until("all has ended", || target.processes() == 0);
}

#[test]
fn a_load_command_that_fails_or_hangs_is_told_and_the_study_is_intact() {
    let Some(otp) = otp(25) else { return };
    let target = Target::new(otp);
    let refused = |load: &str, more: &[&str], words: &[&str]| {
        run_for(&mut driven_by(&target, load, more), PATIENCE).assert_refused(words);
        assert_eq!((target.trials(), target.processes()), (0, 0));
        fs::remove_file(target.study()).expect("there was a study");
    };
    refused("echo no route; exit 3", &[], &["the load command failed: exited 3: no route"]);
    refused("echo slow; sleep 60", &["--load-within", "2s"], &["did not end within 2 s", "it said: slow"]);
    refused("true", &["--load-result", "none"], &["--load-result: cannot read"]);
}

#[test]
fn a_job_is_measured_from_its_begin_to_its_end() {
    let Some(otp) = otp(25) else { return };
    let folder = folder();
    let work = match &otp.root {
        Some(root) => format!("chroot {} erl", root.display()),
        None => "erl".to_owned(),
    };
    let busy = "E=erlang:monotonic_time(millisecond)+1500, F=fun F()-> case erlang:monotonic_time(millisecond)<E of true-> F(); _-> halt() end end, F().";
    let compare = |work: &str| {
        let mut command = beamtune();
        command.args(["compare", "--b", "+sbwt none", "--study", "a.study", "--work", work]);
        command.current_dir(folder.path());
        command
    };
    let mut running = Watched::start(&mut compare(&format!("{work} -noinput -eval '{busy}'")));
    let line = running.expect_line("trial 1 ");
    assert!(line.contains("duration") || line.contains("does not count"), "{line}");
    drop(running);
    let said = run(beamtune().args(["study", "export", "a.study"]).current_dir(folder.path()));
    let trial: Value = serde_json::from_str(said.stdout.lines().next().expect("a trial")).expect("JSON");
    let measures = &trial["outcome"]["measures"];
    let duration_ns = measures["duration"].as_f64().expect("a duration");
    assert!((1.5e9..20e9).contains(&duration_ns), "{trial:#}");
    assert!(measures["cpu-time"].as_f64().is_some_and(|cpu_ns| cpu_ns > 1.2e9), "{trial:#}");
    assert!(measures["rss-peak"].is_f64() && measures["throughput"].is_null(), "{trial:#}");
    fs::remove_file(folder.path().join("a.study")).expect("removed");
    let failing =
        run_for(&mut compare(&format!("{work} -noinput -eval 'timer:sleep(1000), halt(4).'")), PATIENCE);
    assert!(
        failing.stdout.contains("A does not work: the job exited 4"),
        "{}\n{}",
        failing.stdout,
        failing.stderr
    );
}

/// A guard ends what has detached itself, too.
#[test]
fn a_guard_ends_what_has_detached_itself() {
    let folder = folder();
    let name = unique("detached");
    let mut guard = Command::new(beamtune().get_program())
        .args(["guard", "--log", &text(&folder.path().join("log")), "--", "bash", "-c"])
        .arg(format!("setsid bash -c 'exec -a {name} sleep 300' & exit 0"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut told = String::new();
    BufReader::new(guard.stdout.take().expect("a pipe")).read_line(&mut told).expect("told");
    assert!(told.starts_with("exited 0 after "), "{told}");
    let is_there = |path: &Path| {
        fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).starts_with(&name))
    };
    let count = || {
        let entries = fs::read_dir("/proc").expect("/proc");
        entries.filter_map(|entry| is_there(&entry.ok()?.path()).then_some(())).count()
    };
    wait_until("it runs", || count() == 1);
    drop(guard.stdin.take());
    guard.wait().expect("ended");
    assert_eq!(count(), 0);
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
