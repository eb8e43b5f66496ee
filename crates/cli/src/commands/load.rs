//! `beamtune load`: drives a load against a target, and tells what came back and whether that can be trusted.

pub mod import;
pub(crate) mod reach;
mod watch;
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
use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::collect::Run;
use beamtune_load::limits::{self, Division};
use beamtune_load::log::HistogramLog;
use beamtune_load::program::{Model, Plan};
use beamtune_load::run::{self, Part};
use beamtune_load::scenario::{Quick, Scenario};
use beamtune_load::schedule::Spacing;
use beamtune_load::tally::Tally;
use beamtune_model::load::{LoadResult, LoadSecond};
use serde::{Deserialize, Serialize};

use crate::terminal;
use reach::Addresses;
use watch::Watch;
use worker::Order;

/// Drive a load against a target: HTTP, WebSocket, MQTT or TCP, at a rate or by many devices.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// A URL (http, https, ws, wss, mqtt, mqtts, tcp, tls), or a file with a scenario (docs/load-scenarios.md).
    #[arg(value_name = "URL|FILE", required_unless_present = "worker")]
    target: Option<String>,
    /// Requests a second, whatever the target does; without it, every connection goes as fast as it is answered.
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Connections, or devices.
    #[arg(long, visible_alias = "devices", value_name = "N")]
    connections: Option<u64>,
    /// How long.
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration)]
    length: Option<Duration>,
    /// MQTT: devices only connect and stay connected, which is what they do without --rate.
    #[arg(long, conflicts_with = "rate")]
    idle: bool,
    /// Requests at equal distances; without it as of many users, independent of each other (Poisson).
    #[arg(long, requires = "rate")]
    even: bool,
    /// The seed of the schedule and of every choice.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Threads, of all processes; without it as many as there is work for.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: Option<u64>,
    /// Addresses of this host to connect from, in turn, where the ports of one do not suffice.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    source: Vec<IpAddr>,
    /// Print the result as JSON (docs/load-result.schema.json).
    #[arg(long)]
    json: bool,
    /// Write the result as JSON to a file too.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the histograms of each second to a file, as a log that HdrHistogram's tools read.
    #[arg(long, value_name = "FILE")]
    histograms: Option<PathBuf>,
    /// Print the scenario that a URL stands for, and do nothing else.
    #[arg(long, conflicts_with_all = ["json", "output", "histograms"])]
    print_scenario: bool,
    /// Run a part of a load for another process.
    #[arg(long, hide = true, exclusive = true)]
    worker: bool,
}

#[derive(clap::Subcommand)]
enum Subcommand {
    Import(import::Args),
}

/// Time that threads and processes have to be ready before the first device connects.
const SETTLE: Duration = Duration::from_millis(100);
const SETTLE_PROCESSES: Duration = Duration::from_millis(700);

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(Subcommand::Import(args)) = &args.command {
        return import::run(args);
    }
    if args.worker {
        return worker::run();
    }
    let Some(target) = &args.target else { bail!("name a URL or a file with a scenario") };
    let source = Written::of(target, args)?;
    if args.print_scenario {
        terminal::print(&source.text);
        return Ok(ExitCode::SUCCESS);
    }
    let scenario = source.read(&args.source)?;
    let (result, log) = drive(args, &source, &scenario)?;
    tell(&result, args.json, args.output.as_deref())?;
    // Told after the result, which it must not cost.
    log?;
    Ok(status(&result))
}

/// Whether all went well, and the numbers are the target's.
fn status(result: &LoadResult) -> ExitCode {
    let is_clean = result.errors() == 0 && result.generator.bound_seconds == 0;
    if is_clean { ExitCode::SUCCESS } else { ExitCode::from(terminal::FOUND) }
}

/// Writes a result to a file if one is named, and prints it.
fn tell(result: &LoadResult, is_json: bool, output: Option<&Path>) -> Result<()> {
    let json = serde_json::to_string_pretty(result).context("the result cannot be written as JSON")? + "\n";
    if let Some(output) = output {
        std::fs::write(output, &json).with_context(|| format!("cannot write {}", output.display()))?;
    }
    terminal::print(&if is_json { json } else { beamtune_report::load::render(result, terminal::style()) });
    Ok(())
}

/// A scenario as it was written, or as a URL stands for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Written {
    /// As the user named it.
    pub name: String,
    /// TOML.
    pub text: String,
    /// Where the files that it names are looked for.
    pub folder: PathBuf,
}

impl Written {
    fn of(target: &str, args: &Args) -> Result<Self> {
        if target.contains("://") {
            let quick = Quick {
                per_second: args.rate,
                spacing: if args.even { Spacing::Fixed } else { Spacing::Poisson },
                devices: args.connections.unwrap_or(Quick::default().devices),
                seconds: args.length.map_or(Quick::default().seconds, |length| length.as_secs_f64()),
                seed: args.seed.unwrap_or(Quick::default().seed),
            };
            if args.idle && !["mqtt://", "mqtts://"].iter().any(|scheme| target.starts_with(scheme)) {
                bail!("--idle goes with mqtt and mqtts; a scenario has devices of other protocols sleep");
            }
            return Self::of_url(target, &quick);
        }
        let in_file = [
            ("--rate", args.rate.is_some()),
            ("--connections", args.connections.is_some()),
            ("--for", args.length.is_some()),
            ("--seed", args.seed.is_some()),
            ("--idle", args.idle),
        ];
        if let Some((option, _)) = in_file.iter().find(|(_, given)| *given) {
            bail!("{option} goes with a URL; a scenario says it itself");
        }
        Self::of_file(target)
    }

