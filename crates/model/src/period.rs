//! A period: the summary of many samples of one incarnation of a node. It is the only input of the rules.
//!
//! Samples, or columns of stored chunks, are added one by one. Memory use does not grow with the length of the recording. A period
//! contains a summary and a thinned trace of each series, and the processes with the most reductions.

mod build;
mod queued;
mod requested;

use std::collections::HashMap;

use crate::facts::Facts;
use crate::finding::Subject;
use crate::locks::{LockRow, LockSession, LockWaitRow};
use crate::messages::Messages;
use crate::metrics;
use crate::profile::Profile;
use crate::rows::{
    AllocationRow, BinaryHolderRow, CarrierRow, CodeRow, CollectedProcessRow, ExitRow, PortRow, ProcessRow,
    RequestedGcRow, SpawnRow, TableRow,
};
use crate::sample::{Event, Gap, Incarnation};
use crate::series::{Family, Group, Metric, Series, SeriesTable};
use crate::source::TroubleKind;
use crate::thresholds::Thresholds;
use crate::units::{Kind, Nanos, SECOND_NS, Unit, seconds};
use crate::wait_samples::WaitSamples;
use crate::window::{self, Break, Point};
pub use build::{PeriodBuilder, Readings};
pub use queued::QueuedMessages;

/// Maximum number of points of a trace: enough to fit a slope and to draw a line.
const TRACE_POINTS: usize = 128;
/// [`Missing::why`] for data that imported text does not contain.
pub const NOT_IN_IMPORT: &str = "not contained in the imported text";

/// Raw readings of a series, thinned to at most 128 that are evenly spread over the period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    points: Vec<(Nanos, i64)>,
    /// Minimum distance between points; doubles when the trace is full.
    spacing: Nanos,
    /// Earliest instant of the next point: that of the last point plus `spacing`.
    next: Nanos,
}

impl Trace {
    /// Adds a point, or drops it if it is too close to the last one. Must be cheap when it drops a point, which is nearly always: a day
    /// has 200 million readings.
    fn push(&mut self, t: Nanos, value: i64) {
        if t >= self.next || self.points.is_empty() {
            self.keep(t, value);
        }
    }

    /// Equivalent to calling `push` with this value at each of these ascending times.
    fn push_same(&mut self, mut times: &[Nanos], value: i64) {
        while let Some(&t) = times.get(times.partition_point(|&t| t < self.next)) {
            self.keep(t, value);
            times = &times[times.partition_point(|&later| later <= t)..];
        }
    }

    fn keep(&mut self, t: Nanos, value: i64) {
        self.points.push((t, value));
        if self.points.len() > TRACE_POINTS {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            let span =
                self.points.last().map_or(0, |p| p.0).saturating_sub(self.points.first().map_or(0, |p| p.0));
            self.spacing = (span / self.points.len().max(1) as i64).max(self.spacing);
        }
        self.next = self.points.last().map_or(t, |&(last, _)| last.saturating_add(self.spacing));
    }

    /// The kept readings, by time.
    pub fn points(&self) -> &[(Nanos, i64)] {
        &self.points
    }
}

/// Summary of a series over a period.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesStat {
    /// Unit of the raw values.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
    /// Number of readings.
    pub samples: u32,
    /// The first reading.
    pub first: Point,
    /// The last reading.
    pub last: Point,
    /// Start of the final run of equal readings. Kept separately because the trace is thinned.
    pub final_run_since: Nanos,
    /// Number of readings in the final run; 1 if the last reading differs from the one before.
    pub final_run: u32,
    /// The smallest value.
    pub min: i64,
    /// The largest value.
    pub max: i64,
    sum: f64,
    /// Counters: growth, summed over all windows (see [`window`]).
    pub delta: i64,
    /// Counters: total length of all windows.
    pub covered: Nanos,
    /// Counters: highest rate of a single window, per second.
    pub peak_rate: f64,
    /// Counters: number of resets.
    pub resets: u32,
    /// Thinned raw readings.
    pub trace: Trace,
}

impl SeriesStat {
    fn new(unit: Unit, kind: Kind, first: Point) -> Self {
        let mut stat = SeriesStat {
            unit,
            kind,
            samples: 0,
            first,
            last: first,
            final_run_since: first.t,
            final_run: 0,
            min: first.value,
            max: first.value,
            sum: 0.0,
            delta: 0,
            covered: 0,
            peak_rate: 0.0,
            resets: 0,
            trace: Trace::default(),
        };
        stat.note(first);
        stat
    }

