//! Series: the identity of everything that is sampled repeatedly.
//!
//! A series is (group, entity, name): `msacc`, `scheduler/1`, `gc`. The VM or the kernel chooses some of the names (msacc states,
//! allocators), so the set is open. A new OTP release can be recorded without a new version of beamtune. Samples contain
//! [`SeriesId`]s; the [`SeriesTable`] resolves them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::units::{Kind, Unit, text_names};

/// Separator in entities that consist of several names. Not printable, because the names may contain any printable character.
pub const PART_SEPARATOR: char = '\u{1f}';

/// Series that are read together, stored in one chunk and timed by one clock.
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
    /// System monitor events; entity = kind: `long_gc`, `long_schedule`, `large_heap`, `busy_port`, `busy_dist_port`.
    Events,
    /// Poll sets; entity `0`, `1` … in the order of `system_info(check_io)`.
    CheckIo,
    /// Allocators; entity `eheap_alloc/1`: allocator and instance.
    Allocator,
    /// Blocks of `fix_alloc`, all instances; entity = kind: `monitor`, `link`, `bif_timer`, `proc` …
    FixAlloc,
    /// The mseg segment cache; entity = instance.
    Mseg,
    /// Address space reserved by the VM; entity `default` or `literal`.
    Mmap,
    /// Loaded code and persistent terms, read on request only; the entity is empty.
    Code,
    /// Distribution connections; entity = name of the other node.
    Dist,
    /// Attempts to connect to other nodes; entity = name of the other node, or empty for the number of samples.
    Connect,
    /// Growing ETS tables; entity = name of a named table, `#Ref<…>` of an unnamed one, or empty for the number of tables followed.
    Table,
    /// Active traces; entity = tracer and trace session, separated by [`PARTS`], or empty for the number of processes sampled.
    Trace,
    /// Flags of active traces; entity as in [`Group::Trace`], name = flag.
    TraceFlag,
    /// Cost of measuring; entity = item, or empty for the whole sample.
    Agent,
    /// RabbitMQ totals; the entity is empty.
    Broker,
    /// RabbitMQ queues with the most messages or redeliveries; entity `queue NAME`, or `queue NAME in vhost VHOST`.
    BrokerQueue,
    /// Consumers of these queues; entity = queue, connection and user, separated by [`PARTS`].
    BrokerClient,
    /// RabbitMQ connections with the most channels, and blocked ones; entity = connection and user, separated by [`PARTS`].
    BrokerConnection,
    /// Clients found among new processes; entity = client and user, separated by [`PARTS`].
    BrokerOpener,
    /// The VM's operating-system process; the entity is empty.
    HostProcess,
    /// Threads of the VM's process; entity `scheduler/1` …, or `other/COMM/TID`.
    HostThread,
    /// Control groups of the VM's process; entity `cpu`, `own_cpu`, `memory`.
    HostCgroup,
    /// Pressure stall information; entity `host` or `cgroup`.
    HostPressure,
    /// The whole host; the entity is empty.
    HostCpu,
    /// Mappings of the VM's process; entity = kind of mapping, see [`crate::memory::mapping`].
    HostMapping,
    /// Contents of these mappings; entity = content, see [`crate::memory::content`].
    HostContent,
    /// Listening TCP sockets of the VM; entity = `ADDRESS:PORT`, or empty for the whole network namespace.
    HostListen,
    /// TCP connections of the VM. Entity = `ADDRESS:PORT` of the listening socket, or `to ADDRESS:PORT` for connections that the VM
    /// opened. For a single connection, `,PEER_ADDRESS` is appended. Empty for the whole network namespace.
    HostTcp,
    /// UDP sockets of the VM; entity = `ADDRESS:PORT`, or empty for the whole network namespace.
    HostUdp,
    /// Open files of the VM; entity = `socket`, `pipe`, another kind, a device, or a directory; empty for all files.
    HostFiles,
    /// External programs and their descendants; entity = short name of the program, empty for all programs.
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
    /// Items that this group is read from: a gap in one of them (`vm.ITEM`, `host.ITEM`) explains missing values.
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

    /// Whether the values come from the operating system rather than from the VM.
    /// Both are read at slightly different instants, see [`crate::Tick`].
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

/// Definition of a series with a fixed name. The catalogue is [`crate::metrics`].
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Group of the series.
    pub group: Group,
    /// Name within the group.
    pub name: &'static str,
    /// Unit of the raw values.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
    /// Description and source.
    pub description: &'static str,
}

/// Definition of all series of a group whose names the VM chooses.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Group; all its names without a [`Metric`] belong to the family.
    pub group: Group,
    /// Unit of the raw values.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
    /// Description of names and values, and their source.
    pub what: &'static str,
}

/// Index of a series in its [`SeriesTable`]; dense, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId(pub u32);

impl SeriesId {
    /// Index into a vector parallel to the table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A series: identity, unit and kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// Group of the series.
    pub group: Group,
    /// Instance, such as `scheduler/1`; empty if the group has only one entity.
    pub entity: Box<str>,
    /// Name of the measured value.
    pub name: Box<str>,
    /// Unit of the raw values.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
}

impl Series {
    /// The series of a metric for one entity.
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

/// All series of a recording, in order of first appearance.
#[derive(Debug, Clone, Default)]
pub struct SeriesTable {
    list: Vec<Series>,
    // Nested, so that a lookup takes borrowed strings and allocates nothing. Every value of every sample needs a lookup:
    // about 2,100 per second with 128 schedulers.
    index: HashMap<Group, HashMap<Box<str>, ByName>>,
}

impl SeriesTable {
    /// Returns the id of a series and adds the series if it is new. Unit and kind of a known series do not change.
    pub fn intern(&mut self, group: Group, entity: &str, name: &str, unit: Unit, kind: Kind) -> SeriesId {
        if let Some(id) = self.find(group, entity, name) {
            return id;
        }
        let id = SeriesId(self.list.len() as u32);
        self.list.push(Series { group, entity: entity.into(), name: name.into(), unit, kind });
        self.index.entry(group).or_default().entry(entity.into()).or_default().insert(name.into(), id);
        id
    }

    /// Returns the id of a series, if it exists.
    pub fn find(&self, group: Group, entity: &str, name: &str) -> Option<SeriesId> {
        self.index.get(&group)?.get(entity)?.get(name).copied()
    }

    /// All series of one entity, ordered by id.
    pub fn of_entity(&self, group: Group, entity: &str) -> Vec<SeriesId> {
        let names = self.index.get(&group).and_then(|entities| entities.get(entity));
        let mut ids: Vec<_> = names.into_iter().flat_map(HashMap::values).copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Resolves an id; `None` if it belongs to another table.
    pub fn get(&self, id: SeriesId) -> Option<&Series> {
        self.list.get(id.index())
    }

    /// All series with their ids, ordered by id.
    pub fn iter(&self) -> impl Iterator<Item = (SeriesId, &Series)> {
        self.list.iter().enumerate().map(|(i, series)| (SeriesId(i as u32), series))
    }

    /// Number of series.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if there are no series.
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
    fn group_names_round_trip() {
        for group in Group::ALL {
            assert_eq!(Group::from_text(group.text()), Some(*group));
        }
    }
}
