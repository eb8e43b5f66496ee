//! `diagnose` and `show` on files that are not recordings, or only part of one. The error is clear, and there is no finding that the
//! intact recording does not have.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{Output, beamtune, folder, run};

/// Writes the recording of a synthetic node, in its sick variant.
fn record_sick_node(folder: &Path) -> PathBuf {
    let file = folder.join("sick.btr");
    let output = run(beamtune().args(["lab", "synthetic", "poll-in-place-of-epoll"]).arg(&file));
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    file
}

fn read(command: &str, file: &Path) -> Output {
    run(beamtune().arg(command).arg(file))
}

/// Returns the codes of the findings in a file.
fn codes(file: &Path) -> BTreeSet<String> {
    let json = run(beamtune().args(["diagnose", "--json"]).arg(file)).json();
    let findings = json["findings"].as_array().expect("findings");
    findings.iter().filter_map(|finding| finding["code"].as_str()).map(str::to_owned).collect()
}

#[test]
fn files_that_are_not_recordings_are_refused_with_the_reason() {
    let folder = folder();
    let file = record_sick_node(folder.path());
    let bytes = fs::read(&file).expect("read");
    // The format version is SQLite's user version, stored big-endian in the header of the database.
    let mut newer = bytes.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    let cases: [(&str, &[u8], &str); 4] = [
        ("empty.btr", b"", "is empty"),
        (
            "foreign.btr",
            b"Dear diary, nothing of this is a database, today as on any other day",
            "is not an SQLite database",
        ),
        ("head.btr", &bytes[..50], "only the beginning of an SQLite database: copy it again"),
        ("newer.btr", &newer, "written by a newer beamtune"),
    ];
    for (name, content, expect) in cases {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("written");
        for command in ["diagnose", "show"] {
            let output = read(command, &path);
            output.assert_refused(&[expect, name]);
            assert!(output.stdout.is_empty(), "{name}: {}", output.stdout);
        }
    }
}

#[test]
fn truncated_recording_has_no_additional_findings() {
    let folder = folder();
    let file = record_sick_node(folder.path());
    let whole = codes(&file);
    assert!(whole.contains("BT013"), "{whole:?}");
    let bytes = fs::read(&file).expect("read");
    let cut = folder.path().join("cut.btr");
    for part in 1..16 {
        fs::write(&cut, &bytes[..bytes.len() * part / 16]).expect("written");
        let output = read("diagnose", &cut);
        if output.status == Some(2) {
            output.assert_refused(&["cut.btr"]);
        } else {
            let extra: Vec<String> = codes(&cut).difference(&whole).cloned().collect();
            assert!(extra.is_empty(), "{part}/16: {extra:?}");
        }
    }
}
