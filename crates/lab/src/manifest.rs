//! `lab.toml`: the name of a lab, its expected findings, and how it is started. See lab/README.md.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A lab's manifest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The name of the folder.
    pub name: String,
    /// The fault, in a few words.
    pub title: String,
    /// The fault, in one sentence.
    pub summary: String,
    /// Whether thresholds may be fitted to the lab.
    pub split: Split,
    /// Findings of the sick variant that the healthy one must not have: `CODE`, `CODE:SUBJECT` or `CODE!ENTRY` (with a remedy of that
    /// entry). If only the code is given, the finding must be above "notice". `|` separates alternatives.
    #[serde(default)]
    pub expect: Vec<String>,
    /// Findings above "notice" that both variants may have.
    #[serde(default)]
    pub allow: Vec<String>,
    /// The root cause among `expect`, if the others follow from it.
    pub cause: Option<String>,
    /// Like `expect`, for findings of `beamtune locks` on an emulator with lock counting. `doctor` does not report them on a stock
    /// emulator.
    #[serde(default)]
    pub counted: Vec<String>,
    /// The first OTP release that can run the lab.
    #[serde(default = "first_release")]
    pub min_otp: u32,
    /// True if the lab sets host conditions that need root.
    #[serde(default)]
    pub needs_root: bool,
    /// True if other work on the host does not hide the fault of the lab.
    #[serde(default)]
    pub robust: bool,
    /// C source of a native library, in the lab's folder.
    pub nif: Option<String>,
    /// Elixir source of the workload, in the lab's folder, instead of an Erlang module.
    pub elixir: Option<String>,
    /// The sick variant; absent for a lab without a fault.
    pub sick: Option<Setting>,
    /// The healthy variant.
    pub cured: Setting,
    /// A second VM that drives the first one.
    pub driver: Option<Driver>,
}

/// Whether a lab may be used for calibration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Thresholds may be fitted to the lab, so its results prove little.
    Calibration,
    /// Thresholds must not be fitted to the lab.
    Holdout,
}

fn first_release() -> u32 {
    23
}

/// Number of CPUs for which the settings are written.
pub const CORES: u32 = 2;

/// Flags whose values scale with the number of CPUs.
const SCALED_FLAGS: [&str; 2] = ["+S", "+SDcpu"];

/// How a VM is started.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Emulator flags.
    #[serde(default)]
    pub erl: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Parameters of the workload; the others are drawn from the seed.
    #[serde(default)]
    pub params: BTreeMap<String, i64>,
    /// Host conditions for the VM.
    #[serde(default)]
    pub host: HostSetting,
}

/// Host conditions for a VM.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSetting {
    /// CPU quota of a control group for the VM, in percent of one CPU.
    pub cpu_quota_pct: Option<u32>,
    /// Memory limit of a control group for the VM, in megabytes of 1,000,000 bytes.
    pub memory_limit_mb: Option<u64>,
    /// CPUs that the VM may run on, in the syntax of `taskset -c`.
    pub cpus: Option<String>,
    /// Number of neighbours: CPU-bound processes on the same CPUs.
    #[serde(default)]
    pub neighbours: u32,
    /// Limit of open files.
    pub nofile: Option<u64>,
    /// True if the VM is restarted when it fails.
    #[serde(default)]
    pub restarts: bool,
}

/// A second VM, which generates the load of the lab.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// The function that it runs, in the lab's module.
    pub function: String,
    /// Emulator flags.
    #[serde(default)]
    pub erl: Vec<String>,
}

impl Setting {
    /// Returns the emulator flags for this number of CPUs. An odd value, such as a single scheduler, is part of the fault and is not
    /// scaled.
    pub fn flags(&self, cores: u32) -> Vec<String> {
        let scaled = |number: &str| match number.parse::<u32>() {
            Ok(number) if number.is_multiple_of(CORES) => (number / CORES * cores).to_string(),
            _ => number.to_owned(),
        };
        let before = [""].into_iter().chain(self.erl.iter().map(String::as_str));
        let flags = before.zip(&self.erl).map(|(before, flag)| match SCALED_FLAGS.contains(&before) {
            true => flag.split(':').map(scaled).collect::<Vec<_>>().join(":"),
            false => flag.clone(),
        });
        flags.collect()
    }
}

impl Manifest {
    /// Parses a manifest. Errors contain the line.
    pub fn parse(text: &str) -> Result<Manifest> {
        toml::from_str(text).context("not a valid lab manifest")
    }

    /// Returns the setting of the healthy variant (`cured`) or of the sick one.
    pub fn setting(&self, cured: bool) -> &Setting {
        match &self.sick {
            Some(sick) if !cured => sick,
            _ => &self.cured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduler_counts_scale_with_cpus_unless_there_is_only_one() {
        let check = |erl: &[&str], cores: u32, expect: &[&str]| {
            let erl = erl.iter().map(|flag| (*flag).to_owned()).collect();
            assert_eq!(Setting { erl, ..Setting::default() }.flags(cores), expect, "{cores}");
        };
        check(&["+S", "2:2", "+Q", "2048"], 2, &["+S", "2:2", "+Q", "2048"]);
        check(&["+S", "2:2", "+Q", "2048"], 64, &["+S", "64:64", "+Q", "2048"]);
        check(&["+S", "8:8", "+SDcpu", "8:8"], 3, &["+S", "12:12", "+SDcpu", "12:12"]);
        check(&["+S", "1:1", "+SDio", "4"], 16, &["+S", "1:1", "+SDio", "4"]);
        check(&[], 4, &[]);
    }
}
