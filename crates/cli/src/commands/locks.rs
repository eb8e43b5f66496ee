//! `beamtune locks`: finds the table, process, allocator or operation that causes lock contention.
//!
//! If the VM has lock counting, its counts are read. Any other VM on this host is sampled from outside, without a restart.

mod probes;
mod sampling;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_attach::explicit::{ExplicitItem, ExplicitKind, LockCountingCost, Locks};
use beamtune_attach::source::NodeSource;
use beamtune_model::Period;
use beamtune_model::units::duration;
use beamtune_node::access::AccessError;
use beamtune_node::record::{RecordError, RecordOptions, SampleObserver, record_attached};
use beamtune_node::target::{LiveTarget, ResolvedTarget};
use beamtune_recording::{Plan, Reader, Selection, Stop};
use beamtune_report::diagnosis::{self, Verbosity};
use beamtune_report::locks::{self, By, Filter, Look, Page, Remains, Sort, View};
use beamtune_report::text;
use beamtune_rules::contention;

use self::sampling::WaitSlot;
use super::diagnose::{PartArgs, read_part};
use crate::access::AccessArgs;
use crate::signals::{exit_on_signals, stop_on_signals};
use crate::terminal::{self, VerbosityArgs};
use crate::thresholds::ThresholdArgs;

/// Time limit for estimating the cost of counting.
const ESTIMATE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two samples while the VM is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Locks are counted between two samples, which contain the tables, processes and flags. The second sample is due this long after the
/// end of counting, since the counts have to be collected.
const COLLECTION_TIME: Duration = Duration::from_millis(500);
/// Number of locks for which the page shows the contention that remains without them.
const MAX_REMOVED_LOCKS: usize = 3;
/// All lock categories except `process`, which has five locks for each process.
const CATEGORIES: [&str; 6] = ["allocator", "db", "distribution", "generic", "io", "scheduler"];

/// Show whether there is lock contention, and where
///
/// A stock VM is sampled without a restart: how its threads spend their time, and, as root, the call stacks in which they wait. This
/// shows which operation waits. In a VM with lock counting (beamtune emulator run --type lcnt), the locks are counted, which shows the
/// table, process or allocator. The VM's earlier counts are lost.
///
/// Exit status: 0 = nothing above "notice", 1 = findings, 2 = failed.
#[derive(clap::Args)]
pub struct Args {
    /// Node name, process id, HOST:PORT, or recording [default: the only VM]
    ///
    /// A node name is short (rabbit) or full (rabbit@web1); HOST:PORT is its distribution port.
    target: Option<String>,
    /// Time to sample or to count
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration, default_value = "10s")]
    length: Duration,
    /// Also count the locks of processes
    ///
    /// This takes memory of the node; the amount is printed first.
    #[arg(long)]
    process: bool,
    /// Show the counts by lock, or by place in the emulator's source
    ///
    /// Includes a histogram of wait times. -v shows the counts by lock class.
    #[arg(long, value_enum, value_name = "BY")]
    by: Vec<ByArg>,
    /// Sort by time, tries, collisions, ratio or name
    #[arg(long, value_name = "BY", value_parser = parse_sort, default_value = "time")]
    sort: Sort,
    /// Reverse the order
    #[arg(long)]
    reverse: bool,
    /// Show only locks of this class, such as db_tab; repeatable
    #[arg(long = "lock", value_name = "CLASS")]
    classes: Vec<String>,
    /// Show only locks whose name or owner contains this text
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Maximum number of rows in a table
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,
    /// Include locks without contention
    #[arg(long)]
    all: bool,
    /// Read only the threads' times, without stacks or probes
    #[arg(long)]
    no_probes: bool,
    /// Maximum number of stack samples per second, for all threads
    #[arg(long, value_name = "N", default_value_t = probes::DEFAULT_RATE_PER_S, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    rate: u32,
    /// Print JSON (docs/schema/locks.schema.json)
    #[arg(long)]
    json: bool,
    /// Keep the recording in this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    part: PartArgs,
    #[command(flatten)]
    thresholds: ThresholdArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
    #[command(flatten)]
    access: AccessArgs,
}

