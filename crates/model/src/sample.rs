//! Samples: what was read at one tick, as it was read.

use crate::locks::{LockRow, LockSession, WaitRow};
use crate::messages::MessageRow;
use crate::rows::{
    AllocationRow, CarrierRow, CodeRow, CollectRow, CollectionRow, ExitRow, HolderRow, PortRow, ProcessRow,
    ProcessTick, RanRow, SpawnRow, TableRow,
};
use crate::series::{Family, Group, Metric, SeriesId, SeriesTable};
use crate::source::TroubleKind;
use crate::stands::StandRow;
use crate::units::{Kind, Nanos, Unit};

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
    /// Why processes ended.
    pub exits: Vec<ExitRow>,
    /// Where processes stand that wait.
    pub stands: Vec<StandRow>,
    /// What messages weigh that came.
    pub messages: Vec<MessageRow>,
    /// Where the busiest processes ran.
    pub ran: Vec<RanRow>,
    /// Carriers, if somebody has asked for a walk.
    pub carriers: Vec<CarrierRow>,
    /// Tagged blocks, if somebody has asked for a walk through them.
    pub allocations: Vec<AllocationRow>,
    /// Code by application, if somebody has asked for it.
    pub code: Vec<CodeRow>,
    /// Holders of binaries, if somebody has asked for them.
    pub holders: Vec<HolderRow>,
    /// Collections that somebody has asked for.
    pub collections: Vec<CollectionRow>,
    /// The processes that these have made smaller by the most.
    pub collected: Vec<CollectRow>,
    /// Times for which locks were counted, if somebody has asked for that.
    pub lock_sessions: Vec<LockSession>,
    /// What was counted in them.
    pub locks: Vec<LockRow>,
    /// Where threads were seen waiting for locks, if somebody has asked for that.
    pub waits: Vec<WaitRow>,
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
            exits: Vec::new(),
            stands: Vec::new(),
            messages: Vec::new(),
            ran: Vec::new(),
            carriers: Vec::new(),
            allocations: Vec::new(),
            code: Vec::new(),
            holders: Vec::new(),
            collections: Vec::new(),
            collected: Vec::new(),
            lock_sessions: Vec::new(),
            locks: Vec::new(),
            waits: Vec::new(),
            snapshots: Vec::new(),
            events: Vec::new(),
            gaps: Vec::new(),
        }
    }
}

/// Series of a recording. A VM of 64 + 64 schedulers has 12,000, and each thread, node or poll set that comes and goes adds
/// some; a node that makes up more must not fill the memory.
const MOST_SERIES: usize = 250_000;

/// A sample under construction, with the table that names its series.
#[derive(Debug)]
pub struct SampleBuilder<'a> {
    table: &'a mut SeriesTable,
    /// A series was refused, and that was said.
    is_full: bool,
    /// What has been gathered so far; rows, events and gaps are pushed here directly.
    pub sample: Sample,
}

impl<'a> SampleBuilder<'a> {
    /// Starts an empty sample.
    pub fn new(table: &'a mut SeriesTable, tick: Tick) -> Self {
        SampleBuilder { table, sample: Sample::new(tick), is_full: false }
    }

    /// Adds the value of a metric; `entity` is empty where the group has only one.
    pub fn metric(&mut self, metric: &Metric, entity: &str, value: i64) {
        self.reading(metric.group, entity, metric.name, metric.unit, metric.kind, value);
    }

    /// Adds a value of a family, whose name the VM gave.
    pub fn family(&mut self, family: &Family, entity: &str, name: &str, value: i64) {
        self.reading(family.group, entity, name, family.unit, family.kind, value);
    }

    fn reading(&mut self, group: Group, entity: &str, name: &str, unit: Unit, kind: Kind, value: i64) {
        if self.table.len() < MOST_SERIES || self.table.find(group, entity, name).is_some() {
            let id = self.table.intern(group, entity, name, unit, kind);
            self.sample.readings.push((id, value));
        } else if !self.is_full {
            self.is_full = true;
            let Tick { t, .. } = self.sample.tick;
            self.sample.gaps.push(Gap {
                begin: t,
                end: t,
                source: if group.is_host() { "host" } else { "vm" }.to_owned(),
                kind: TroubleKind::Garbled,
                reason: format!("it has named more than {MOST_SERIES} series; new ones are not recorded"),
            });
        }
    }

    /// Adds a fact; see [`crate::facts`] for the keys.
    pub fn fact(&mut self, key: &str, value: impl Into<String>) {
        self.sample.facts.push((key.to_owned(), value.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;

    #[test]
    fn a_node_that_makes_up_series_without_end_fills_no_memory() {
        let mut table = SeriesTable::default();
        for number in 0..MOST_SERIES {
            table.intern(Group::Dist, &number.to_string(), "queue", Unit::Bytes, Kind::Gauge);
        }
        let tick = Tick { t: 5, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut table, tick);
        for node in ["7", "new", "newer"] {
            out.metric(&metrics::DIST_QUEUE, node, 1);
        }
        let sample = out.sample;
        assert_eq!((sample.readings.len(), table.len()), (1, MOST_SERIES));
        let gaps: Vec<_> = sample.gaps.iter().map(|gap| (gap.begin, gap.source.as_str(), gap.kind)).collect();
        assert_eq!(gaps, [(5, "vm", TroubleKind::Garbled)]);
    }
}
