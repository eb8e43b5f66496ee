//! `beamtune locks` on real VMs: contention is reported with its place, its absence is also reported, and the node is left unchanged.
//!
//! With `BEAMTUNE_LOCKS_REPORT=FILE` (`make locks`), all workloads run on all releases with three seeds (or `BEAMTUNE_LOCKS_SEEDS`), and
//! one line per result is written to the file.
//! `BEAMTUNE_LCNT_25` etc. set the lcnt emulators: the path of an `erl` below the release's root.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use common::{
    Otp, Output, Process, RELEASES, TIMEOUT, TestNode, all_otps, beamtune, copy_program, eval_in, folder,
    is_root, loops, otp, run, run_for, text, unique, wait_up_to,
};
use serde_json::Value;

/// Four schedulers, which may be more than the host has cores.
const FOUR: &[&str] = &["+S", "4:4"];
const TWO: &[&str] = &["+S", "2:2"];
/// Maximum number of attempts of a measurement. On a busy host, a VM may hardly run during one of them.
const MAX_ATTEMPTS: usize = 4;
/// The lock categories that are counted by default, as the VM names them.
const COUNTED: &str = "[allocator,db,distribution,generic,io,scheduler]";

fn locks(target: &str, args: &[&str]) -> Command {
    let mut command = beamtune();
    command.args(["locks", target]).args(args);
    command
}

/// Runs `beamtune locks` on a node, and returns the page as JSON.
#[track_caller]
fn page(node: &TestNode, args: &[&str]) -> Value {
    let output = run_for(
        locks(&node.name, &[args, &["--json"]].concat()).env("BEAMTUNE_COOKIE", &node.cookie),
        4 * TIMEOUT,
    );
    assert!(matches!(output.status, Some(0 | 1)), "{:?}: {}", output.status, output.stderr);
    output.json()
}

/// Returns the verdict on lock contention: yes, no or not sure.
fn answer(page: &Value) -> &str {
    page["look"]["threads_wait"].as_str().unwrap_or("no answer")
}

/// Measures until the verdict is the expected one, which may depend on what could be measured.
#[track_caller]
fn expect(node: &TestNode, args: &[&str], expected: impl Fn(&Value) -> &'static str) -> Value {
    for left in (0..MAX_ATTEMPTS).rev() {
        let page = page(node, args);
        if answer(&page) == expected(&page) {
            return page;
        }
        eprintln!("{} instead of {}: {:#}", answer(&page), expected(&page), page["look"]);
        assert!(left > 0, "OTP {}: {page:#}", node.otp.release);
    }
    unreachable!("the last attempt returns or fails")
}

/// Returns the finding of contended locks.
fn contended(page: &Value) -> Option<&Value> {
    page["findings"].as_array().expect("findings").iter().find(|finding| finding["code"] == "BT033")
}

/// True if the page can name operations: the VM has symbols, and the test runs as root.
fn shows_operations(page: &Value) -> bool {
    let means = page["look"]["means"].to_string();
    if means.contains("without the symbols") {
        eprintln!("no operations: {means}");
        return false;
    }
    is_root()
}

/// True if the verdict should not be "not sure". Stack samples cannot show the contention of a stripped VM. If the schedulers contend for
/// a lock while other processes use the CPUs, the VM may not have time to report scheduler utilization.
fn is_conclusive(page: &Value) -> bool {
    shows_operations(page) || page["period"]["vm_samples"].as_i64().is_some_and(|samples| samples > 1)
}

#[test]
fn contended_table_is_found_and_its_operation_named_without_a_restart() {
    for otp in all_otps() {
        let node = loops::node(&otp, "erl", FOUR, &loops::contended("hot"));
        let page = expect(&node, &["--for", "4s"], |page| match is_conclusive(page) {
            true => "yes",
            false => "not sure",
        });
        if !shows_operations(&page) {
            continue;
        }
        let finding = contended(&page).unwrap_or_else(|| panic!("{page:#}"));
        assert_eq!(finding["subject"]["name"], "ets:update_counter/3", "{page:#}");
        assert!(finding["remedies"].to_string().contains("write_concurrency"), "{finding:#}");
        // The cost is reported. If other processes use the host, the time per sample may not be measurable.
        let means = page["look"]["means"].to_string();
        let has_cost = means.contains("CPU time") || means.contains("at an unknown cost");
        assert!(means.contains("stack samples and ") && has_cost, "{means}");
    }
}

