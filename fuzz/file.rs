//! Recordings: whole files of arbitrary bytes, and single column blobs.

use std::cell::RefCell;
use std::fs;

use beamtune_recording::{Reader, Selection, fuzzing};
use tempfile::TempDir;

use super::sample::judge;

thread_local! {
    /// A directory for one file at a time. Created once, because that takes longer than a run.
    static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// A recording file: opens, reads, diagnoses and renders it. If it can be opened, no damage makes a read fail: lost data is
/// a gap.
pub fn recording(bytes: &[u8]) {
    FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| tempfile::tempdir().expect("a directory"));
        let path = folder.path().join("r.btr");
        fs::write(&path, bytes).expect("a file");
        let Ok(reader) = Reader::open(&path) else { return };
        let lives = reader.recorded_incarnations().expect("an opened recording can be read");
        for life in &lives {
            let _ = (reader.wall_at(life.end), reader.facts(life.id));
        }
        let _ = (reader.wall_at_zero().map(|wall| reader.instant_of(wall)), reader.is_closed());
        let mut samples = reader.samples();
        for sample in samples.by_ref() {
            let sample = sample.expect("an opened recording can be read");
            assert!(sample.readings.iter().all(|(id, _)| id.index() < 2_000_000));
        }
        let period = reader.period(&Selection::default()).expect("an opened recording can be read");
        judge(&period);
    });
}

/// The content of a single blob.
pub fn blobs(bytes: &[u8]) {
    fuzzing::blob(bytes);
}
