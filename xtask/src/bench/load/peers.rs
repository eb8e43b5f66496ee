//! Builds the programs of peers/: clients on popular crates, and an echo server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::process::output;

/// The built programs.
pub struct Peers {
    folder: PathBuf,
    lock: String,
}

impl Peers {
    /// Builds the programs that are missing or outdated.
    pub fn build(repository: &Path) -> Result<Peers> {
        let (source, target) = (repository.join("peers"), repository.join("target/peers"));
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]);
        output(build.arg(source.join("Cargo.toml")).arg("--target-dir").arg(&target))?;
        let lock = fs::read_to_string(source.join("Cargo.lock")).context("cannot read peers/Cargo.lock")?;
        Ok(Peers { folder: target.join("release"), lock })
    }

    /// Returns the path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the name and locked version of a crate: `rumqttc 0.25.1`.
    pub fn named(&self, package: &str) -> Result<String> {
        let version = version_in(&self.lock, package);
        Ok(format!("{package} {}", version.with_context(|| format!("no {package} in peers/Cargo.lock"))?))
    }
}

/// Returns the version of a package, which is on the line after its name.
fn version_in<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| **line != name).skip(1);
    lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_package_is_on_the_line_after_its_name() {
        let lock = "[[package]]\nname = \"tokio-util\"\nversion = \"0.7.20\"\n\n[[package]]\nname = \"tokio\"\nversion = \"1.54.1\"\n";
        assert_eq!(version_in(lock, "tokio"), Some("1.54.1"));
        assert_eq!(version_in(lock, "to"), None);
    }
}
