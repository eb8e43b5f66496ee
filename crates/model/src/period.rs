//! A period: what many samples of one life of a VM say together. The rules judge periods, nothing else.
//!
//! It is built by streaming, a column of a stored chunk or a sample at a time, in memory that does not
//! grow with the length of the recording: a summary and a thinned trace of each series, and the
//! processes that used the most.

mod asked;
mod build;
mod mail;

use std::collections::HashMap;

use crate::facts::Facts;
use crate::finding::Subject;
use crate::locks::{LockRow, LockSession, WaitRow};
use crate::messages::Messages;
use crate::metrics;
use crate::rows::{
    AllocationRow, CarrierRow, CodeRow, CollectRow, CollectionRow, ExitRow, HolderRow, PortRow, ProcessRow,
    SpawnRow, TableRow,
};
use crate::sample::{Event, Gap, Incarnation};
use crate::series::{Family, Group, Metric, Series, SeriesTable};
use crate::source::TroubleKind;
use crate::stands::Stands;
use crate::thresholds::Thresholds;
use crate::units::{Kind, Nanos, SECOND_NS, Unit, seconds};
use crate::window::{self, Break, Point};
pub use build::{PeriodBuilder, Readings};
pub use mail::Mail;

/// Points that a trace keeps at most: enough to fit a slope and to draw a line.
const TRACE_POINTS: usize = 128;
/// Why something is missing of what was read from imported text.
pub const NOT_IN_TEXT: &str = "the text tells nothing of it";

/// Raw readings of a series, thinned so that at most 128 are kept, evenly spread over the period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    points: Vec<(Nanos, i64)>,
    /// Points closer than this to the one before are left out; doubles when the trace is full.
    spacing: Nanos,
    /// The earliest instant of the next point; after the last one by `spacing`.
    next: Nanos,
}

impl Trace {
    /// Almost all points are left out: a day has 200 million readings.
    fn push(&mut self, t: Nanos, value: i64) {
        if t >= self.next || self.points.is_empty() {
            self.keep(t, value);
        }
    }

    /// Like pushing the value at each of these times, which ascend.
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

    /// The readings that were kept, by time.
    pub fn points(&self) -> &[(Nanos, i64)] {
        &self.points
    }
}

/// A series over a period.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesStat {
    /// Unit of the raw values.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
    /// Readings.
    pub samples: u32,
    /// The first reading.
    pub first: Point,
    /// The last one.
    pub last: Point,
    /// The first of the readings at the end that all have the last one's value. The trace, which is thinned, cannot tell.
    pub held_since: Nanos,
    /// How many readings those are; 1 where the last one differs from the one before.
    pub held: u32,
    /// The smallest value.
    pub min: i64,
    /// The largest value.
    pub max: i64,
    sum: f64,
    /// Of a counter: its growth over all windows that could be made.
    pub delta: i64,
    /// Of a counter: the length of those windows together.
    pub covered: Nanos,
    /// Of a counter: the highest rate of a single window, per second.
    pub peak_rate: f64,
    /// Of a counter: how often it was set back.
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
            held_since: first.t,
            held: 0,
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
            self.held += 1;
        } else {
            (self.held_since, self.held) = (point.t, 1);
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
                    // A division for each of 200 million readings of a day would take a tenth of the time.
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

    /// Like pushing one value at each of these times, which ascend, in one life of the VM. Most columns of a quiet day hold
    /// one value.
    fn push_same(&mut self, value: i64, incarnation: u32, times: &[Nanos]) {
        let [first, rest @ ..] = times else { return };
        self.push(Point { t: *first, incarnation, value });
        let Some(&last) = rest.last() else { return };
        self.samples += rest.len() as u32;
        self.sum += value as f64 * rest.len() as f64;
        self.held += rest.len() as u32;
        if self.kind == Kind::Counter {
            self.covered += last - first;
        }
        self.last.t = last;
        self.trace.push_same(rest, value);
    }

    /// Of a gauge: the mean of its readings.
    pub fn mean(&self) -> f64 {
        self.sum / f64::from(self.samples)
    }

    /// Of a counter: growth per second; `None` before two readings make a window.
    pub fn rate(&self) -> Option<f64> {
        (self.kind == Kind::Counter && self.covered > 0)
            .then(|| self.delta as f64 * SECOND_NS as f64 / self.covered as f64)
    }
}

