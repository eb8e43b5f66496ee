//! `beamtune load`: drives a load against a target, and reports the results and their trustworthiness.

pub mod import;
mod progress;
mod worker;

use std::fs::File;
use std::io::BufWriter;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use beamtune_load::addresses::{Addresses, check_tls};
use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::collect::Run;
use beamtune_load::limits::{self, Division};
use beamtune_load::log::HistogramLog;
use beamtune_load::program::{Model, Plan};
use beamtune_load::run::{self, Part};
use beamtune_load::scenario::{QuickLoad, Scenario, ScenarioText};
use beamtune_load::schedule::Spacing;
use beamtune_load::tally::Tally;
use beamtune_model::load::{LoadResult, LoadSecond};

use crate::terminal;
use progress::ProgressLine;
use worker::Order;

/// Drive an HTTP, WebSocket, MQTT or TCP load against a target
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// URL of the target, or scenario file (docs/load-scenarios.md)
    ///
    /// Schemes: http, https, ws, wss, mqtt, mqtts, tcp, tls.
    #[arg(value_name = "URL|FILE", required_unless_present = "worker")]
    target: Option<String>,
    /// Requests per second, independent of the target's speed
    ///
    /// Without --rate, each connection sends a request as soon as the previous one is answered.
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Number of connections or devices
    #[arg(long, visible_alias = "devices", value_name = "N")]
    connections: Option<u64>,
    /// Duration of the load
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration)]
    length: Option<Duration>,
    /// MQTT: only connect and stay connected
    ///
    /// This is the default without --rate.
    #[arg(long, conflicts_with = "rate")]
    idle: bool,
    /// Send requests at equal intervals, instead of random ones (Poisson)
    ///
    /// The default corresponds to many independent users.
    #[arg(long, requires = "rate")]
    even: bool,
    /// Seed for the schedule and all other random choices
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Total number of threads in all processes [default: as needed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: Option<u64>,
    /// Local addresses to connect from, if one has too few ports
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    source: Vec<IpAddr>,
    /// Print the result as JSON (docs/load-result.schema.json)
    #[arg(long)]
    json: bool,
    /// Write the result as JSON to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write an HdrHistogram log with one histogram per second
    #[arg(long, value_name = "FILE")]
    histograms: Option<PathBuf>,
    /// Print the scenario of a URL, and exit
    #[arg(long, conflicts_with_all = ["json", "output", "histograms"])]
    print_scenario: bool,
    /// Run a part of a load for another process
    #[arg(long, hide = true, exclusive = true)]
    worker: bool,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    Import(import::Args),
}

/// Time for threads to start before the first device connects.
const SETTLE: Duration = Duration::from_millis(100);
/// Time for worker processes and their threads to start before the first device connects.
const SETTLE_PROCESSES: Duration = Duration::from_millis(700);

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(Subcommand::Import(args)) = &args.command {
        return import::run(args);
    }
    if args.worker {
        return worker::run();
    }
    let Some(target) = &args.target else { bail!("no target: name a URL or a scenario file") };
    let source = scenario_text(target, args)?;
    if args.print_scenario {
        terminal::print(&source.text);
        return Ok(ExitCode::SUCCESS);
    }
    let scenario = source.read(&args.source)?;
    let (result, log) = drive(args, &source, &scenario)?;
    print_result(&result, args.json, args.output.as_deref())?;
    // An error of the log must not suppress the result.
    log?;
    Ok(status(&result))
}

/// Returns the exit status: success if there were no errors and the generator was never the bottleneck.
fn status(result: &LoadResult) -> ExitCode {
    let is_clean = result.errors() == 0 && result.generator.bound_seconds == 0;
    if is_clean { ExitCode::SUCCESS } else { ExitCode::from(terminal::FOUND) }
}

/// Prints a result, and writes it to a file if one is given.
fn print_result(result: &LoadResult, is_json: bool, output: Option<&Path>) -> Result<()> {
    let json = serde_json::to_string_pretty(result).context("cannot write the result as JSON")? + "\n";
    if let Some(output) = output {
        std::fs::write(output, &json).with_context(|| format!("cannot write {}", output.display()))?;
    }
    terminal::print(&if is_json { json } else { beamtune_report::load::render(result, terminal::style()) });
    Ok(())
}

/// Returns the scenario of a file, or of a URL with these options.
fn scenario_text(target: &str, args: &Args) -> Result<ScenarioText> {
    if target.contains("://") {
        let quick = QuickLoad {
            per_second: args.rate,
            spacing: if args.even { Spacing::Fixed } else { Spacing::Poisson },
            devices: args.connections.unwrap_or(QuickLoad::default().devices),
            seconds: args.length.map_or(QuickLoad::default().seconds, |length| length.as_secs_f64()),
            seed: args.seed.unwrap_or(QuickLoad::default().seed),
        };
        if args.idle && !["mqtt://", "mqtts://"].iter().any(|scheme| target.starts_with(scheme)) {
            bail!("--idle needs an mqtt or mqtts URL; in a scenario, let devices sleep");
        }
        return Ok(ScenarioText::of_url(target, &quick)?);
    }
    let in_file = [
        ("--rate", args.rate.is_some()),
        ("--connections", args.connections.is_some()),
        ("--for", args.length.is_some()),
        ("--seed", args.seed.is_some()),
        ("--idle", args.idle),
    ];
    if let Some((option, _)) = in_file.iter().find(|(_, given)| *given) {
        bail!("{option} applies only to a URL; set it in the scenario file");
    }
    Ok(ScenarioText::of_file(target)?)
}

