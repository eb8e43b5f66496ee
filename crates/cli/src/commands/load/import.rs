//! `beamtune load import`: reads the results of other generators, and says what they can know.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use beamtune_load::import::{self, Tool};
use beamtune_model::load::LoadResult;

/// Read the results of k6, Locust, Tsung, Gatling, wrk, wrk2, h2load, emqtt-bench, oha or PerfTest, or those that were kept of ours
/// (docs/load-import.md).
#[derive(clap::Args)]
pub struct Args {
    /// Files that one tool wrote; of several, counts and histograms are added up.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The tool, where its text does not tell it from another one's (wrk2 without --latency).
    #[arg(long, value_name = "TOOL", value_parser = tool)]
    tool: Option<Tool>,
    /// Print the result as JSON (docs/load-result.schema.json).
    #[arg(long)]
    json: bool,
    /// Write the result as JSON to a file too.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn tool(name: &str) -> Result<Tool, String> {
    Tool::named(name).ok_or_else(|| {
        let known: Vec<&str> = Tool::ALL.iter().map(|tool| tool.name()).collect();
        format!("no tool {name:?}; there are {}", known.join(", "))
    })
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut results = Vec::new();
    for path in &args.files {
        results.push((path.display().to_string(), read(path, args.tool)?));
    }
    let result = match results.len() {
        1 => results.remove(0).1,
        _ => import::merge(results)?,
    };
    super::tell(&result, args.json, args.output.as_deref())?;
    Ok(super::status(&result))
}

/// A file that we or another tool wrote.
pub fn read(path: &Path, tool: Option<Tool>) -> Result<LoadResult> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    Ok(import::read_from(&name, file, tool)?)
}