/// What one process did in the seconds in which it stood out.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessUse {
    /// `<0.123.0>`.
    pub pid: String,
    /// Reductions in those seconds.
    pub reductions: i64,
    /// Seconds (ticks) in which it was among the busiest or had one of the longest queues.
    pub ticks: u32,
    /// Of them, those in which its status was read.
    pub judged: u32,
    /// Of those, the ones in which it ran or was runnable.
    pub runnable: u32,
    /// Its reductions in single seconds, thinned.
    pub work: Trace,
    /// The longest queue seen.
    pub queue_max: i64,
    /// Its queue over time, thinned.
    pub queue: Trace,
    /// When it was last told of, and its queue then; nobody tells of a process that has ended, or that does nothing and has no messages.
    pub queue_last: (Nanos, i64),
    /// The last closer look at it.
    pub row: Option<ProcessRow>,
    /// Its registered name as it was told with a table of its; who has very many messages may not have answered any closer look.
    pub name_as_owner: Option<String>,
    /// The messages that waited for it at a closer look, the heaviest ones.
    pub mail: Option<Mail>,
    /// The stacks with which it was seen running or runnable, and how often.
    pub ran: Vec<(Vec<String>, i64)>,
    /// Those with which it was seen waiting in the midst of something, while it was among the busiest.
    pub stood: Vec<(Vec<String>, i64)>,
}

impl ProcessUse {
    fn new(pid: &str) -> Self {
        ProcessUse {
            pid: pid.to_owned(),
            reductions: 0,
            ticks: 0,
            judged: 0,
            runnable: 0,
            queue_max: 0,
            work: Trace::default(),
            queue: Trace::default(),
            queue_last: (0, 0),
            row: None,
            name_as_owner: None,
            mail: None,
            ran: Vec::new(),
            stood: Vec::new(),
        }
    }

    /// As what a finding is about.
    pub fn subject(&self) -> Subject {
        let by_row = self.row.as_ref().and_then(ProcessRow::title);
        let name = by_row.or(self.name_as_owner.as_deref());
        Subject::Process { pid: self.pid.clone(), name: name.map(str::to_owned) }
    }

    /// Name, label or initial call, with the pid; the pid alone where nothing else is known.
    pub fn title(&self) -> String {
        let by_row = self.row.as_ref().and_then(ProcessRow::title);
        match by_row.or(self.name_as_owner.as_deref()) {
            Some(title) => format!("{title} ({})", self.pid),
            None => self.pid.clone(),
        }
    }
}

/// Processes of one kind that ran, or whose garbage was collected, with one stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkSample {
    /// Registered name, else what they were started with.
    pub kind: Option<String>,
    /// `module:function/arity`, the innermost first, nine at most.
    pub stack: Vec<String>,
    /// How often.
    pub looks: i64,
    /// Their garbage was being collected.
    pub collects: bool,
    /// They were runnable: they had just been woken there, or had to let others run.
    pub is_ready: bool,
}

/// Why a rule cannot judge: what it needs and is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Missing {
    /// What is missing.
    pub what: String,
    /// Why, as far as the recording tells.
    pub why: String,
    /// What to do to have it.
    pub next: String,
}

/// When a life of the VM was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its first tick.
    pub begin: Nanos,
    /// Its last one.
    pub end: Nanos,
}

