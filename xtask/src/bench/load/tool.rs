//! Load generators, ours and its peers: where they are installed, their command lines, and their results.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use beamtune_load::import;
use beamtune_model::load::LoadResult;

use super::placement::on_core;

/// Environment variable with the folder that is searched first for peers.
const FOLDER_VARIABLE: &str = "BEAMTUNE_PEERS";
/// Folder in the user's home where scripts/peers.sh installs peers.
const OWN_FOLDER: &str = ".cache/beamtune/peers/bin";
/// The value of a figure if its peer is not installed.
pub const NOT_INSTALLED: &str = "not installed";

/// A load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generator {
    /// `beamtune load`.
    Beamtune,
    /// wrk, which generates a closed load.
    Wrk,
    /// wrk2, which sends at a constant rate.
    Wrk2,
    /// oha, which supports both, with latency correction for a rate.
    Oha,
    /// nghttp2's h2load, with HTTP/1.1.
    H2load,
    /// Grafana k6.
    K6,
}

impl Generator {
    /// Name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Beamtune => "beamtune",
            Self::Wrk => "wrk",
            Self::Wrk2 => "wrk2",
            Self::Oha => "oha",
            Self::H2load => "h2load",
            Self::K6 => "k6",
        }
    }

    /// Returns the reader of the generator's results.
    fn reader(self) -> Option<import::Tool> {
        import::Tool::from_name(self.name())
    }

    /// Returns the option that prints the version. With it, wrk exits with a failure.
    fn version_option(self) -> &'static str {
        match self {
            Self::Wrk | Self::Wrk2 => "-v",
            Self::K6 => "version",
            Self::Beamtune | Self::Oha | Self::H2load => "--version",
        }
    }
}

/// The parameters of a load.
#[derive(Debug, Clone)]
pub struct Load {
    /// URL of the requests.
    pub url: String,
    /// Number of connections.
    pub connections: u32,
    /// Duration of the run.
    pub seconds: u32,
    /// Requests per second, at equal intervals if the generator supports that. `None`: each connection sends as soon as it gets a response.
    pub per_second: Option<u32>,
}

/// An installed generator.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The kind of generator.
    pub generator: Generator,
    program: PathBuf,
    version: String,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.generator.name(), self.version)
    }
}

impl Tool {
    /// Returns `beamtune load` of a binary.
    pub fn ours(program: &Path) -> Result<Tool> {
        Self::at(Generator::Beamtune, program.to_owned())
    }

    /// Returns a peer, if it is installed.
    pub fn find(generator: Generator) -> Result<Option<Tool>> {
        let own = env::var_os("HOME").map(|home| PathBuf::from(home).join(OWN_FOLDER));
        let named = env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = named.into_iter().chain(own).chain(env::split_paths(&path));
        let program = folders.map(|folder| folder.join(generator.name())).find(|program| program.is_file());
        program.map(|program| Self::at(generator, program)).transpose()
    }

    fn at(generator: Generator, program: PathBuf) -> Result<Tool> {
        let output = Command::new(&program)
            .arg(generator.version_option())
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let version = version_in(&String::from_utf8_lossy(&output.stdout));
        let version = version.with_context(|| format!("{} printed no version", program.display()))?;
        Ok(Tool { generator, program, version })
    }

