//! The option `--thresholds FILE`.

use std::path::Path;
use std::sync::Arc;

use beamtune_model::{Period, Thresholds};
use beamtune_rules::thresholds;

use crate::files::Snapshot;

/// Maximum size of the file; one with all thresholds has 20 kB.
const MAX_BYTES: usize = 1_000_000;

/// The option `--thresholds`.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ThresholdArgs {
    /// Use the thresholds in this TOML file (see beamtune thresholds)
    ///
    /// Thresholds that the file does not contain keep their defaults.
    #[arg(long, value_name = "FILE", value_parser = read)]
    thresholds: Option<Thresholds>,
}

impl ThresholdArgs {
    /// Sets the thresholds of a period.
    pub fn apply(&self, mut period: Period) -> Arc<Period> {
        period.thresholds = self.thresholds.clone().unwrap_or_default();
        Arc::new(period)
    }
}

/// Reads a file of thresholds. Errors contain the file name and the line.
pub fn read(path: &str) -> Result<Thresholds, String> {
    let snapshot =
        Snapshot::read(Path::new(path), MAX_BYTES).map_err(|error| format!("{path}: {error:#}"))?;
    if snapshot.bytes.len() > MAX_BYTES {
        return Err(format!("{path} is larger than {MAX_BYTES} bytes"));
    }
    let text = std::str::from_utf8(&snapshot.bytes).map_err(|_| format!("{path} is not UTF-8"))?;
    thresholds::parse(path, text).map_err(|error| error.to_string())
}
