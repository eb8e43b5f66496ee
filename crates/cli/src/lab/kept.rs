//! Recordings of an evaluation, kept with what is known of each run, so that a change of the rules can be judged on the same nodes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use beamtune_recording::{Existing, Reader, Writer};
use serde::{Deserialize, Serialize};

use super::evaluate::judge_recording;
use super::judge::{Truth, causes};
use super::rows::{Judged, Kind, Row, Run, Setting};
use super::{all, software};

/// Where recordings are kept, if they are.
pub struct Keep {
    folder: Option<PathBuf>,
}

/// What is known of a run besides its case.
#[derive(Debug, Serialize, Deserialize)]
pub struct Known {
    pub run: Run,
    pub culprits: Vec<String>,
    pub foreign_cores: f64,
    pub stolen_cores: f64,
    pub is_memory_due: bool,
}

impl Keep {
    /// In this folder, which is made if it does not exist; nowhere if there is none.
    pub fn in_folder(folder: Option<&Path>) -> Result<Keep> {
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(Keep { folder: folder.map(Path::to_owned) })
    }

    /// Opens the recording of a run; an earlier one is replaced.
    pub fn writer(&self, run: &Run) -> Result<Writer> {
        match &self.folder {
            Some(folder) => Ok(Writer::create(&path(folder, run, "beamtune"), Existing::Replace)?),
            None => Ok(Writer::in_memory()?),
        }
    }

    /// Writes what is known of a run beside its recording.
    pub fn note(&self, known: &Known) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = path(folder, &known.run, "json");
        std::fs::write(&path, serde_json::to_string_pretty(known)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

fn path(folder: &Path, run: &Run, ending: &str) -> PathBuf {
    folder.join(format!("{}-{}-{}.{ending}", run.case, run.release, run.setting.name()))
}

/// Judges all recordings of a folder again, in the order of their names.
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
    let known: Known = serde_json::from_str(&text).with_context(context)?;
    let judged = judge_known(folder, &known);
    let (judged, error) = match judged {
        Ok(judged) => (judged, None),
        Err(error) => (Judged::default(), Some(format!("{error:#}"))),
    };
    Ok(Row {
        run: known.run,
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

fn judge_known(folder: &Path, known: &Known) -> Result<Judged> {
    let run = &known.run;
    let mut split = None;
    let (expect, allow, cause) = match run.kind {
        Kind::Software => {
            let case = software::all()?.into_iter().find(|case| case.name == run.case);
            let case = case.with_context(|| format!("no case {}", run.case))?;
            (case.expect, case.allow, case.cause)
        }
        Kind::Lab | Kind::Synthetic => {
            let lab = all()?.into_iter().find(|lab| lab.manifest.name == run.case);
            let manifest = lab.with_context(|| format!("no lab {}", run.case))?.manifest;
            split = Some(manifest.split);
            (manifest.expect, manifest.allow, manifest.cause)
        }
    };
    let truth = Truth {
        causes: causes(&expect, cause.as_ref()),
        expect: &expect,
        allow: &allow,
        is_sick: run.setting == Setting::Sick,
        culprits: known.culprits.iter().map(String::as_str).collect(),
        foreign_cores: known.foreign_cores,
        stolen_cores: known.stolen_cores,
    };
    let reader = Reader::open(&path(folder, run, "beamtune"))?;
    let judged = judge_recording(&reader, &truth, None)?;
    Ok(Judged { split, is_memory_due: known.is_memory_due, ..judged })
}
