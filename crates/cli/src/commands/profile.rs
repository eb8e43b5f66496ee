//! `beamtune profile`: where the CPU time of a VM goes, as call stacks from Erlang to the kernel.

mod diff;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use beamtune_host::tree::LocalTree;
use beamtune_profile::{Profiler, threads};
use beamtune_recording::{Stop, SystemClock};
use beamtune_report::profile::{self, Origin, Page};

use crate::access::AccessArgs;
use crate::recorder::stop_on_signals;
use crate::target::LiveTarget;
use crate::terminal;

/// Show where the CPU time goes: Erlang, native code and kernel
///
/// Samples the threads of a VM on this host from outside. The VM needs no flag and no restart, and is neither stopped nor written to. A sample costs
/// 5 µs of a thread's time.
///
/// Requires permission to read the VM's memory and to sample its threads: run it as the VM's user or as root. Kernel functions
/// require root or CAP_PERFMON.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// Node name or process id [default: the only VM]
    target: Option<String>,
    /// Time to sample
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration, default_value = "10s")]
    length: Duration,
    /// Samples per second of CPU time of each thread
    #[arg(long, value_name = "N", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rate: u32,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Write to this file instead of the terminal
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    access: AccessArgs,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    Diff(diff::Args),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Functions and call tree
    Text,
    /// One line for each stack, for flamegraph.pl and others
    Collapsed,
    /// For go tool pprof
    Pprof,
    /// For https://www.speedscope.app
    Speedscope,
    /// For https://profiler.firefox.com
    Firefox,
    /// Flame graph: one page that works offline
    Html,
    /// All samples; beamtune profile diff reads it
    Json,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(Subcommand::Diff(args)) = &args.command {
        return diff::run(args);
    }
    let live = LiveTarget::find(args.target.as_deref(), &args.access)?;
    if args.format == Format::Pprof && args.output.is_none() {
        bail!("pprof files are binary: name a file with -o");
    }
    let Some(vm) = &live.vm else {
        bail!("{} runs on another host: run beamtune profile there", live.label);
    };
    let pid = vm.identity.pid;
    let stop = Stop::default();
    let clock = SystemClock::from(SystemClock::wall_now(), stop.clone());
    let snapshot = threads::snapshot(&LocalTree::default(), pid, &clock)?;
    let profiler = Profiler::open(pid, &snapshot.threads, args.rate)?;
    stop_on_signals(&stop)?;
    let bar = terminal::Progress::new(&format!("sampling {}", live.label), Some(args.length));
    let begin = Instant::now();
    let begin_unix_ms =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| 1e3 * time.as_secs_f64());
    let profile = profiler.run(args.length, || {
        let elapsed = begin.elapsed();
        bar.set(elapsed, Some(args.length.saturating_sub(elapsed)), 0, None);
        stop.is_requested()
    });
    bar.clear();
    let profile = profile?;
    let origin = Origin { begin_unix_ms, pid };
    let page = Page { node: &live.label, rate: args.rate, profile: &profile };
    let content = match args.format {
        Format::Text => {
            return write_page(&profile::render(&page, terminal::style()), args.output.as_deref());
        }
        Format::Collapsed => profile::collapsed(&profile).into_bytes(),
        Format::Firefox => profile::firefox(&page, origin).into_bytes(),
        Format::Html => profile::html(&page).into_bytes(),
        Format::Json => profile::json(&page).into_bytes(),
        Format::Pprof => profile::pprof(&profile, args.rate),
        Format::Speedscope => profile::speedscope(&profile, &live.label).into_bytes(),
    };
    write(&content, args.output.as_deref())
}

/// Writes a page for people.
fn write_page(page: &str, output: Option<&Path>) -> Result<ExitCode> {
    if output.is_some() {
        return write(page.as_bytes(), output);
    }
    terminal::print(page);
    Ok(ExitCode::SUCCESS)
}

/// Writes a file for a program, unchanged.
fn write(content: &[u8], output: Option<&Path>) -> Result<ExitCode> {
    match output {
        Some(file) => {
            std::fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))?;
        }
        None => terminal::print_bytes(content),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Cli::try_parse_from(["profile"].iter().chain(words)).map(|cli| cli.args)
    }

    #[test]
    fn a_target_is_no_subcommand_and_diff_needs_two_files() {
        for words in [&["shop@web1"][..], &["4711", "--rate", "999"], &["--for", "3s"], &["diff@web1"]] {
            assert!(parse(words).unwrap().command.is_none(), "{words:?}");
        }
        let diff = parse(&["diff", "before.json", "after.json", "--format", "html"]).unwrap();
        assert!(diff.command.is_some() && diff.target.is_none());
        for words in [&["diff"][..], &["diff", "a.json"], &["--rate", "99", "diff", "a.json", "b.json"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
