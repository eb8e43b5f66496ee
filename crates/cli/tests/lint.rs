//! `beamtune lint`: what it reads, prints and fixes, and what it leaves unchanged.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{Output, TestNode, all_otps, beamtune, folder, run, text};
use serde_json::Value;

/// `+K` has had no effect since OTP 21; `--fix` removes it.
const USELESS: &str = "# kernel poll\n+K true\n# limits\n+P 1048576\n";
/// A flag that every release refuses.
const REFUSED: &str = "+P 12\n";
const SOUND: &str = "+P 1048576\n";

fn lint(folder: &Path, args: &[&str]) -> Output {
    run(beamtune().arg("lint").args(args).current_dir(folder))
}

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    fs::write(&path, content).expect("write");
    path
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/args")
}

#[test]
fn exit_status_depends_on_the_findings() {
    let folder = folder();
    write(folder.path(), "sound/vm.args", SOUND);
    write(folder.path(), "useless/vm.args", USELESS);
    write(folder.path(), "refused/vm.args", REFUSED);
    let check = |args: &[&str], status: i32| {
        let output = lint(folder.path(), args);
        assert_eq!(output.status, Some(status), "{args:?}\n{}\n{}", output.stdout, output.stderr);
    };
    check(&["sound/vm.args"], 0);
    check(&["useless/vm.args"], 1);
    check(&["refused/vm.args"], 1);
    check(&["refused/vm.args", "absent/vm.args"], 2);
    check(&["."], 1);
    check(&[], 2);
    check(&["sound/vm.args", "--otp", "20"], 2);
    for format in ["text", "json", "sarif", "github"] {
        check(&["sound/vm.args", "--format", format], 0);
        check(&["refused/vm.args", "--format", format], 1);
        check(&["refused/vm.args", "absent/vm.args", "--format", format], 2);
    }
}

#[test]
fn finding_is_shown_with_its_position() {
    let folder = folder();
    write(folder.path(), "rel/vm.args", format!("# limits\n{REFUSED}"));
    let output = lint(folder.path(), &["rel/vm.args"]);
    let first = output.stdout.lines().next().unwrap_or_default();
    assert!(first.starts_with("rel/vm.args:2:") && first.contains(": error BF"), "{}", output.stdout);
    assert!(output.stdout.contains("2 | +P 12\n"), "{}", output.stdout);
    let marks = output.stdout.lines().find(|line| line.contains('^')).expect("a mark");
    assert!(marks.trim_start().trim_start_matches(['|', ' ', '^']).is_empty(), "{marks}");
    let last = output.stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with("1 error in 1 of 1 file, for OTP 23 to 29"), "{last}");
    assert!(!output.stdout.contains('\x1b'), "colours without a terminal");
    assert_eq!(output.stderr, "");
}

#[test]
fn unreadable_files_do_not_stop_the_others_and_are_not_changed() {
    let folder = folder();
    write(folder.path(), "good/vm.args", REFUSED);
    let long = [b"+P 5000\n".as_slice(), &vec![b'x'; 10 << 20]].concat();
    let bad: [(&str, &[u8], &str); 8] = [
        ("binary/vm.args", b"\x7fELF\0\x01", "binary/vm.args:1:5: a NUL byte"),
        ("latin1/vm.args", b"# caf\xe9\n+K true\n", "latin1/vm.args:1:6: invalid UTF-8"),
        ("quotes/vm.args", b"+K true\n-x 'a\n", "quotes/vm.args:2:4: this ' is never closed"),
        ("quotes/.env", b"ERL_FLAGS='+K true\n", "quotes/.env:1:11: this ' is never closed"),
        ("long/vm.args", &long, "long/vm.args:2:1: the line has 10485760 bytes"),
        (
            "tag/vm.args.src",
            b"+K true\n+P <%= x %>\n",
            "tag/vm.args.src:2:4: `<%` belongs to another kind of template",
        ),
        ("tag/vm.args.eex", b"+K true\n+P <%= x\n", "tag/vm.args.eex:2:4: `<%` is never closed"),
        ("kind/notes.txt", b"+K true\n", "kind/notes.txt: unknown file format"),
    ];
    for (name, content, message) in bad {
        let path = write(folder.path(), name, content);
        for more in [&[][..], &["--fix"]] {
            let output = lint(folder.path(), &[&[name, "good/vm.args"], more].concat());
            output.assert_refused(&[message]);
            assert!(output.stdout.contains("good/vm.args:1:"), "{}", output.stdout);
            assert_eq!(fs::read(&path).expect("content"), content, "{name}");
        }
        let output = lint(folder.path(), &[name, "good/vm.args", "--format", "json"]);
        assert_eq!(output.json()["unread"][0]["file"], name);
        assert_eq!(output.json()["findings"].as_array().map(Vec::len), Some(1), "{}", output.stdout);
    }
    lint(folder.path(), &["absent.args"]).assert_refused(&["absent.args: no such file or folder"]);
    lint(folder.path(), &["/dev/zero"]).assert_refused(&["/dev/zero: not a regular file"]);
}

