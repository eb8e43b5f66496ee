//! `diagnose` and `show` on files that are no recording, or only a part of one: clear words, and no finding that an intact one does not have.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{Said, beamtune, folder, run};

/// The recording of a made-up node, sick.
fn recorded(folder: &Path) -> PathBuf {
    let file = folder.join("sick.btr");
    let said = run(beamtune().args(["lab", "synthetic", "poll-in-place-of-epoll"]).arg(&file));
    assert_eq!(said.status, Some(0), "{}", said.stderr);
    file
}

fn look(command: &str, file: &Path) -> Said {
    run(beamtune().arg(command).arg(file))
}

/// Codes of what is found in a file.
fn codes(file: &Path) -> BTreeSet<String> {
    let json = run(beamtune().args(["diagnose", "--json"]).arg(file)).json();
    let findings = json["findings"].as_array().expect("findings");
    findings.iter().filter_map(|finding| finding["code"].as_str()).map(str::to_owned).collect()
}

#[test]
fn what_is_no_recording_is_refused_with_what_it_is() {
    let folder = folder();
    let file = recorded(folder.path());
    let bytes = fs::read(&file).expect("read");
    // The format stands in SQLite's header as the database's version, big-endian.
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
            let said = look(command, &path);
            said.assert_refused(&[expect, name]);
            assert!(said.stdout.is_empty(), "{name}: {}", said.stdout);
        }
    }
}

#[test]
fn a_recording_that_is_cut_off_has_no_finding_that_the_whole_one_has_not() {
    let folder = folder();
    let file = recorded(folder.path());
    let whole = codes(&file);
    assert!(whole.contains("BT013"), "{whole:?}");
    let bytes = fs::read(&file).expect("read");
    let cut = folder.path().join("cut.btr");
    for part in 1..16 {
        fs::write(&cut, &bytes[..bytes.len() * part / 16]).expect("written");
        let said = look("diagnose", &cut);
        if said.status == Some(2) {
            said.assert_refused(&["cut.btr"]);
        } else {
            let more: Vec<String> = codes(&cut).difference(&whole).cloned().collect();
            assert!(more.is_empty(), "{part}/16: {more:?}");
        }
    }
}