    /// What a URL stands for.
    pub fn of_url(url: &str, quick: &Quick) -> Result<Self> {
        let text = Scenario::quick_text(url, quick)?;
        Ok(Self { name: url.to_owned(), text, folder: PathBuf::from(".") })
    }

    /// What stands in a file.
    pub fn of_file(target: &str) -> Result<Self> {
        let text = std::fs::read_to_string(target).with_context(|| {
            format!("cannot read the scenario {target}; a target without a file is a URL, as http://127.0.0.1:8080/")
        })?;
        let folder = Path::new(target).parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self { name: target.to_owned(), text, folder })
    }

    /// Read; `sources`, if there are any, take the place of those that it names.
    pub fn read(&self, sources: &[IpAddr]) -> Result<Scenario> {
        let mut scenario =
            Scenario::parse(&self.name, &self.text, &|file| std::fs::read(self.folder.join(file)))?;
        if !sources.is_empty() {
            scenario.kinds.iter_mut().for_each(|kind| sources.clone_into(&mut kind.sources));
        }
        Ok(scenario)
    }
}

/// The result, and whether its log could be written.
fn drive(args: &Args, source: &Written, scenario: &Scenario) -> Result<(LoadResult, Result<()>)> {
    let division = divide(args, scenario)?;
    let addresses = Addresses::find(scenario)?;
    let settle = if division.processes > 1 { SETTLE_PROCESSES } else { SETTLE };
    let mut plan = compile(scenario, &addresses, 0)?;
    reach::greet(&plan)?;
    let begin_ns = now_ns() + settle.as_nanos() as u64;
    plan.start_ns += begin_ns;
    let about = Run {
        tool: format!("beamtune {}", env!("CARGO_PKG_VERSION")),
        targets: scenario.kinds.iter().map(|kind| kind.target.to_string()).collect(),
        began_unix_s: began_unix_s(&plan),
        ..Run::default()
    };
    let stop = Arc::new(AtomicBool::new(false));
    // The first Ctrl-C ends the run and gives the result so far; the second one ends the program.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot catch Ctrl-C")?;
    }
    let mut log = args.histograms.as_deref().map(|file| log(file, &plan, about.began_unix_s)).transpose()?;
    let mut logged = Ok(());
    let mut watch = Watch::new(&plan);
    let mut on_second = |second: &LoadSecond, tally: &Tally| {
        watch.show(second);
        if let (Some(log), Ok(())) = (&mut log, &logged) {
            logged = log.add(second.second, second.bound.as_deref(), tally);
        }
    };
    let result = if division.processes == 1 {
        run::run(&plan, division.threads as usize, &stop, about, &mut on_second)
    } else {
        let parts = parts(source, &args.source, &addresses, begin_ns, division)?;
        run::lead(&plan, parts, &stop, about, &mut on_second)
    };
    watch.clear();
    Ok((result?, logged.context("the log of histograms ends early")))
}

/// The file of `--histograms`, begun.
fn log(file: &Path, plan: &Plan, began_unix_s: Option<f64>) -> Result<HistogramLog<BufWriter<File>>> {
    let began = Duration::try_from_secs_f64(began_unix_s.unwrap_or(0.0)).unwrap_or_default();
    File::create(file)
        .and_then(|output| HistogramLog::begin(BufWriter::new(output), began, &plan.steps))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// The plan, with addresses to connect from where one's ports do not suffice.
pub(crate) fn compile(scenario: &Scenario, addresses: &Addresses, begin_ns: u64) -> Result<Plan> {
    let mut plan = scenario.compile(begin_ns, &|target| addresses.of(target), &reach::system_trust)?;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ports = limits::local_ports(&range);
    // Kinds that connect to the same address share its ports.
    for index in 0..plan.kinds.len() {
        let address = plan.kinds[index].endpoint.address;
        let devices =
            plan.kinds.iter().filter(|kind| kind.endpoint.address == address).map(|kind| kind.devices).sum();
        let endpoint = &mut plan.kinds[index].endpoint;
        endpoint.sources = limits::sources(address, devices, &endpoint.sources, &ports)?.into();
    }
    Ok(plan)
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

/// The processes of a run, each with its order.
fn parts(
    source: &Written,
    sources: &[IpAddr],
    addresses: &Addresses,
    begin_ns: u64,
    division: Division,
) -> Result<Vec<(std::process::Command, Part, String)>> {
    let program =
        std::env::current_exe().context("cannot find this program to start it for a part of the load")?;
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
            Ok((command, part, serde_json::to_string(&order).context("an order cannot be written")?))
        })
        .collect()
}

fn began_unix_s(plan: &Plan) -> Option<f64> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(now_s + (plan.start_ns as f64 - now_ns() as f64) / SECOND_NS as f64)
}

/// How long a plan takes by its schedule, what is connected before it included.
fn length_ns(plan: &Plan) -> u64 {
    plan.connect_ns + plan.model.length_ns()
}
