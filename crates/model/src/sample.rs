//! Samples: the raw data of one tick.

use crate::locks::{LockRow, LockSession, LockWaitRow};
use crate::messages::MessageRow;
use crate::profile::ProfileRow;
use crate::rows::{
    AllocationRow, BinaryHolderRow, CarrierRow, CodeRow, CollectedProcessRow, ExitRow, PortRow, ProcessRow,
    ProcessTick, RequestedGcRow, RunSampleRow, SpawnRow, TableRow,
};
use crate::series::{Family, Group, Metric, SeriesId, SeriesTable};
use crate::source::TroubleKind;
use crate::units::{Kind, Nanos, Unit};
use crate::wait_samples::WaitSampleRow;

/// The interval in which a set of values was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Instant before the first value was read.
    pub begin: Nanos,
    /// Instant after the last value was read.
    pub end: Nanos,
}

impl Span {
    /// The instant assigned to the values.
    pub fn middle(self) -> Nanos {
        self.begin + (self.end - self.begin) / 2
    }
}

/// Times of a sample. VM and host are read concurrently; the two spans overlap, but are never equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tick {
    /// The scheduled instant; strictly increasing within a recording.
    pub t: Nanos,
    /// Number of the incarnation; increases with each restart of the node.
    pub incarnation: u32,
    /// Span in which the VM was read, on the recorder's clock; `None` if the VM did not answer.
    pub vm: Option<Span>,
    /// Span in which the host was read; `None` if this failed.
    pub host: Option<Span>,
    /// Delay between `t` and the start of the sample.
    pub late: Nanos,
}

impl Tick {
    /// The instant assigned to values of the host or of the VM; `None` if the source did not answer.
    pub fn instant(&self, host: bool) -> Option<Nanos> {
        if host { self.host } else { self.vm }.map(Span::middle)
    }
}

/// One incarnation of a node, from its start to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation {
    /// Number within the recording, from 0.
    pub id: u32,
    /// Full node name; empty for a VM that is not distributed.
    pub node: String,
    /// Process id of the VM on its host.
    pub os_pid: Option<u32>,
    /// Identity of the incarnation: start time and creation of the VM, or start time of its process.
    pub boot: String,
    /// Time of the first contact, on the recording's clock.
    pub mono0: Nanos,
    /// The same instant as wall-clock time, nanoseconds since 1970.
    pub wall0: i64,
}

/// An interval in which something was not measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Start.
    pub begin: Nanos,
    /// End.
    pub end: Nanos,
    /// `vm`, `host`, or an item of either, such as `vm.ets`.
    pub source: String,
    /// Kind of the failure.
    pub kind: TroubleKind,
    /// Reason as text.
    pub reason: String,
}

/// An event at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Time.
    pub t: Nanos,
    /// `restart`, `flag_changed`, `agent_thinned` …
    pub kind: String,
    /// Subject of the event: a pid, a port, a flag.
    pub subject: String,
    /// Details as text.
    pub detail: String,
}

/// A blob for specialised readers; its kind determines its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Time.
    pub t: Nanos,
    /// Kind.
    pub kind: String,
    /// Content; the recording compresses it.
    pub blob: Vec<u8>,
}

