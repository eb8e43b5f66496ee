//! `beamtune args`: shows the flags in effect, and writes files.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use common::{Output, TestNode, all_otps, beamtune, folder, run};

const OLD: &str = "# Name\n-name shop@host\n\n# Limits\n+P 262144   # enough\n+sbwt short\n";

fn args(folder: &Path, args: &[&str]) -> Output {
    run(beamtune().arg("args").args(args).current_dir(folder))
}

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content).expect("write");
    path
}

/// Returns the standard output of a run that must succeed.
#[track_caller]
fn stdout_of(output: &Output) -> &str {
    assert_eq!(output.status, Some(0), "{}\n{}", output.stdout, output.stderr);
    &output.stdout
}

#[test]
fn flags_in_effect_are_shown_with_their_source() {
    let folder = folder();
    write(folder.path(), "vm.args", OLD);
    write(folder.path(), "prod.env", "ERL_FLAGS=+P 1048576\n");
    let output = args(folder.path(), &["vm.args", "prod.env", "--otp", "25"]);
    let row = |flag: &str| -> Vec<&str> {
        let line =
            stdout_of(&output).lines().find(|line| line.split(' ').next() == Some(flag)).unwrap_or_default();
        line.split_whitespace().collect()
    };
    assert_eq!(row("+P"), ["+P", "1048576", "prod.env:1", "ERL_FLAGS", "262144", "(vm.args:5)"]);
    assert_eq!(row("+sbwt"), ["+sbwt", "short", "vm.args:6"]);
    assert_eq!(row("+Q")[..2], ["+Q", "65536,"]);
    assert_eq!(row("-name"), ["-name", "shop@host", "vm.args:2"]);
    let json = args(folder.path(), &["vm.args", "prod.env", "--json"]).json();
    assert_eq!(json["emulator"][0]["flag"], "+P");
}

#[test]
fn new_file_keeps_comments_and_order_and_states_the_reason() {
    let folder = folder();
    write(folder.path(), "vm.args", OLD);
    let output = args(
        folder.path(),
        &[
            "vm.args",
            "--set",
            "+sbwt none",
            "--set",
            "+Q 65536",
            "--unset",
            "+P",
            "--why",
            "finding BT001 on 2026-11-20",
        ],
    );
    let expect = "\
# Name
-name shop@host

# Limits
# enough
# +sbwt: finding BT001 on 2026-11-20
+sbwt none
# +Q: finding BT001 on 2026-11-20
+Q 65536
";
    assert_eq!(stdout_of(&output), expect);
    assert_eq!(
        fs::read_to_string(folder.path().join("vm.args")).expect("text"),
        OLD,
        "the old file is unchanged"
    );
    let output = args(folder.path(), &["vm.args", "--set", "+sbwt none"]);
    let comment = stdout_of(&output).lines().find(|line| line.starts_with("# +sbwt: ")).expect("a comment");
    assert!(comment.len() > 20, "{comment}");
    assert!(output.stdout.contains("Set on 20"), "{}", output.stdout);
}

#[test]
fn existing_file_is_overwritten_only_with_force() {
    let folder = folder();
    let old = write(folder.path(), "vm.args", OLD);
    let new = folder.path().join("new.args");
    stdout_of(&args(folder.path(), &["vm.args", "--set", "+sbwt none", "-o", "new.args"]));
    assert!(fs::read_to_string(&new).expect("text").contains("+sbwt none"));
    let before = fs::read(&new).expect("bytes");
    args(folder.path(), &["vm.args", "--set", "+sbwt long", "-o", "new.args"])
        .assert_refused(&["exists", "--force"]);
    assert_eq!(fs::read(&new).expect("bytes"), before);
    // The output is a link to the input file: link and permissions are kept.
    fs::set_permissions(&old, fs::Permissions::from_mode(0o600)).expect("chmod");
    symlink("vm.args", folder.path().join("link.args")).expect("link");
    stdout_of(&args(folder.path(), &["vm.args", "--set", "+sbwt none", "-o", "link.args", "--force"]));
    assert!(fs::symlink_metadata(folder.path().join("link.args")).expect("metadata").is_symlink());
    assert!(fs::read_to_string(&old).expect("text").contains("+sbwt none"));
    assert_eq!(fs::metadata(&old).expect("metadata").permissions().mode() & 0o7777, 0o600);
    args(folder.path(), &["vm.args", "--set", "+sbwt none", "-o", "no/such/folder/x.args"])
        .assert_refused(&["cannot write"]);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 3, "a temporary file remains");
}

