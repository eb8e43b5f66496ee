//! `beamtune import`: diagnoses the output of lcnt and other tools, and writes recordings that other commands can read.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{beamtune, folder, run};

/// Contention for a table that all processes write to. The counts are invented, in the format of lcnt.
const CONTENDED: &str = "\
We saw this on web1 yesterday:
Erlang/OTP 25 [erts-13.1.5] [source] [64-bit] [smp:2:2] [ds:2:2:10] [lock-counting]
1> lcnt:conflicts().
      lock   id  #tries  #collisions  collisions [%]  time [us]  duration [%]
     -----  --- ------- ------------ --------------- ---------- -------------
    db_tab   12 1000000       800000         80.0000   17500000      175.0000
 run_queue    4   20000          100          0.5000       4000        0.0400
ok
2> lcnt:conflicts([{combine,false}]).
      lock    id  #tries  #collisions  collisions [%]  time [us]  duration [%]
     -----   --- ------- ------------ --------------- ---------- -------------
    db_tab carts  999000       799900         80.0701   17400000      174.0000
 run_queue     1   10000           70          0.7000       3000        0.0300
ok
";

/// The same node after the fix.
const FIXED: &str = "\
Erlang/OTP 25 [erts-13.1.5] [source] [64-bit] [smp:2:2] [ds:2:2:10] [lock-counting]
1> lcnt:conflicts().
      lock   id  #tries  #collisions  collisions [%]  time [us]  duration [%]
     -----  --- ------- ------------ --------------- ---------- -------------
    db_tab   12 1000000          800          0.0800       9000        0.0900
 run_queue    4   20000          100          0.5000       4000        0.0400
ok
";

fn import(text: &str, folder: &Path, args: &[&str]) -> common::Output {
    let path = folder.join("pasted.txt");
    fs::write(&path, text).expect("a file");
    run(beamtune().arg("import").arg(&path).args(args))
}

#[test]
fn pasted_table_is_diagnosed_and_other_text_is_listed_as_not_read() {
    let folder = folder();
    let output = import(CONTENDED, folder.path(), &[]);
    assert_eq!(output.status, Some(1), "{}\n{}", output.stdout, output.stderr);
    for words in [
        "imported text · OTP 25",
        "2 schedulers · output of lcnt",
        "Waits for lock db_tab of the table carts: 1.7 cores",
        "{write_concurrency, auto} for the table carts",
    ] {
        assert!(output.stdout.contains(words), "no {words:?} in: {}", output.stdout);
    }
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    let expect = "pasted.txt:1:1: not read: We saw this on web1 yesterday: (no known tool prints this)\n";
    assert!(output.stderr.ends_with(expect), "{}", output.stderr);
    let fixed = import(FIXED, folder.path(), &["-vv"]);
    assert_eq!(fixed.status, Some(0), "{}\n{}", fixed.stdout, fixed.stderr);
    assert!(fixed.stdout.contains("most contended lock: db_tab"), "{}", fixed.stdout);
}

#[test]
fn recording_of_imported_text_is_read_by_other_commands() {
    let folder = folder();
    let (before, after) = (folder.path().join("before.beamtune"), folder.path().join("after.beamtune"));
    for (text, file) in [(CONTENDED, &before), (FIXED, &after)] {
        let output = import(text, folder.path(), &["-o", &file.display().to_string()]);
        assert!(file.exists(), "{}\n{}", output.stdout, output.stderr);
    }
    let locks = run(beamtune().arg("locks").arg(&before).args(["--by", "lock"]));
    assert_eq!(locks.status, Some(1), "{}", locks.stderr);
    assert!(locks.stdout.contains("Waits for lock db_tab of the table carts"), "{}", locks.stdout);
    let diff = run(beamtune().arg("diff").args([&before, &after]));
    assert_eq!(diff.status, Some(0), "{}", diff.stderr);
    let row = diff.stdout.lines().find(|line| line.starts_with("db_tab")).expect("a row");
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["db_tab", "175.00", "0.09", "-100", "%", "80.00", "0.08"]
    );
    assert!(!diff.stdout.contains("series"), "{}", diff.stdout);
    let output = import(CONTENDED, folder.path(), &["-o", &before.display().to_string()]);
    output.assert_refused(&["before.beamtune"]);
}

#[test]
fn standard_input_is_read_and_json_follows_the_schema_of_locks() {
    let folder = folder();
    let path = folder.path().join("text");
    fs::write(&path, CONTENDED).expect("a file");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" import --json < \"$1\""]).arg(beamtune().get_program()).arg(&path);
    let output = run(&mut command);
    assert_eq!(output.status, Some(1), "{}", output.stderr);
    assert!(output.stderr.starts_with("standard input:1:1: not read:"), "{}", output.stderr);
    let document = output.json();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/locks.schema.json");
    let schema = serde_json::from_str(&fs::read_to_string(schema).expect("the schema")).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<_> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(document["classes"][0]["waited_us"], 17_500_000);
    assert_eq!(document["locks"][0]["id"], "carts");
}