#[test]
fn nodes_without_contention_are_reported_as_such() {
    let quiet = [loops::IDLE, loops::COMPUTE, loops::TALK, &loops::healthy("unused")];
    for (index, eval) in quiet.iter().enumerate() {
        let Some(otp) = otp(RELEASES[index % RELEASES.len()]) else { continue };
        let node = loops::node(&otp, "erl", TWO, eval);
        let page =
            expect(&node, &["--for", "3s"], |page| match *eval == loops::IDLE || shows_operations(page) {
                true => "no",
                false => "not sure",
            });
        assert_eq!(contended(&page), None, "OTP {}, {eval}", otp.release);
    }
}

#[test]
fn result_is_recorded_and_read_back_unchanged() {
    let Some(otp) = otp(25) else { return };
    let node = loops::node(&otp, "erl", FOUR, &loops::contended("kept"));
    let folder = folder();
    let file = text(&folder.path().join("locks.beamtune"));
    let page = page(&node, &["--for", "3s", "-o", &file]);
    drop(node);
    let recorded = run(&mut locks(&file, &["--json"])).json();
    for part in ["waits", "findings", "watched_seconds"] {
        assert_eq!(page[part], recorded[part], "{part}");
    }
    assert_eq!(answer(&page), answer(&recorded), "{:#}\n{:#}", page["look"], recorded["look"]);
}

#[test]
fn ctrl_c_ends_a_measurement_and_prints_the_result_so_far() {
    let Some(otp) = otp(25) else { return };
    let node = loops::node(&otp, "erl", TWO, loops::ASK);
    let folder = folder();
    let file = folder.path().join("locks.beamtune");
    let mut command = locks(&node.name, &["--for", "10m", "--json", "-o", &text(&file)]);
    command.env("BEAMTUNE_COOKIE", &node.cookie).stderr(Stdio::null());
    let mut process = Process::start(&mut command);
    // Sampling begins with the recording.
    wait_up_to(TIMEOUT, "a recording", || file.exists());
    process.signal("INT");
    let status = process.wait();
    assert!(matches!(status.code(), Some(0 | 1)), "{status:?}");
    let lines: Vec<String> = process.lines.take().expect("output").iter().collect();
    let page: Value = serde_json::from_str(&lines.join("\n")).expect("a page");
    assert!(page["look"]["seconds"].as_f64().is_some_and(|seconds| seconds < 60.0), "{page:#}");
}

/// Held by tests that need all cores while locks are counted: the lab dirty-collections leaves little CPU time for another VM.
static CORES: Mutex<()> = Mutex::new(());

/// Returns the releases with an lcnt emulator, each with the program that starts it.
fn lcnt_otps() -> Vec<(Otp, String)> {
    let named = |otp: Otp| {
        let name = format!("BEAMTUNE_LCNT_{}", otp.release);
        match std::env::var(&name) {
            Ok(program) if !program.is_empty() => Some((otp, program)),
            _ => {
                eprintln!(
                    "skipped for OTP {}, because {name} names no erl with an lcnt emulator",
                    otp.release
                );
                None
            }
        }
    };
    all_otps().into_iter().filter_map(named).collect()
}

/// Returns the wait time for a lock class, in percent of the duration.
fn share(page: &Value, class: &str) -> f64 {
    let classes = page["classes"].as_array().expect("classes");
    let line = classes.iter().find(|line| line["class"] == class);
    line.and_then(|line| line["duration_pct"].as_f64()).unwrap_or(0.0)
}

