//! The process at the end of a chain of waiting processes. The delay can be removed only there.

use beamtune_model::{Period, ProcessActivity, WaitSample, WaitTarget};

use crate::signals::blocking::{self, BUSY, MIN_SAMPLES};
use crate::signals::counts::largest_first;
use crate::signals::hot_code;
use crate::signals::names::NAMES;
use crate::signals::stack;
use crate::signals::steps::Step;

/// The chain is followed for at most this many steps, as in the agent.
const MAX_STEPS: usize = 5;

/// A process mainly does what it does in this share of its samples (judgement).
const MOSTLY: f64 = 0.5;

/// If this share of the samples in file operations is in a sync, the process waits for syncs (judgement: a fast sync is almost never
/// sampled).
const SYNCS: f64 = 0.3;

/// What the process at the end of a chain does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum End {
    /// It is in a step outside the node. The VM may report it as running: a sync runs on a dirty I/O scheduler.
    Step(&'static Step),
    /// It is in file operations, or in a library that stores data on disk.
    Files,
    /// It waits for an external program.
    Program,
    /// It sleeps.
    Sleeps,
    /// It uses CPU nearly all the time.
    Busy,
    /// It waits for another node.
    Node,
}

/// The process at the end of a chain, or a single process, and what it does.
#[derive(Debug, Clone)]
pub(crate) struct ChainEnd<'p> {
    pub process: &'p ProcessActivity,
    pub end: End,
    /// Most frequent function in which it does that, with the program's own function that called it.
    at: Option<String>,
    /// Number of samples in which it does that, and of all samples.
    pub seen: (i64, i64),
    /// Address of its TCP peer, if it has exactly one.
    address: Option<&'p str>,
}

impl<'p> ChainEnd<'p> {
    /// Determines what a process mainly does; `None` if unknown, or if it does no single thing most of the time.
    pub(crate) fn of(period: &'p Period, process: &'p ProcessActivity) -> Option<Self> {
        let samples = samples(period, process);
        let all = count(samples.iter());
        let of =
            |is_meant: &dyn Fn(&[String]) -> bool| count(samples.iter().filter(|(stack, _)| is_meant(stack)));
        let files = of(&is_in_files);
        let syncs = of(&is_in_sync);
        let is_most = |seen: i64| seen > 0 && seen as f64 >= MOSTLY * all as f64;
        let end = if is_most(files) {
            let sync = Step::of_sync().filter(|_| syncs as f64 >= SYNCS * files as f64);
            Some(sync.map_or(End::Files, End::Step))
        } else {
            let kinds = samples.iter().filter_map(|(stack, looks)| Some((of_stack(stack)?, *looks)));
            largest_first(kinds).into_iter().next().filter(|(_, seen)| is_most(*seen)).map(|(end, _)| end)
        };
        let is_busy = || stack::runnable_share(process).is_some_and(|share| share >= BUSY);
        let end = end.or_else(|| is_busy().then_some(End::Busy))?;
        let fits = |stack: &[String]| match end {
            End::Step(step) if step.is_sync() => is_in_sync(stack),
            End::Files => is_in_files(stack),
            End::Busy => true,
            _ => of_stack(stack) == Some(end),
        };
        let fitting = || samples.iter().filter(|(stack, _)| fits(stack));
        let places = fitting().filter_map(|(stack, looks)| Some((place(stack, end)?, *looks)));
        let (at, seen) = match (largest_first(places).into_iter().next(), end) {
            // For a busy process, the most frequent function if it has most samples. Otherwise, the number of samples that match `end`.
            (Some((at, seen)), End::Busy) if is_most(seen) => (Some(at), seen),
            (_, End::Busy) => (stack::most_of_program(process).map(str::to_owned), 0),
            (at, _) => (at.map(|(at, _)| at), count(fitting())),
        };
        let address = match &blocking::peers(period, &[&process.pid])[..] {
            [address] => Some(*address),
            _ => None,
        };
        Some(ChainEnd { process, end, at, seen: (seen, all), address })
    }

    /// Formats what it does: `sleeps (timer:sleep/1, called by shop:poll/0, in 9 of 10 samples)`.
    pub(crate) fn text(&self) -> String {
        let what = match self.end {
            End::Step(step) => format!("waits for {}", step.what),
            End::Files => "is in file operations".to_owned(),
            End::Program => "waits for an external program".to_owned(),
            End::Sleeps => "sleeps".to_owned(),
            End::Busy => "is busy".to_owned(),
            End::Node => "waits for another node".to_owned(),
        };
        match (&self.at, self.seen) {
            (Some(at), (seen @ 1.., of)) if of >= MIN_SAMPLES => {
                format!("{what} ({at}, in {seen} of {of} samples)")
            }
            (Some(at), _) => format!("{what} ({at})"),
            (None, _) => what,
        }
    }

