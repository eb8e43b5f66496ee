//! `beamtune locks` on real VMs: what waits is told from what does not, by name, and everything is as before.
//!
//! `BEAMTUNE_LOCKS_REPORT=FILE` looks at all workloads on all releases, with three seeds (or `BEAMTUNE_LOCKS_SEEDS`), and writes a line for
//! each look: `make locks`.
//! Emulators that count locks are those that `BEAMTUNE_LCNT_25` and so on name: a program that is started for `erl`, as the release's root
//! has it.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use common::{
    Otp, PATIENCE, RELEASES, Running, Said, TestNode, all_otps, beamtune, copy_program, eval_in, folder,
    is_root, loops, otp, run, run_for, text, unique, wait_up_to,
};
use serde_json::Value;

/// More schedulers than the machine may have cores.
const FOUR: &[&str] = &["+S", "4:4"];
const TWO: &[&str] = &["+S", "2:2"];
/// A machine that is busy with other things may show a VM that hardly runs; more looks than one are for that.
const LOOKS: usize = 4;
/// Categories that are counted by default, as the VM names them.
const COUNTED: &str = "[allocator,db,distribution,generic,io,scheduler]";

fn locks(target: &str, args: &[&str]) -> Command {
    let mut command = beamtune();
    command.args(["locks", target]).args(args);
    command
}

/// What it says of a node; findings or none.
#[track_caller]
fn page(node: &TestNode, args: &[&str]) -> Value {
    let said = run_for(
        locks(&node.name, &[args, &["--json"]].concat()).env("BEAMTUNE_COOKIE", &node.cookie),
        4 * PATIENCE,
    );
    assert!(matches!(said.status, Some(0 | 1)), "{:?}: {}", said.status, said.stderr);
    said.json()
}

/// Whether its threads wait.
fn answer(page: &Value) -> &str {
    page["look"]["threads_wait"].as_str().unwrap_or("no look")
}

/// Looks until it says so, some times at most; what it is to say may depend on what it could see.
#[track_caller]
fn expect(node: &TestNode, args: &[&str], expected: impl Fn(&Value) -> &'static str) -> Value {
    for left in (0..LOOKS).rev() {
        let page = page(node, args);
        if answer(&page) == expected(&page) {
            return page;
        }
        eprintln!("{} instead of {}: {:#}", answer(&page), expected(&page), page["look"]);
        assert!(left > 0, "OTP {}: {page:#}", node.otp.release);
    }
    unreachable!("the last look says so or fails")
}

/// Of the findings of a page, that of contended locks.
fn contended(page: &Value) -> Option<&Value> {
    page["findings"].as_array().expect("findings").iter().find(|finding| finding["code"] == "BT033")
}

/// What a VM that is not stripped of its symbols is told by.
fn shows_operations(page: &Value) -> bool {
    let means = page["look"]["means"].to_string();
    if means.contains("without the symbols") {
        eprintln!("no operations: {means}");
        return false;
    }
    is_root()
}

/// Where threads wait does not show of a VM that is stripped; and if its schedulers fight for a lock while others have its CPUs, it may have
/// no time to say how long they had work.
fn is_known(page: &Value) -> bool {
    shows_operations(page) || page["period"]["vm_samples"].as_i64().is_some_and(|samples| samples > 1)
}

#[test]
fn a_hot_table_is_contended_and_the_operation_is_named_without_a_restart() {
    for otp in all_otps() {
        let node = loops::node(&otp, "erl", FOUR, &loops::hot("hot"));
        let page = expect(&node, &["--for", "4s"], |page| match is_known(page) {
            true => "yes",
            false => "not sure",
        });
        if !shows_operations(&page) {
            continue;
        }
        let finding = contended(&page).unwrap_or_else(|| panic!("{page:#}"));
        assert_eq!(finding["subject"]["name"], "ets:update_counter/3", "{page:#}");
        assert!(finding["remedies"].to_string().contains("write_concurrency"), "{finding:#}");
        // What it has cost is told; on a machine that others use it may not be possible to say how long one sample takes.
        let means = page["look"]["means"].to_string();
        let is_priced = means.contains("CPU time") || means.contains("whose cost could not be measured");
        assert!(means.contains("watching took ") && is_priced, "{means}");
    }
}

