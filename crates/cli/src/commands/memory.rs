//! `beamtune memory`: shows what the resident memory of a node is used for, and how to free it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_attach::explicit::{CarrierWalk, Collect, ExplicitItem, ExplicitKind, ProcessSelection};
use beamtune_host::source::MemoryBudget;
use beamtune_model::Period;
use beamtune_model::units::SECOND_NS;
use beamtune_node::record::RecordOptions;
use beamtune_node::target::ResolvedTarget;
use beamtune_recording::Selection;
use beamtune_report::memory;

use super::diagnose::{PartArgs, read_part};
use crate::access::AccessArgs;
use crate::recorder::record_node;
use crate::terminal::{self, VerbosityArgs};
use crate::thresholds::ThresholdArgs;

/// Time budget for reading the memory map, while the user waits. 12 GB take less than a second on an idle host.
const MEMORY_BUDGET: MemoryBudget = MemoryBudget { read_ns: 10 * SECOND_NS, rest_factor: 0 };

/// Maximum number of applications, block types and processes with binaries to request.
const TOP: u32 = 20;

/// Maximum number of processes to garbage-collect in order to estimate the effect on all.
const MAX_COLLECTED_PROCESSES: u32 = 1_000;

/// Show what a node's memory is used for, and how to free it
///
/// The largest use comes first, with its owners. With -v, shows how much of each part is resident, mapped and in use. With -vv, also
/// shows how the parts were measured.
///
/// Reading the page map of the process requires root or the node's user. Otherwise, and for a node on another host, the VM's own
/// numbers are shown next to those of the operating system.
///
/// Exit status: 0 = nothing above "notice", 1 = findings, 2 = failed.
#[derive(clap::Args)]
pub struct Args {
    /// Node name, process id, HOST:PORT, or recording [default: the only VM]
    ///
    /// A node name is short (rabbit) or full (rabbit@web1); HOST:PORT is its distribution port.
    target: Option<String>,
    /// Time to record
    ///
    /// To detect memory growth, record for minutes, or better, use a recording of several hours.
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration, default_value = "2s")]
    length: Duration,
    /// Print JSON (docs/schema/memory.schema.json)
    #[arg(long)]
    json: bool,
    /// Keep the recording in this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Walk the carriers: their number, sizes and utilization
    ///
    /// Also shows the free space between blocks. The cost to the node is printed first.
    #[arg(long)]
    carriers: bool,
    /// Show the size of code by application, and of persistent terms
    ///
    /// The VM is blocked for 0.25 ms per thousand modules.
    #[arg(long)]
    code: bool,
    /// Show which processes refer to the most binaries
    ///
    /// Shows number and size of the binaries, and how much only one process refers to. Each process builds a list of its references,
    /// which takes 0.1 to 0.3 s for a million, but usually microseconds.
    #[arg(long)]
    holders: bool,
    /// CHANGES THE NODE: GC one process, and show what it frees
    #[arg(long, value_name = "PID|NAME")]
    collect: Option<String>,
    /// CHANGES THE NODE: GC a sample, and estimate the effect on all
    ///
    /// Garbage-collects the largest processes and a random sample, at most 1,000, in small batches with pauses. Ends early if a process
    /// waits for more than 50 ms.
    #[arg(long, value_name = "WHAT", conflicts_with = "collect")]
    what_if: Option<WhatIf>,
    /// Do not attach; read only /proc
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

/// An experiment on a sample of processes.
#[derive(Clone, Copy, clap::ValueEnum)]
enum WhatIf {
    /// Fullsweep GC of all processes
    Collect,
}

impl Args {
    /// Returns the explicit items to request, in this order.
    fn once(&self) -> Vec<ExplicitItem> {
        let sample = ProcessSelection::Sample { permille: 1_000, max_processes: MAX_COLLECTED_PROCESSES };
        let selection = match (&self.collect, self.what_if) {
            (Some(process), _) => Some(ProcessSelection::Named(vec![process.clone()])),
            (None, Some(WhatIf::Collect)) => Some(sample),
            (None, None) => None,
        };
        let requests = [
            self.carriers.then(|| ExplicitKind::Carriers(CarrierWalk::default())),
            self.carriers.then(|| ExplicitKind::Allocations { walk: CarrierWalk::default(), top: TOP }),
            self.code.then_some(ExplicitKind::CodeMemory { top: TOP }),
            self.holders.then(|| ExplicitKind::Holders { pids: Vec::new(), top: TOP }),
            selection.map(|selection| ExplicitKind::Collect(Collect::new(selection))),
        ];
        requests.into_iter().flatten().map(ExplicitItem::new).collect()
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let live = match ResolvedTarget::find(args.target.as_deref(), &args.access.options())? {
        ResolvedTarget::Recording(path) if args.output.is_some() => {
            bail!("{} is a recording: omit -o", path.display())
        }
        ResolvedTarget::Recording(path)
            if args.holders || args.collect.is_some() || args.what_if.is_some() =>
        {
            bail!("{} is a recording: --holders, --collect and --what-if need a running node", path.display())
        }
        ResolvedTarget::Recording(path) => {
            let read = read_part(&path, &args.part)?;
            if let Some(part) = read.part.filter(|_| !args.json) {
                terminal::print(&format!("{part}\n"));
            }
            return Ok(print_page(&args.thresholds.apply(read.period), args));
        }
        ResolvedTarget::Live(_) if !args.part.is_all() => {
            bail!("--from and --to select a part of a recording; for a running node, use --for")
        }
        ResolvedTarget::Live(live) => live,
    };
    let once = args.once();
    let options = RecordOptions {
        file: args.output.as_deref(),
        host_only: args.host_only,
        memory_budget: MEMORY_BUDGET,
        once: &once,
        ..RecordOptions::of(Duration::from_secs(1), Some(args.length))
    };
    let (reader, _) = record_node(&live, &options)?;
    Ok(print_page(&args.thresholds.apply(reader.period(&Selection::default())?), args))
}

/// Prints the page, and returns the exit status.
fn print_page(period: &Arc<Period>, args: &Args) -> ExitCode {
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
