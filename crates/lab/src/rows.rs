//! Results of an evaluation: a file with one line of JSON per run, to which runs can be appended.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::manifest::{CORES, Split};

/// Minimum CPU use by processes outside of the case for which a finding of CPU starvation is true.
pub const DISTURBING_CORES: f64 = 0.8;

/// Minimum steal for which a run counts as disturbed.
pub const DISTURBING_STOLEN_CORES: f64 = 0.2;

/// One run of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// Master seed, from which the seeds of all runs are derived.
    pub master: u64,
    /// Date: `2026-11-23`.
    pub day: String,
    /// Number of CPUs of the host.
    pub cpus: usize,
    /// Kernel version.
    pub linux: String,
    /// Duration of all attempts, in seconds.
    pub took_s: f64,
    /// Number of attempts. A run is repeated if other processes disturbed it.
    pub attempts: u32,
    /// Why the run could not be graded.
    pub error: Option<String>,
    /// The grade.
    #[serde(flatten)]
    pub judged: Judged,
}

/// Identifies a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the case.
    pub case: String,
    /// Kind of the case.
    pub kind: Kind,
    /// OTP release.
    pub release: u32,
    /// The variant.
    pub setting: Setting,
    /// Seed for the parameters of a lab.
    pub seed: u32,
    /// Number of CPUs for which the lab was sized.
    #[serde(default = "usual_cores")]
    pub cores: u32,
}

fn usual_cores() -> u32 {
    CORES
}

/// The kinds of cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A lab.
    Lab,
    /// Unmodified software.
    Software,
    /// A synthetic recording; nothing is run.
    Synthetic,
}

/// The variants of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// With the fault.
    Sick,
    /// With the remedy applied.
    Cured,
    /// A case without a sick variant.
    Healthy,
}

impl Setting {
    /// Returns the name, as in the file of results.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Sick => "sick",
            Setting::Cured => "cured",
            Setting::Healthy => "healthy",
        }
    }
}

/// The grade of a run: its diagnosis compared with the ground truth.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// For a lab: whether thresholds may be fitted to it.
    #[serde(default)]
    pub split: Option<Split>,
    /// Findings in order: `BT005 critical`.
    pub found: Vec<String>,
    /// Expected findings that are missing.
    pub missing: Vec<String>,
    /// Rank of each root cause among the findings that are not consequences of others; `None`: not found.
    pub ranks: Vec<Option<usize>>,
    /// True if all culprits were named; `None` if there is no culprit.
    pub culprit: Option<bool>,
    /// Number of remedies with flags.
    pub remedies: usize,
    /// Flags of those remedies that a VM of this release refuses.
    pub refused: Vec<String>,
    /// Findings above "notice" that are neither expected nor allowed. In the healthy variant, also any finding that is expected in the
    /// sick one.
    pub false_findings: Vec<String>,
    /// Findings that would be false, but are true because other processes used the CPUs.
    pub excused: Vec<String>,
    /// Cores used by processes outside of the run.
    pub foreign_cores: f64,
    /// Part of these that the hypervisor gave to other guests.
    #[serde(default)]
    pub stolen_cores: f64,
    /// True if resident memory must be explained: not for synthetic nodes, or VMs that may end during the recording.
    #[serde(default)]
    pub is_memory_due: bool,
    /// Resident memory; `None` if it was not recorded.
    pub resident_bytes: Option<i64>,
    /// Resident memory without an explanation; `None` if the page map was not read.
    pub unexplained_bytes: Option<i64>,
    /// Memory that changed while the page map was read, and so cannot be explained.
    #[serde(default)]
    pub moved_bytes: i64,
    /// Estimate of the memory that the first remedy of an expected finding frees.
    pub estimate_bytes: Option<f64>,
    /// Lines of the page that `diagnose` prints; `None` in rows of earlier versions.
    #[serde(default)]
    pub page_lines: Option<usize>,
    /// Limits that this page exceeds: `11 of 10 lines for the first finding`.
    #[serde(default)]
    pub broken_limits: Vec<String>,
}

impl Row {
    /// Returns the codes of all findings above "notice", including allowed and excused ones.
    pub fn above_notice(&self) -> impl Iterator<Item = &str> {
        self.judged
            .found
            .iter()
            .filter_map(|finding| finding.split_once(' ').filter(|(_, level)| *level != "notice"))
            .map(|(code, _)| code)
    }

    /// True if other processes used enough CPU time to cause a wrong result.
    pub fn is_disturbed(&self) -> bool {
        self.judged.foreign_cores >= DISTURBING_CORES || self.judged.stolen_cores >= DISTURBING_STOLEN_CORES
    }
}

/// Formats ranks: `1`, `1, 3`; `-` for a cause that was not found.
pub fn render_ranks(ranks: &[Option<usize>]) -> String {
    let place = |rank: &Option<usize>| rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
    ranks.iter().map(place).collect::<Vec<_>>().join(", ")
}

/// The results, and the file that contains them.
pub struct Rows {
    file: Mutex<(File, Vec<Row>)>,
}

impl Rows {
    /// Reads the results in a file; none if it does not exist.
    pub fn read(path: &Path) -> Result<Vec<Row>> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let mut rows: Vec<Row> = Vec::new();
        // If beamtune was killed, the last line is incomplete, and is skipped.
        for (at, line) in text.split_inclusive('\n').filter(|line| line.ends_with('\n')).enumerate() {
            rows.push(serde_json::from_str(line).with_context(|| {
                format!(
                    "{}, line {}: not a result of an evaluation; name another file with -o",
                    path.display(),
                    at + 1
                )
            })?);
        }
        Ok(rows)
    }

    /// Writes these rows to the file, and opens it for appending.
    pub fn begin(path: &Path, rows: Vec<Row>) -> Result<Rows> {
        let context = || format!("cannot write {}", path.display());
        let mut text = String::new();
        for row in &rows {
            text.push_str(&line(row)?);
        }
        // Write a new file first, so that no result is lost if beamtune is killed.
        let new = path.with_extension("new");
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path)).with_context(context)?;
        let file = OpenOptions::new().append(true).open(path).with_context(context)?;
        Ok(Rows { file: Mutex::new((file, rows)) })
    }

    /// Appends a result to the file.
    pub fn add(&self, row: Row) -> Result<()> {
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, rows) = &mut *guard;
        let end = file.metadata().context("cannot read the file of results")?.len();
        if let Err(error) = file.write_all(line(&row)?.as_bytes()) {
            // An incomplete line would make the file unreadable.
            let _ = file.set_len(end);
            return Err(error).context("cannot write the result of a run");
        }
        rows.push(row);
        Ok(())
    }

    /// Returns all rows, sorted by case, release and setting.
    pub fn into_sorted(self) -> Vec<Row> {
        let (_, mut rows) = self.file.into_inner().unwrap_or_else(PoisonError::into_inner);
        rows.sort_by(|a, b| key(&a.run).cmp(&key(&b.run)));
        rows
    }
}

fn key(run: &Run) -> (Kind, &str, u32, Setting) {
    (run.kind, &run.case, run.release, run.setting)
}

/// True if both are the same run, regardless of the seed.
pub fn is_same(a: &Run, b: &Run) -> bool {
    key(a) == key(b) && a.cores == b.cores
}

fn line(row: &Row) -> Result<String> {
    Ok(serde_json::to_string(row).context("cannot write a result as JSON")? + "\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a run without faults.
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
    fn written_rows_are_read_and_other_files_are_refused() {
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