#[test]
fn file_without_read_permission_is_reported() {
    let folder = folder();
    symlink("nowhere", folder.path().join("vm.args")).expect("link");
    lint(folder.path(), &["vm.args"]).assert_refused(&["vm.args: No such file"]);
    fs::remove_file(folder.path().join("vm.args")).expect("remove");
    let path = write(folder.path(), "vm.args", SOUND);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("chmod");
    if fs::read(&path).is_ok() {
        eprintln!("skipped, because root may read every file");
        return;
    }
    lint(folder.path(), &["vm.args"]).assert_refused(&["vm.args: Permission denied"]);
}

#[test]
fn safe_fixes_are_applied_and_all_other_bytes_are_kept() {
    let folder = folder();
    let path = write(folder.path(), "vm.args", USELESS);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
    let output = lint(folder.path(), &["vm.args", "--fix"]);
    assert_eq!(output.status, Some(0), "{}\n{}", output.stdout, output.stderr);
    assert!(output.stderr.starts_with("vm.args:2: BF"), "{}", output.stderr);
    let fixed = fs::read_to_string(&path).expect("text");
    assert_eq!(fixed, "# kernel poll\n# limits\n+P 1048576\n");
    assert_eq!(fs::metadata(&path).expect("metadata").permissions().mode() & 0o7777, 0o640);
    // A second run changes nothing.
    let before = fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("a time");
    assert_eq!(lint(folder.path(), &["vm.args", "--fix"]).stderr, "");
    assert_eq!(fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("a time"), before);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "a temporary file remains");
}

/// Copies the corpus, without its `.expect` files.
fn copy_of_corpus(to: &Path) {
    let mut folders = vec![corpus()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|ending| ending != "expect") {
                write(
                    to,
                    &text(path.strip_prefix(corpus()).expect("below")),
                    fs::read(&path).expect("bytes"),
                );
            }
        }
    }
}

#[test]
fn after_fixing_the_corpus_nothing_is_fixable_and_there_are_no_new_errors() {
    let folder = folder();
    copy_of_corpus(folder.path());
    let before = lint(folder.path(), &[".", "--format", "json"]).json();
    let fixable = before["summary"]["fixable"].as_u64().expect("a number");
    assert!(fixable > 5, "{}", before["summary"]);
    let output = lint(folder.path(), &[".", "--fix", "--format", "json"]);
    let after = output.json();
    assert_eq!(after["summary"]["fixable"], 0, "{}", after["summary"]);
    for kind in ["errors", "unread", "files"] {
        let of = |value: &Value| value["summary"][kind].as_u64().expect("a number");
        assert!(of(&after) <= of(&before), "{kind}: {} {}", before["summary"], after["summary"]);
    }
    assert_eq!(after["unread"], before["unread"]);
    // A file changes if and only if a fix in it is reported.
    let fixed: Vec<&str> = output.stderr.lines().filter_map(|line| line.split(':').next()).collect();
    for finding in before["findings"].as_array().expect("findings") {
        let name = finding["file"].as_str().expect("a name");
        let old = fs::read(corpus().join(name)).expect("bytes");
        let new = fs::read(folder.path().join(name)).expect("bytes");
        assert_eq!(old != new, fixed.contains(&name), "{name}");
    }
    assert_eq!(lint(folder.path(), &[".", "--format", "json"]).json(), after);
}

#[test]
fn target_of_a_symbolic_link_is_fixed_and_the_link_is_kept() {
    let folder = folder();
    let path = write(folder.path(), "real/vm.args", USELESS);
    symlink("real/vm.args", folder.path().join("vm.args")).expect("link");
    assert_eq!(lint(folder.path(), &["vm.args", "--fix"]).status, Some(0));
    assert!(fs::symlink_metadata(folder.path().join("vm.args")).expect("metadata").is_symlink());
    assert!(!fs::read_to_string(path).expect("text").contains("+K"));
}