#[test]
fn lock_counting_names_the_table_and_measures_the_effect_of_the_fix() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    for (otp, program) in lcnt_otps() {
        let table = unique("hot");
        let sick = loops::node(&otp, &program, TWO, &loops::contended(&table));
        let before = page(&sick, &["--for", "3s"]);
        assert_eq!(answer(&before), "yes", "{:#}", before["look"]);
        let finding = contended(&before).unwrap_or_else(|| panic!("{before:#}"));
        assert!(
            finding["subject"]["name"].as_str().is_some_and(|subject| subject.contains(&table)),
            "{finding:#}"
        );
        assert!(finding["remedies"].to_string().contains("write_concurrency"), "{finding:#}");
        let remains = &before["remains"][0];
        assert!(remains["without"].as_str().is_some_and(|without| without.contains(&table)), "{remains:#}");
        drop(sick);
        let node = loops::node(&otp, &program, TWO, &loops::healthy(&table));
        let after = page(&node, &["--for", "3s"]);
        let (sick, healthy) = (share(&before, "db_tab"), share(&after, "db_tab"));
        eprintln!("OTP {}: {sick:.1} % of the duration, healthy {healthy:.2} %", otp.release);
        assert!(healthy < sick / 10.0, "{healthy} of {sick}");
        assert_eq!((answer(&after), contended(&after)), ("no", None), "{after:#}");
    }
}

#[test]
fn lock_counting_names_the_allocator_and_measures_the_effect_of_the_fix() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    for (otp, program) in lcnt_otps() {
        // The flag that fixes the contention was added in OTP 24.2.
        if otp.root.is_some() || otp.release < 25 {
            eprintln!(
                "skipped for OTP {}, because the lab starts an erl of this host, of 25 or later",
                otp.release
            );
            continue;
        }
        let measure = |is_cured: bool| {
            let mut command = beamtune();
            command.args(["lab", "run", "dirty-collections", "--for", "100s", "--erl", &program]);
            let mut process = Process::start(command.args(is_cured.then_some("--cured")));
            let node = node_of(&process.expect_line("lab ready "));
            let output = run_for(&mut locks(&node, &["--for", "3s", "--json"]), 4 * TIMEOUT);
            process.signal("INT");
            process.wait();
            assert!(matches!(output.status, Some(0 | 1)), "{:?}: {}", output.status, output.stderr);
            output.json()
        };
        let (before, after) = (measure(false), measure(true));
        let finding = contended(&before).unwrap_or_else(|| panic!("{before:#}"));
        assert_eq!(finding["subject"]["name"], "alcu_allocator of eheap_alloc", "{finding:#}");
        assert!(finding["remedies"].to_string().contains("+Mdai max"), "{finding:#}");
        let (sick, healthy) = (share(&before, "alcu_allocator"), share(&after, "alcu_allocator"));
        eprintln!("OTP {}: {sick:.1} % of the duration, healthy {healthy:.2} %", otp.release);
        assert!(healthy < sick / 2.0, "{healthy} of {sick}");
    }
}

#[test]
fn ctrl_c_during_lock_counting_restores_the_nodes_settings() {
    for (otp, program) in lcnt_otps() {
        let node = loops::node(&otp, &program, TWO, loops::ASK);
        let mask = || eval_in(&node, "lists:sort(erts_debug:lcnt_control(mask))");
        let before = eval_in(
            &node,
            "erts_debug:lcnt_control(mask, [proc, process, db, io]), lists:sort(erts_debug:lcnt_control(mask))",
        );
        let mut command = locks(&node.name, &["--for", "10m"]);
        command.env("BEAMTUNE_COOKIE", &node.cookie).stderr(Stdio::null());
        let mut process = Process::start(&mut command);
        wait_up_to(TIMEOUT, "locks are counted", || mask() == COUNTED);
        process.signal("INT");
        assert_eq!(process.wait().code(), Some(130));
        wait_up_to(TIMEOUT, "the lock categories are restored", || mask() == before);
    }
}

#[test]
fn invalid_arguments_are_refused_with_advice() {
    let refused =
        |target: &str, args: &[&str], words: &[&str]| run(&mut locks(target, args)).assert_refused(words);
    let node = std::process::id().to_string();
    refused(&node, &[], &["is not an Erlang VM", "beamtune nodes"]);
    refused(&node, &["--for", "0s"], &["is not between 1ms and 365d"]);
    refused(&node, &["--for", "soon"], &["write 10s, 500ms, 5m or 6h"]);
    refused(&node, &["--rate", "9"], &["9 is not in 10..=10000"]);
    refused(&node, &["--sort", "size"], &["one of time, tries, collisions, ratio, name"]);
    refused("/no/such/recording", &[], &["/no/such/recording"]);
}

