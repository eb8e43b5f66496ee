//! The Erlang installation that compiles and runs a lab.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::host::Conditions;

/// The Erlang installation that runs a lab.
#[derive(Debug, Clone, Default)]
pub struct Erlang {
    /// Root file system of the Erlang installation, entered by chroot; `None`: that of this host.
    pub root: Option<PathBuf>,
    /// The `erl` program; `None`: the one on the PATH.
    pub erl: Option<PathBuf>,
}

impl Erlang {
    /// Returns a command that runs in the root file system of this Erlang, under these conditions.
    pub(crate) fn command(&self, program: &str, conditions: &Conditions) -> Command {
        match &self.root {
            Some(root) => {
                let mut command = conditions.command("chroot");
                command.arg(root).arg(program);
                command
            }
            None => conditions.command(program),
        }
    }

    pub(crate) fn erl(&self) -> String {
        self.erl.as_ref().map_or_else(|| "erl".to_owned(), |path| path.display().to_string())
    }

    pub(crate) fn erlc(&self) -> String {
        match &self.erl {
            // There may be no erlc next to a custom erl script.
            Some(path) if path.with_file_name("erlc").exists() => {
                path.with_file_name("erlc").display().to_string()
            }
            _ => "erlc".to_owned(),
        }
    }

    /// Converts a path of this host to a path in this Erlang's root file system.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => Path::new("/").join(path.strip_prefix(root).unwrap_or(path)),
            None => path.to_owned(),
        }
    }
}