#[test]
fn text_without_a_table_is_refused_with_the_command_to_copy() {
    let folder = folder();
    import("hello", folder.path(), &[])
        .assert_refused(&["no output of a known tool found", "lcnt:conflicts()"]);
    let heading = CONTENDED.lines().skip(3).take(2).collect::<Vec<_>>().join("\n");
    import(&heading, folder.path(), &[]).assert_refused(&["none of its rows could be read"]);
    run(beamtune().args(["import", "/nowhere/at/all"])).assert_refused(&["cannot read /nowhere/at/all"]);
}

#[test]
fn output_of_other_tools_is_diagnosed_like_a_recording() {
    let folder = folder();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../import/tests/fixtures/tools");
    let printed = |name: &str| fs::read_to_string(fixtures.join(name)).expect("a fixture");
    let text = printed("rabbitmq-status-otp25.txt") + &printed("rabbitmq-runtime_thread_stats-otp25.txt");
    let file = folder.path().join("imported.beamtune");
    let output = import(&text, folder.path(), &["-vv", "-o", &file.display().to_string()]);
    assert_eq!(output.status, Some(0), "{}\n{}", output.stdout, output.stderr);
    for words in [
        "imported text · RabbitMQ 3.10.8 · OTP 25",
        "output of rabbitmq-diagnostics, msacc (RabbitMQ's sizes are rounded to four decimals)",
        "BT007 268 of 1,048,576 processes",
        "BT011 GC: 0.00 of",
        "BT023 restart-loop",
        "next: ",
        "copy what recon_alloc:fragmentation(current)",
    ] {
        // The page breaks lines between words.
        let unwrapped = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unwrapped.contains(words), "no {words:?} in: {}", output.stdout);
    }
    assert!(output.stderr.contains("pasted.txt:1:1: not read: Status of node"), "{}", output.stderr);
    let diagnosed = run(beamtune().args(["diagnose", "-vv"]).arg(&file));
    assert_eq!((diagnosed.stdout, diagnosed.status), (output.stdout, output.status), "{}", diagnosed.stderr);
    let output = import(&text, folder.path(), &["--json"]);
    let document = output.json();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/diagnosis.schema.json");
    let schema = serde_json::from_str(&fs::read_to_string(schema).expect("the schema")).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<_> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn findings_from_imported_text_are_notices() {
    let folder = folder();
    let banner =
        "Erlang/OTP 25 [erts-13.1.5] [source] [64-bit] [smp:2:2] [ds:2:2:2] [async-threads:1] [jit:ns]\n\n";
    let check = |text: &str, status: i32, words: &str| {
        let output = import(&format!("{banner}{text}"), folder.path(), &["-vv"]);
        assert_eq!(output.status, Some(status), "{}\n{}", output.stdout, output.stderr);
        assert!(output.stdout.contains(words), "no {words:?} in: {}\n{}", output.stdout, output.stderr);
    };
    let busy_waiting = "\
1> msacc:start(1000), msacc:print().
Average thread real-time    : 1000000 us
Accumulated system run-time : 1200000 us
Average scheduler run-time  : 600000 us

        Thread      aux check_io emulator       gc    other     port    sleep

Stats per thread:
     async( 0)    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
       aux( 1)    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
dirty_cpu_( 1)    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
dirty_cpu_( 2)    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
dirty_io_s( 1)    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
dirty_io_s( 2)    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
      poll( 0)    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
 scheduler( 1)    0.00%    0.00%    8.00%    0.00%   52.00%    0.00%   40.00%
 scheduler( 2)    0.00%    0.00%    8.00%    0.00%   52.00%    0.00%   40.00%

Stats per type:
         async    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
           aux    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
dirty_cpu_sche    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
dirty_io_sched    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
          poll    0.00%    0.00%    0.00%    0.00%    0.00%    0.00%  100.00%
     scheduler    0.00%    0.00%    8.00%    0.00%   52.00%    0.00%   40.00%
ok
";
    check(busy_waiting, 0, "notice    Likely busy wait: msacc state other");
    check(
        &busy_waiting.replace("8.00%    0.00%   52.00%", "52.00%    0.00%    8.00%"),
        0,
        "BT001 schedulers: ",
    );
    let utilization = |cpu: &str| {
        format!(
            "1> scheduler:utilization(10).\n[{{total,0.5,\"50.0%\"}},\n {{weighted,0.5,\"50.0%\"}},\n {{normal,1,0.1,\"10.0%\"}},\n {{normal,2,0.1,\"10.0%\"}},\n {{cpu,3,{cpu},\"\"}},\n {{cpu,4,{cpu},\"\"}}]\n"
        )
    };
    check(&utilization("1.0"), 0, "notice    All 2 dirty CPU schedulers 100 % busy");
    check(&utilization("0.2"), 0, "BT012 dirty CPU schedulers busy 20 %");
    let cache = |hits: i64| {
        format!(
            "1> recon_alloc:cache_hit_rates().\n[{{{{instance,0}},\n  [{{hit_rate,0.5}},{{hits,{hits}}},{{calls,20000}}]}}]\n"
        )
    };
    check(&cache(10_000), 0, "notice    Segment cache serves only 50 % of requests");
    check(&cache(19_000), 0, "BT029 segment cache hits: 95 %");
}