#[test]
fn recording_without_lock_samples_says_how_to_get_them() {
    let Some(otp) = otp(25) else { return };
    let node = loops::node(&otp, "erl", TWO, loops::IDLE);
    let folder = folder();
    let file = text(&folder.path().join("plain.beamtune"));
    let recorded = run(beamtune()
        .args(["record", &node.name, "--for", "2s", "-o", &file])
        .env("BEAMTUNE_COOKIE", &node.cookie));
    assert_eq!(recorded.status, Some(0), "{}", recorded.stderr);
    let output = run(&mut locks(&file, &["-vv"]));
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    // The page breaks lines between words.
    let words = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("lock waits were neither counted nor sampled"), "{words}");
    assert!(words.contains("beamtune locks TARGET"), "{words}");
    run(&mut locks(&node.name, &["--from", "-1m"]))
        .assert_refused(&["--from and --to select a part of a recording", "--for"]);
    run(&mut locks(&file, &["-o", "/tmp/other"])).assert_refused(&["is a recording", "omit -o"]);
}

/// Runs `beamtune locks` in a PID namespace that hides the processes of this host, as if the node were on another host.
fn elsewhere(node: &TestNode, args: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command
        .args(["-p", "-m", "--fork", "--kill-child", "--mount-proc"])
        .arg(locks(&node.name, args).get_program());
    command.args(["locks", &node.name]).args(args).env("BEAMTUNE_COOKIE", &node.cookie);
    run(&mut command)
}

#[test]
fn locks_of_a_node_on_another_host_are_counted_or_sampled_there() {
    if !is_root() {
        eprintln!("skipped, because hiding the processes of this host needs root");
        return;
    }
    if let Some(otp) = otp(25) {
        let node = loops::node(&otp, "erl", TWO, loops::IDLE);
        elsewhere(&node, &[]).assert_refused(&[
            "runs on another host",
            "run beamtune locks there",
            "--type lcnt",
        ]);
    }
    if let Some((otp, program)) = lcnt_otps().first() {
        let node = loops::node(otp, program, TWO, &loops::contended("far"));
        let page = elsewhere(&node, &["--for", "2s", "--json"]).json();
        assert!(share(&page, "db_tab") > 10.0, "{page:#}");
    }
}

#[test]
fn missing_rights_for_sampling_threads_are_reported() {
    if !is_root() {
        eprintln!("skipped, because becoming another user needs root");
        return;
    }
    let Some(otp) = otp(25) else { return };
    let node = loops::node(&otp, "erl", TWO, loops::COMPUTE);
    // Other users can read this folder.
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let binary = folder.path().join("beamtune");
    copy_program(beamtune().get_program(), &binary);
    let modes = Command::new("chmod").args(["-R", "a+rX"]).arg(folder.path()).status();
    assert!(modes.expect("chmod").success());
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]).arg(&binary);
    nobody
        .args(["locks", &node.name, "--for", "2s"])
        .env("BEAMTUNE_COOKIE", &node.cookie)
        .env("HOME", folder.path());
    let output = run(&mut nobody);
    assert!(matches!(output.status, Some(0 | 1)), "{:?}: {}", output.status, output.stderr);
    for words in ["Cannot sample lock waits", "run beamtune as root"] {
        assert!(output.stdout.contains(words), "no {words:?} in {}\n{}", output.stdout, output.stderr);
    }
    assert!(!output.stdout.contains("Lock contention: yes"), "{}", output.stdout);
}

/// A running node for which the correct verdict is known.
struct Case {
    what: &'static str,
    schedulers: &'static [&'static str],
    seed: u32,
    /// The correct verdict; empty if it is unknown.
    expected: &'static str,
    _running: Process,
    node: String,
    cookie: Option<String>,
}

/// Parses the node name in the line with which a lab reports that it is ready.
fn node_of(ready: &str) -> String {
    ready.split(' ').find_map(|word| word.strip_prefix("node=")).expect("a node").to_owned()
}