#[test]
fn nodes_without_contention_are_cleared() {
    let quiet = [loops::IDLE, loops::COMPUTE, loops::TALK, &loops::cured("cured")];
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
fn what_was_seen_is_in_the_recording_and_reads_the_same() {
    let Some(otp) = otp(25) else { return };
    let node = loops::node(&otp, "erl", FOUR, &loops::hot("kept"));
    let folder = folder();
    let file = text(&folder.path().join("locks.beamtune"));
    let page = page(&node, &["--for", "3s", "-o", &file]);
    drop(node);
    let again = run(&mut locks(&file, &["--json"])).json();
    for part in ["waits", "findings", "watched_seconds"] {
        assert_eq!(page[part], again[part], "{part}");
    }
    assert_eq!(answer(&page), answer(&again), "{:#}\n{:#}", page["look"], again["look"]);
}

#[test]
fn ctrl_c_ends_a_look_with_what_was_seen() {
    let Some(otp) = otp(25) else { return };
    let node = loops::node(&otp, "erl", TWO, loops::ASK);
    let folder = folder();
    let file = folder.path().join("locks.beamtune");
    let mut command = locks(&node.name, &["--for", "10m", "--json", "-o", &text(&file)]);
    command.env("BEAMTUNE_COOKIE", &node.cookie).stderr(Stdio::null());
    let mut running = Running::start(&mut command);
    // The look begins with the recording.
    wait_up_to(PATIENCE, "a recording", || file.exists());
    running.signal("INT");
    let status = running.wait();
    assert!(matches!(status.code(), Some(0 | 1)), "{status:?}");
    let lines: Vec<String> = running.lines.take().expect("output").iter().collect();
    let page: Value = serde_json::from_str(&lines.join("\n")).expect("a page");
    assert!(page["look"]["seconds"].as_f64().is_some_and(|seconds| seconds < 60.0), "{page:#}");
}

/// Held by those that need the cores while they count: the lab of dirty collections leaves little to a VM beside it.
static CORES: Mutex<()> = Mutex::new(());

/// Releases with an emulator that counts locks, and the programs that start them.
fn counting() -> Vec<(Otp, String)> {
    let named = |otp: Otp| {
        let name = format!("BEAMTUNE_LCNT_{}", otp.release);
        match std::env::var(&name) {
            Ok(program) if !program.is_empty() => Some((otp, program)),
            _ => {
                eprintln!(
                    "skipped for OTP {}, because {name} names no erl whose emulator counts locks",
                    otp.release
                );
                None
            }
        }
    };
    all_otps().into_iter().filter_map(named).collect()
}

/// Share of the duration that was waited for a class of locks, in percent.
fn share(page: &Value, class: &str) -> f64 {
    let classes = page["classes"].as_array().expect("classes");
    let line = classes.iter().find(|line| line["class"] == class);
    line.and_then(|line| line["duration_pct"].as_f64()).unwrap_or(0.0)
}

#[test]
fn where_locks_are_counted_the_table_is_named_and_its_cure_shows() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    for (otp, program) in counting() {
        let table = unique("hot");
        let sick = loops::node(&otp, &program, TWO, &loops::hot(&table));
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
        let node = loops::node(&otp, &program, TWO, &loops::cured(&table));
        let after = page(&node, &["--for", "3s"]);
        let (sick, cured) = (share(&before, "db_tab"), share(&after, "db_tab"));
        eprintln!("OTP {}: {sick:.1} % of the duration, cured {cured:.2} %", otp.release);
        assert!(cured < sick / 10.0, "{cured} of {sick}");
        assert_eq!((answer(&after), contended(&after)), ("no", None), "{after:#}");
    }
}

