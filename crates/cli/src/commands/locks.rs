//! `beamtune locks`: which table, process, allocator or operation the threads of a node wait for.
//!
//! A VM that counts its locks is asked for the counts; any other one on this host is looked at from outside, as it is.

mod answer;
mod outside;
mod probing;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use beamtune_attach::explicit::{Explicit, Locks, LocksCost, What};
use beamtune_attach::source::NodeSource;
use beamtune_model::Period;
use beamtune_recording::{Existing, Plan, Reader, Selection, Stop, Writer};
use beamtune_report::diagnosis;
use beamtune_report::locks::{self, By, Filter, Look, Page, Remains, Sort, View};
use beamtune_report::text;
use beamtune_rules::contention;

use self::outside::Slot;
use super::diagnose::{PartArgs, read_part};
use crate::access::AccessArgs;
use crate::subject::{Live, NoAccess, Subject};
use crate::take::{self, Beside, Failed, Wish};
use crate::terminal::{self, VerbosityArgs};
use crate::thresholds::ThresholdArgs;

/// What is asked for what counting would cost may take so long.
const ESTIMATE: Duration = Duration::from_secs(10);
/// Between two samples of a VM that is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// Locks are counted between two samples, with which comes what is known of tables, processes and flags. So much later than the time
/// counted is the second one due, since the counts have to be collected.
const AROUND: Duration = Duration::from_millis(500);
/// So many locks are taken away in thought, one after the other.
const REMAINS: usize = 3;
/// Categories without those of processes, of which there are five for each.
const OTHERS: [&str; 6] = ["allocator", "db", "distribution", "generic", "io", "scheduler"];

/// Say whether the threads of a node wait for each other, and for what: which table, process, allocator or operation.
///
/// A stock VM is looked at as it is, without a restart: how its threads spend their time, and as root where they wait, by samples of their
/// stacks. That names the operation. On an emulator that counts locks (beamtune emulator run --type lcnt) the locks are counted, which names
/// the table, the process or the allocator; the counts that it had are lost.
///
/// Exit status: 0 = nothing above "notice", 1 = findings, 2 = could not do the work.
#[derive(clap::Args)]
pub struct Args {
    /// Node name (rabbit@web1, rabbit), process id, HOST:PORT of a distribution port, or a recording. Without it: the only VM on this host.
    target: Option<String>,
    /// How long to look, or to count.
    #[arg(long = "for", value_name = "TIME", value_parser = terminal::parse_duration, default_value = "10s")]
    length: Duration,
    /// Count the locks of processes, too. What that takes of memory is said first.
    #[arg(long)]
    process: bool,
    /// Also show the counts by lock, or by place in the emulator's source, with how long the waits were.
    #[arg(long, value_enum, value_name = "BY")]
    by: Vec<ByArg>,
    /// What comes first: time, tries, collisions, ratio or name.
    #[arg(long, value_name = "BY", value_parser = parse_sort, default_value = "time")]
    sort: Sort,
    /// The other way round.
    #[arg(long)]
    reverse: bool,
    /// Only locks of this class (db_tab); may be given again.
    #[arg(long = "lock", value_name = "CLASS")]
    classes: Vec<String>,
    /// Only locks whose name, or what they belong to, has this in it.
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Lines of each table.
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,
    /// Show also what nobody waited for.
    #[arg(long)]
    all: bool,
    /// Do not look at stacks, nor set probes: only how threads spend their time.
    #[arg(long)]
    no_probes: bool,
    /// Samples of stacks in a second, at most, all threads together.
    #[arg(long, value_name = "N", default_value_t = probing::RATE, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    rate: u32,
    /// Print JSON (docs/schema/locks.schema.json).
    #[arg(long)]
    json: bool,
    /// Keep the recording.
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

/// By what counts are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ByArg {
    /// Each lock that stands out.
    Lock,
    /// Each place in the emulator's source.
    Place,
}

fn parse_sort(text: &str) -> Result<Sort, String> {
    let known = Sort::ALL.iter().find(|(name, _)| *name == text).map(|(_, sort)| *sort);
    known.ok_or_else(|| format!("one of {}", Sort::ALL.map(|(name, _)| name).join(", ")))
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let live = match Subject::find(args.target.as_deref(), &args.access)? {
        Subject::Recording(path) if args.output.is_some() => {
            bail!("{} is a recording already: leave out -o", path.display())
        }
        Subject::Recording(path) => {
            let read = read_part(&path, &args.part)?;
            if let Some(part) = read.part.filter(|_| !args.json) {
                terminal::print(&format!("{part}\n"));
            }
            let period = args.thresholds.apply(read.period);
            return Ok(tell(&period, answer::of_period(&period).as_ref(), args));
        }
        Subject::Live(_) if !args.part.is_all() => {
            bail!("--from and --to take a part of a recording; for a running node there is --for")
        }
        Subject::Live(live) => live,
    };
    let wanted = args.wanted();
    let mut vm = attach(&live)?;
    let cost = match vm.as_mut().map(|vm| vm.estimate_locks(&wanted, ESTIMATE)).transpose() {
        Err(error) if live.vm.is_some() => {
            terminal::complain(&format!(
                "whether {} counts its locks is not known ({error}): it is only looked at from outside\n",
                live.label
            ));
            None
        }
        cost => cost?,
    };
    let Some(cost) = cost.filter(LocksCost::can_count) else { return outside::look(&live, vm, args) };
    if let Some(why) = cost.why_not() {
        bail!("the locks of {} are not counted: {why}", live.label);
    }
    terminal::complain(&format!(
        "counting the locks of {} for {}: {} locks; collecting the counts takes some {:.1} MB of its memory for a moment\n",
        live.label,
        text::seconds(args.length.as_secs_f64()),
        cost.locks,
        cost.bytes as f64 / 1e6
    ));
    count(&live, vm, &wanted, args)
}

