//! `--thresholds FILE`: thresholds of rules that a person has changed.

use std::path::Path;
use std::sync::Arc;

use beamtune_model::{Period, Thresholds};
use beamtune_rules::thresholds;

use crate::files::Snapshot;

/// A file of all thresholds has 20 kB; a larger one is something else.
const MAX_BYTES: usize = 1_000_000;

/// Thresholds to judge by.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ThresholdArgs {
    /// Judge by the thresholds in this TOML file; those that it does not name stay as they are (see beamtune thresholds).
    #[arg(long, value_name = "FILE", value_parser = read)]
    thresholds: Option<Thresholds>,
}

impl ThresholdArgs {
    /// The period with these thresholds, ready to be judged.
    pub fn apply(&self, mut period: Period) -> Arc<Period> {
        period.thresholds = self.thresholds.clone().unwrap_or_default();
        Arc::new(period)
    }
}

/// Reads a file of thresholds. What is wrong with it names file and line.
pub fn read(path: &str) -> Result<Thresholds, String> {
    let snapshot =
        Snapshot::read(Path::new(path), MAX_BYTES).map_err(|error| format!("{path}: {error:#}"))?;
    if snapshot.bytes.len() > MAX_BYTES {
        return Err(format!("{path} is larger than {MAX_BYTES} bytes"));
    }
    let text = std::str::from_utf8(&snapshot.bytes).map_err(|_| format!("{path} is not UTF-8"))?;
    thresholds::parse(path, text).map_err(|error| error.to_string())
}
