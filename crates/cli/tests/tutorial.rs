//! docs/tutorial.md: the commands run exactly as written on the page, and print what it shows.
//!
//! No other test in this file starts a node, since the page uses a fixed node name (`shop`) and a fixed port.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{beamtune, folder, run, run_for, text};

/// Time limit for all commands of the page, in seconds. On two CPUs, they take half of it.
const LIMIT_S: u64 = 300;

/// Precedes the commands of the page: logs failures to the file `failed`, and ends all processes at exit.
const BEGIN: &str =
    "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\ntrap 'echo \"$? $BASH_COMMAND\" >>failed' ERR\n";

/// Verdicts of a comparison that was disturbed by other processes on the host.
const DISTURBED: [&str; 2] = ["too_many_invalid", "method_finds_what_is_not"];

/// Returns the code blocks in a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(found) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if found == language {
            blocks.push(block.join("\n"));
        }
    }
    blocks
}

/// Normalizes a line: removes what differs between two runs. This is the level of a finding, numbers, the length of spaces and bars, and
/// what follows `…`.
fn pattern(line: &str) -> String {
    let line = line.split('…').next().unwrap_or_default().trim();
    let line = ["CRITICAL ", "WARNING ", "notice "]
        .iter()
        .find_map(|level| line.strip_prefix(level))
        .unwrap_or(line);
    let mut pattern = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let is_digit = |c: &char| c.is_ascii_digit();
        let c = match c {
            '0'..='9' => '0',
            '.' | ',' if pattern.ends_with('0') && chars.peek().is_some_and(is_digit) => '0',
            '░' => '█',
            _ => c,
        };
        let is_repeated = matches!(c, ' ' | '█' | '0') && pattern.ends_with(c);
        if !is_repeated {
            pattern.push(c);
        }
    }
    pattern.trim().to_owned()
}

#[test]
fn commands_of_the_tutorial_print_what_the_page_shows() {
    if Command::new("erlc").arg("-help").output().is_err() {
        eprintln!("skipped, because Erlang is not installed (scripts/install.sh demo)");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/tutorial.md")).expect("the page");
    let commands = blocks(&page, "sh");
    assert!(commands.len() >= 5, "{commands:#?}");

    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let copied = run(Command::new("cp").arg("-r").arg(root.join("demo")).arg(path("demo")));
    assert_eq!(copied.status, Some(0), "{}", copied.stderr);
    fs::create_dir(path("bin")).expect("a folder");
    symlink(beamtune().get_program(), path("bin/beamtune")).expect("a link");
    fs::write(path("page.sh"), format!("{BEGIN}{}\n", commands.join("\n"))).expect("written");

    // timeout(1) ends the whole process group.
    let mut command = Command::new("timeout");
    let search = std::env::var("PATH").unwrap_or_default();
    command
        .args([&LIMIT_S.to_string(), "bash", "page.sh"])
        .env("PATH", format!("{}:{search}", text(&path("bin"))))
        .current_dir(folder.path());
    for name in ["BEAMTUNE_COOKIE", "NO_COLOR", "ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS"] {
        command.env_remove(name);
    }
    let output = run_for(&mut command, Duration::from_secs(LIMIT_S + 60));
    let printed = format!("{}\n{}", output.stdout, output.stderr);
    assert_eq!(output.status, Some(0), "{printed}");

    // A diagnosis with findings has the exit status 1, and so has a comparison without a verdict.
    let study = run(beamtune().args(["study", "show", "--json"]).arg(path("shop.study"))).json();
    let answer = study["verdict"]["answer"]["kind"].as_str().unwrap_or_default();
    let is_disturbed = DISTURBED.contains(&answer);
    if is_disturbed {
        eprintln!("the verdict is skipped, because other processes of this host disturbed the trials");
    } else {
        assert_eq!(answer, "better", "{printed}");
    }
    let is_expected = |line: &&str| {
        line.starts_with("1 beamtune doctor ") || (is_disturbed && line.starts_with("1 beamtune compare "))
    };
    let failed = fs::read_to_string(path("failed")).unwrap_or_default();
    let other: Vec<&str> = failed.lines().filter(|line| !is_expected(line)).collect();
    assert!(other.is_empty(), "{other:#?}\n{printed}");
    let patterns: Vec<String> = output.stdout.lines().map(pattern).collect();
    let shown = blocks(&page, "text");
    assert!(shown.len() >= 2, "{shown:#?}");
    let is_printed = |line: &&str| patterns.iter().any(|printed| printed.starts_with(&pattern(line)));
    let mut missing =
        shown.iter().flat_map(|block| block.lines()).filter(|line| !is_printed(line)).peekable();
    assert!(missing.peek().is_none(), "not printed: {:#?}\n{printed}", missing.collect::<Vec<_>>());
}

#[test]
fn numbers_and_lengths_of_bars_are_ignored() {
    let one = "CPU  ███░░░░░░░  0.88 of 2 cores used: 0.50 …";
    let other = "CPU  █░░░  1.1 of 2 cores used: 0.5 garbage collection";
    assert!(pattern(other).starts_with(&pattern(one)), "{} {}", pattern(one), pattern(other));
    assert_eq!(pattern("p99   1,204 ms  −47 % [−49, −45]"), "p0 0 ms −0 % [−0, −0]");
    assert_eq!(pattern("WARNING   a process"), pattern("notice    a process"));
    assert_ne!(pattern("Busy wait takes 60 %"), pattern("GC takes 60 %"));
}

#[test]
fn blocks_are_found_by_language() {
    let page = "text\n```sh\na\nb\n```\n```\nc\n```\n```text\nd\n```\n";
    assert_eq!((blocks(page, "sh"), blocks(page, "text")), (vec!["a\nb".to_owned()], vec!["d".to_owned()]));
}