#[test]
fn file_that_must_not_be_written_is_not_fixed() {
    let folder = folder();
    let path = write(folder.path(), "vm.args", USELESS);
    fs::hard_link(&path, folder.path().join("other.args")).expect("link");
    let output = lint(folder.path(), &["vm.args", "--fix"]);
    output.assert_refused(&["vm.args: not fixed: it has 2 hard links"]);
    assert!(output.stdout.contains("+K true"), "findings that were not fixed are missing: {}", output.stdout);
    fs::remove_file(folder.path().join("other.args")).expect("remove");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).expect("chmod");
    lint(folder.path(), &["vm.args", "--fix"]).assert_refused(&["vm.args: not fixed: read-only"]);
    assert_eq!(fs::read_to_string(&path).expect("text"), USELESS);
}

#[test]
fn standard_input_needs_a_file_type() {
    let pipe = |args: &[&str], input: &str| -> Output {
        let mut command = beamtune();
        command.arg("lint").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start");
        // beamtune may refuse, and exit, before it reads.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        let finished = child.wait_with_output().expect("output");
        Output {
            status: finished.status.code(),
            stdout: String::from_utf8_lossy(&finished.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&finished.stderr).into_owned(),
        }
    };
    let output = pipe(&["-", "--as", "vm.args"], REFUSED);
    assert_eq!(output.status, Some(1), "{}", output.stderr);
    assert!(output.stdout.starts_with("stdin:1:"), "{}", output.stdout);
    pipe(&["-"], REFUSED).assert_refused(&["--as"]);
    pipe(&["-", "--as", "vm.args", "--fix"], USELESS).assert_refused(&["standard input"]);
    pipe(&["-", "--as", "env"], "ERL_FLAGS='+P").assert_refused(&["stdin:1:11: this ' is never closed"]);
}

#[test]
fn files_of_one_node_are_checked_against_each_other_with_together() {
    let folder = folder();
    write(folder.path(), "vm.args", "+P 1048576\n");
    write(folder.path(), ".env", "ERL_FLAGS=+P 262144\n");
    let alone = lint(folder.path(), &["vm.args", ".env"]);
    let together = lint(folder.path(), &["vm.args", ".env", "--together"]);
    assert_eq!(alone.status, Some(0), "{}", alone.stdout);
    assert!(together.stdout.len() > alone.stdout.len(), "{}", together.stdout);
    assert!(
        together.stdout.contains(".env:1:") && together.stdout.contains("vm.args:1:"),
        "{}",
        together.stdout
    );
}

#[test]
fn only_the_requested_releases_are_checked() {
    let folder = folder();
    write(folder.path(), "vm.args", "+hmaxib true\n");
    let status = |otp: &str| lint(folder.path(), &["vm.args", "--otp", otp]).status;
    assert_eq!(status("27"), Some(0));
    assert_eq!(status("25"), Some(1));
    assert_eq!(status("25..27"), Some(1));
    let output = lint(folder.path(), &["vm.args", "--otp", "25,27", "--format", "json"]);
    assert_eq!(output.json()["releases"], serde_json::json!([25, 27]));
    assert_eq!(output.json()["findings"][0]["releases"], serde_json::json!([25]));
}

#[test]
fn json_of_the_whole_corpus_follows_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lint-output.schema.json");
    let schema = serde_json::from_str(&fs::read_to_string(path).expect("the schema")).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let files = folder();
    copy_of_corpus(files.path());
    let output = run(beamtune().args(["lint", "--format", "json"]).arg(files.path()));
    let value = output.json();
    let errors: Vec<_> =
        schema.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let findings = value["findings"].as_array().expect("findings");
    assert!(findings.len() > 50, "{}", findings.len());
    assert!(value["summary"]["files"].as_u64().is_some_and(|files| files > 30), "{}", value["summary"]);
    // Every position is within its file.
    for finding in findings {
        let file = fs::read_to_string(finding["file"].as_str().expect("a path")).expect("its text");
        let number = |key: &str| finding[key].as_u64().map(|number| number as usize).expect("a number");
        let span = number("offset_bytes")..number("offset_bytes") + number("length_bytes");
        assert!(file.get(span.clone()).is_some(), "{finding:#}");
        let line = file.split('\n').nth(number("line") - 1).expect("the line");
        assert!(number("column") <= line.chars().count() + 1, "{finding:#}");
    }
}

