//! Recordings of an evaluation, stored with notes on each run, so that changed rules can be evaluated on the same nodes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use beamtune_recording::{Existing, Reader, Writer};
use serde::{Deserialize, Serialize};

use crate::judge::{Truth, causes, judge_recording};
use crate::rows::{Judged, Kind, Row, Run, Setting};
use crate::{catalog, software};

/// Stores the recordings of an evaluation, if a folder is given.
pub(crate) struct RecordingStore {
    folder: Option<PathBuf>,
}

/// Notes on a run: what is needed to grade its diagnosis, besides the recording and the case.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RunNotes {
    pub run: Run,
    pub culprits: Vec<String>,
    pub foreign_cores: f64,
    pub stolen_cores: f64,
    pub is_memory_due: bool,
}

impl RecordingStore {
    /// Creates the folder if necessary. Without a folder, recordings are kept in memory.
    pub fn new(folder: Option<&Path>) -> Result<RecordingStore> {
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(RecordingStore { folder: folder.map(Path::to_owned) })
    }

    /// Creates the recording of a run; replaces an earlier one.
    pub fn writer(&self, run: &Run) -> Result<Writer> {
        match &self.folder {
            Some(folder) => Ok(Writer::create(&path(folder, run, "beamtune"), Existing::Replace)?),
            None => Ok(Writer::in_memory()?),
        }
    }

    /// Writes the notes on a run next to its recording.
    pub fn write_notes(&self, notes: &RunNotes) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = path(folder, &notes.run, "json");
        std::fs::write(&path, serde_json::to_string_pretty(notes)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

fn path(folder: &Path, run: &Run, ending: &str) -> PathBuf {
    folder.join(format!("{}-{}-{}.{ending}", run.case, run.release, run.setting.name()))
}

/// Grades all recordings in a folder again, sorted by name.
pub fn judge_all(folder: &Path) -> Result<Vec<Row>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut notes: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    notes.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    notes.sort();
    notes.iter().map(|note| judge_one(folder, note)).collect()
}

fn judge_one(folder: &Path, note: &Path) -> Result<Row> {
    let context = || format!("cannot read {}", note.display());
    let text = std::fs::read_to_string(note).with_context(context)?;
    let notes: RunNotes = serde_json::from_str(&text).with_context(context)?;
    let judged = judge_run(folder, &notes);
    let (judged, error) = match judged {
        Ok(judged) => (judged, None),
        Err(error) => (Judged::default(), Some(format!("{error:#}"))),
    };
    Ok(Row {
        run: notes.run,
        master: 0,
        day: String::new(),
        cpus: 0,
        linux: String::new(),
        took_s: 0.0,
        attempts: 1,
        error,
        judged,
    })
}

fn judge_run(folder: &Path, notes: &RunNotes) -> Result<Judged> {
    let run = &notes.run;
    let mut split = None;
    let (expect, allow, cause) = match run.kind {
        Kind::Software => {
            let case = software::all()?.into_iter().find(|case| case.name == run.case);
            let case = case.with_context(|| format!("unknown case {}", run.case))?;
            (case.expect, case.allow, case.cause)
        }
        Kind::Lab | Kind::Synthetic => {
            let lab = catalog::all()?.into_iter().find(|lab| lab.manifest.name == run.case);
            let manifest = lab.with_context(|| format!("unknown lab {}", run.case))?.manifest;
            split = Some(manifest.split);
            (manifest.expect, manifest.allow, manifest.cause)
        }
    };
    let truth = Truth {
        causes: causes(&expect, cause.as_ref()),
        expect: &expect,
        allow: &allow,
        is_sick: run.setting == Setting::Sick,
        culprits: notes.culprits.iter().map(String::as_str).collect(),
        foreign_cores: notes.foreign_cores,
        stolen_cores: notes.stolen_cores,
    };
    let reader = Reader::open(&path(folder, run, "beamtune"))?;
    let judged = judge_recording(&reader, &truth, None)?;
    Ok(Judged { split, is_memory_due: notes.is_memory_due, ..judged })
}
