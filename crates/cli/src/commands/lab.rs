//! `beamtune lab`: runs VMs with known faults.

mod evaluate;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_lab::manifest::CORES;
use beamtune_lab::run::{LabEvent, Modules, Options, RunningLab};
use beamtune_lab::{Erlang, Lab, all, find, software, synthetic};
use beamtune_recording::{Existing, Writer};
use beamtune_report::table::{Align, Table};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::signals::stop_flag;
use crate::terminal;

/// Run VMs with known faults, to try beamtune on
#[derive(clap::Subcommand)]
pub enum Args {
    /// List the labs with the findings that they cause
    ///
    /// Also lists the software and the synthetic recordings that beamtune lab evaluate uses.
    List,
    /// Explain a lab: its fault, its symptoms and its remedy
    Show {
        /// Name of the lab
        name: String,
    },
    /// Run a lab until Ctrl-C, or for a given time
    Run(RunArgs),
    /// Write a synthetic recording, of a fault that cannot be produced
    Synthetic(SyntheticArgs),
    Evaluate(evaluate::Args),
    Judge(evaluate::JudgeArgs),
}

/// Options for running a lab.
#[derive(clap::Args)]
pub struct RunArgs {
    /// Name of the lab (see beamtune lab list)
    name: String,
    /// Run the healthy variant, with the remedy applied
    #[arg(long)]
    cured: bool,
    /// Seed for names, sizes and the faulty element [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Number of CPUs for which the lab's schedulers and work are sized
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64), default_value_t = CORES)]
    cores: u32,
    /// Time after which the lab ends
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration, default_value = "10m")]
    length: Duration,
    /// Path of erl [default: the one on the PATH]
    #[arg(long, value_name = "FILE")]
    erl: Option<PathBuf>,
    /// Root file system with an Erlang (from make otp); needs root
    #[arg(long, value_name = "FOLDER", conflicts_with = "erl")]
    otp_root: Option<PathBuf>,
    /// Parameters instead of random ones, such as rate=2000
    #[arg(value_name = "KEY=NUMBER")]
    params: Vec<String>,
}

/// Options for writing a synthetic recording.
#[derive(clap::Args)]
pub struct SyntheticArgs {
    /// Name of the recording (see beamtune lab list)
    name: String,
    /// File to write
    file: PathBuf,
    /// Write the healthy variant
    #[arg(long)]
    healthy: bool,
}

/// A lab is killed if it has not ended this long after its time limit.
const END_TIMEOUT: Duration = Duration::from_secs(5);

const TIME_IS_OVER: &str = "time limit reached: the lab has ended\n";

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    match args {
        Args::List => list(),
        Args::Show { name } => show(name),
        Args::Run(args) => run_lab(args),
        Args::Synthetic(args) => {
            let case = synthetic::find(&args.name)?;
            let writer = Writer::create(&args.file, Existing::Refuse)?;
            case.write(writer, !args.healthy, synthetic::DEFAULT_RELEASE)?;
            Ok(ExitCode::SUCCESS)
        }
        Args::Evaluate(args) => evaluate::run(args),
        Args::Judge(args) => evaluate::judge_again(args),
    }
}

fn list() -> Result<ExitCode> {
    let mut table = Table::new(&[
        ("lab", Align::Left),
        ("expected", Align::Left),
        ("allowed", Align::Left),
        ("needs", Align::Left),
        ("fault", Align::Left),
    ]);
    for Lab { manifest, .. } in all()? {
        let mut needs = Vec::new();
        needs.extend(manifest.needs_root.then(|| "root".to_owned()));
        needs.extend(manifest.nif.is_some().then(|| "C compiler".to_owned()));
        needs.extend(manifest.elixir.is_some().then(|| "Elixir".to_owned()));
        needs.extend((manifest.min_otp > 23).then(|| format!("OTP {}", manifest.min_otp)));
        let finds = if manifest.expect.is_empty() { "nothing".to_owned() } else { manifest.expect.join(" ") };
        let finds = match manifest.counted.as_slice() {
            [] => finds,
            counted => format!("{finds}; with lock counting {}", counted.join(" ")),
        };
        table.row([manifest.name, finds, manifest.allow.join(" "), needs.join(", "), manifest.title]);
    }
    terminal::print(&table.render(terminal::style()));
    let mut table =
        Table::new(&[("software", Align::Left), ("expected", Align::Left), ("description", Align::Left)]);
    for case in software::all()? {
        let finds = if case.expect.is_empty() { "nothing".to_owned() } else { case.expect.join(" ") };
        table.row([case.name, finds, case.title]);
    }
    terminal::print(&format!("\n{}", table.render(terminal::style())));
    let mut table =
        Table::new(&[("synthetic", Align::Left), ("expected", Align::Left), ("fault", Align::Left)]);
    for case in synthetic::CASES {
        table.row([case.name.to_owned(), case.expect.join(" "), case.title.to_owned()]);
    }
    terminal::print(&format!("\n{}", table.render(terminal::style())));
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str) -> Result<ExitCode> {
    let lab = find(name)?;
    let text = lab.readme().with_context(|| format!("lab {name} has no README"))?;
    terminal::print(&format!("{}\n{text}", lab.manifest.summary));
    Ok(ExitCode::SUCCESS)
}

fn run_lab(args: &RunArgs) -> Result<ExitCode> {
    let lab = find(&args.name)?;
    if lab.manifest.sick.is_none() && !args.cured {
        terminal::complain(&format!("{} is a healthy lab without a sick variant\n", args.name));
    }
    for param in &args.params {
        let Some((key, _)) = param.split_once('=').filter(|(_, value)| value.parse::<i64>().is_ok()) else {
            bail!("{param:?} is not a parameter; write key=number");
        };
        if !lab.draws(key) {
            bail!("{} has no parameter {key:?}; list them with: beamtune lab show {}", args.name, args.name);
        }
    }
    let options = Options {
        // Any number that differs between runs.
        seed: args.seed.unwrap_or_else(|| std::process::id() % 1_000_000),
        cured: args.cured || lab.manifest.sick.is_none(),
        erlang: Erlang { root: args.otp_root.clone(), erl: args.erl.clone() },
        for_seconds: args.length.as_secs().max(1) as u32,
        cores: args.cores,
        params: args.params.clone(),
        errors: None,
        print: terminal::complain,
    };
    let stop = stop_flag(&[SIGINT, SIGTERM])?;
    // Restarts of the VM do not extend the time limit.
    let until = Instant::now() + args.length + END_TIMEOUT;

    let mut running = RunningLab::start(&lab, &options, &Arc::new(Modules::compile(&options.erlang)?))?;
    let variant = if options.cured { "healthy" } else { "sick" };
    terminal::complain(&format!("{}: {variant}, seed {}, starting …\n", lab.manifest.title, options.seed));
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= until {
            terminal::complain(TIME_IS_OVER);
            return Ok(ExitCode::SUCCESS);
        }
        // Short, for a fast reaction to Ctrl-C.
        match running.next(&lab, &options, Duration::from_millis(100))? {
            LabEvent::Ready(line) => {
                terminal::print(&format!("{line}\n"));
                let target = running.target();
                terminal::complain(&format!(
                    "ready. In another terminal: beamtune doctor {target}   Ctrl-C stops the lab.\n"
                ));
            }
            LabEvent::Line(line) => terminal::complain(&format!("{line}\n")),
            LabEvent::Nothing => {}
            LabEvent::Ended => {
                let status = running.wait()?;
                if status.success() {
                    terminal::complain(TIME_IS_OVER);
                    return Ok(ExitCode::SUCCESS);
                }
                bail!("the lab's VM failed: {status}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
