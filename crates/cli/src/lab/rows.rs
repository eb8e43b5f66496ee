//! What the runs of an evaluation have shown, a line of JSON for each, in a file to which it can be added.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::judge::{DISTURBED_CORES, MUCH_STOLEN_CORES};
use super::manifest::{CORES, Split};

/// One run of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    #[serde(flatten)]
    pub run: Run,
    /// The seed of all seeds.
    pub master: u64,
    /// The day, `2026-11-23`.
    pub day: String,
    pub cpus: usize,
    /// The kernel's version.
    pub linux: String,
    pub took_s: f64,
    /// How often it was run: again where others had used the machine.
    pub attempts: u32,
    /// Why there is no answer.
    pub error: Option<String>,
    #[serde(flatten)]
    pub judged: Judged,
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub case: String,
    pub kind: Kind,
    pub release: u32,
    pub setting: Setting,
    pub seed: u32,
    /// CPUs of the machine that the lab was to be sick on.
    #[serde(default = "usual_cores")]
    pub cores: u32,
}

fn usual_cores() -> u32 {
    CORES
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Lab,
    /// What others use, unmodified.
    Software,
    /// Nothing was run: a recording of a made-up node was judged.
    Synthetic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    Sick,
    Cured,
    /// Never was sick.
    Healthy,
}

impl Setting {
    pub fn name(self) -> &'static str {
        match self {
            Setting::Sick => "sick",
            Setting::Cured => "cured",
            Setting::Healthy => "healthy",
        }
    }
}

/// What was right and what was not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Of a lab, whether constants may be fitted to it.
    #[serde(default)]
    pub split: Option<Split>,
    /// `BT005 critical`, as they stood.
    pub found: Vec<String>,
    /// Expected, and not there.
    pub missing: Vec<String>,
    /// For each true cause its place among the findings that follow from no other; `None`: it is not among them.
    pub ranks: Vec<Option<usize>>,
    /// Whether the culprit was named; `None` where there is none.
    pub culprit: Option<bool>,
    /// Remedies with flags.
    pub remedies: usize,
    /// Of these, those with flags that a VM of this release refuses: these flags.
    pub refused: Vec<String>,
    /// Above "notice", neither expected nor allowed; of a cured one also any of what the sick one is expected to have.
    pub false_findings: Vec<String>,
    /// The same, but true, since others had the CPUs.
    pub excused: Vec<String>,
    /// Cores that processes had which do not belong to the run.
    pub foreign_cores: f64,
    /// Of these, what the hypervisor gave to other guests.
    #[serde(default)]
    pub stolen_cores: f64,
    /// Whether each byte of resident memory was to be looked at: not of what nobody has measured, nor of a VM that may end meanwhile.
    #[serde(default)]
    pub is_memory_due: bool,
    pub resident_bytes: Option<i64>,
    /// Resident memory that is not explained; `None` where the pages were not looked at.
    pub unexplained_bytes: Option<i64>,
    /// What may have come and gone while the pages were looked at, which nobody can explain.
    #[serde(default)]
    pub moved_bytes: i64,
    /// What the first remedy of what was expected is estimated to give back.
    pub estimate_bytes: Option<f64>,
}

impl Row {
    /// Codes of what was found above "notice", also where that was allowed or excused.
    pub fn above_notice(&self) -> impl Iterator<Item = &str> {
        self.judged
            .found
            .iter()
            .filter_map(|told| told.split_once(' ').filter(|(_, level)| *level != "notice"))
            .map(|(code, _)| code)
    }

    /// Whether others had so much of the machine that a fault may be theirs.
    pub fn is_disturbed(&self) -> bool {
        self.judged.foreign_cores >= DISTURBED_CORES || self.judged.stolen_cores >= MUCH_STOLEN_CORES
    }
}