/// A breakdown of the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ByArg {
    /// Each lock with a large share
    Lock,
    /// Each place in the emulator's source
    Place,
}

fn parse_sort(text: &str) -> Result<Sort, String> {
    let known = Sort::ALL.iter().find(|(name, _)| *name == text).map(|(_, sort)| *sort);
    known.ok_or_else(|| format!("must be one of {}", Sort::ALL.map(|(name, _)| name).join(", ")))
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let live = match ResolvedTarget::find(args.target.as_deref(), &args.access.options())? {
        ResolvedTarget::Recording(path) if args.output.is_some() => {
            bail!("{} is a recording: omit -o", path.display())
        }
        ResolvedTarget::Recording(path) => {
            let read = read_part(&path, &args.part)?;
            if let Some(part) = read.part.filter(|_| !args.json) {
                terminal::print(&format!("{part}\n"));
            }
            let period = args.thresholds.apply(read.period);
            return Ok(print_page(&period, summary::from_period(&period).as_ref(), args));
        }
        ResolvedTarget::Live(_) if !args.part.is_all() => {
            bail!("--from and --to select a part of a recording; for a running node, use --for")
        }
        ResolvedTarget::Live(live) => live,
    };
    let request = args.request();
    let mut vm = attach(&live)?;
    let cost = match vm.as_mut().map(|vm| vm.estimate_locks(&request, ESTIMATE_TIMEOUT)).transpose() {
        Err(error) if live.vm.is_some() => {
            terminal::complain(&format!(
                "cannot find out whether {} counts its locks ({error}); sampling it from outside\n",
                live.label
            ));
            None
        }
        cost => cost?,
    };
    let Some(cost) = cost.filter(LockCountingCost::can_count) else { return sampling::run(&live, vm, args) };
    if let Some(why) = cost.refusal() {
        bail!("cannot count the locks of {}: {why}", live.label);
    }
    terminal::complain(&format!(
        "counting {} locks of {} for {}; collecting the counts temporarily takes {:.1} MB of its memory\n",
        cost.locks,
        live.label,
        text::seconds(args.length.as_secs_f64()),
        cost.bytes as f64 / 1e6
    ));
    count(&live, vm, &request, args)
}

impl Args {
    fn request(&self) -> Locks {
        let mut locks = Locks::new(self.length);
        if self.process {
            locks.categories = CATEGORIES.iter().chain(&["process"]).map(|name| (*name).to_owned()).collect();
        }
        locks
    }

    fn views(&self) -> Vec<View> {
        let view = |by| {
            let shown = View::new(by);
            let filter = if self.all { Filter::default() } else { shown.filter };
            let filter = Filter { classes: self.classes.clone(), name: self.name.clone(), ..filter };
            View { sort: self.sort, reverse: self.reverse, most: self.top, filter, ..shown }
        };
        let has_filter = self.name.is_some() || !self.classes.is_empty();
        let is_requested = |by| self.by.contains(&by) || (by == ByArg::Lock && has_filter);
        let by: Vec<By> = [(ByArg::Lock, By::Lock), (ByArg::Place, By::Place)]
            .into_iter()
            .filter_map(|(arg, by)| is_requested(arg).then_some(by))
            .collect();
        // A brief page contains only the requested tables.
        let is_brief = self.verbosity.view(None).verbosity == Verbosity::Brief;
        if is_brief && by.is_empty() && !self.all {
            return Vec::new();
        }
        // `is_requested` includes the table of single locks if there is a filter by class or name.
        std::iter::once(By::Class).chain(by).map(view).collect()
    }
}

