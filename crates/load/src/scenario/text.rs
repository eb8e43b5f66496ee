//! The text of a scenario, as a study or a worker process stores it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Faults, QuickLoad, Scenario};
use crate::LoadError;

/// The text of a scenario: read from a file, or generated for a URL.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScenarioText {
    /// The file or URL as the user wrote it.
    pub name: String,
    /// The scenario as TOML.
    pub text: String,
    /// The folder of the files that the scenario refers to.
    pub folder: PathBuf,
}

impl ScenarioText {
    /// Generates the scenario for a URL.
    ///
    /// # Errors
    /// [`LoadError::Quick`].
    pub fn of_url(url: &str, quick: &QuickLoad) -> Result<Self, LoadError> {
        let text = Scenario::quick_text(url, quick)?;
        Ok(Self { name: url.to_owned(), text, folder: PathBuf::from(".") })
    }

    /// Reads a scenario file.
    ///
    /// # Errors
    /// [`LoadError::ScenarioFile`].
    pub fn of_file(target: &str) -> Result<Self, LoadError> {
        let text = std::fs::read_to_string(target)
            .map_err(|cause| LoadError::ScenarioFile { file: target.to_owned(), cause })?;
        let folder = Path::new(target).parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self { name: target.to_owned(), text, folder })
    }

    /// Parses the scenario. `sources`, if not empty, replace its source addresses.
    ///
    /// # Errors
    /// If the scenario is invalid.
    pub fn read(&self, sources: &[IpAddr]) -> Result<Scenario, Faults> {
        let mut scenario =
            Scenario::parse(&self.name, &self.text, &|file| std::fs::read(self.folder.join(file)))?;
        if !sources.is_empty() {
            scenario.kinds.iter_mut().for_each(|kind| sources.clone_into(&mut kind.sources));
        }
        Ok(scenario)
    }
}
