//! `beamtune lab`: VMs with a known pathology.

mod evaluate;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_recording::{Existing, Writer};
use beamtune_report::table::{Align, Table};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::lab::manifest::CORES;
use crate::lab::run::{Erlang, Modules, Options, Running, Said};
use crate::lab::{Lab, all, find, software, synthetic};
use crate::terminal;

/// VMs with a known pathology, to try beamtune on.
#[derive(clap::Subcommand)]
pub enum Args {
    /// List the labs, what each shows and which findings are expected, and the software that evaluate looks at.
    List,
    /// Explain a lab: what is wrong, how it shows, what cures it.
    Show {
        /// Name of the lab.
        name: String,
    },
    /// Run a lab until Ctrl-C, or until its time is up.
    Run(RunArgs),
    /// Write the recording of a made-up node, sick with what no machine at hand can be sick with.
    Synthetic(SyntheticArgs),
    Evaluate(evaluate::Args),
    Judge(evaluate::JudgeArgs),
}

/// What to run, and how.
#[derive(clap::Args)]
pub struct RunArgs {
    /// Name of the lab; `beamtune lab list` shows all.
    name: String,
    /// Run it with the remedy applied.
    #[arg(long)]
    cured: bool,
    /// Names, sizes and the sick element are drawn from it; drawn itself if not given.
    #[arg(long)]
    seed: Option<u32>,
    /// CPUs of the machine that it is to be sick on: it gets as many schedulers, and work for them.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=64), default_value_t = CORES)]
    cores: u32,
    /// The lab ends by itself after this.
    #[arg(long = "for", value_parser = terminal::parse_duration, default_value = "10m")]
    length: Duration,
    /// The `erl` to run it with, instead of the one in PATH.
    #[arg(long)]
    erl: Option<PathBuf>,
    /// A folder with a whole system in it (made by `make otp`), whose Erlang is used; needs root.
    #[arg(long, conflicts_with = "erl")]
    otp_root: Option<PathBuf>,
    /// Numbers that take the place of drawn ones: `rate=2000`.
    params: Vec<String>,
}

/// Which recording, and where.
#[derive(clap::Args)]
pub struct SyntheticArgs {
    /// Its name; `beamtune lab list` shows all.
    name: String,
    /// The file to write.
    file: PathBuf,
    /// Of its healthy twin.
    #[arg(long)]
    healthy: bool,
}

/// A lab ends by itself when its time is up, and we end it so much later.
const ENDS_LATER: Duration = Duration::from_secs(5);

const TIME_IS_UP: &str = "the lab's time is up\n";

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    match args {
        Args::List => list(),
        Args::Show { name } => show(name),
        Args::Run(args) => run_lab(args),
        Args::Synthetic(args) => {
            let case = synthetic::find(&args.name)?;
            let writer = Writer::create(&args.file, Existing::Refuse)?;
            case.write(writer, !args.healthy, synthetic::USUAL_RELEASE)?;
            Ok(ExitCode::SUCCESS)
        }
        Args::Evaluate(args) => evaluate::run(args),
        Args::Judge(args) => evaluate::judge_again(args),
    }
}

fn list() -> Result<ExitCode> {
    let mut table = Table::new(&[
        ("lab", Align::Left),
        ("finds", Align::Left),
        ("may find", Align::Left),
        ("needs", Align::Left),
        ("what is wrong", Align::Left),
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
        Table::new(&[("software", Align::Left), ("finds", Align::Left), ("what it is", Align::Left)]);
    for case in software::all()? {
        let finds = if case.expect.is_empty() { "nothing".to_owned() } else { case.expect.join(" ") };
        table.row([case.name, finds, case.title]);
    }
    terminal::print(&format!("\n{}", table.render(terminal::style())));
    let mut table =
        Table::new(&[("synthetic", Align::Left), ("finds", Align::Left), ("what is made up", Align::Left)]);
    for case in synthetic::CASES {
        table.row([case.name.to_owned(), case.expect.join(" "), case.title.to_owned()]);
    }
    terminal::print(&format!("\n{}", table.render(terminal::style())));
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str) -> Result<ExitCode> {
    let lab = find(name)?;
    let text = lab.readme().with_context(|| format!("the lab {name} has no README"))?;
    terminal::print(&format!("{}\n{text}", lab.manifest.summary));
    Ok(ExitCode::SUCCESS)
}

fn run_lab(args: &RunArgs) -> Result<ExitCode> {
    let lab = find(&args.name)?;
    if lab.manifest.sick.is_none() && !args.cured {
        terminal::complain(&format!("{} is a healthy lab: it has no sick setting\n", args.name));
    }
    for param in &args.params {
        let Some((key, _)) = param.split_once('=').filter(|(_, value)| value.parse::<i64>().is_ok()) else {
            bail!("{param:?} is no parameter: write key=number");
        };
        if !lab.draws(key) {
            bail!("{} draws no {key:?}: beamtune lab show {} tells what it draws", args.name, args.name);
        }
    }
    let options = Options {
        // The process id differs from run to run, which is all that is asked of it.
        seed: args.seed.unwrap_or_else(|| std::process::id() % 1_000_000),
        cured: args.cured || lab.manifest.sick.is_none(),
        erlang: Erlang { root: args.otp_root.clone(), erl: args.erl.clone() },
        for_seconds: args.length.as_secs().max(1) as u32,
        cores: args.cores,
        params: args.params.clone(),
        errors: None,
    };
    let stop = terminal::stop_flag(&[SIGINT, SIGTERM])?;
    // One that is started again and again begins its time anew each time.
    let until = Instant::now() + args.length + ENDS_LATER;

    let mut running = Running::start(&lab, &options, &Arc::new(Modules::compile(&options.erlang)?))?;
    let setting = if options.cured { "cured" } else { "sick" };
    terminal::complain(&format!("{}: {setting}, seed {}, starting …\n", lab.manifest.title, options.seed));
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= until {
            terminal::complain(TIME_IS_UP);
            return Ok(ExitCode::SUCCESS);
        }
        // Short, so that Ctrl-C is answered soon.
        match running.next(&lab, &options, Duration::from_millis(100))? {
            Said::Ready(line) => {
                terminal::print(&format!("{line}\n"));
                let target = running.target();
                terminal::complain(&format!(
                    "it is there now. In another terminal: beamtune doctor {target}   Ctrl-C ends the lab.\n"
                ));
            }
            Said::Line(line) => terminal::complain(&format!("{line}\n")),
            Said::Nothing => {}
            Said::Ended => {
                let status = running.wait()?;
                if status.success() {
                    terminal::complain(TIME_IS_UP);
                    return Ok(ExitCode::SUCCESS);
                }
                bail!("the lab's VM has ended: {status}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