/// Starts the lab with the contended table, with these schedulers.
fn lab(otp: &Otp, schedulers: &'static [&'static str], is_cured: bool, seed: u32) -> Case {
    let mut command = beamtune();
    command.args(["lab", "run", "lock-contention", "--seed", &seed.to_string(), "--for", "150s"]);
    command.args(is_cured.then_some("--cured"));
    if let Some(root) = &otp.root {
        command.arg("--otp-root").arg(root);
    }
    // ERL_ZFLAGS come after the lab's own flags, so they take effect.
    let mut process = Process::start(command.env("ERL_ZFLAGS", schedulers.join(" ")));
    let ready = process.expect_line("lab ready ");
    let node = node_of(&ready);
    let (what, expected) = if is_cured { ("table, cured", "no") } else { ("table", "yes") };
    Case { what, schedulers, seed, expected, _running: process, node, cookie: None }
}

fn looping(
    otp: &Otp,
    schedulers: &'static [&'static str],
    what: &'static str,
    eval: &str,
    expected: &'static str,
) -> Case {
    let TestNode { process, name, cookie, .. } = loops::node(otp, "erl", schedulers, eval);
    Case { what, schedulers, seed: 0, expected, _running: process, node: name, cookie: Some(cookie) }
}

impl Case {
    /// Measures the node. Returns a line of the table, and whether the verdict is right.
    fn measure(&self, otp: &Otp) -> (String, bool) {
        let mut command = locks(&self.node, &["--json"]);
        command.envs(self.cookie.iter().map(|cookie| ("BEAMTUNE_COOKIE", cookie)));
        let output = run_for(&mut command, 2 * TIMEOUT);
        assert!(matches!(output.status, Some(0 | 1)), "{:?}: {}", output.status, output.stderr);
        let page = output.json();
        let means: Vec<&str> =
            page["look"]["means"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let share = means
            .iter()
            .find_map(|text| text.split("waiting for locks for ").nth(1)?.split(" of the time").next());
        let kinds = page["look"]["kinds"].as_array().into_iter().flatten();
        let blocked =
            kinds.filter(|kind| kind["kind"] == "scheduler").find_map(|kind| kind["blocked_share"].as_f64());
        let subject =
            contended(&page).and_then(|finding| finding["subject"]["name"].as_str()).unwrap_or_default();
        let answer = answer(&page);
        let schedulers = self.schedulers[1];
        let seed = if self.seed == 0 { String::new() } else { self.seed.to_string() };
        let blocked = blocked.map_or(String::new(), |share| format!("{:.0} %", share * 100.0));
        let verdict = match self.expected {
            "" => "any".to_owned(),
            expected if answer == expected => "right".to_owned(),
            _ if answer == "not sure" && !shows_operations(&page) => "cannot be told".to_owned(),
            expected => format!("expected {expected}"),
        };
        let line = format!(
            "{}\t{schedulers}\t{}\t{seed}\t{answer}\t{}\t{blocked}\t{subject}\t{}\n",
            self.what,
            otp.release,
            share.unwrap_or_default(),
            verdict,
        );
        eprint!("{line}");
        (line, !verdict.starts_with("expected"))
    }
}

#[test]
fn each_workload_gets_the_right_verdict_on_all_releases() {
    let Some(report) = std::env::var_os("BEAMTUNE_LOCKS_REPORT") else {
        eprintln!("skipped, because it takes half an hour: make locks");
        return;
    };
    let seeds = std::env::var("BEAMTUNE_LOCKS_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    let mut lines = Vec::new();
    for otp in all_otps() {
        let mut measure = |case: Case| lines.push(case.measure(&otp));
        for schedulers in [FOUR, TWO] {
            for seed in 1..=seeds {
                measure(lab(&otp, schedulers, false, seed));
                measure(lab(&otp, schedulers, true, seed));
            }
            for (what, eval, expected) in [
                ("idle", loops::IDLE, "no"),
                ("computes", loops::COMPUTE, "no"),
                ("works and sends messages", loops::TALK, "no"),
                ("only sends messages", loops::PLAY, ""),
            ] {
                measure(looping(&otp, schedulers, what, eval, expected));
            }
        }
    }
    let table: String = lines.iter().map(|(line, _)| line.as_str()).collect();
    std::fs::write(report, &table).expect("the report");
    assert!(lines.iter().all(|(_, is_right)| *is_right), "{table}");
}
