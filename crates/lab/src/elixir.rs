//! Compiles workloads written in Elixir, with the Elixir of the system that runs them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::erlang::Erlang;
use crate::host::Conditions;

/// Applications of Elixir that a workload may use.
const APPLICATIONS: [&str; 2] = ["elixir", "logger"];

const INSTALL: &str = "is Elixir installed? (on Debian: apt-get install elixir)";

/// True if Elixir is installed on the system of this Erlang.
pub fn is_installed(erlang: &Erlang) -> bool {
    let mut command = erlang.command("elixirc", &Conditions::default());
    command.arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Compiles a source into the folder of the lab's modules. Returns the additional code paths of the VM.
pub fn compile(name: &str, text: &[u8], modules: &Path, erlang: &Erlang) -> Result<Vec<PathBuf>> {
    let source = modules.join(name);
    std::fs::write(&source, text).with_context(|| format!("cannot write {}", source.display()))?;
    let none = Conditions::default();
    let mut command = erlang.command("elixirc", &none);
    // The workload calls the lab's own modules.
    command
        .arg("-pa")
        .arg(erlang.inside(modules))
        .arg("-o")
        .arg(erlang.inside(modules))
        .arg(erlang.inside(&source));
    let output = command.output().with_context(|| format!("cannot run elixirc: {INSTALL}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!(
            "the lab's Elixir source does not compile ({INSTALL}):\n{}{errors}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    let mut command = erlang.command("elixir", &none);
    command.args(["-e", "IO.write(Path.dirname(Path.expand(:code.lib_dir(:elixir))))"]);
    let output = command.output().with_context(|| format!("cannot run elixir: {INSTALL}"))?;
    let folder = String::from_utf8_lossy(&output.stdout).into_owned();
    let library = folder.trim().trim_start_matches('/');
    if !output.status.success() || library.is_empty() {
        bail!(
            "elixir does not report the folder of its modules: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let root = erlang.root.clone().unwrap_or_else(|| PathBuf::from("/"));
    Ok(APPLICATIONS.iter().map(|application| root.join(library).join(application).join("ebin")).collect())
}
