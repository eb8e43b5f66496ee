use super::*;
use beamtune_model::study::{Arm, Measures, Phase, TrialOrder, TrialOutcome};

fn trial(block: u32) -> Trial {
    let mut measures = Measures::default();
    measures.set("cpu-per-request", 1e5 / 3.0);
    Trial {
        order: TrialOrder { phase: Phase::Pair, block, label: 1, arm: Arm::default(), point: Vec::new() },
        began_unix_s: 1_795_000_000.125,
        took_s: 31.5,
        outcome: TrialOutcome::Valid { measures },
        remarks: vec!["one".to_owned()],
    }
}

#[test]
fn added_trials_are_read_back() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.study");
    let mut study = Study::create(&path, r#"{"a":1}"#).expect("created");
    study.add(&trial(0), Some(b"recording")).expect("added");
    drop(study);
    let mut study = Study::resume(&path).expect("resumed");
    study.add(&trial(1), None).expect("added");
    // Reading works while a writer has the file open.
    let read = Study::read(&path).expect("read");
    assert_eq!(read.question().expect("question"), r#"{"a":1}"#);
    assert_eq!(read.trials().expect("trials"), [trial(0), trial(1)]);
    assert_eq!(read.recording(0).expect("read").as_deref(), Some(&b"recording"[..]));
    assert_eq!(read.recording(1).expect("read"), None);
    assert_eq!(read.recording(2).expect("read"), None);
    assert!(read.written_by().expect("read").is_some_and(|by| by.starts_with("beamtune ")));
}

#[test]
fn a_study_has_only_one_writer_at_a_time() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.study");
    let study = Study::create(&path, "{}").expect("created");
    assert!(matches!(Study::resume(&path), Err(Error::Locked { .. })));
    assert!(matches!(Study::create(&path, "{}"), Err(Error::Exists { .. })));
    drop(study);
    Study::resume(&path).expect("free again");
}

#[test]
fn other_files_and_newer_formats_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.study");
    let refused = |text: &str| {
        for error in [Study::read(&path).map(drop), Study::resume(&path).map(drop)] {
            let error = error.expect_err("not a study").to_string();
            assert!(error.contains(text), "{error:?}, not {text:?}");
        }
    };
    refused("No such file");
    std::fs::write(&path, "this is a text, and long enough to be taken for a page of a database".repeat(20))
        .expect("written");
    refused("is not an SQLite database");
    std::fs::remove_file(&path).expect("removed");
    drop(Study::create(&path, "{}").expect("created"));
    let connection = Connection::open(&path).expect("opened");
    connection.pragma_update(None, "user_version", FORMAT + 1).expect("changed");
    drop(connection);
    refused("was written by a newer beamtune (beamtune ");
}

/// A beamtune that is killed while creating the study leaves an empty file.
#[test]
fn an_empty_file_is_not_a_study() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.study");
    std::fs::write(&path, "").expect("written");
    assert!(matches!(Study::resume(&path), Err(Error::NotAStudy { .. })));
}

#[test]
fn a_damaged_trial_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.study");
    let mut study = Study::create(&path, "{}").expect("created");
    study.add(&trial(0), None).expect("added");
    study.connection.execute("UPDATE trial SET content = '{'", []).expect("changed");
    let error = study.trials().expect_err("damaged").to_string();
    assert!(error.contains("trial 0"), "{error}");
}
