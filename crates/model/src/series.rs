//! Series: the identity of everything that is measured again and again.
//!
//! A series is (group, entity, name): `msacc`, `scheduler/1`, `gc`. Names are open where the VM's or
//! the kernel's are (msacc states, allocators), so a release that brings a new one needs no new
//! version of beamtune to be recorded. Samples carry a [`SeriesId`]; the [`SeriesTable`] knows what it means.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::units::{Kind, Unit, text_names};

/// Between the parts of an entity that is made of several names, which may hold anything that can be typed.
pub const PARTS: char = '\u{1f}';

/// What belongs together: read in one go, stored in one chunk, on one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Counts and statistics of the whole VM; the entity is empty.
    Vm,
    /// Microstate accounting; entity `scheduler/1`, `aux/1` …, name = state.
    Msacc,
    /// Scheduler wall time; entity `scheduler/1`, `dirty_cpu_scheduler/1`, `dirty_io_scheduler/1`.
    SchedulerTime,
    /// Run queues; entity `scheduler/1`, `dirty_cpu`, `dirty_io`.
    RunQueue,
    /// `erlang:memory/0`; the entity is empty.
    Memory,
    /// Sums over all processes; the entity is empty.
    Processes,
    /// What the VM tells by itself; entity = kind: `long_gc`, `long_schedule`, `large_heap`, `busy_port`, `busy_dist_port`.
    Events,
    /// Poll sets; entity `0`, `1` … in the order of `system_info(check_io)`.
    CheckIo,
    /// Allocators; entity `eheap_alloc/1`: allocator and instance.
    Allocator,
    /// What `fix_alloc` holds, in all its instances; entity = kind: `monitor`, `link`, `bif_timer`, `proc` …
    FixAlloc,
    /// The segment cache; entity = instance.
    Mseg,
    /// Address space kept by the VM; entity `default` or `literal`.
    Mmap,
    /// Loaded code and persistent terms, read only when somebody asks for it; the entity is empty.
    Code,
    /// Distribution channels; entity = name of the other node.
    Dist,
    /// Attempts to connect to other nodes; entity = name of the other node, or empty for what was looked at.
    Connect,
    /// ETS tables that grow; entity = name of a named table, `#Ref<…>` of another one, or empty for what was followed.
    Table,
    /// Traces that are on; entity tracer and name of the trace session, with [`PARTS`] between them, or empty for what was looked at.
    Trace,
    /// Flags of these traces; entity as of [`Group::Trace`], name = flag.
    TraceFlag,
    /// What measuring costs the node; entity = item, or empty for the whole sample.
    Agent,
    /// RabbitMQ's own totals; the entity is empty.
    Broker,
    /// Its queues with the most messages or redeliveries; entity `queue NAME`, or `queue NAME in vhost VHOST`.
    BrokerQueue,
    /// Who consumes from these; entity queue, connection and user, with [`PARTS`] between them.
    BrokerClient,
    /// Connections with the most channels, and such as are blocked; entity connection and user, with [`PARTS`] between them.
    BrokerConnection,
    /// Clients that were met among new processes; entity client and user, with [`PARTS`] between them.
    BrokerOpener,
    /// The VM's operating-system process; the entity is empty.
    HostProcess,
    /// Its threads; entity `scheduler/1` …, or `other/COMM/TID`.
    HostThread,
    /// Its control groups; entity `cpu`, `memory`.
    HostCgroup,
    /// Pressure stall information; entity `host` or `cgroup`.
    HostPressure,
    /// The whole machine; the entity is empty.
    HostCpu,
    /// What the VM's process has mapped; entity = kind of mapping, see [`crate::memory::mapping`].
    HostMapping,
    /// What stands in it; entity = use, see [`crate::memory::content`].
    HostContent,
    /// Its listening TCP sockets; entity = `ADDRESS:PORT`, or empty for the whole network namespace.
    HostListen,
    /// Its TCP connections; entity = `ADDRESS:PORT` of the listening socket, or `to ADDRESS:PORT` of the peer that the VM has connected to; one
    /// connection with the other end's address behind a comma; empty for the whole network namespace.
    HostTcp,
    /// Its UDP sockets; entity = `ADDRESS:PORT`, or empty for the whole network namespace.
    HostUdp,
    /// What its open files are; entity = `socket`, `pipe`, another kind, a device, or the folder of files; empty for all.
    HostFiles,
    /// Programs that it has started, with all that these have started; entity = the program's short name, empty for all.
    HostPrograms,
}