/// What many samples of one life of a VM say together.
#[derive(Debug, Clone, Default)]
pub struct Period {
    /// The life that this is about.
    pub incarnation: Option<Incarnation>,
    /// How many lives the whole recording has seen.
    pub lives: u32,
    /// Those seen in the part of the recording that was selected, this one and the others, by time.
    pub seen: Vec<Seen>,
    /// What is true throughout.
    pub facts: Facts,
    /// Instant of the first tick.
    pub begin: Nanos,
    /// Instant of the last tick.
    pub end: Nanos,
    /// Ticks.
    pub ticks: u32,
    /// Ticks that the VM answered.
    pub vm_ticks: u32,
    /// Ticks in which the host was read.
    pub host_ticks: u32,
    /// The most that a sample was late.
    pub latest: Nanos,
    series: SeriesTable,
    stats: Vec<Option<SeriesStat>>,
    /// Processes that stood out, those with the most reductions first.
    pub processes: Vec<ProcessUse>,
    /// The last row of each ETS table seen, the largest first.
    pub tables: Vec<TableRow>,
    /// When each of them was first seen, and its memory then, in bytes, by its id.
    pub tables_first: HashMap<String, (Nanos, i64)>,
    /// The last row of each port seen.
    pub ports: Vec<PortRow>,
    /// Origins of new processes, and of tables and ports; each once, the most frequent first.
    pub spawns: Vec<SpawnRow>,
    /// Why processes ended, of those that were monitored; each kind of end once, the most frequent first.
    pub exits: Vec<ExitRow>,
    /// Where processes stood that waited, and for whom.
    pub stands: Stands,
    /// Where processes ran that were looked at by chance, short-lived ones among them; empty of a quiet node, and of an older recording.
    pub work_samples: Vec<WorkSample>,
    /// What messages weigh that came for processes.
    pub messages: Messages,
    /// What the last walk through carriers has found, the largest first; empty where nobody asked for one.
    pub carriers: Vec<CarrierRow>,
    /// What the last walk through tagged blocks has found, those with the most bytes first; empty where nobody asked for one.
    pub allocations: Vec<AllocationRow>,
    /// The applications with the most code, as last read; empty where nobody asked.
    pub code: Vec<CodeRow>,
    /// The processes that hold the most binaries, as last asked; empty where nobody wanted to know.
    pub holders: Vec<HolderRow>,
    /// Collections that somebody has asked for, in the order of time.
    pub collections: Vec<CollectionRow>,
    /// The processes that these have made smaller, those that gave back the most first.
    pub collected: Vec<CollectRow>,
    /// The last time for which locks were counted; `None` where nobody asked for it.
    pub lock_session: Option<LockSession>,
    /// What was counted in it, the locks that were waited for the longest first.
    pub locks: Vec<LockRow>,
    /// Where threads were seen waiting for locks in the last look, the longest first; empty where nobody asked.
    pub waits: Vec<WaitRow>,
    /// What happened.
    pub events: Vec<Event>,
    /// What could not be measured.
    pub gaps: Vec<Gap>,
    /// By which thresholds it is to be judged, where not by the usual ones. It was not measured, and is in no recording.
    pub thresholds: Thresholds,
}

impl Period {
    /// From the first tick to the last, in seconds.
    pub fn seconds(&self) -> f64 {
        seconds(self.end - self.begin)
    }

    /// All series with what became of them.
    pub fn series(&self) -> impl Iterator<Item = (&Series, &SeriesStat)> {
        self.series
            .iter()
            .filter_map(|(id, series)| self.stats.get(id.index())?.as_ref().map(|stat| (series, stat)))
    }

    /// The entities of a group, each once, in the order in which they were first seen.
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