#[test]
fn flags_that_prevent_a_start_are_not_written() {
    let folder = folder();
    write(folder.path(), "vm.args", OLD);
    let output = args(folder.path(), &["vm.args", "--set", "+P 12", "-o", "new.args"]);
    output.assert_refused(&["nothing written", "--force", "new.args:", "error BF"]);
    assert!(!folder.path().join("new.args").exists());
    stdout_of(&args(folder.path(), &["vm.args", "--set", "+P 12", "-o", "new.args", "--force"]));
    assert!(folder.path().join("new.args").exists());
    // A flag that exists only in some releases is accepted for those.
    args(folder.path(), &["vm.args", "--set", "+zhft 5000"]).assert_refused(&["--otp"]);
    stdout_of(&args(folder.path(), &["vm.args", "--set", "+zhft 5000", "--otp", "27"]));
}

#[test]
fn invalid_requests_are_refused_with_the_reason() {
    let folder = folder();
    write(folder.path(), "vm.args", OLD);
    let refused = |more: &[&str], words: &[&str]| {
        args(folder.path(), &[&["vm.args"], more].concat()).assert_refused(words);
    };
    refused(&["--set", "+sbtw none"], &["+sbtw", "similar: +sbwt"]);
    refused(&["--set", "sbwt none"], &["not exactly one flag"]);
    refused(&["--set", "-pa x"], &["edit the file manually"]);
    refused(&["--unset", "+K"], &["is not in this file"]);
    refused(&["-o", "x.args"], &["--set"]);
    refused(&["vm.args", "--set", "+sbwt none"], &["cannot change 2 files at once"]);
    refused(&["--why", "x"], &["--set"]);
    args(folder.path(), &["absent.args"]).assert_refused(&["absent.args"]);
}

#[test]
fn malformed_input_is_reported_with_its_position_and_nothing_is_overwritten() {
    let folder = folder();
    let existing = write(folder.path(), "existing.args", "+P 262144\n");
    let long = vec![b'x'; 10 << 20];
    let bad: [(&str, &[u8], &str); 4] = [
        ("vm.args", b"\x7fELF\0", "vm.args:1:5: a NUL byte"),
        ("vm.args", b"+P 1\n-x \"a", "vm.args:2:4: this \" is never closed"),
        ("vm.args.eex", b"+P <%= x", "vm.args.eex:1:4: `<%` is never closed"),
        ("vm.args", &long, "vm.args:1:1: the line has 10485760 bytes"),
    ];
    for (name, content, message) in bad {
        let path = write(folder.path(), name, content);
        args(folder.path(), &[name]).assert_refused(&[message]);
        args(folder.path(), &[name, "--set", "+sbwt none", "-o", "existing.args", "--force"])
            .assert_refused(&[message]);
        assert_eq!(fs::read(&path).expect("bytes"), content);
        assert_eq!(fs::read_to_string(&existing).expect("text"), "+P 262144\n");
    }
}

