//! `lab.toml`: what a lab is called, what should be found, and how its VM is started. See lab/README.md.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A lab's manifest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Name of the folder.
    pub name: String,
    pub title: String,
    pub summary: String,
    /// Whether constants of the rules may be fitted to it.
    pub split: Split,
    /// `CODE`, `CODE:SUBJECT` or `CODE!ENTRY` (with that remedy) of what must be found when it is sick, and must not when it is cured.
    /// With a subject or a remedy, a notice is enough; of several with `|` between them one will do.
    #[serde(default)]
    pub expect: Vec<String>,
    /// Codes that may be found besides, above "notice", sick or cured.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Which of `expect` is the true cause, where not all are: the others follow from it.
    pub cause: Option<String>,
    /// Like `expect`, of what `beamtune locks` must find on an emulator that counts locks; a doctor of any other does not.
    #[serde(default)]
    pub counted: Vec<String>,
    #[serde(default = "first_release")]
    pub min_otp: u32,
    #[serde(default)]
    pub needs_root: bool,
    /// It shows what it shows also beside other work on the machine.
    #[serde(default)]
    pub robust: bool,
    /// Source in C of a native library, in the lab's folder.
    pub nif: Option<String>,
    /// Source in Elixir of the workload, in the lab's folder, in place of one in Erlang.
    pub elixir: Option<String>,
    /// Absent for a healthy lab.
    pub sick: Option<Setting>,
    pub cured: Setting,
    /// A second VM that drives the first one.
    pub driver: Option<Driver>,
}

/// What a lab may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Constants may be fitted to it, so it proves little.
    Calibration,
    /// Nothing may be fitted to it.
    Holdout,
}

fn first_release() -> u32 {
    23
}

/// CPUs of the machine that settings are for, unless another number is asked for.
pub const CORES: u32 = 2;

/// Flags whose values grow with the machine.
const OF_CORES: [&str; 2] = ["+S", "+SDcpu"];

/// How the VM is started.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Emulator flags.
    #[serde(default)]
    pub erl: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Parameters of the workload that take the place of drawn ones.
    #[serde(default)]
    pub params: BTreeMap<String, i64>,
    /// What is set up around the VM.
    #[serde(default)]
    pub host: HostSetting,
}

/// What is set up around the VM.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSetting {
    /// CPU quota of a control group made for the VM, in percent of one CPU.
    pub cpu_quota_pct: Option<u32>,
    /// Memory limit of a control group made for the VM, in megabytes of 1,000,000 bytes.
    pub memory_limit_mb: Option<u64>,
    /// CPUs that the VM may run on, as `taskset -c` takes them.
    pub cpus: Option<String>,
    /// Processes that compute on the same CPUs.
    #[serde(default)]
    pub neighbours: u32,
    /// Limit of open files.
    pub nofile: Option<u64>,
    /// Whether the VM is started again when it ends in error.
    #[serde(default)]
    pub restarts: bool,
}

/// The second VM.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// Function of the lab's module that it runs.
    pub function: String,
    #[serde(default)]
    pub erl: Vec<String>,
}

impl Setting {
    /// Its emulator flags for a machine of so many CPUs. A single scheduler is one on any machine: the lab is about one.
    pub fn flags(&self, cores: u32) -> Vec<String> {
        let scaled = |number: &str| match number.parse::<u32>() {
            Ok(number) if number.is_multiple_of(CORES) => (number / CORES * cores).to_string(),
            _ => number.to_owned(),
        };
        let before = [""].into_iter().chain(self.erl.iter().map(String::as_str));
        let flags = before.zip(&self.erl).map(|(before, flag)| match OF_CORES.contains(&before) {
            true => flag.split(':').map(scaled).collect::<Vec<_>>().join(":"),
            false => flag.clone(),
        });
        flags.collect()
    }
}

impl Manifest {
    /// Reads a manifest; errors name the line.
    pub fn parse(text: &str) -> Result<Manifest> {
        toml::from_str(text).context("no manifest of a lab")
    }

    /// The sick or the cured setting.
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
    fn schedulers_grow_with_the_machine_unless_there_is_to_be_one() {
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
