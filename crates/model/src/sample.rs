//! Samples: what was read at one tick, as it was read.

use crate::rows::{PortRow, ProcessRow, ProcessTick, SpawnRow, TableRow};
use crate::series::{Family, Metric, SeriesId, SeriesTable};
use crate::source::TroubleKind;
use crate::units::Nanos;

/// From when to when something was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Before the first value was read.
    pub begin: Nanos,
    /// After the last one was.
    pub end: Nanos,
}

impl Span {
    /// The instant for which the values stand.
    pub fn middle(self) -> Nanos {
        self.begin + (self.end - self.begin) / 2
    }
}

/// When a sample was taken: VM and host are read one beside the other, and joined by overlap, never by equal stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    /// The instant that the schedule had set; strictly grows within a recording.
    pub t: Nanos,
    /// Which life of the VM it belongs to; grows with each restart.
    pub incarnation: u32,
    /// The VM's read, translated to the recorder's clock; `None` if the VM did not answer.
    pub vm: Option<Span>,
    /// The host's read.
    pub host: Option<Span>,
    /// How long after `t` the sample was begun.
    pub late: Nanos,
}

impl Tick {
    /// The instant for which the values of a group stand, `None` if its source did not answer.
    pub fn instant(&self, host: bool) -> Option<Nanos> {
        if host { self.host } else { self.vm }.map(Span::middle)
    }
}

/// One life of a VM, from its start to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation {
    /// Number within the recording, from 0.
    pub id: u32,
    /// Full node name; empty for a VM without distribution.
    pub node: String,
    /// Process id on its host.
    pub os_pid: Option<u32>,
    /// What tells this life from the next: the VM's start time and creation, or the process's start time.
    pub boot: String,
    /// When it was first met, on the recording's clock.
    pub mono0: Nanos,
    /// The same instant as wall-clock time, nanoseconds since 1970.
    pub wall0: i64,
}

/// A time for which something was not measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// From when.
    pub begin: Nanos,
    /// To when.
    pub end: Nanos,
    /// `vm`, `host`, or an item of one of them such as `vm.ets`.
    pub source: String,
    /// What kept it from being measured.
    pub kind: TroubleKind,
    /// The same for a person.
    pub reason: String,
}

/// Something that happened at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub t: Nanos,
    /// `restart`, `flag_changed`, `agent_thinned` …
    pub kind: String,
    /// What it concerned: a pid, a port, a flag.
    pub subject: String,
    /// The rest, for a person.
    pub detail: String,
}

/// A blob that only some readers want; its form is said by its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// When.
    pub t: Nanos,
    /// What it is.
    pub kind: String,
    /// The content; the store compresses it.
    pub blob: Vec<u8>,
}

/// All that was read at one tick.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// When, and of which life of the VM.
    pub tick: Tick,
    /// Set in the first sample of each life of the VM.
    pub incarnation: Option<Incarnation>,
    /// Facts first learnt, or changed, with this sample. An empty value takes a fact back.
    pub facts: Vec<(String, String)>,
    /// Values of series; each series at most once.
    pub readings: Vec<(SeriesId, i64)>,
    /// The processes that stood out in this second.
    pub busiest: Vec<ProcessTick>,
    /// Closer looks at processes.
    pub processes: Vec<ProcessRow>,
    /// ETS tables.
    pub tables: Vec<TableRow>,
    /// Ports.
    pub ports: Vec<PortRow>,
    /// Origins of what is new.
    pub spawns: Vec<SpawnRow>,
    /// Blobs.
    pub snapshots: Vec<Snapshot>,
    /// What happened since the sample before.
    pub events: Vec<Event>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

impl Sample {
    /// An empty sample of a tick.
    pub fn new(tick: Tick) -> Self {
        Sample {
            tick,
            incarnation: None,
            facts: Vec::new(),
            readings: Vec::new(),
            busiest: Vec::new(),
            processes: Vec::new(),
            tables: Vec::new(),
            ports: Vec::new(),
            spawns: Vec::new(),
            snapshots: Vec::new(),
            events: Vec::new(),
            gaps: Vec::new(),
        }
    }
}

/// A sample under construction, with the table that names its series.
#[derive(Debug)]
pub struct SampleBuilder<'a> {
    table: &'a mut SeriesTable,
    /// What has been gathered so far; rows, events and gaps are pushed here directly.
    pub sample: Sample,
}

impl<'a> SampleBuilder<'a> {
    /// Starts an empty sample.
    pub fn new(table: &'a mut SeriesTable, tick: Tick) -> Self {
        SampleBuilder { table, sample: Sample::new(tick) }
    }

    /// Adds the value of a metric; `entity` is empty where the group has only one.
    pub fn metric(&mut self, metric: &Metric, entity: &str, value: i64) {
        let id = self.table.intern(metric.group, entity, metric.name, metric.unit, metric.kind);
        self.sample.readings.push((id, value));
    }

    /// Adds a value of a family, whose name the VM gave.
    pub fn family(&mut self, family: &Family, entity: &str, name: &str, value: i64) {
        let id = self.table.intern(family.group, entity, name, family.unit, family.kind);
        self.sample.readings.push((id, value));
    }

    /// Adds a fact; see [`crate::facts`] for the keys.
    pub fn fact(&mut self, key: &str, value: impl Into<String>) {
        self.sample.facts.push((key.to_owned(), value.into()));
    }
}