#[test]
fn every_format_can_be_written_and_read_back() {
    let folder = folder();
    write(folder.path(), "vm.args", "# Limits\n+P 262144\n-heart\n");
    let formats = [
        ("vm.args", "a.vm.args"),
        ("eex", "b.vm.args.eex"),
        ("env", "c.env"),
        ("dockerfile", "d.Dockerfile"),
        ("k8s", "e.yaml"),
        ("systemd", "f.service"),
        ("rabbitmq", "rabbitmq-env.conf"),
        ("ejabberd", "ejabberdctl.cfg"),
    ];
    for (format, name) in formats {
        let output = args(
            folder.path(),
            &["vm.args", "--as", format, "--set", "+sbwt none", "--why", "trial 7", "-o", name],
        );
        assert_eq!(output.status, Some(0), "{format}: {}", output.stderr);
        let new = fs::read_to_string(folder.path().join(name)).expect("text");
        assert!(new.contains("# Limits") && new.contains("# +sbwt: trial 7"), "{format}:\n{new}");
        let sheet = args(folder.path(), &[name, "--json"]).json();
        let value = |flag: &str| {
            let rows = sheet["emulator"].as_array().expect("rows").iter();
            rows.clone()
                .find(|row| row["flag"] == flag)
                .and_then(|row| row["value"].as_str())
                .map(str::to_owned)
        };
        assert_eq!(value("+P").as_deref(), Some("262144"), "{format}:\n{new}");
        assert_eq!(value("+sbwt").as_deref(), Some("none"), "{format}:\n{new}");
        assert_eq!(sheet["others"][0]["flag"], "-heart", "{format}:\n{new}");
    }
}

#[test]
fn one_of_several_nodes_in_a_file_must_be_chosen() {
    let folder = folder();
    let text = "services:\n  a:\n    environment:\n      ERL_FLAGS: +P 1024\n  b:\n    environment:\n      ERL_FLAGS: +P 2048\n";
    write(folder.path(), "compose.yml", text);
    let set = ["compose.yml", "--set", "+P 4096", "--why", "more users"];
    args(folder.path(), &["compose.yml"]).assert_refused(&["4:18, 7:18", "--node 1 to --node 2"]);
    args(folder.path(), &set).assert_refused(&["compose.yml: this file describes several nodes"]);
    args(folder.path(), &["compose.yml", "--node", "3"]).assert_refused(&["no node 3"]);
    let output = args(folder.path(), &[&set[..], &["--node", "2"]].concat());
    let expect = text.replace("      ERL_FLAGS: +P 2048", "      # +P: more users\n      ERL_FLAGS: +P 4096");
    assert_eq!(stdout_of(&output), expect);
}

#[test]
fn standard_input_is_read_if_its_type_is_given() {
    use std::io::Write;
    let mut command = beamtune();
    command.args(["args", "-", "--from", "env", "--set", "+sbwt none", "--why", "trial 7"]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("start");
    child.stdin.take().expect("a pipe").write_all(b"ERL_FLAGS=+P 262144\n").expect("write");
    let output = child.wait_with_output().expect("output");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "# +sbwt: trial 7\nERL_FLAGS=+P 262144 +sbwt none\n");
    let folder = folder();
    args(folder.path(), &["-"])
        .assert_refused(&["stdin: unknown format of standard input; set it with --from"]);
}

#[test]
fn flags_of_a_running_node_are_shown_and_written() {
    for otp in all_otps() {
        let node = TestNode::start(&otp, &["+sbwt", "none", "+P", "5000"], "ok");
        let folder = folder();
        let output = args(folder.path(), &[&node.pid().to_string()]);
        let line = stdout_of(&output).lines().find(|line| line.starts_with("+sbwt ")).unwrap_or_default();
        assert!(line.contains("none") && line.contains("command line"), "{}", output.stdout);
        assert!(output.stdout.contains(&format!("defaults of OTP {}", otp.release)), "{}", output.stdout);
        assert!(!output.stdout.contains(&node.cookie), "the cookie was printed");
        let output = args(folder.path(), &[&node.name, "--set", "+P 262144", "--why", "more users"]);
        assert_eq!(stdout_of(&output), "+sbwt none\n# +P: more users\n+P 262144\n");
    }
}
