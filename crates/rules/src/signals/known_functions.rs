//! Functions and libraries that are known to be expensive: `data/functions.toml`.

use std::sync::LazyLock;

use beamtune_model::Period;
use serde::Deserialize;

use crate::signals::{data, stack};

/// Returns the replacement for a function of OTP or Elixir that is known to be expensive.
pub(crate) fn instead(function: &str) -> Option<&'static str> {
    let is_known =
        |known: &&KnownFunction| known.beside.is_empty() && known.calling.is_empty() && known.is(function);
    FUNCTIONS.function.iter().find(is_known).map(|known| known.instead.as_str())
}

/// Content of `data/functions.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Functions {
    pub function: Vec<KnownFunction>,
    pub library: Vec<Library>,
}

/// A function of OTP or Elixir that is known to be expensive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownFunction {
    begins: Vec<String>,
    /// The function is meant only if it has called one of these.
    #[serde(default)]
    calling: Vec<String>,
    /// The function is meant only if one of these is on the stack of some process.
    #[serde(default)]
    beside: Vec<String>,
    /// What is expensive about it.
    pub what: String,
    pub instead: String,
    pub source: String,
    /// Whether it logs messages.
    #[serde(default)]
    pub is_logging: bool,
}

impl KnownFunction {
    pub(crate) fn is(&self, function: &str) -> bool {
        stack::begins(function, &self.begins)
    }

    /// Whether it has called one of the functions in `calling`, if there are any.
    pub(crate) fn calls(&self, called: &[&str]) -> bool {
        self.calling.is_empty() || called.iter().any(|function| stack::begins(function, &self.calling))
    }

    /// Whether one of the functions in `beside`, if there are any, was sampled on the node.
    pub(crate) fn fits(&self, period: &Period) -> bool {
        let samples = period.work_samples.iter().chain(&period.profiled_samples);
        let mut stacks = samples.flat_map(|one| &one.stack);
        self.beside.is_empty() || stacks.any(|function| stack::begins(function, &self.beside))
    }
}

/// A library, or a part of OTP, whose work is spread over many functions and processes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Library {
    modules: Vec<String>,
    pub name: String,
    pub instead: String,
    /// Whether it formats terms as text, as for the log.
    #[serde(default)]
    pub formats: bool,
}

/// All known functions, for tests.
#[cfg(test)]
pub(crate) fn known_functions() -> &'static [KnownFunction] {
    &FUNCTIONS.function
}

pub(crate) static FUNCTIONS: LazyLock<Functions> =
    LazyLock::new(|| data("functions", include_str!("../../data/functions.toml")));

impl Library {
    pub(crate) fn is_of(&self, function: &str) -> bool {
        self.modules.iter().any(|modules| {
            let rest = function.strip_prefix(modules.as_str());
            rest.is_some_and(|rest| modules.contains(':') || rest.starts_with([':', '_', '.']))
        })
    }
}

/// What to do instead of a known function or library.
#[derive(Debug)]
pub(crate) struct Instead {
    pub change: &'static str,
    /// Where it is documented.
    pub source: Option<&'static str>,
    /// Whether it concerns logging, so that its use depends on the log level.
    pub is_logging: bool,
}

impl KnownFunction {
    pub(crate) fn instead(&'static self) -> Instead {
        Instead { change: &self.instead, source: Some(&self.source), is_logging: self.is_logging }
    }
}

impl Library {
    pub(crate) fn instead(&'static self) -> Instead {
        Instead { change: &self.instead, source: None, is_logging: false }
    }
}

/// True for a function of the program itself, and not of OTP, of Elixir or of a known library.
pub(crate) fn is_own(function: &str) -> bool {
    stack::is_of_program(function) && known_name(function).is_none()
}

pub(crate) fn library_of(function: &str) -> Option<&'static Library> {
    FUNCTIONS.library.iter().find(|library| library.is_of(function))
}

/// Returns the libraries of these functions, each once.
pub(crate) fn libraries_of<'a>(functions: impl Iterator<Item = &'a str>) -> Vec<&'static Library> {
    let mut libraries: Vec<&'static Library> = Vec::new();
    for library in functions.filter_map(library_of) {
        if !libraries.iter().any(|one| std::ptr::eq(*one, library)) {
            libraries.push(library);
        }
    }
    libraries
}

/// Returns the name of the library or known function that a function belongs to.
pub(crate) fn known_name(function: &str) -> Option<&'static str> {
    let known = || FUNCTIONS.function.iter().find(|known| known.is(function));
    library_of(function).map(|library| library.name.as_str()).or_else(|| Some(known()?.what.as_str()))
}
