use super::*;
use beamtune_model::study::{Arm, Measures, Order, Phase, TrialOutcome};

fn trial(block: u32) -> Trial {
    let mut measures = Measures::default();
    measures.set("cpu-per-request", 1e5 / 3.0);
    Trial {
        order: Order { phase: Phase::Pair, block, label: 1, arm: Arm::default(), point: Vec::new() },
        began_unix_s: 1_795_000_000.125,
        took_s: 31.5,
        outcome: TrialOutcome::Valid { measures },
        remarks: vec!["one".to_owned()],
    }
}

#[test]
fn what_is_added_is_there_when_the_study_is_read_again() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.study");
    let mut study = Study::create(&path, r#"{"a":1}"#).expect("created");
    study.add(&trial(0), Some(b"recording")).expect("added");
    drop(study);
    let mut study = Study::resume(&path).expect("resumed");
    study.add(&trial(1), None).expect("added");
    // Somebody may look while it is worked on.
    let read = Study::read(&path).expect("read");
    assert_eq!(read.question().expect("question"), r#"{"a":1}"#);
    assert_eq!(read.trials().expect("trials"), [trial(0), trial(1)]);
    assert_eq!(read.recording(0).expect("read").as_deref(), Some(&b"recording"[..]));
    assert_eq!(read.recording(1).expect("read"), None);
    assert_eq!(read.recording(2).expect("read"), None);
    assert!(read.written_by().expect("read").is_some_and(|by| by.starts_with("beamtune ")));
}

#[test]
fn only_one_beamtune_at_a_time_adds_trials() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.study");
    let study = Study::create(&path, "{}").expect("created");
    assert!(matches!(Study::resume(&path), Err(Error::Locked { .. })));
    assert!(matches!(Study::create(&path, "{}"), Err(Error::Exists { .. })));
    drop(study);
    Study::resume(&path).expect("free again");
}

#[test]
fn what_is_no_study_or_a_newer_one_is_told_so() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.study");
    let refused = |text: &str| {
        for error in [Study::read(&path).map(drop), Study::resume(&path).map(drop)] {
            let error = error.expect_err("no study").to_string();
            assert!(error.contains(text), "{error:?}, not {text:?}");
        }
    };
    refused("No such file");
    std::fs::write(&path, "this is a text, and long enough to be taken for a page of a database".repeat(20))
        .expect("written");
    refused("is another kind of file");
    std::fs::remove_file(&path).expect("removed");
    drop(Study::create(&path, "{}").expect("created"));
    let connection = Connection::open(&path).expect("opened");
    connection.pragma_update(None, "user_version", FORMAT + 1).expect("changed");
    drop(connection);
    refused("was written by a newer beamtune (beamtune ");
}

/// A study that was killed in its first moment has a file and nothing in it.
#[test]
fn a_study_that_was_never_begun_says_so() {
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
