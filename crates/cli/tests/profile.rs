//! `beamtune profile` on real VMs: shares that are known by construction, and complete call chains.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Otp, TIMEOUT, TestNode, all_otps, beamtune, is_root, run_for};
use serde_json::Value;
use tempfile::TempDir;

/// The workload: phases a and b, which measure themselves.
const WORKLOAD: &str = include_str!("known_shares.erl");

/// Releases from this one on have a JIT.
const FIRST_JIT: u32 = 24;
/// Largest difference between the share of phase a in the samples and as it measured itself.
const MAX_DIFFERENCE: f64 = 0.03;
/// The same for the interpreter.
const MAX_INTERPRETER_DIFFERENCE: f64 = 0.05;
/// Smallest share of samples in processes whose chain reaches the first function.
const MIN_COMPLETE: f64 = 0.97;
/// The same for the interpreter.
const MIN_INTERPRETER_COMPLETE: f64 = 0.90;

/// Held by each test: a workload that shares its CPU measures other shares than those of CPU time.
static ALONE: Mutex<()> = Mutex::new(());

/// The right to sample, for one test at a time; `None` if this user may not sample.
fn alone() -> Option<MutexGuard<'static, ()>> {
    if !is_root() {
        eprintln!("skipped: not root");
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A node that works, and the folder with its code.
fn working_node(otp: &Otp, kind: &str, seconds: u32) -> (TestNode, TempDir) {
    let root = otp.root.as_deref().unwrap_or(Path::new("/"));
    let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
    std::fs::write(folder.path().join("known_shares.erl"), WORKLOAD).expect("written");
    let inside = Path::new("/").join(folder.path().strip_prefix(root).expect("below"));
    let eval = format!(
        "{{ok, M, B}} = compile:file(\"{}/known_shares\", [binary]), {{module, M}} = code:load_binary(M, \"known_shares.erl\", B), \
         spawn(M, start, [{kind}, {seconds}])",
        inside.display()
    );
    let mut node = TestNode::start(otp, &["+S", "1:1", "+sbwt", "none", "+sbwtdio", "none"], &eval);
    node.process.expect_line("prepared ");
    (node, folder)
}

/// A node that works for five seconds, and its profile over three of them. Returns the share of phase a as it measured itself; `None` if this
/// kernel does not permit samples.
fn profile(otp: &Otp, kind: &str, rate: &str) -> Option<(f64, Value)> {
    let (mut node, _folder) = working_node(otp, kind, 5);
    let mut command = beamtune();
    command.args(["profile", &node.pid().to_string(), "--for", "3s", "--format", "json", "--rate", rate]);
    let output = run_for(&mut command, 2 * TIMEOUT);
    if output.stderr.contains("not allowed") {
        return None;
    }
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    let share = node.process.expect_line("share ").parse().expect("a number");
    Some((share, output.json()))
}

/// The functions of a stack, outermost first.
fn functions(page: &Value, stack: &Value) -> Vec<String> {
    let frames =
        page["stacks"][stack.as_u64().expect("an index") as usize]["frames"].as_array().expect("frames");
    let name = |frame: &Value| page["frames"][frame.as_u64().expect("an index") as usize]["name"].as_str();
    frames.iter().filter_map(name).map(str::to_owned).collect()
}

/// CPU time of phase a and of phase b.
fn phases(page: &Value) -> (f64, f64) {
    let (mut a, mut b) = (0.0, 0.0);
    for sample in page["samples"].as_array().expect("samples") {
        let functions = functions(page, &sample["stack"]);
        let time = sample["cpu"].as_f64().expect("a time");
        if functions.iter().any(|name| name.starts_with("known_shares:a_")) {
            a += time;
        } else if functions.iter().any(|name| name.starts_with("known_shares:b_")) {
            b += time;
        }
    }
    (a, b)
}

#[test]
fn shares_are_those_that_the_workload_measures() {
    let Some(_alone) = alone() else { return };
    for otp in all_otps() {
        let is_jit = otp.release >= FIRST_JIT;
        let (max_difference, min_complete) = match is_jit {
            true => (MAX_DIFFERENCE, MIN_COMPLETE),
            false => (MAX_INTERPRETER_DIFFERENCE, MIN_INTERPRETER_COMPLETE),
        };
        for kind in ["loop", "deep", "short", "bif", "ets", "gc", "nif", "port"] {
            let Some((share, page)) = profile(&otp, kind, "999") else {
                eprintln!("skipped: this kernel does not permit samples");
                return;
            };
            let (a, b) = phases(&page);
            let measured = a / (a + b);
            let count = |key: &str| page[key].as_f64().expect("a number");
            let complete = count("complete_samples_of_processes") / count("samples_of_processes");
            eprintln!(
                "OTP {} {kind}: a {measured:.3} (truth {share:.3}), {:.3} of all CPU time, complete {complete:.3}, without frames {}",
                otp.release,
                (a + b) / count("cpu"),
                page["samples_without_frames"]
            );
            assert!(
                (measured - share).abs() <= max_difference,
                "OTP {} {kind}: {measured} of {share}",
                otp.release
            );
            // On a busy machine, short-lived processes have ended and heaps have moved before their stacks are read.
            assert!(
                ["short", "ets", "gc"].contains(&kind) || complete >= min_complete,
                "OTP {} {kind}: {complete}",
                otp.release
            );
        }
    }
}

/// The title of the finding with this code.
fn title(diagnosis: &Value, code: &str) -> Option<String> {
    let findings = diagnosis["findings"].as_array().expect("findings");
    let finding = findings.iter().find(|finding| finding["code"] == code)?;
    Some(finding["title"].as_str()?.to_owned())
}

#[test]
fn doctor_names_a_function_by_a_profile_that_its_recording_keeps() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for otp in all_otps() {
        let (node, _code) = working_node(&otp, "bif", 60);
        let file = folder.path().join(format!("{}.btr", otp.release));
        let (pid, path) = (node.pid().to_string(), file.display().to_string());
        // Without attaching: the profile alone names the function.
        let doctor = ["doctor", &pid, "--host-only", "--for", "6s", "--json", "-o", &path];
        let output = run_for(beamtune().args(doctor), 4 * TIMEOUT);
        let page = run_for(beamtune().args(["profile", &path, "--format", "json"]), TIMEOUT);
        if page.stderr.contains("not allowed") {
            eprintln!("skipped: this kernel does not permit samples");
            return;
        }
        assert_eq!(page.status, Some(0), "OTP {}: {}", otp.release, page.stderr);
        let (a, b) = phases(&page.json());
        let share = a / (a + b);
        assert!((0.6..0.8).contains(&share), "OTP {}: {share}", otp.release);
        let title = title(&output.json(), "BT073").expect("a finding");
        assert!(title.contains("of Erlang CPU time is in known_shares:"), "OTP {}: {title}", otp.release);
    }
}