#[test]
fn sarif_of_the_whole_corpus_is_complete() {
    let files = folder();
    copy_of_corpus(files.path());
    let output = run(beamtune().args(["lint", "--format", "sarif"]).arg(files.path()));
    let log = output.json();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    assert!(!rules.is_empty());
    let results = run["results"].as_array().expect("results");
    assert!(results.len() > 50, "{}", results.len());
    for result in results {
        let index = result["ruleIndex"].as_u64().expect("an index") as usize;
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(matches!(result["level"].as_str(), Some("error" | "warning" | "note")), "{result:#}");
        assert!(result["message"]["text"].as_str().is_some_and(|text| !text.is_empty()));
        let place = &result["locations"][0]["physicalLocation"];
        assert!(
            place["artifactLocation"]["uri"].as_str().is_some_and(|uri| uri.starts_with("file:///")),
            "{place:#}"
        );
        let number = |key: &str| place["region"][key].as_u64().expect("a number");
        assert!(
            (number("startLine"), number("startColumn")) <= (number("endLine"), number("endColumn")),
            "{place:#}"
        );
        for fix in result["fixes"].as_array().into_iter().flatten() {
            let replacements = fix["artifactChanges"][0]["replacements"].as_array().expect("replacements");
            assert!(
                !replacements.is_empty() && replacements.iter().all(|one| one["deletedRegion"].is_object())
            );
        }
    }
    assert!(results.iter().any(|result| result["fixes"].is_array()), "no fix in the whole corpus");
    // A path below the working directory stays relative, which GitHub and others require.
    let folder = folder();
    write(folder.path(), "a b/vm.args", REFUSED);
    let output = lint(folder.path(), &["./a b/vm.args", "absent/x.args", "--format", "sarif"]);
    let log: Value = output.json();
    let place = &log["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "a%20b/vm.args");
    let invocation = &log["runs"][0]["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], false);
    assert_eq!(invocation["toolExecutionNotifications"].as_array().map(Vec::len), Some(1));
}

#[test]
fn annotations_have_one_line_and_contain_no_command_from_the_file() {
    let folder = folder();
    write(folder.path(), "a,b:c/vm.args", "'+P\n::error::x' 5\n+P 12\n");
    let output = lint(folder.path(), &["a,b:c/vm.args", "--format", "github"]);
    assert!(!output.stdout.is_empty());
    for line in output.stdout.lines() {
        let (head, message) =
            line.strip_prefix("::").and_then(|rest| rest.split_once("::")).expect("a command");
        let (command, properties) = head.split_once(' ').expect("properties");
        assert!(matches!(command, "error" | "warning" | "notice"), "{line}");
        assert!(properties.starts_with("file=a%2Cb%3Ac/vm.args,line="), "{line}");
        assert!(!message.is_empty(), "{line}");
    }
    assert!(output.stdout.lines().any(|line| line.contains("line=3,endLine=3,col=")), "{}", output.stdout);
}

#[test]
fn file_named_twice_is_linted_once() {
    let folder = folder();
    write(folder.path(), "rel/vm.args", REFUSED);
    symlink("rel/vm.args", folder.path().join("vm.args")).expect("link");
    let output = lint(folder.path(), &["rel/vm.args", "./rel/vm.args", "rel", "vm.args", "--format", "json"]);
    assert_eq!(output.json()["summary"]["files"], 1);
}

#[test]
fn running_node_is_linted_for_its_own_release() {
    for otp in all_otps() {
        let flags = ["+K", "true", "+P", "5000", "-kernel", "dist_auto_connect", "always"];
        let node = TestNode::start(&otp, &flags, "ok");
        for target in [node.name.clone(), node.pid().to_string()] {
            let output = run(beamtune().args(["lint", &target, "--format", "json"]));
            let value = output.json();
            assert_eq!(value["releases"], serde_json::json!([otp.release]), "{value:#}");
            let findings = value["findings"].as_array().expect("findings");
            let is_of_k = |finding: &Value| finding["flag"].as_str().is_some_and(|flag| flag.contains('K'));
            assert!(findings.iter().any(is_of_k), "{value:#}");
            // This is the only invalid argument of init.
            let is_of_emulator = |finding: &&Value| matches!(finding["flag"].as_str(), Some("-K" | "-P"));
            let of_init: Vec<&Value> = findings.iter().filter(|finding| !is_of_emulator(finding)).collect();
            assert!(
                matches!(of_init[..], [finding] if finding["flag"] == "-kernel dist_auto_connect" && finding["code"] == "BF003"),
                "{value:#}"
            );
            assert_eq!(output.status, Some(1));
            assert!(!output.stdout.contains(&node.cookie), "the output contains the cookie");
        }
    }
}

#[test]
fn control_characters_in_a_path_are_escaped() {
    let folder = folder();
    let path = write(folder.path(), "\u{1b}[31m/vm.args", REFUSED);
    let output = lint(folder.path(), &[&text(path.strip_prefix(folder.path()).expect("below"))]);
    assert!(
        !output.stdout.contains('\x1b') && output.stdout.contains("\\u{1b}[31m/vm.args:1:"),
        "{}",
        output.stdout
    );
}