    /// The names and stats of a family's series of one entity.
    pub fn family<'a>(
        &'a self,
        family: &'a Family,
        entity: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a SeriesStat)> {
        let ids = self.series.of(family.group, entity);
        ids.into_iter()
            .filter_map(|id| Some((&*self.series.get(id)?.name, self.stats.get(id.index())?.as_ref()?)))
    }

    /// A series, if it was recorded.
    pub fn find(&self, group: Group, entity: &str, name: &str) -> Option<&SeriesStat> {
        self.stats.get(self.series.find(group, entity, name)?.index())?.as_ref()
    }

    /// A metric's stat, or why there is none.
    pub fn stat(&self, metric: &Metric, entity: &str) -> Result<&SeriesStat, Missing> {
        self.find(metric.group, entity, metric.name).ok_or_else(|| self.missing(metric, entity))
    }

    /// Growth of a counter per second, or why it is not known.
    pub fn rate(&self, metric: &Metric, entity: &str) -> Result<f64, Missing> {
        self.stat(metric, entity)?.rate().ok_or_else(|| Missing {
            what: describe(metric, entity),
            why: "fewer than two readings of it stand one after the other".to_owned(),
            next: "record for longer: --for 10s".to_owned(),
        })
    }

    /// A counter of time as cores (seconds per second), or why it is not known.
    pub fn cores(&self, metric: &Metric, entity: &str) -> Result<f64, Missing> {
        let rate = self.rate(metric, entity)?;
        window::seconds(metric.unit, rate, &self.facts).ok_or_else(|| Missing {
            what: describe(metric, entity),
            why: "the node did not say how long its time unit is".to_owned(),
            next: "record again with this version of beamtune".to_owned(),
        })
    }

    /// A number among the facts, or why it is not known.
    pub fn fact_number(&self, key: &str) -> Result<i64, Missing> {
        self.facts.number(key).ok_or_else(|| self.missing_fact(key))
    }

    /// The text of a fact, or why it is not known.
    pub fn fact(&self, key: &str) -> Result<&str, Missing> {
        self.facts.get(key).ok_or_else(|| self.missing_fact(key))
    }

    /// How far the wall clock of the node's host was ahead of the recorder's in the end, in nanoseconds; `None` where that was not
    /// measured, or may be nothing but the way of the messages.
    pub fn host_wall_ahead(&self) -> Option<Nanos> {
        let last = |metric| self.stat(metric, "").ok().map(|stat| stat.last.value);
        let (ahead, error) = (last(&metrics::WALL_AHEAD)?, last(&metrics::WALL_AHEAD_ERROR)?);
        (ahead.unsigned_abs() > error.unsigned_abs()).then_some(ahead)
    }

    fn missing_fact(&self, key: &str) -> Missing {
        self.missing_items(false, &["facts"], format!("the fact {key}"))
    }

    /// Why nothing of a group is there, and what to do about it.
    pub fn missing_group(&self, group: Group, what: impl Into<String>) -> Missing {
        self.missing_items(group.is_host(), group.items(), what.into())
    }

    fn missing_items(&self, host: bool, items: &[&str], what: String) -> Missing {
        let (why, kind) = self.why_missing(host, items);
        let next = match self.is_imported() {
            true => "copy what tells it too (docs/import.md), or run beamtune doctor on the node",
            false => next(host, kind),
        };
        Missing { what, why, next: next.to_owned() }
    }

    /// Whether it was read from what somebody has printed, or from a crash dump, in place of a node.
    pub fn is_imported(&self) -> bool {
        self.facts.get(crate::facts::IMPORTED_FROM).is_some()
    }

    /// Whether it is what a crash dump tells: a single sample of a node that has ended.
    pub fn is_crash_dump(&self) -> bool {
        self.facts.get(crate::facts::IMPORTED_FROM) == Some(crate::facts::CRASH_DUMP)
    }

    /// What is known of a process.
    pub fn process(&self, pid: &str) -> Option<&ProcessUse> {
        self.processes.iter().find(|process| process.pid == pid)
    }

    /// The title of a process; its pid, where nothing is known of it.
    pub fn title_of(&self, pid: &str) -> String {
        self.process(pid).map_or_else(|| pid.to_owned(), ProcessUse::title)
    }

    /// The process of a registered name, if a closer look has found it.
    pub fn process_named(&self, name: &str) -> Option<&ProcessUse> {
        let is_it =
            |process: &&ProcessUse| process.row.as_ref().and_then(|row| row.name.as_deref()) == Some(name);
        self.processes.iter().find(is_it)
    }

    fn missing(&self, metric: &Metric, entity: &str) -> Missing {
        self.missing_group(metric.group, describe(metric, entity))
    }

    /// The reason of the last gap of one of the items, or of the whole source; with its kind, if it was one item's.
    fn why_missing(&self, host: bool, items: &[&str]) -> (String, Option<TroubleKind>) {
        let source = if host { "host" } else { "vm" };
        let explains = |gap: &&Gap| match gap.source.split_once('.') {
            Some((of, item)) => of == source && items.contains(&item),
            None => gap.source == source,
        };
        match self.gaps.iter().rev().find(explains) {
            Some(gap) => (gap.reason.clone(), (gap.source != source).then_some(gap.kind)),
            None if self.is_imported() => (NOT_IN_TEXT.to_owned(), None),
            None if host && self.host_ticks == 0 => ("the host was not read".to_owned(), None),
            None if !host && self.vm_ticks == 0 => ("the VM was not asked".to_owned(), None),
            None => ("it was not recorded".to_owned(), None),
        }
    }
}

/// What to do about what is missing: of one item, or of all that the VM or the host tells.
fn next(host: bool, of_item: Option<TroubleKind>) -> &'static str {
    match (host, of_item) {
        (_, Some(TroubleKind::TimedOut)) => "record again, for longer, when the host is less busy",
        (false, Some(TroubleKind::Denied)) => "end what stands in the way while beamtune records",
        (_, Some(TroubleKind::Unsupported)) => "nothing: this VM, its flags or its host do not have it",
        (false, _) => "run beamtune doctor where the node can be attached to, with its cookie",
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