    /// Returns the command for a load on a core; the files of the command are written to the folder.
    pub fn command(&self, load: &Load, core: usize, folder: &Path) -> Result<Command> {
        let mut command = on_core(core, &self.program)?;
        let Load { url, connections, seconds, per_second } = load;
        match self.generator {
            Generator::Beamtune => {
                command.args(["load", "--json", "--threads", "1"]);
                match per_second {
                    Some(rate) => command.args(["--even", "--rate", &rate.to_string()]).args([
                        "--connections",
                        &connections.to_string(),
                        "--for",
                        &format!("{seconds}s"),
                        url,
                    ]),
                    None => command.arg(scenario(load, folder)?),
                };
            }
            Generator::Wrk => {
                command.args(["--latency", "-t1"]);
                command.args([format!("-c{connections}"), format!("-d{seconds}s"), url.clone()]);
            }
            Generator::Wrk2 => {
                let rate = per_second.context("wrk2 needs a rate")?;
                command.args(["--latency", "-t1"]);
                command
                    .args([format!("-c{connections}"), format!("-d{seconds}s"), format!("-R{rate}")])
                    .arg(url);
            }
            Generator::Oha => {
                command.args(["--no-tui", "--output-format", "json", "-z", &format!("{seconds}s")]);
                command.args(["-c", &connections.to_string()]);
                if let Some(rate) = per_second {
                    command.args(["-q", &rate.to_string(), "--latency-correction"]);
                }
                command.arg(url);
            }
            Generator::H2load => {
                command.args(["--h1", "-t", "1", "-c", &connections.to_string(), "-D", &seconds.to_string()]);
                if let Some(rate) = per_second {
                    command.arg(format!("--rps={}", f64::from(*rate) / f64::from(*connections)));
                }
                command.arg(url);
            }
            Generator::K6 => {
                // By default, k6 sends usage statistics to Grafana.
                command.env("K6_NO_USAGE_REPORT", "true");
                command.args(["run", "--no-color", "--summary-trend-stats", "avg,min,med,max,p(90),p(99)"]);
                command.arg("--summary-export").arg(summary(folder)).arg(script(load, folder)?);
            }
        }
        Ok(command)
    }

    /// Reads the results: k6 writes them to the folder, the others print them.
    pub fn result(&self, printed: &Path, folder: &Path) -> Result<LoadResult> {
        let file = if self.generator == Generator::K6 { summary(folder) } else { printed.to_owned() };
        let read = fs::File::open(&file).with_context(|| format!("{self} wrote no results"))?;
        let name = self.to_string();
        Ok(import::read_from(&name, read, self.generator.reader())?)
    }
}

/// Returns the second word, without a prefix: `wrk debian/4.1.0-3+b2 [epoll] …`, `oha 1.16.0`, `h2load nghttp2/1.52.0`, `k6 v1.8.1 (…)`.
fn version_in(output: &str) -> Option<String> {
    let word = output.split_whitespace().nth(1)?;
    let word = word.rsplit('/').next().unwrap_or(word);
    Some(word.strip_prefix('v').unwrap_or(word).to_owned())
}

/// Writes the scenario of a plain URL, but without a ramp, since peers also open all connections at once.
fn scenario(load: &Load, folder: &Path) -> Result<OsString> {
    let Load { url, connections, seconds, .. } = load;
    let file = folder.join("scenario.toml");
    let text = format!(
        "[load]\nfor = \"{seconds}s\"\n\n[devices.get]\ncount = {connections}\ntarget = \"{}\"\n\
         steps = [{{ request = \"/\" }}]\n",
        url.trim_end_matches('/')
    );
    fs::write(&file, text)?;
    Ok(file.into())
}

/// Writes the script of k6, which has no command-line options for a load.
fn script(load: &Load, folder: &Path) -> Result<PathBuf> {
    let Load { url, connections, seconds, per_second } = load;
    let executor = match per_second {
        Some(rate) => format!(
            "executor: 'constant-arrival-rate', rate: {rate}, timeUnit: '1s', preAllocatedVUs: {connections}"
        ),
        None => format!("executor: 'constant-vus', vus: {connections}"),
    };
    let file = folder.join("script.js");
    let text = format!(
        "import http from 'k6/http';\n\
         export const options = {{ discardResponseBodies: true,\n\
         scenarios: {{ get: {{ {executor}, duration: '{seconds}s', gracefulStop: '2s' }} }} }};\n\
         export default function () {{ http.get('{url}'); }}\n"
    );
    fs::write(&file, text)?;
    Ok(file)
}

fn summary(folder: &Path) -> PathBuf {
    folder.join("summary.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_second_word_without_its_prefix() {
        let check = |output: &str, expect: Option<&str>| {
            assert_eq!(version_in(output).as_deref(), expect, "{output}");
        };
        check("wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\n", Some("4.1.0-3+b2"));
        check("oha 1.16.0\n", Some("1.16.0"));
        check("h2load nghttp2/1.52.0\n", Some("1.52.0"));
        check("k6 v1.8.1 (go1.26.8, linux/amd64)\n", Some("1.8.1"));
        check("", None);
    }

    #[test]
    fn every_generator_has_a_reader() {
        use Generator::{Beamtune, H2load, K6, Oha, Wrk, Wrk2};
        assert!([Beamtune, Wrk, Wrk2, Oha, H2load, K6].iter().all(|generator| generator.reader().is_some()));
    }
}
