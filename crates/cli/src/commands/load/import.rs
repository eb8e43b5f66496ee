//! `beamtune load import`: reads the results of other load generators.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use beamtune_load::import::{self, Tool};
use beamtune_model::load::LoadResult;

/// Read the results of other load generators
///
/// Supported are k6, Locust, Tsung, Gatling, wrk, wrk2, h2load, emqtt-bench, oha and PerfTest, and results of beamtune load
/// (docs/load-import.md).
#[derive(clap::Args)]
pub struct Args {
    /// Files of one tool; counts and histograms of several files are added
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Tool, if its output is ambiguous (wrk2 without --latency)
    #[arg(long, value_name = "TOOL", value_parser = tool)]
    tool: Option<Tool>,
    /// Print the result as JSON (docs/load-result.schema.json)
    #[arg(long)]
    json: bool,
    /// Write the result as JSON to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn tool(name: &str) -> Result<Tool, String> {
    Tool::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Tool::ALL.iter().map(|tool| tool.name()).collect();
        format!("unknown tool {name:?}; use one of: {}", known.join(", "))
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
    super::print_result(&result, args.json, args.output.as_deref())?;
    Ok(super::status(&result))
}

/// Reads a file of beamtune or of another tool.
pub fn read(path: &Path, tool: Option<Tool>) -> Result<LoadResult> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    Ok(import::read_from(&name, file, tool)?)
}
