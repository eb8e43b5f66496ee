//! `beamtune profile`: where the CPU time of a VM goes, as call stacks from Erlang to the kernel.

mod diff;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use beamtune_model::{Profile, facts};
use beamtune_node::record::RecordOptions;
use beamtune_node::target::{LiveTarget, ResolvedTarget};
use beamtune_profile::Profiler;
use beamtune_recording::{Selection, Stop};
use beamtune_report::profile::{self, Origin, Page};

use super::diagnose;
use crate::access::AccessArgs;
use crate::recorder::record_node;
use crate::signals::stop_on_signals;
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
    /// Node name, process id, or recording [default: the only VM]
    target: Option<String>,
    /// What to sample
    #[arg(long, value_enum, value_name = "VIEW", default_value = "cpu")]
    view: View,
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
enum View {
    /// CPU time of all threads, from outside; if that is not possible, safe-points
    Cpu,
    /// Running processes, sampled within the node
    SafePoints,
    /// Waiting processes: where they wait, weighted by time
    Waits,
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
    if args.format == Format::Pprof && args.output.is_none() {
        bail!("pprof files are binary: name a file with -o");
    }
    let Taken { name, profile, origin } =
        match ResolvedTarget::find(args.target.as_deref(), &args.access.options())? {
            ResolvedTarget::Recording(path) => recorded(args, &path)?,
            ResolvedTarget::Live(live) => sampled(args, &live)?,
        };
    let page = Page { node: &name, profile: &profile };
    let content = match args.format {
        Format::Text => {
            return write_page(&profile::render(&page, terminal::style()), args.output.as_deref());
        }
        Format::Collapsed => profile::collapsed(&profile).into_bytes(),
        Format::Firefox => profile::firefox(&page, origin).into_bytes(),
        Format::Html => profile::html(&page).into_bytes(),
        Format::Json => profile::json(&page).into_bytes(),
        Format::Pprof => profile::pprof(&profile),
        Format::Speedscope => profile::speedscope(&profile, &name).into_bytes(),
    };
    write(&content, args.output.as_deref())
}

/// A profile, with the name of its node.
struct Taken {
    name: String,
    profile: Profile,
    origin: Origin,
}

/// The profile in a recording.
fn recorded(args: &Args, path: &Path) -> Result<Taken> {
    let period = diagnose::read(path)?;
    let incarnation = period.incarnation.clone();
    let origin = Origin {
        begin_unix_ms: incarnation.as_ref().map_or(0.0, |life| life.wall0 as f64 / 1e6),
        pid: incarnation.as_ref().and_then(|life| life.os_pid).unwrap_or_default(),
    };
    let name = incarnation
        .map(|life| life.node)
        .filter(|node| !node.is_empty())
        .unwrap_or_else(|| path.display().to_string());
    let profile = match args.view {
        View::Cpu => period.profile.clone().with_context(|| {
            let why =
                period.facts.get(facts::PROFILE_MISSING).map_or(String::new(), |why| format!(": {why}"));
            format!(
                "{} contains no CPU profile{why}; beamtune doctor and record --profile take one",
                path.display()
            )
        })?,
        View::SafePoints => Profile::of_safe_points(&period, beamtune_rules::erlang_cores(&period)?),
        View::Waits => Profile::of_waits(&period),
    };
    Ok(Taken { name, profile, origin })
}

/// Samples a node: its threads, or its processes.
fn sampled(args: &Args, live: &LiveTarget) -> Result<Taken> {
    let pid = live.vm.as_ref().map_or(0, |vm| vm.identity.pid);
    let begin_unix_ms =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| 1e3 * time.as_secs_f64());
    let (name, origin) = (live.label.clone(), Origin { begin_unix_ms, pid });
    let refused = match (args.view, &live.vm) {
        (View::Cpu, Some(vm)) => match Profiler::of_process(vm.identity.pid, args.rate) {
            Ok(profiler) => {
                return Ok(Taken { name, profile: sample_threads(args, live, profiler)?, origin });
            }
            Err(error) if error.is_denied() => Some(error.to_string()),
            Err(error) => return Err(error.into()),
        },
        (View::Cpu, None) => Some(format!("{} runs on another host", live.label)),
        (View::SafePoints | View::Waits, _) => None,
    };
    if let Some(reason) = refused {
        terminal::complain(&format!(
            "cannot sample the threads ({reason}); sampling the processes from within the node\n"
        ));
    }
    let options = RecordOptions::of(Duration::from_secs(1), Some(args.length));
    let (reader, _) = record_node(live, &options)?;
    let period = reader.period(&Selection::default())?;
    let profile = match args.view {
        View::Waits => Profile::of_waits(&period),
        View::Cpu | View::SafePoints => {
            Profile::of_safe_points(&period, beamtune_rules::erlang_cores(&period)?)
        }
    };
    Ok(Taken { name, profile, origin })
}

fn sample_threads(args: &Args, live: &LiveTarget, profiler: Profiler) -> Result<Profile> {
    let stop = Stop::default();
    stop_on_signals(&stop)?;
    let bar = terminal::Progress::new(&format!("sampling {}", live.label), Some(args.length));
    let begin = Instant::now();
    let profile = profiler.run(args.length, || {
        let elapsed = begin.elapsed();
        bar.set(elapsed, Some(args.length.saturating_sub(elapsed)), 0, None);
        stop.is_requested()
    });
    bar.clear();
    Ok(profile?)
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
