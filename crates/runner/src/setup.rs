//! How the trials of a study are run.

use std::path::PathBuf;

use beamtune_load::scenario::{Faults, ScenarioText};
use serde::{Deserialize, Serialize};

use crate::command::LoadCommand;
use crate::ready::Ready;

/// How each trial of a study is run; stored with the study.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The command line that starts the target.
    pub start: String,
    /// Working directory of the command.
    pub folder: PathBuf,
    /// When the target counts as ready.
    pub ready: Ready,
    /// Time limit for the target to become ready, in seconds.
    pub ready_within_s: f64,
    /// The command line that stops the target; `None`: a signal asks its VM to terminate.
    pub stop: Option<String>,
    /// The node to measure, if the target has several VMs.
    pub node: Option<String>,
    /// The load.
    pub load: Load,
    /// The port that was chosen for the target, passed to its commands as `BEAMTUNE_PORT`.
    pub port: Option<u16>,
    /// Length of the measured window, in seconds.
    pub window_s: u32,
    /// Maximum warm-up time, in seconds.
    pub warm_up_s: u32,
    /// CPUs of the target and of the load generator; `None`: both use all.
    pub pins: Option<Pins>,
}

/// The load of a target.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// A scenario, run by beamtune.
    Scenario(ScenarioText),
    /// A command that ends, such as another load generator.
    Command(LoadCommand),
    /// No load: the target is a job, which must end within this time.
    Job {
        /// The time limit, in seconds.
        within_s: f64,
    },
}

impl Load {
    /// Returns a name for messages.
    pub fn name(&self) -> &str {
        match self {
            Load::Scenario(written) => &written.name,
            Load::Command(load) => &load.command,
            Load::Job { .. } => "the job itself",
        }
    }

    /// Returns the addresses of a scenario's targets; empty for other loads.
    ///
    /// # Errors
    /// If the scenario is invalid.
    pub fn addresses(&self) -> Result<Vec<(String, u16)>, Faults> {
        let Load::Scenario(written) = self else { return Ok(Vec::new()) };
        Ok(written.read(&[])?.targets().iter().map(|target| (target.host.clone(), target.port)).collect())
    }
}

/// The separate CPUs of target and load generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins {
    /// CPUs of the target.
    pub target: Vec<usize>,
    /// CPUs of the generator, and of beamtune itself.
    pub generator: Vec<usize>,
}

impl Pins {
    /// Splits the CPUs: a quarter, but at least one, is for the generator. `None` if there is a single CPU.
    pub fn apart(cpus: &[usize]) -> Option<Pins> {
        let generator = (cpus.len() / 4).max(1);
        let (generator, target) = cpus.split_at_checked(generator)?;
        (!target.is_empty()).then(|| Pins { target: target.to_vec(), generator: generator.to_vec() })
    }
}