impl Args {
    fn wanted(&self) -> Locks {
        let mut locks = Locks::new(self.length);
        if self.process {
            locks.categories = OTHERS.iter().chain(&["process"]).map(|name| (*name).to_owned()).collect();
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
        let asked = |by| self.by.contains(&by) || (by == ByArg::Lock && has_filter);
        let more = [(ByArg::Lock, By::Lock), (ByArg::Place, By::Place)];
        let more = more.into_iter().filter(|(arg, _)| asked(*arg)).map(|(_, by)| view(by));
        // Who filters by class or name wants to see single locks.
        std::iter::once(view(By::Class)).chain(more).collect()
    }
}

/// The node with an agent in it, which stays until the end; `None` where there is no way in.
fn attach(live: &Live) -> Result<Option<NodeSource>> {
    match &live.access {
        Ok(access) => match NodeSource::attach(access.clone()) {
            Ok(vm) => Ok(Some(vm)),
            // One that fights for a lock may be too slow for that, and can be looked at all the same.
            Err(error) if live.vm.is_some() => {
                terminal::complain(&format!(
                    "{} is not attached to ({error}): it is only looked at from outside\n",
                    live.label
                ));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        },
        Err(no @ NoAccess::NoDistribution) => {
            terminal::complain(&format!(
                "{} is no node ({}): it is only looked at from outside\n",
                live.label,
                no.reason()
            ));
            Ok(None)
        }
        Err(NoAccess::Closed(error)) => {
            terminal::complain(&format!(
                "{} is not attached to ({error:#}): it is only looked at from outside\n",
                live.label
            ));
            Ok(None)
        }
    }
}

/// Has locks counted.
fn count(live: &Live, vm: Option<NodeSource>, locks: &Locks, args: &Args) -> Result<ExitCode> {
    let once = [Explicit::new(What::Locks(locks.clone()))];
    let reader = record(live, vm, args, args.length.saturating_add(AROUND), &once, None)?;
    let period = args.thresholds.apply(reader.period(&Selection::default())?);
    if period.lock_session.is_none() {
        let reason =
            |source| period.gaps.iter().rev().find(|gap| gap.source == source).map(|gap| gap.reason.as_str());
        let why = reason("vm.locks").or_else(|| reason("vm")).unwrap_or("the node has not answered");
        bail!("no locks were counted: {why}");
    }
    Ok(tell(&period, answer::of_period(&period).as_ref(), args))
}

/// Records it meanwhile: for so long, or, where somebody looks at it beside, until that ends it.
fn record(
    live: &Live,
    vm: Option<NodeSource>,
    args: &Args,
    length: Duration,
    once: &[Explicit],
    beside: Option<&Slot>,
) -> Result<Reader> {
    let wish = Wish {
        file: args.output.as_deref(),
        once,
        beside: beside.map(|seen| seen as &dyn Beside),
        // While locks are counted, the agent tells nothing else.
        ..Wish::of(if beside.is_some() { EVERY } else { length }, beside.is_none().then_some(length))
    };
    let stop = beside.map_or_else(Stop::default, |seen| seen.ended.clone());
    let bar = terminal::Progress::new(&format!("looking at {}", live.label), Some(length));
    let open = |_: &str| {
        match beside {
            Some(seen) => take::stop_on_signals(&seen.interrupted)?,
            None if once.is_empty() => take::stop_on_signals(&stop)?,
            None => take::end_on_signals(format!(
                "ended before the locks of {} were counted; its agent counts no more, and sets again what was set before\n",
                live.label
            ))?,
        }
        let writer = match wish.file {
            Some(path) => Writer::create(path, Existing::Refuse)?,
            None => Writer::in_memory()?,
        };
        if let Some(seen) = beside {
            seen.begun.request();
        }
        Ok(writer)
    };
    let is_counting = !once.is_empty();
    let taken = take::take_attached(live, vm, &wish, Plan::default(), &stop, open, &mut |progress| {
        bar.set(
            take::duration(progress.elapsed),
            Some(length.saturating_sub(take::duration(progress.elapsed))),
            progress.samples,
            progress.trouble,
        );
        // The counts come with the first sample or not at all.
        if is_counting && progress.trouble.is_some() {
            stop.request();
        }
    });
    bar.clear();
    Ok(taken.map_err(Failed::into_error)?.0)
}

/// Prints the page as it was asked for, and gives the exit status.
fn tell(period: &Arc<Period>, look: Option<&Look>, args: &Args) -> ExitCode {
    show(period, look, &args.views(), &args.verbosity.view(None), args.json)
}

/// Prints the page, and gives the exit status.
pub fn show(
    period: &Arc<Period>,
    look: Option<&Look>,
    views: &[View],
    view: &diagnosis::View<'_>,
    as_json: bool,
) -> ExitCode {
    let verdicts = beamtune_rules::diagnose_locks(period);
    let contenders = contention::contenders(period);
    let things = contention::things(period, &contenders);
    let remains: Vec<Remains> = contention::what_remains(period, &things, REMAINS)
        .into_iter()
        .map(|left| Remains { without: left.without, waited: left.waited, next: left.next })
        .collect();
    let page = Page { look, views, remains: &remains, verdicts: &verdicts };
    let text = match as_json {
        true => locks::json(period, &page),
        false => locks::render(period, &page, view),
    };
    terminal::print(&text);
    terminal::status(&verdicts)
}