    fn note(&mut self, point: Point) {
        self.samples += 1;
        self.min = self.min.min(point.value);
        self.max = self.max.max(point.value);
        self.sum += point.value as f64;
        if (point.value, point.incarnation) == (self.last.value, self.last.incarnation) {
            self.final_run += 1;
        } else {
            (self.final_run_since, self.final_run) = (point.t, 1);
        }
        self.last = point;
        self.trace.push(point.t, point.value);
    }

    fn push(&mut self, point: Point) {
        if self.kind == Kind::Counter {
            match window::step(self.last, point) {
                Ok(step) => {
                    self.delta = self.delta.saturating_add(step.delta);
                    self.covered += step.length;
                    // Dividing at each of the 200 million readings of a day would take a tenth of the time.
                    if step.is_faster_than(self.peak_rate) {
                        self.peak_rate = step.per_second();
                    }
                }
                Err(Break::Reset) => self.resets += 1,
                Err(Break::Restart | Break::NoTime) => {}
            }
        }
        self.note(point);
    }

    /// Equivalent to calling `push` with one value at each of these ascending times, within one incarnation. On a quiet day, most
    /// columns contain a single value.
    fn push_same(&mut self, value: i64, incarnation: u32, times: &[Nanos]) {
        let [first, rest @ ..] = times else { return };
        self.push(Point { t: *first, incarnation, value });
        let Some(&last) = rest.last() else { return };
        self.samples += rest.len() as u32;
        self.sum += value as f64 * rest.len() as f64;
        self.final_run += rest.len() as u32;
        if self.kind == Kind::Counter {
            self.covered += last - first;
        }
        self.last.t = last;
        self.trace.push_same(rest, value);
    }

    /// Gauges: mean of the readings.
    pub fn mean(&self) -> f64 {
        self.sum / f64::from(self.samples)
    }

    /// Counters: growth per second; `None` for gauges, or if there is no window.
    pub fn rate(&self) -> Option<f64> {
        (self.kind == Kind::Counter && self.covered > 0)
            .then(|| self.delta as f64 * SECOND_NS as f64 / self.covered as f64)
    }
}

/// Data of one process, mainly from the seconds in which it was recorded as one of the busiest.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessActivity {
    /// `<0.123.0>`.
    pub pid: String,
    /// Reductions in the seconds in which it was recorded.
    pub reductions: i64,
    /// Number of seconds (ticks) in which it was among the busiest or had one of the longest queues.
    pub ticks: u32,
    /// Number of these ticks in which its status was read.
    pub status_samples: u32,
    /// Number of ticks with a status in which it was running or runnable.
    pub runnable: u32,
    /// Reductions per tick, thinned.
    pub work: Trace,
    /// Maximum queue length.
    pub queue_max: i64,
    /// Queue length over time, thinned.
    pub queue: Trace,
    /// Time of the last tick in which it was recorded, and its queue length at this time. Processes that have exited are not recorded,
    /// nor are idle processes with an empty queue.
    pub last_queue: (Nanos, i64),
    /// The last detailed reading, if any.
    pub row: Option<ProcessRow>,
    /// Registered name, as recorded with a table that the process owns. A process with a very long queue may not answer detailed
    /// readings, so this can be its only known name.
    pub owner_name: Option<String>,
    /// The detailed reading of the message queue with the most bytes.
    pub queued_messages: Option<QueuedMessages>,
    /// Call stacks while it was running or runnable, with the number of samples.
    pub run_stacks: Vec<(Vec<String>, i64)>,
    /// Call stacks while it waited within a call, with the number of samples, from ticks in which it was among the busiest.
    pub wait_stacks: Vec<(Vec<String>, i64)>,
}

impl ProcessActivity {
    fn new(pid: &str) -> Self {
        ProcessActivity {
            pid: pid.to_owned(),
            reductions: 0,
            ticks: 0,
            status_samples: 0,
            runnable: 0,
            queue_max: 0,
            work: Trace::default(),
            queue: Trace::default(),
            last_queue: (0, 0),
            row: None,
            owner_name: None,
            queued_messages: None,
            run_stacks: Vec::new(),
            wait_stacks: Vec::new(),
        }
    }