/// Places of causes: `1`, `1, 3`, `-` for one that has none.
pub fn told(ranks: &[Option<usize>]) -> String {
    let place = |rank: &Option<usize>| rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
    ranks.iter().map(place).collect::<Vec<_>>().join(", ")
}

/// The file.
pub struct Rows {
    file: Mutex<(File, Vec<Row>)>,
}

impl Rows {
    /// What is in a file; nothing if it is not there.
    pub fn read(path: &Path) -> Result<Vec<Row>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let mut rows: Vec<Row> = Vec::new();
        // A line without an end was being written when we were ended.
        for (at, line) in text.split_inclusive('\n').filter(|line| line.ends_with('\n')).enumerate() {
            rows.push(serde_json::from_str(line).with_context(|| {
                format!(
                    "{}, line {}: no result of an evaluation; name another file with -o",
                    path.display(),
                    at + 1
                )
            })?);
        }
        Ok(rows)
    }

    /// The file with these rows in it, ready for more.
    pub fn begin(path: &Path, rows: Vec<Row>) -> Result<Rows> {
        let context = || format!("cannot write {}", path.display());
        let mut text = String::new();
        for row in &rows {
            text.push_str(&line(row)?);
        }
        // Another one beside it first: what was measured is not lost if we end meanwhile.
        let new = path.with_extension("new");
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path)).with_context(context)?;
        let file = OpenOptions::new().append(true).open(path).with_context(context)?;
        Ok(Rows { file: Mutex::new((file, rows)) })
    }

    pub fn add(&self, row: Row) -> Result<()> {
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, rows) = &mut *held;
        let end = file.metadata().context("the file of results cannot be read")?.len();
        if let Err(error) = file.write_all(line(&row)?.as_bytes()) {
            // A part of a line would make the file unreadable once more is added.
            let _ = file.set_len(end);
            return Err(error).context("the result of a run cannot be written");
        }
        rows.push(row);
        Ok(())
    }

    /// All rows, by case, release and setting.
    pub fn into_sorted(self) -> Vec<Row> {
        let (_, mut rows) = self.file.into_inner().unwrap_or_else(PoisonError::into_inner);
        rows.sort_by(|a, b| key(&a.run).cmp(&key(&b.run)));
        rows
    }
}

fn key(run: &Run) -> (Kind, &str, u32, Setting) {
    (run.kind, &run.case, run.release, run.setting)
}

/// Whether two are the same run, whatever their seeds.
pub fn is_same(a: &Run, b: &Run) -> bool {
    key(a) == key(b) && a.cores == b.cores
}

fn line(row: &Row) -> Result<String> {
    Ok(serde_json::to_string(row).context("a result cannot be written as JSON")? + "\n")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run that was right.
    pub fn row(case: &str, setting: Setting) -> Row {
        let sick = setting == Setting::Sick;
        Row {
            run: Run { case: case.to_owned(), kind: Kind::Lab, release: 25, setting, seed: 7, cores: CORES },
            master: 1,
            day: "2026-11-23".to_owned(),
            cpus: 2,
            linux: "6.18".to_owned(),
            took_s: 15.0,
            attempts: 1,
            error: None,
            judged: Judged {
                ranks: if sick { vec![Some(1)] } else { Vec::new() },
                culprit: sick.then_some(true),
                ..Judged::default()
            },
        }
    }

    #[test]
    fn what_was_added_is_read_again_and_a_foreign_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.jsonl");
        assert_eq!(Rows::read(&path).expect("no file").len(), 0);
        let rows = Rows::begin(&path, vec![row("b", Setting::Sick)]).expect("begun");
        rows.add(row("a", Setting::Cured)).expect("added");
        assert_eq!(Rows::read(&path).expect("read"), [row("b", Setting::Sick), row("a", Setting::Cured)]);
        assert_eq!(rows.into_sorted()[0].run.case, "a");
        std::fs::write(&path, "other\n").expect("written");
        Rows::read(&path).expect_err("no rows");
    }
}