text_names!(Group {
    Vm => "vm",
    Msacc => "msacc",
    SchedulerTime => "scheduler_time",
    RunQueue => "run_queue",
    Memory => "memory",
    Processes => "processes",
    Events => "events",
    CheckIo => "check_io",
    Allocator => "allocator",
    FixAlloc => "fix_alloc",
    Mseg => "mseg",
    Mmap => "mmap",
    Code => "code",
    Dist => "dist",
    Connect => "connect",
    Table => "table",
    Trace => "trace",
    TraceFlag => "trace_flag",
    Agent => "agent",
    Broker => "broker",
    BrokerQueue => "broker_queue",
    BrokerClient => "broker_client",
    BrokerConnection => "broker_connection",
    BrokerOpener => "broker_opener",
    HostProcess => "host_process",
    HostThread => "host_thread",
    HostCgroup => "host_cgroup",
    HostPressure => "host_pressure",
    HostCpu => "host_cpu",
    HostMapping => "host_mapping",
    HostContent => "host_content",
    HostListen => "host_listen",
    HostTcp => "host_tcp",
    HostUdp => "host_udp",
    HostFiles => "host_files",
    HostPrograms => "host_programs",
});

impl Group {
    /// The items whose gaps (`vm.ITEM`, `host.ITEM`) leave this group without values.
    pub(crate) fn items(self) -> &'static [&'static str] {
        match self {
            Group::Vm => &["statistics", "counts"],
            Group::Msacc => &["msacc"],
            Group::SchedulerTime => &["scheduler_wall_time"],
            Group::RunQueue => &["run_queues"],
            Group::Memory => &["memory"],
            Group::Processes => &["procs", "crashes"],
            Group::Events => &["events"],
            Group::CheckIo => &["check_io"],
            Group::Allocator | Group::FixAlloc | Group::Mseg | Group::Mmap => &["allocators"],
            Group::Code => &["code_memory"],
            Group::Dist | Group::Connect => &["dist"],
            Group::Table => &["table_growth"],
            Group::Trace | Group::TraceFlag => &["traces"],
            Group::Agent => &[],
            Group::Broker => &["broker", "broker_clients"],
            Group::BrokerQueue | Group::BrokerClient | Group::BrokerConnection | Group::BrokerOpener => {
                &["broker_clients"]
            }
            Group::HostProcess => &["smaps_rollup", "open_fds"],
            Group::HostThread => &["threads", "schedstat"],
            Group::HostCgroup => &["cgroup", "cgroup_limits"],
            Group::HostPressure => &["pressure"],
            Group::HostCpu => &["cpu", "swap_traffic"],
            Group::HostMapping => &["smaps"],
            Group::HostContent => &["smaps", "memory_map"],
            Group::HostListen => &["listen"],
            Group::HostTcp => &["tcp"],
            Group::HostUdp => &["udp"],
            Group::HostFiles => &["open_files", "open_fds"],
            Group::HostPrograms => &["programs", "programs_ended"],
        }
    }

    /// True where the values come from the operating system, false where they come from the VM:
    /// the two are read at slightly different instants, see [`crate::Tick`].
    pub fn is_host(self) -> bool {
        matches!(
            self,
            Group::HostProcess
                | Group::HostThread
                | Group::HostCgroup
                | Group::HostPressure
                | Group::HostCpu
                | Group::HostMapping
                | Group::HostContent
                | Group::HostListen
                | Group::HostTcp
                | Group::HostUdp
                | Group::HostFiles
                | Group::HostPrograms
        )
    }
}

/// A series' definition: one name of a group, known to beamtune. The catalogue is [`crate::metrics`].
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The group it is read with.
    pub group: Group,
    /// Its name within the group.
    pub name: &'static str,
    /// Unit of the raw values.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
    /// What it is, and where it comes from.
    pub what: &'static str,
}

