//! Recordings: whole files of any bytes, and the columns in them.

use std::cell::RefCell;
use std::fs;

use beamtune_recording::{Reader, Selection, fuzzing};
use tempfile::TempDir;

use super::sample::judge;

thread_local! {
    /// A folder for one file at a time; made once, because it costs more than what is done with the file.
    static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// A file: opened, read in all ways, diagnosed and shown. Where it can be opened, no read fails for damage: what is lost is
/// a gap.
pub fn recording(bytes: &[u8]) {
    FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| tempfile::tempdir().expect("a folder"));
        let path = folder.path().join("r.btr");
        fs::write(&path, bytes).expect("a file");
        let Ok(reader) = Reader::open(&path) else { return };
        let lives = reader.lives().expect("a recording that was opened is read");
        for life in &lives {
            let _ = (reader.wall_at(life.end), reader.facts(life.id));
        }
        let _ = (reader.wall_at_zero().map(|wall| reader.instant_of(wall)), reader.is_closed());
        let mut samples = reader.samples();
        for sample in samples.by_ref() {
            let sample = sample.expect("a recording that was opened is read");
            assert!(sample.readings.iter().all(|(id, _)| id.index() < 2_000_000));
        }
        let period = reader.period(&Selection::default()).expect("a recording that was opened is read");
        judge(&period);
    });
}

/// The content of one blob.
pub fn blobs(bytes: &[u8]) {
    fuzzing::blob(bytes);
}