#[test]
fn where_locks_are_counted_the_allocator_of_dirty_schedulers_is_named_and_its_cure_shows() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    for (otp, program) in counting() {
        // The flag that cures it is of 24.2.
        if otp.root.is_some() || otp.release < 25 {
            eprintln!(
                "skipped for OTP {}, because the lab starts an erl of this host, of 25 or later",
                otp.release
            );
            continue;
        }
        let look = |cured: bool| {
            let mut command = beamtune();
            command.args(["lab", "run", "dirty-collections", "--for", "100s", "--erl", &program]);
            let mut running = Running::start(command.args(cured.then_some("--cured")));
            let node = node_of(&running.expect_line("lab ready "));
            let said = run_for(&mut locks(&node, &["--for", "3s", "--json"]), 4 * PATIENCE);
            running.signal("INT");
            running.wait();
            assert!(matches!(said.status, Some(0 | 1)), "{:?}: {}", said.status, said.stderr);
            said.json()
        };
        let (before, after) = (look(false), look(true));
        let finding = contended(&before).unwrap_or_else(|| panic!("{before:#}"));
        assert_eq!(finding["subject"]["name"], "alcu_allocator of eheap_alloc", "{finding:#}");
        assert!(finding["remedies"].to_string().contains("+Mdai max"), "{finding:#}");
        let (sick, cured) = (share(&before, "alcu_allocator"), share(&after, "alcu_allocator"));
        eprintln!("OTP {}: {sick:.1} % of the duration, cured {cured:.2} %", otp.release);
        assert!(cured < sick / 2.0, "{cured} of {sick}");
    }
}

#[test]
fn ctrl_c_while_locks_are_counted_leaves_the_node_as_it_was() {
    for (otp, program) in counting() {
        let node = loops::node(&otp, &program, TWO, loops::ASK);
        let mask = || eval_in(&node, "lists:sort(erts_debug:lcnt_control(mask))");
        let before = eval_in(
            &node,
            "erts_debug:lcnt_control(mask, [proc, process, db, io]), lists:sort(erts_debug:lcnt_control(mask))",
        );
        let mut command = locks(&node.name, &["--for", "10m"]);
        command.env("BEAMTUNE_COOKIE", &node.cookie).stderr(Stdio::null());
        let mut running = Running::start(&mut command);
        wait_up_to(PATIENCE, "locks are counted", || mask() == COUNTED);
        running.signal("INT");
        assert_eq!(running.wait().code(), Some(130));
        wait_up_to(PATIENCE, "what was counted before is counted again", || mask() == before);
    }
}

#[test]
fn what_cannot_be_looked_at_says_what_to_do() {
    let refused =
        |target: &str, args: &[&str], words: &[&str]| run(&mut locks(target, args)).assert_refused(words);
    let node = std::process::id().to_string();
    refused(&node, &[], &["is no BEAM VM", "beamtune nodes"]);
    refused(&node, &["--for", "0s"], &["is not between 1ms and 365d"]);
    refused(&node, &["--for", "soon"], &["write 10s, 500ms, 5m or 6h"]);
    refused(&node, &["--rate", "9"], &["9 is not in 10..=10000"]);
    refused(&node, &["--sort", "size"], &["one of time, tries, collisions, ratio, name"]);
    refused("/no/such/recording", &[], &["/no/such/recording"]);
}

#[test]
fn a_recording_in_which_nobody_looked_says_how_to_look() {
    let Some(otp) = otp(25) else { return };
    let node = loops::node(&otp, "erl", TWO, loops::IDLE);
    let folder = folder();
    let file = text(&folder.path().join("plain.beamtune"));
    let recorded = run(beamtune()
        .args(["record", &node.name, "--for", "2s", "-o", &file])
        .env("BEAMTUNE_COOKIE", &node.cookie));
    assert_eq!(recorded.status, Some(0), "{}", recorded.stderr);
    let said = run(&mut locks(&file, &[]));
    assert_eq!(said.status, Some(0), "{}", said.stderr);
    // Lines are broken anywhere.
    let words = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("lock waits were neither counted nor sampled"), "{words}");
    assert!(words.contains("beamtune locks TARGET"), "{words}");
    run(&mut locks(&node.name, &["--from", "-1m"]))
        .assert_refused(&["--from and --to take a part of a recording", "--for"]);
    run(&mut locks(&file, &["-o", "/tmp/other"])).assert_refused(&["is a recording already", "leave out -o"]);
}

/// beamtune where the processes of this host are not seen, as it is with a node on another one.
fn elsewhere(node: &TestNode, args: &[&str]) -> Said {
    let mut command = Command::new("unshare");
    command
        .args(["-p", "-m", "--fork", "--kill-child", "--mount-proc"])
        .arg(locks(&node.name, args).get_program());
    command.args(["locks", &node.name]).args(args).env("BEAMTUNE_COOKIE", &node.cookie);
    run(&mut command)
}

#[test]
fn a_node_on_another_host_has_its_locks_counted_or_is_looked_at_there() {
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
    if let Some((otp, program)) = counting().first() {
        let node = loops::node(otp, program, TWO, &loops::hot("far"));
        let page = elsewhere(&node, &["--for", "2s", "--json"]).json();
        assert!(share(&page, "db_tab") > 10.0, "{page:#}");
    }
}