/// Like a [`Metric`], for groups whose names are given by the VM: an open set.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// The group; all names in it that no [`Metric`] claims belong to the family.
    pub group: Group,
    /// Unit of the raw values.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
    /// What the names and values are, and where they come from.
    pub what: &'static str,
}

/// Index of a series in its [`SeriesTable`]; dense, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId(pub u32);

impl SeriesId {
    /// As an index into a vector parallel to the table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A series with its meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// The group it is read with.
    pub group: Group,
    /// Which of many: `scheduler/1`; empty where there is only one.
    pub entity: Box<str>,
    /// What is measured of it.
    pub name: Box<str>,
    /// Unit of the raw values.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
}

impl Series {
    /// The series of a metric of the catalogue, of one entity.
    pub fn of(metric: &Metric, entity: &str) -> Series {
        Series {
            group: metric.group,
            entity: entity.into(),
            name: metric.name.into(),
            unit: metric.unit,
            kind: metric.kind,
        }
    }
}

type ByName = HashMap<Box<str>, SeriesId>;

/// All series of a recording, in the order in which they were first seen.
#[derive(Debug, Clone, Default)]
pub struct SeriesTable {
    list: Vec<Series>,
    // Nested, so that a look-up takes borrowed strings and allocates nothing: it is done for every
    // value of every sample, some 2,100 times a second with 128 schedulers.
    index: HashMap<Group, HashMap<Box<str>, ByName>>,
}

impl SeriesTable {
    /// The id of the series, which is added if it is new. Unit and kind of a known series stay as they were.
    pub fn intern(&mut self, group: Group, entity: &str, name: &str, unit: Unit, kind: Kind) -> SeriesId {
        if let Some(id) = self.find(group, entity, name) {
            return id;
        }
        let id = SeriesId(self.list.len() as u32);
        self.list.push(Series { group, entity: entity.into(), name: name.into(), unit, kind });
        self.index.entry(group).or_default().entry(entity.into()).or_default().insert(name.into(), id);
        id
    }

    /// The id of a series, if there is one of that identity.
    pub fn find(&self, group: Group, entity: &str, name: &str) -> Option<SeriesId> {
        self.index.get(&group)?.get(entity)?.get(name).copied()
    }

    /// All series of one entity, in the order of their ids.
    pub fn of(&self, group: Group, entity: &str) -> Vec<SeriesId> {
        let names = self.index.get(&group).and_then(|entities| entities.get(entity));
        let mut ids: Vec<_> = names.into_iter().flat_map(HashMap::values).copied().collect();
        ids.sort_unstable();
        ids
    }

    /// What an id means; `None` for an id of another table.
    pub fn get(&self, id: SeriesId) -> Option<&Series> {
        self.list.get(id.index())
    }

    /// All series with their ids, in the order of the ids.
    pub fn iter(&self) -> impl Iterator<Item = (SeriesId, &Series)> {
        self.list.iter().enumerate().map(|(i, series)| (SeriesId(i as u32), series))
    }

    /// The number of series.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True before the first series.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_keeps_its_id() {
        let mut table = SeriesTable::default();
        let gc = table.intern(Group::Msacc, "scheduler/1", "gc", Unit::PerfCounter, Kind::Counter);
        let other = table.intern(Group::Msacc, "scheduler/2", "gc", Unit::PerfCounter, Kind::Counter);
        assert_ne!(gc, other);
        assert_eq!(table.intern(Group::Msacc, "scheduler/1", "gc", Unit::PerfCounter, Kind::Counter), gc);
        assert_eq!(table.find(Group::Msacc, "scheduler/2", "gc"), Some(other));
        assert_eq!(table.find(Group::Vm, "scheduler/2", "gc"), None);
        assert_eq!(table.len(), 2);
        assert_eq!(table.get(gc).map(|s| &*s.entity), Some("scheduler/1"));
    }

    #[test]
    fn group_names_in_files_read_back_as_what_they_were() {
        for group in Group::ALL {
            assert_eq!(Group::from_text(group.text()), Some(*group));
        }
    }
}
