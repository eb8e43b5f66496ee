//! `beamtune memory`: where every byte of resident memory is, and what gives it back.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_attach::explicit::{Collect, Explicit, Walk, What, Whom};
use beamtune_host::source::MemoryBudget;
use beamtune_model::Period;
use beamtune_model::units::SECOND_NS;
use beamtune_recording::Selection;
use beamtune_report::memory;

use super::diagnose::{PartArgs, read_part};
use crate::access::AccessArgs;
use crate::subject::Subject;
use crate::take::{Wish, take};
use crate::terminal::{self, VerbosityArgs};
use crate::thresholds::ThresholdArgs;

/// Somebody waits for it: 12 GB take less than a second on a quiet machine.
const LOOKING: MemoryBudget = MemoryBudget { look_ns: 10 * SECOND_NS, rest: 0 };

/// Applications, origins of blocks, and holders of binaries that are asked for.
const TOP: u32 = 20;

/// Processes that are collected to estimate what all would return.
const MOST_COLLECTED: u32 = 1_000;

/// Say where the memory of a node is: from what is resident to what the VM uses it for, and what gives it back.
///
/// The pages are looked at from outside, which takes root or the node's user; without that, and for a node on another host, the
/// VM's own numbers are shown beside what the operating system counts.
///
/// Exit status: 0 = nothing above "notice", 1 = findings, 2 = could not do the work.
#[derive(clap::Args)]
pub struct Args {
    /// Node name (rabbit@web1, rabbit), process id, HOST:PORT of a distribution port, or a recording. Without it: the only VM on this host.
    target: Option<String>,
    /// How long to look. Growth shows only over time: minutes tell slopes, a kept recording of hours tells them well.
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration, default_value = "2s")]
    length: Duration,
    /// Print JSON (docs/schema/memory.schema.json).
    #[arg(long)]
    json: bool,
    /// Keep the recording.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also walk through the carriers: how many there are of which size, how far each is used, and what is free between blocks. What
    /// that costs the node is said first.
    #[arg(long)]
    carriers: bool,
    /// Also ask for the size of code by application, and of persistent terms. The VM stands still for that: a quarter of a millisecond
    /// for a thousand modules.
    #[arg(long)]
    code: bool,
    /// Also ask those who refer to the most binaries which ones these are: how many, how large, and what nobody else refers to. Each
    /// makes a list of its references for that, which takes it 0.1 to 0.3 s if there are a million, and else microseconds.
    #[arg(long)]
    holders: bool,
    /// CHANGES THE NODE: collect the garbage of one process, and say what that gives back.
    #[arg(long, value_name = "PID|NAME")]
    collect: Option<String>,
    /// CHANGES THE NODE: collect the garbage of the largest processes and of some chosen by chance, at most a thousand, and estimate
    /// what a collection of all would return. In small batches with pauses; ends at once when others have to wait for 50 ms.
    #[arg(long, value_name = "WHAT", conflicts_with = "collect")]
    what_if: Option<WhatIf>,
    /// Do not attach: look at the process from outside only.
    #[arg(long, conflicts_with_all = ["holders", "collect", "what_if"])]
    host_only: bool,
    #[command(flatten)]
    part: PartArgs,
    #[command(flatten)]
    thresholds: ThresholdArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
    #[command(flatten)]
    access: AccessArgs,
}

/// What can be tried out on a part of a node.
#[derive(Clone, Copy, clap::ValueEnum)]
enum WhatIf {
    /// A full collection of all processes.
    Collect,
}

impl Args {
    /// What is asked of the VM once, in this order.
    fn once(&self) -> Vec<Explicit> {
        let sample = Whom::Sample { permille: 1_000, most: MOST_COLLECTED };
        let whom = match (&self.collect, self.what_if) {
            (Some(who), _) => Some(Whom::Named(vec![who.clone()])),
            (None, Some(WhatIf::Collect)) => Some(sample),
            (None, None) => None,
        };
        let asked = [
            self.carriers.then(|| What::Carriers(Walk::default())),
            self.carriers.then(|| What::Allocations { walk: Walk::default(), top: TOP }),
            self.code.then_some(What::CodeMemory { top: TOP }),
            self.holders.then(|| What::Holders { pids: Vec::new(), top: TOP }),
            whom.map(|whom| What::Collect(Collect::new(whom))),
        ];
        asked.into_iter().flatten().map(Explicit::new).collect()
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let live = match Subject::find(args.target.as_deref(), &args.access)? {
        Subject::Recording(path) if args.output.is_some() => {
            bail!("{} is a recording already: leave out -o", path.display())
        }
        Subject::Recording(path) if args.holders || args.collect.is_some() || args.what_if.is_some() => {
            bail!("{} is a recording: --holders, --collect and --what-if ask a running node", path.display())
        }
        Subject::Recording(path) => {
            let read = read_part(&path, &args.part)?;
            if let Some(part) = read.part.filter(|_| !args.json) {
                terminal::print(&format!("{part}\n"));
            }
            return Ok(show(&args.thresholds.apply(read.period), args));
        }
        Subject::Live(_) if !args.part.is_all() => {
            bail!("--from and --to take a part of a recording; for a running node there is --for")
        }
        Subject::Live(live) => live,
    };
    let once = args.once();
    let wish = Wish {
        file: args.output.as_deref(),
        host_only: args.host_only,
        looking: LOOKING,
        once: &once,
        ..Wish::of(Duration::from_secs(1), Some(args.length))
    };
    let (reader, _) = take(*live, &wish)?;
    Ok(show(&args.thresholds.apply(reader.period(&Selection::default())?), args))
}

/// Prints the page, and gives the exit status.
fn show(period: &Arc<Period>, args: &Args) -> ExitCode {
    let verdicts = beamtune_rules::diagnose_memory(period);
    let movements = beamtune_rules::watch::movements(period);
    let returns = beamtune_rules::returns::returns(period);
    let text = match args.json {
        true => memory::json(period, &movements, returns, &verdicts),
        false => memory::render(period, &movements, returns, &verdicts, &args.verbosity.view(None)),
    };
    terminal::print(&text);
    terminal::status(&verdicts)
}