/// Runs the load. The inner `Result` tells whether the log was written.
fn drive(args: &Args, source: &ScenarioText, scenario: &Scenario) -> Result<(LoadResult, Result<()>)> {
    let division = divide(args, scenario)?;
    let addresses = Addresses::find(scenario)?;
    let settle = if division.processes > 1 { SETTLE_PROCESSES } else { SETTLE };
    let mut plan = addresses.compile(scenario, 0)?;
    check_tls(&plan)?;
    let begin_ns = now_ns() + settle.as_nanos() as u64;
    plan.start_ns += begin_ns;
    let about = Run {
        tool: format!("beamtune {}", env!("CARGO_PKG_VERSION")),
        targets: scenario.kinds.iter().map(|kind| kind.target.to_string()).collect(),
        began_unix_s: began_unix_s(&plan),
        ..Run::default()
    };
    let stop = Arc::new(AtomicBool::new(false));
    // The first Ctrl-C stops the load, and its result so far is printed; the second one ends the program.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot catch Ctrl-C")?;
    }
    let mut log = args.histograms.as_deref().map(|file| log(file, &plan, about.began_unix_s)).transpose()?;
    let mut logged = Ok(());
    let mut progress = ProgressLine::new(&plan);
    let mut on_second = |second: &LoadSecond, tally: &Tally| {
        progress.show(second);
        if let (Some(log), Ok(())) = (&mut log, &logged) {
            logged = log.add(second.second, second.bound.as_deref(), tally);
        }
    };
    let result = if division.processes == 1 {
        run::run(&plan, division.threads as usize, &stop, about, &mut on_second)
    } else {
        let parts = parts(source, &args.source, &addresses, begin_ns, division)?;
        run::run_in_workers(&plan, parts, &stop, about, &mut on_second)
    };
    progress.clear();
    Ok((result?, logged.context("cannot write the end of the histogram log")))
}

/// Creates the file of `--histograms`.
fn log(file: &Path, plan: &Plan, began_unix_s: Option<f64>) -> Result<HistogramLog<BufWriter<File>>> {
    let began = Duration::try_from_secs_f64(began_unix_s.unwrap_or(0.0)).unwrap_or_default();
    File::create(file)
        .and_then(|output| HistogramLog::begin(BufWriter::new(output), began, &plan.steps))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn divide(args: &Args, scenario: &Scenario) -> Result<Division> {
    let devices = scenario.kinds.iter().map(|kind| kind.count).sum();
    let arrivals = match scenario.load.model {
        Model::Open { profile, .. } => Some(profile.per_second),
        Model::Closed { .. } => None,
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let descriptors = limits::raise_descriptors();
    limits::check_descriptors(devices, descriptors)?;
    limits::check_open_files(devices, &std::fs::read_to_string("/proc/sys/fs/file-nr").unwrap_or_default())?;
    Ok(limits::divide(devices, arrivals, args.threads, cores, descriptors))
}

/// Returns the worker processes of a load, each with its assignment.
fn parts(
    source: &ScenarioText,
    sources: &[IpAddr],
    addresses: &Addresses,
    begin_ns: u64,
    division: Division,
) -> Result<Vec<(std::process::Command, Part, String)>> {
    let program = std::env::current_exe().context("cannot find this program to start a worker process")?;
    let (threads, of) = (division.threads as usize, (division.threads * division.processes) as usize);
    (0..division.processes as usize)
        .map(|process| {
            let part = Part { first: process * threads, threads, of };
            let order = Order {
                name: source.name.clone(),
                text: source.text.clone(),
                folder: source.folder.clone(),
                sources: sources.to_vec(),
                addresses: addresses.clone(),
                begin_ns,
                part,
            };
            let mut command = std::process::Command::new(&program);
            command.args(["load", "--worker"]);
            Ok((
                command,
                part,
                serde_json::to_string(&order).context("cannot write a worker's order as JSON")?,
            ))
        })
        .collect()
}

fn began_unix_s(plan: &Plan) -> Option<f64> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(now_s + (plan.start_ns as f64 - now_ns() as f64) / SECOND_NS as f64)
}

/// Returns the length of a plan's schedule, including the time to connect.
fn length_ns(plan: &Plan) -> u64 {
    plan.connect_ns + plan.model.length_ns()
}