    /// Whether it waits for the disk.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.end == End::Files || matches!(self.end, End::Step(step) if step.is_sync())
    }

    /// Returns the entry of a remedy, the change and the reason; `None` if what it waits for has its own advice.
    pub(crate) fn advice(&self) -> Option<(&'static str, String, &'static str)> {
        let (entry, change, why) = match self.end {
            End::Step(step) => return Some(("code.more_in_flight", step.change_at(self.address), step.why)),
            End::Files => (
                "code.fewer_file_operations",
                "use fewer and larger file operations: buffer writes (delayed_write, one pwrite of a list) and cache frequent reads; \
                 otherwise a faster disk",
                "its file operations run one at a time, and each waits for the disk or the page cache",
            ),
            End::Program => (
                "code.faster_program",
                "do less in that program per request, or run several behind a pool, with a timeout",
                "requests wait for it one at a time, and all others queue up behind",
            ),
            End::Sleeps => (
                "code.no_sleep",
                "do not sleep in a process that others call: use erlang:send_after/3 and handle_info/2, or reply later (noreply)",
                "it handles no message while it sleeps",
            ),
            End::Busy => {
                let at = stack::most_at(self.process);
                let own = stack::most_of_program(self.process).unwrap_or("its callbacks");
                let change = match at.and_then(hot_code::instead) {
                    Some(instead) => format!("make each message cheaper: in {own}, {instead}"),
                    None => format!(
                        "make each message cheaper (profile {own}), split it by key into several processes, or let callers read from \
                         ETS without calling it"
                    ),
                };
                return Some((
                    "code.cheaper_callback",
                    change,
                    "a process uses at most one scheduler, and all these callers wait for it",
                ));
            }
            End::Node => return None,
        };
        Some((entry, change.to_owned(), why))
    }
}

/// Follows the waits from `first` and returns the chain of processes, without `first` itself.
pub(crate) fn of<'p>(period: &'p Period, first: &ProcessActivity) -> Vec<&'p ProcessActivity> {
    let mut path = vec![first.pid.clone()];
    let mut chain = Vec::new();
    while let Some(next) = path.last().and_then(|last| waits_for(period, last)) {
        let Some(process) = period.process(next).filter(|_| !path.iter().any(|pid| pid == next)) else {
            break;
        };
        path.push(next.to_owned());
        chain.push(process);
        if chain.len() == MAX_STEPS {
            break;
        }
    }
    chain
}

/// Returns the process that this one waits for. It must be the same in every sample in which this one waits, and these must be most of its
/// samples.
pub(crate) fn waits_for<'p>(period: &'p Period, pid: &str) -> Option<&'p str> {
    let own = || period.wait_samples.stacks.iter().filter(|place| place.pid.as_deref() == Some(pid));
    let all = own().fold(0, |sum: i64, place| sum.saturating_add(place.count));
    let within: Vec<&WaitSample> = own().filter(|place| is_for_one(place)).collect();
    let seen = within.iter().fold(0, |sum: i64, place| sum.saturating_add(place.count));
    let mut on = within.iter().flat_map(|place| &place.targets).filter(|wanted| !wanted.is_address());
    let first: &WaitTarget = on.next()?;
    let is_same =
        on.all(|wanted| wanted.name == first.name) && within.iter().all(|place| !place.targets.is_empty());
    (is_same && 2 * seen > all && !first.name.contains('@')).then_some(first.name.as_str())
}

/// Whether such a process waits for one specific message: in a call, or in a receive within a callback.
fn is_for_one(place: &WaitSample) -> bool {
    place.status == "waiting"
        && place.stack.first().is_some_and(|function| {
            stack::is_call(function) && !stack::is_for_no_process(function)
                || !stack::is_loop(function) && stack::is_in_callback(&place.stack)
        })
}

/// Returns the sampled stacks of a process, running or waiting, except in the loop of its behaviour, where it waits for work.
fn samples<'p>(period: &'p Period, process: &'p ProcessActivity) -> Vec<(&'p [String], i64)> {
    let is_told = |stack: &[String]| stack.first().is_some_and(|function| !stack::is_loop(function));
    let looked =
        process.run_stacks.iter().chain(&process.wait_stacks).map(|(stack, looks)| (&stack[..], *looks));
    let looked: Vec<_> = looked.filter(|(stack, _)| is_told(stack)).collect();
    if count(looked.iter()) >= MIN_SAMPLES {
        return looked;
    }
    let places =
        period.wait_samples.stacks.iter().filter(|place| place.pid.as_deref() == Some(&*process.pid));
    let stood: Vec<_> =
        places.map(|place| (&place.stack[..], place.count)).filter(|(stack, _)| is_told(stack)).collect();
    if stood.is_empty() { looked } else { stood }
}

fn count<'a>(samples: impl Iterator<Item = &'a (&'a [String], i64)>) -> i64 {
    samples.fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks))
}

/// Returns what a process with this stack does, file operations excepted.
fn of_stack(stack: &[String]) -> Option<End> {
    let first = stack.first()?;
    if stack::is_sleep(first) {
        Some(End::Sleeps)
    } else if let Some(step) = Step::of(stack) {
        Some(End::Step(step))
    } else if stack::of_start(stack).is_some() {
        Some(End::Program)
    } else {
        stack::is_for_a_node(first).then_some(End::Node)
    }
}

/// A file operation is among this many innermost functions of the stack, not counting traps.
const FILE_DEPTH: usize = 2;

fn is_in_files(stack: &[String]) -> bool {
    is_in_sync(stack)
        || stack::without_traps(stack).take(FILE_DEPTH).any(|function| stack::begins(function, &NAMES.files))
}

fn is_in_sync(stack: &[String]) -> bool {
    Step::of(stack).is_some_and(Step::is_sync)
}

fn place(stack: &[String], end: End) -> Option<String> {
    let at = stack::innermost(stack)?;
    Some(match end {
        End::Step(step) => match stack::caller_of(stack, step.within) {
            Some(caller) => format!("{at}, called by {caller}"),
            None => at.to_owned(),
        },
        _ => stack::with_caller(at, stack),
    })
}