    /// The process as subject of a finding.
    pub fn subject(&self) -> Subject {
        let by_row = self.row.as_ref().and_then(ProcessRow::title);
        let name = by_row.or(self.owner_name.as_deref());
        Subject::Process { pid: self.pid.clone(), name: name.map(str::to_owned) }
    }

    /// Name, label or initial call, with the pid; only the pid if none of them is known.
    pub fn title(&self) -> String {
        let by_row = self.row.as_ref().and_then(ProcessRow::title);
        match by_row.or(self.owner_name.as_deref()) {
            Some(title) => format!("{title} ({})", self.pid),
            None => self.pid.clone(),
        }
    }
}

/// Samples of processes of one kind that had the same call stack while they were running, runnable or in garbage collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkSample {
    /// Registered name, else initial call.
    pub kind: Option<String>,
    /// `module:function/arity`, innermost first; nine at most if the agent sampled them.
    pub stack: Vec<String>,
    /// Number of samples.
    pub samples: i64,
    /// Whether they were in garbage collection.
    pub is_collecting: bool,
    /// Whether they were runnable: they had been woken or preempted in this function.
    pub is_runnable: bool,
}

/// Data that a rule needs and the recording does not contain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Missing {
    /// The missing data.
    pub what: String,
    /// The reason, if recorded.
    pub why: String,
    /// How to get the data.
    pub next_step: String,
}

/// First and last tick of an incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncarnationSpan {
    /// First tick.
    pub begin: Nanos,
    /// Last tick.
    pub end: Nanos,
}

/// Summary of many samples of one incarnation of a node.
#[derive(Debug, Clone, Default)]
pub struct Period {
    /// The incarnation.
    pub incarnation: Option<Incarnation>,
    /// Number of incarnations in the whole recording.
    pub incarnation_count: u32,
    /// All incarnations in the selected part of the recording, by time.
    pub incarnation_spans: Vec<IncarnationSpan>,
    /// Facts, which are constant for the incarnation.
    pub facts: Facts,
    /// Instant of the first tick.
    pub begin: Nanos,
    /// Instant of the last tick.
    pub end: Nanos,
    /// Number of ticks.
    pub ticks: u32,
    /// Number of ticks in which the VM answered.
    pub vm_ticks: u32,
    /// Number of ticks in which the host was read.
    pub host_ticks: u32,
    /// Maximum delay of a sample after its scheduled instant.
    pub max_late: Nanos,
    series: SeriesTable,
    stats: Vec<Option<SeriesStat>>,
    /// The busiest processes, most reductions first.
    pub processes: Vec<ProcessActivity>,
    /// Last row of each ETS table, the largest first.
    pub tables: Vec<TableRow>,
    /// By table id: when the table was first recorded, and its memory at this time, in bytes.
    pub tables_first: HashMap<String, (Nanos, i64)>,
    /// Last row of each port.
    pub ports: Vec<PortRow>,
    /// Origins of new processes, tables and ports, each once, the most frequent first.
    pub spawns: Vec<SpawnRow>,
    /// Exits of monitored processes, each kind of exit once, the most frequent first.
    pub exits: Vec<ExitRow>,
    /// Call stacks of waiting processes, and what they wait for.
    pub wait_samples: WaitSamples,
    /// Call stacks of randomly sampled processes at work, short-lived ones included; empty for a quiet node, and for older recordings.
    pub work_samples: Vec<WorkSample>,
    /// The CPU profiles of the period, joined.
    pub profile: Option<Profile>,
    /// The samples of processes in the profile. Unlike [`Self::work_samples`], each represents the same CPU time, and its innermost function
    /// ran; the agent's samples show where a process next yielded.
    pub profiled_samples: Vec<WorkSample>,
    /// Sizes of messages.
    pub messages: Messages,
    /// Carriers found by the last scan, the largest first; empty if none was requested.
    pub carriers: Vec<CarrierRow>,
    /// Tagged blocks found by the last scan, most bytes first; empty if none was requested.
    pub allocations: Vec<AllocationRow>,
    /// Applications with the most code, from the last reading; empty if none was requested.
    pub code: Vec<CodeRow>,
    /// Processes that refer to the most binaries, from the last reading; empty if none was requested.
    pub holders: Vec<BinaryHolderRow>,
    /// Requested garbage collections, by time.
    pub collections: Vec<RequestedGcRow>,
    /// Processes that shrank in requested garbage collections, most bytes freed first.
    pub collected: Vec<CollectedProcessRow>,
    /// The last session of lock counting; `None` if none was requested.
    pub lock_session: Option<LockSession>,
    /// Lock counts of this session, the longest total wait time first.
    pub locks: Vec<LockRow>,
    /// Lock waits of threads in the last wait sampling, the longest first; empty if none was requested.
    pub lock_waits: Vec<LockWaitRow>,
    /// Events.
    pub events: Vec<Event>,
    /// Gaps: intervals in which something could not be measured.
    pub gaps: Vec<Gap>,
    /// Overridden thresholds for the evaluation of the period. They are settings of the user, not part of a recording.
    pub thresholds: Thresholds,
}