/// Attaches to the node; `None` if that is impossible.
fn attach(live: &LiveTarget) -> Result<Option<NodeSource>> {
    match &live.access {
        Ok(access) => match NodeSource::attach(access.clone()) {
            Ok(vm) => Ok(Some(vm)),
            // A VM with heavy contention may be too slow for attaching, but it can still be sampled.
            Err(error) if live.vm.is_some() => {
                terminal::complain(&format!(
                    "cannot attach to {} ({error}); sampling it from outside\n",
                    live.label
                ));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        },
        Err(error @ AccessError::NoDistribution) => {
            terminal::complain(&format!(
                "{} is not a node ({}); sampling it from outside\n",
                live.label,
                error.reason()
            ));
            Ok(None)
        }
        Err(AccessError::CannotAttach(error)) => {
            terminal::complain(&format!(
                "cannot attach to {} ({error:#}); sampling it from outside\n",
                live.label
            ));
            Ok(None)
        }
    }
}

/// Counts locks, and prints the page.
fn count(live: &LiveTarget, vm: Option<NodeSource>, locks: &Locks, args: &Args) -> Result<ExitCode> {
    let once = [ExplicitItem::new(ExplicitKind::Locks(locks.clone()))];
    let reader = record(live, vm, args, args.length.saturating_add(COLLECTION_TIME), &once, None)?;
    let period = args.thresholds.apply(reader.period(&Selection::default())?);
    if period.lock_session.is_none() {
        let reason =
            |source| period.gaps.iter().rev().find(|gap| gap.source == source).map(|gap| gap.reason.as_str());
        let why = reason("vm.locks").or_else(|| reason("vm")).unwrap_or("the node did not answer");
        bail!("no locks were counted: {why}");
    }
    Ok(print_page(&period, summary::from_period(&period).as_ref(), args))
}

/// Records the VM for `length`, or, if its lock waits are sampled, until `slot` ends the recording.
fn record(
    live: &LiveTarget,
    vm: Option<NodeSource>,
    args: &Args,
    length: Duration,
    once: &[ExplicitItem],
    slot: Option<&WaitSlot>,
) -> Result<Reader> {
    let interval = if slot.is_some() { SAMPLE_INTERVAL } else { length };
    let options = RecordOptions {
        file: args.output.as_deref(),
        once,
        observer: slot.map(|slot| slot as &dyn SampleObserver),
        // While locks are counted, the agent answers no other requests.
        ..RecordOptions::of(interval, slot.is_none().then_some(length))
    };
    let stop = slot.map_or_else(Stop::default, |slot| slot.ended.clone());
    let bar = terminal::Progress::new(&format!("measuring {}", live.label), Some(length));
    let open = |_: &str| {
        match slot {
            Some(slot) => stop_on_signals(&slot.interrupted)?,
            None if once.is_empty() => stop_on_signals(&stop)?,
            None => exit_on_signals(format!(
                "interrupted before the locks of {} were counted; its agent stops counting and restores the settings\n",
                live.label
            ))?,
        }
        let writer = options.writer()?;
        if let Some(slot) = slot {
            slot.begun.request();
        }
        Ok(writer)
    };
    let is_counting = !once.is_empty();
    let recorded = record_attached(live, vm, &options, Plan::default(), &stop, open, &mut |progress| {
        bar.set(
            duration(progress.elapsed),
            Some(length.saturating_sub(duration(progress.elapsed))),
            progress.samples,
            progress.trouble,
        );
        // The counts arrive with the first sample, or not at all.
        if is_counting && progress.trouble.is_some() {
            stop.request();
        }
    });
    bar.clear();
    Ok(recorded.map_err(RecordError::into_error)?.0)
}

/// Prints the page according to the options, and returns the exit status.
fn print_page(period: &Arc<Period>, look: Option<&Look>, args: &Args) -> ExitCode {
    print_views(period, look, &args.views(), &args.verbosity.view(None), args.json)
}

/// Prints the page, and returns the exit status.
pub fn print_views(
    period: &Arc<Period>,
    look: Option<&Look>,
    views: &[View],
    page_view: &diagnosis::View<'_>,
    as_json: bool,
) -> ExitCode {
    let verdicts = beamtune_rules::diagnose_locks(period);
    let contenders = contention::lock_classes(period);
    let things = contention::contended_locks(period, &contenders);
    let remains: Vec<Remains> = contention::remaining_waits(period, &things, MAX_REMOVED_LOCKS)
        .into_iter()
        .map(|left| Remains { without: left.without, waited: left.waited, next: left.next })
        .collect();
    let contended = summary::contended(period, &contenders, &things);
    let page = Page { look, contended: &contended, views, remains: &remains, verdicts: &verdicts };
    let text = match as_json {
        true => locks::json(period, &page),
        false => locks::render(period, &page, page_view),
    };
    terminal::print(&text);
    terminal::status(&verdicts)
}