/// All data read at one tick.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// Time, and number of the incarnation.
    pub tick: Tick,
    /// Set in the first sample of each incarnation.
    pub incarnation: Option<Incarnation>,
    /// New or changed facts. An empty value removes a fact.
    pub facts: Vec<(String, String)>,
    /// Values of series, each series at most once.
    pub readings: Vec<(SeriesId, i64)>,
    /// The busiest processes of this second.
    pub busiest: Vec<ProcessTick>,
    /// Detailed readings of processes.
    pub processes: Vec<ProcessRow>,
    /// ETS tables.
    pub tables: Vec<TableRow>,
    /// Ports.
    pub ports: Vec<PortRow>,
    /// Origins of new processes, tables, ports and atoms.
    pub spawns: Vec<SpawnRow>,
    /// Exits of monitored processes.
    pub exits: Vec<ExitRow>,
    /// Call stacks of waiting processes.
    pub wait_samples: Vec<WaitSampleRow>,
    /// Messages of estimated size.
    pub messages: Vec<MessageRow>,
    /// Call stacks of processes at work.
    pub run_samples: Vec<RunSampleRow>,
    /// Carriers, if a scan was requested.
    pub carriers: Vec<CarrierRow>,
    /// Tagged blocks, if a scan was requested.
    pub allocations: Vec<AllocationRow>,
    /// Code by application, if requested.
    pub code: Vec<CodeRow>,
    /// Processes that refer to many binaries, if requested.
    pub holders: Vec<BinaryHolderRow>,
    /// Requested garbage collections.
    pub collections: Vec<RequestedGcRow>,
    /// Processes that shrank most in these collections.
    pub collected: Vec<CollectedProcessRow>,
    /// Sessions of lock counting, if requested.
    pub lock_sessions: Vec<LockSession>,
    /// Lock counts of these sessions.
    pub locks: Vec<LockRow>,
    /// Lock waits of threads, if requested.
    pub lock_waits: Vec<LockWaitRow>,
    /// CPU profiles that ended.
    pub profiles: Vec<ProfileRow>,
    /// Blobs.
    pub snapshots: Vec<Snapshot>,
    /// Events since the last sample.
    pub events: Vec<Event>,
    /// Gaps.
    pub gaps: Vec<Gap>,
}

impl Sample {
    /// An empty sample for a tick.
    pub fn new(tick: Tick) -> Self {
        Sample { tick, ..Sample::default() }
    }
}

/// Maximum number of series of a recording. A VM with 64 + 64 schedulers has 12,000, and short-lived threads, nodes and poll sets add some;
/// a hostile node must not exhaust the memory.
const MAX_SERIES: usize = 250_000;

/// A sample under construction, with the table of its series.
#[derive(Debug)]
pub struct SampleBuilder<'a> {
    table: &'a mut SeriesTable,
    /// The limit was exceeded, and a gap was added for it.
    is_full: bool,
    /// The sample so far; rows, events and gaps are pushed here directly.
    pub sample: Sample,
}

impl<'a> SampleBuilder<'a> {
    /// Starts an empty sample.
    pub fn new(table: &'a mut SeriesTable, tick: Tick) -> Self {
        SampleBuilder { table, sample: Sample::new(tick), is_full: false }
    }

    /// Adds the value of a metric; `entity` is empty if the group has only one entity.
    pub fn metric(&mut self, metric: &Metric, entity: &str, value: i64) {
        self.reading(metric.group, entity, metric.name, metric.unit, metric.kind, value);
    }

    /// Adds a value of a family, whose name the VM chose.
    pub fn family(&mut self, family: &Family, entity: &str, name: &str, value: i64) {
        self.reading(family.group, entity, name, family.unit, family.kind, value);
    }

    fn reading(&mut self, group: Group, entity: &str, name: &str, unit: Unit, kind: Kind, value: i64) {
        if self.table.len() < MAX_SERIES || self.table.find(group, entity, name).is_some() {
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
                reason: format!("more than {MAX_SERIES} series; further ones are not recorded"),
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
    fn number_of_series_of_a_hostile_node_is_limited() {
        let mut table = SeriesTable::default();
        for number in 0..MAX_SERIES {
            table.intern(Group::Dist, &number.to_string(), "queue", Unit::Bytes, Kind::Gauge);
        }
        let tick = Tick { t: 5, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut table, tick);
        for node in ["7", "new", "newer"] {
            out.metric(&metrics::DIST_QUEUE, node, 1);
        }
        let sample = out.sample;
        assert_eq!((sample.readings.len(), table.len()), (1, MAX_SERIES));
        let gaps: Vec<_> = sample.gaps.iter().map(|gap| (gap.begin, gap.source.as_str(), gap.kind)).collect();
        assert_eq!(gaps, [(5, "vm", TroubleKind::Garbled)]);
    }
}