impl Period {
    /// Length in seconds, from the first tick to the last.
    pub fn seconds(&self) -> f64 {
        seconds(self.end - self.begin)
    }

    /// All series with their summaries.
    pub fn series(&self) -> impl Iterator<Item = (&Series, &SeriesStat)> {
        self.series
            .iter()
            .filter_map(|(id, series)| self.stats.get(id.index())?.as_ref().map(|stat| (series, stat)))
    }

    /// Entities of a group, each once, in order of first appearance.
    pub fn entities(&self, group: Group) -> Vec<&str> {
        let mut entities: Vec<&str> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (series, _) in self.series().filter(|(series, _)| series.group == group) {
            if seen.insert(&*series.entity) {
                entities.push(&series.entity);
            }
        }
        entities
    }

    /// Names and summaries of a family's series for one entity.
    pub fn family<'a>(
        &'a self,
        family: &'a Family,
        entity: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a SeriesStat)> {
        let ids = self.series.of_entity(family.group, entity);
        ids.into_iter()
            .filter_map(|id| Some((&*self.series.get(id)?.name, self.stats.get(id.index())?.as_ref()?)))
    }

    /// The summary of a series, if it was recorded.
    pub fn find(&self, group: Group, entity: &str, name: &str) -> Option<&SeriesStat> {
        self.stats.get(self.series.find(group, entity, name)?.index())?.as_ref()
    }

    /// Summary of a metric, or why it is missing.
    pub fn stat(&self, metric: &Metric, entity: &str) -> Result<&SeriesStat, Missing> {
        self.find(metric.group, entity, metric.name).ok_or_else(|| self.missing(metric, entity))
    }

    /// Growth of a counter per second, or why it is missing.
    pub fn rate(&self, metric: &Metric, entity: &str) -> Result<f64, Missing> {
        self.stat(metric, entity)?.rate().ok_or_else(|| Missing {
            what: describe(metric, entity),
            why: "fewer than two consecutive readings".to_owned(),
            next_step: "record for longer: --for 10s".to_owned(),
        })
    }

    /// Rate of a time counter in cores (seconds per second), or why it is missing.
    pub fn cores(&self, metric: &Metric, entity: &str) -> Result<f64, Missing> {
        let rate = self.rate(metric, entity)?;
        window::seconds(metric.unit, rate, &self.facts).ok_or_else(|| Missing {
            what: describe(metric, entity),
            why: "unit of time unknown: not reported by the node".to_owned(),
            next_step: "record again with this version of beamtune".to_owned(),
        })
    }

    /// A numeric fact, or why it is missing.
    pub fn fact_number(&self, key: &str) -> Result<i64, Missing> {
        self.facts.number(key).ok_or_else(|| self.missing_fact(key))
    }

    /// A fact as text, or why it is missing.
    pub fn fact(&self, key: &str) -> Result<&str, Missing> {
        self.facts.get(key).ok_or_else(|| self.missing_fact(key))
    }

    /// Wall clock of the node's host minus wall clock of the recorder, from the last reading, in nanoseconds. `None` if the difference was
    /// not measured, or does not exceed the error of the measurement, which is due to network delay.
    pub fn host_wall_ahead(&self) -> Option<Nanos> {
        let last = |metric| self.stat(metric, "").ok().map(|stat| stat.last.value);
        let (ahead, error) = (last(&metrics::WALL_AHEAD)?, last(&metrics::WALL_AHEAD_ERROR)?);
        (ahead.unsigned_abs() > error.unsigned_abs()).then_some(ahead)
    }

    /// How long the VM had run at the end of the period, in seconds; `None` if its clock or its start time is not recorded.
    pub fn uptime_seconds(&self) -> Option<f64> {
        let offset = self.stat(&metrics::CLOCK_OFFSET, "").ok()?.last.value;
        let started = self.facts.number(crate::facts::START_TIME)? as f64 / self.facts.native_time_hz()?;
        let now = seconds(self.end) - offset as f64 / SECOND_NS as f64;
        Some(now - started).filter(|uptime| *uptime >= 0.0)
    }

    fn missing_fact(&self, key: &str) -> Missing {
        self.missing_items(false, &["facts"], format!("the fact {key}"))
    }

    /// Returns why data of a group are missing, and how to get them.
    pub fn missing_group(&self, group: Group, what: impl Into<String>) -> Missing {
        self.missing_items(group.is_host(), group.items(), what.into())
    }

    fn missing_items(&self, host: bool, items: &[&str], what: String) -> Missing {
        let (why, kind) = self.why_missing(host, items);
        let next = match self.is_imported() {
            true => {
                "import the text that contains it too (docs/import.md), or run beamtune doctor on the node"
            }
            false => next(host, kind),
        };
        Missing { what, why, next_step: next.to_owned() }
    }

    /// Whether the period was imported from printed text or from a crash dump, rather than recorded from a node.
    pub fn is_imported(&self) -> bool {
        self.facts.get(crate::facts::IMPORTED_FROM).is_some()
    }

    /// Whether the period was imported from a crash dump: a single sample of a node that has terminated.
    pub fn is_crash_dump(&self) -> bool {
        self.facts.get(crate::facts::IMPORTED_FROM) == Some(crate::facts::CRASH_DUMP)
    }

    /// Data of a process, if it was recorded.
    pub fn process(&self, pid: &str) -> Option<&ProcessActivity> {
        self.processes.iter().find(|process| process.pid == pid)
    }

    /// Title of a process; only the pid if nothing else is known.
    pub fn title_of(&self, pid: &str) -> String {
        self.process(pid).map_or_else(|| pid.to_owned(), ProcessActivity::title)
    }

    /// The process with this registered name, if a detailed reading contains it.
    pub fn process_named(&self, name: &str) -> Option<&ProcessActivity> {
        let is_it = |process: &&ProcessActivity| {
            process.row.as_ref().and_then(|row| row.name.as_deref()) == Some(name)
        };
        self.processes.iter().find(is_it)
    }

    fn missing(&self, metric: &Metric, entity: &str) -> Missing {
        self.missing_group(metric.group, describe(metric, entity))
    }

    /// Returns the reason of the last gap in one of the items or in the whole source. The kind is returned only for gaps in an item.
    fn why_missing(&self, host: bool, items: &[&str]) -> (String, Option<TroubleKind>) {
        let source = if host { "host" } else { "vm" };
        let explains = |gap: &&Gap| match gap.source.split_once('.') {
            Some((of, item)) => of == source && items.contains(&item),
            None => gap.source == source,
        };
        match self.gaps.iter().rev().find(explains) {
            Some(gap) => (gap.reason.clone(), (gap.source != source).then_some(gap.kind)),
            None if self.is_imported() => (NOT_IN_IMPORT.to_owned(), None),
            None if host && self.host_ticks == 0 => ("the host was not read".to_owned(), None),
            None if !host && self.vm_ticks == 0 => ("the VM was not read".to_owned(), None),
            None => ("not recorded".to_owned(), None),
        }
    }
}

/// Returns the next step if data of a single item are missing, or all data from the VM or the host.
fn next(host: bool, of_item: Option<TroubleKind>) -> &'static str {
    match (host, of_item) {
        (_, Some(TroubleKind::TimedOut)) => "record again, for longer, when the host is less busy",
        (false, Some(TroubleKind::Denied)) => "stop the tool that occupies it while beamtune records",
        (_, Some(TroubleKind::Unsupported)) => "none: not available with this VM, its flags or its host",
        (false, _) => "run beamtune doctor from a host that can attach to the node, with its cookie",
        (true, _) => "run beamtune on the node's host, as root or as the node's user",
    }
}

fn describe(metric: &Metric, entity: &str) -> String {
    if entity.is_empty() {
        format!("{}.{}", metric.group, metric.name)
    } else {
        format!("{}.{} of {entity}", metric.group, metric.name)
    }
}

#[cfg(test)]
mod tests;