#[test]
fn who_may_not_watch_threads_is_told_what_is_needed() {
    if !is_root() {
        eprintln!("skipped, because becoming another user needs root");
        return;
    }
    let Some(otp) = otp(25) else { return };
    let node = loops::node(&otp, "erl", TWO, loops::COMPUTE);
    // Where others may read it.
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
    let said = run(&mut nobody);
    assert!(matches!(said.status, Some(0 | 1)), "{:?}: {}", said.status, said.stderr);
    for words in ["what threads wait for was not seen", "run beamtune as root"] {
        assert!(said.stdout.contains(words), "no {words:?} in {}\n{}", said.stdout, said.stderr);
    }
    assert!(!said.stdout.contains("wait for each other: yes"), "{}", said.stdout);
}

/// A node of which it is known whether its threads wait.
struct Case {
    what: &'static str,
    schedulers: &'static [&'static str],
    seed: u32,
    /// Empty where that is not known beforehand.
    expected: &'static str,
    _running: Running,
    node: String,
    cookie: Option<String>,
}

/// The node's name, of the line with which a lab says that it is ready.
fn node_of(ready: &str) -> String {
    ready.split(' ').find_map(|word| word.strip_prefix("node=")).expect("a node").to_owned()
}

/// The lab of the contended table, with as many schedulers as asked for.
fn lab(otp: &Otp, schedulers: &'static [&'static str], cured: bool, seed: u32) -> Case {
    let mut command = beamtune();
    command.args(["lab", "run", "lock-contention", "--seed", &seed.to_string(), "--for", "150s"]);
    command.args(cured.then_some("--cured"));
    if let Some(root) = &otp.root {
        command.arg("--otp-root").arg(root);
    }
    // Behind the lab's own flags, so that these count.
    let mut running = Running::start(command.env("ERL_ZFLAGS", schedulers.join(" ")));
    let ready = running.expect_line("lab ready ");
    let node = node_of(&ready);
    let (what, expected) = if cured { ("table, cured", "no") } else { ("table", "yes") };
    Case { what, schedulers, seed, expected, _running: running, node, cookie: None }
}

fn looping(
    otp: &Otp,
    schedulers: &'static [&'static str],
    what: &'static str,
    eval: &str,
    expected: &'static str,
) -> Case {
    let TestNode { running, name, cookie, .. } = loops::node(otp, "erl", schedulers, eval);
    Case { what, schedulers, seed: 0, expected, _running: running, node: name, cookie: Some(cookie) }
}

impl Case {
    /// A line of the table, and whether it was told right.
    fn look(&self, otp: &Otp) -> (String, bool) {
        let mut command = locks(&self.node, &["--json"]);
        command.envs(self.cookie.iter().map(|cookie| ("BEAMTUNE_COOKIE", cookie)));
        let said = run_for(&mut command, 2 * PATIENCE);
        assert!(matches!(said.status, Some(0 | 1)), "{:?}: {}", said.status, said.stderr);
        let page = said.json();
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
fn each_workload_is_told_apart_on_all_releases() {
    let Some(report) = std::env::var_os("BEAMTUNE_LOCKS_REPORT") else {
        eprintln!("skipped, because it takes half an hour: make locks");
        return;
    };
    let seeds = std::env::var("BEAMTUNE_LOCKS_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    let mut lines = Vec::new();
    for otp in all_otps() {
        let mut look = |case: Case| lines.push(case.look(&otp));
        for schedulers in [FOUR, TWO] {
            for seed in 1..=seeds {
                look(lab(&otp, schedulers, false, seed));
                look(lab(&otp, schedulers, true, seed));
            }
            for (what, eval, expected) in [
                ("idle", loops::IDLE, "no"),
                ("computes", loops::COMPUTE, "no"),
                ("works and sends messages", loops::TALK, "no"),
                ("only sends messages", loops::PLAY, ""),
            ] {
                look(looping(&otp, schedulers, what, eval, expected));
            }
        }
    }
    let table: String = lines.iter().map(|(line, _)| line.as_str()).collect();
    std::fs::write(report, &table).expect("the report");
    assert!(lines.iter().all(|(_, is_right)| *is_right), "{table}");
}
