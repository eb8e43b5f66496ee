//! The metric catalogue: all series with fixed names, and families whose names the VM chooses.
//!
//! Sources record these metrics, and rules read them. `docs/recording-format.md` lists them.

use crate::series::{Family, Group, Metric};
use crate::units::{Kind, Unit};

/// Declares metrics as constants and lists them in [`METRICS`].
macro_rules! metrics {
    ($($(#[$doc:meta])* $const:ident = $group:ident / $name:literal, $unit:ident, $kind:ident, $what:literal;)+) => {
        $(#[doc = $what] pub const $const: Metric = Metric {
            group: Group::$group, name: $name, unit: Unit::$unit, kind: Kind::$kind, description: $what,
        };)+
        /// All metrics.
        pub const METRICS: &[&Metric] = &[$(&$const),+];
    };
}

/// Declares families as constants and lists them in [`FAMILIES`].
macro_rules! families {
    ($($const:ident = $group:ident, $unit:ident, $kind:ident, $what:literal;)+) => {
        $(#[doc = $what] pub const $const: Family = Family {
            group: Group::$group, unit: Unit::$unit, kind: Kind::$kind, what: $what,
        };)+
        /// All families.
        pub const FAMILIES: &[&Family] = &[$(&$const),+];
    };
}

/// Value of [`TABLE_PID_PLACE`]: no pid.
pub const NO_PID: i64 = 0;
/// Value of [`TABLE_PID_PLACE`]: the key is a pid.
pub const PID_IS_KEY: i64 = 1;
/// Value of [`TABLE_PID_PLACE`]: the key contains a pid.
pub const PID_IN_KEY: i64 = 2;
/// Value of [`TABLE_PID_PLACE`]: an element of the object other than the key is or contains a pid.
pub const PID_IN_OBJECT: i64 = 3;

families! {
    MSACC = Msacc, PerfCounter, Counter,
        "Time per state of a thread: statistics(microstate_accounting). Enabled for a tenth of the time, so only a state's share of the sum over all states of a thread is meaningful. Rounded down to whole microseconds. States are an open set; default builds have aux, check_io, emulator, gc, other, port, sleep.";
    MEMORY = Memory, Bytes, Gauge,
        "Allocated memory by kind: erlang:memory/0 (total, processes, system, atom, binary, code, ets …).";
    TRACE_FLAGS = TraceFlag, Count, Gauge,
        "1 for each trace flag that is set: call, procs, send, receive, running, garbage_collection …: erlang:trace_info(Pid, flags).";
}

metrics! {
    // The whole VM.
    REDUCTIONS = Vm / "reductions", Reductions, Counter,
        "Reductions of scheduled-out processes: statistics(reductions).";
    CONTEXT_SWITCHES = Vm / "context_switches", Count, Counter,
        "Context switches, which are processes scheduled in: statistics(context_switches).";
    GARBAGE_COLLECTIONS = Vm / "garbage_collections", Count, Counter,
        "Garbage collections, minor and fullsweep: statistics(garbage_collection).";
    GC_WORDS_RECLAIMED = Vm / "gc_words_reclaimed", Words, Counter,
        "Words reclaimed by garbage collections: statistics(garbage_collection).";
    IO_INPUT = Vm / "io_input", Bytes, Counter, "Bytes received through ports: statistics(io).";
    IO_OUTPUT = Vm / "io_output", Bytes, Counter, "Bytes sent through ports: statistics(io).";
    PROCESS_COUNT = Vm / "process_count", Count, Gauge, "Processes: system_info(process_count).";
    PORT_COUNT = Vm / "port_count", Count, Gauge, "Ports: system_info(port_count).";
    PROGRAM_PORTS = Vm / "program_ports", Count, Gauge,
        "Ports of external programs: port_info(Port, os_pid). Only if all ports were read (every ten seconds).";
    PORTS_READ = Vm / "ports_read", Count, Gauge,
        "Ports read in one step of the scan of all ports (every ten seconds).";
    PORT_QUEUES = Vm / "port_queues", Bytes, Gauge,
        "Bytes in the driver queues of the ports read in this step: port_info(Port, queue_size).";
    SOCKETS_READ = Vm / "sockets_read", Count, Gauge,
        "Ports of the inet drivers among the ports read in this step.";
    SOCKETS_SAMPLED = Vm / "sockets_sampled", Count, Gauge,
        "Size of a random sample of these sockets, for which the connected process was checked; at most 100.";
    SOCKETS_ENDED = Vm / "sockets_ended", Count, Gauge,
        "Sampled sockets whose connected process has exited: port_info(Port, connected).";
    SOCKETS_ENDED_QUEUES = Vm / "sockets_ended_queues", Bytes, Gauge,
        "Bytes in the driver queues of sampled sockets whose connected process has exited.";
    SOCKETS_PASSIVE = Vm / "sockets_passive", Count, Gauge,
        "Sampled sockets that are TCP connections in passive mode; only if binaries take 32 MB or more.";
    SOCKET_BUFFERS = Vm / "socket_buffers", Bytes, Gauge,
        "Receive buffers of sampled passive connections: inet:getopts(Port, [buffer]). A connection has a buffer while a read waits for data.";
    ATOM_COUNT = Vm / "atom_count", Count, Gauge, "Atoms: system_info(atom_count).";
    ETS_COUNT = Vm / "ets_count", Count, Gauge, "ETS tables: system_info(ets_count).";
    SPAWNED = Vm / "spawned", Count, Counter,
        "Processes started since the VM started, from the number in a new pid: slots of the process table are assigned in sequence. Includes the slots of living processes, which the sequence skips.";
    MNESIA_COMMITS = Vm / "mnesia_commits", Count, Counter,
        "Committed Mnesia transactions: mnesia:system_info(transaction_commits). Only if Mnesia runs.";
    MNESIA_RESTARTS = Vm / "mnesia_restarts", Count, Counter,
        "Mnesia transactions restarted because of a lock: mnesia:system_info(transaction_restarts).";
    MNESIA_FAILURES = Vm / "mnesia_failures", Count, Counter,
        "Failed Mnesia transactions: mnesia:system_info(transaction_failures).";
    MNESIA_LOG_WRITES = Vm / "mnesia_log_writes", Count, Counter,
        "Entries written to Mnesia's transaction log: mnesia:system_info(transaction_log_writes).";
    MNESIA_LOG_DUMPED = Vm / "mnesia_log_dumped", Count, Counter,
        "Entries that had been written when the last dump of the log into the table files began.";
    MNESIA_LOG_THRESHOLD = Vm / "mnesia_log_threshold", Count, Gauge,
        "Number of entries after which the log is dumped: dump_log_write_threshold of Mnesia.";
    ACTIVE_TASKS = Vm / "active_tasks", Count, Gauge,
        "Running and runnable processes and ports, normal schedulers: statistics(total_active_tasks).";
    SCHEDULERS_ONLINE = Vm / "schedulers_online", Count, Gauge,
        "Schedulers online: system_info(schedulers_online); may change while the VM runs.";
    TIME_OFFSET = Vm / "time_offset", Nanoseconds, Gauge,
        "Erlang system time minus Erlang monotonic time: erlang:time_offset/1 (every ten seconds).";

    // Scheduler wall time.
    SCHEDULER_ACTIVE = SchedulerTime / "active", NativeTime, Counter,
        "Time in which the scheduler was active (busy wait is idle time): statistics(scheduler_wall_time_all).";
    SCHEDULER_TOTAL = SchedulerTime / "total", NativeTime, Counter,
        "Time since the measurement was enabled: statistics(scheduler_wall_time_all).";

    // Run queues.
    RUN_QUEUE = RunQueue / "length", Count, Gauge,
        "Runnable processes and ports in the run queue: statistics(run_queue_lengths_all).";

    // Scan of all processes.
    SCAN_PROCESSES = Processes / "scanned", Count, Gauge, "Processes scanned.";
    SCAN_REDUCTIONS = Processes / "reductions", Reductions, Counter,
        "Reductions of all scanned processes, accumulated over scans.";
    SCAN_SPAWNED = Processes / "spawned", Count, Counter, "Processes first seen by a scan; processes that live and exit between two scans are missed.";
    SCAN_EXITED = Processes / "exited", Count, Counter, "Processes exited since the last scan.";
    SCAN_QUEUED = Processes / "queued_messages", Count, Gauge, "Messages in all message queues.";
    SCAN_LONGEST_QUEUE = Processes / "longest_queue", Count, Gauge, "Length of the longest message queue.";
    SCAN_NONEMPTY_QUEUES = Processes / "nonempty_queues", Count, Gauge, "Processes with a non-empty message queue.";
    SCAN_BINARIES = Processes / "binary_vheap_size", Bytes, Gauge,
        "Sum of the virtual binary heaps of all processes: sizes of reference-counted binaries, counted once per reference. Only on nodes with few processes.";
    EXIT_MONITORED = Processes / "monitored", Count, Gauge, "Processes that the agent monitors to learn their exit reasons; at most 100.";
    EXIT_SUPERVISORS = Processes / "supervisors", Count, Gauge,
        "Known supervisors; the agent monitors those of their children that are active. At most 500.";
    SCAN_COVERAGE = Processes / "coverage", Permille, Gauge,
        "Share of all processes that the scan reached; below 1000 if the agent thinned the scan to stay within its CPU budget.";

    // System monitor events; not recorded if another process is the system monitor.
    EVENT_COUNT = Events / "count", Count, Counter,
        "Events: garbage collections of 100 ms or more, time slices of 50 ms or more, heaps of 128 MB or more after a garbage collection, processes suspended by a busy port or busy distribution port.";
    EVENT_TIME = Events / "time", Nanoseconds, Counter, "Total duration of the garbage collections and time slices among these events.";
    EVENT_LONGEST = Events / "longest", Nanoseconds, Gauge, "Duration of the longest event since the last sample; 0 without events.";

    // Poll sets.
    POLLSET_KERNEL_POLL = CheckIo / "kernel_poll", Count, Gauge,
        "1 if the poll set uses epoll or kqueue, 0 if poll or select: system_info(check_io).";
    POLLSET_FDS = CheckIo / "fds", Count, Gauge,
        "File descriptors in the poll set: total_poll_set_size of system_info(check_io).";

    // Allocators: current values of one instance.
    MBCS_BLOCKS = Allocator / "mbcs_blocks", Count, Gauge, "Blocks in multiblock carriers, of any allocator.";
    MBCS_BLOCKS_SIZE = Allocator / "mbcs_blocks_size", Bytes, Gauge, "Size of the blocks in multiblock carriers.";
    MBCS_CARRIERS = Allocator / "mbcs_carriers", Count, Gauge, "Multiblock carriers.";
    MBCS_CARRIERS_SIZE = Allocator / "mbcs_carriers_size", Bytes, Gauge, "Size of the multiblock carriers.";
    SBCS_BLOCKS = Allocator / "sbcs_blocks", Count, Gauge, "Blocks in singleblock carriers.";
    SBCS_BLOCKS_SIZE = Allocator / "sbcs_blocks_size", Bytes, Gauge, "Size of the blocks in singleblock carriers.";
    SBCS_CARRIERS = Allocator / "sbcs_carriers", Count, Gauge, "Singleblock carriers.";
    SBCS_CARRIERS_SIZE = Allocator / "sbcs_carriers_size", Bytes, Gauge, "Size of the singleblock carriers.";
    POOL_BLOCKS = Allocator / "pool_blocks", Count, Gauge, "Blocks in carriers that this instance abandoned to the pool (mbcs_pool).";
    POOL_BLOCKS_SIZE = Allocator / "pool_blocks_size", Bytes, Gauge, "Size of these blocks.";
    POOL_CARRIERS = Allocator / "pool_carriers", Count, Gauge, "Multiblock carriers that this instance abandoned to the pool.";
    POOL_CARRIERS_SIZE = Allocator / "pool_carriers_size", Bytes, Gauge, "Size of these carriers.";
    FOREIGN_BLOCKS_SIZE = Allocator / "foreign_blocks_size", Bytes, Gauge,
        "Part of all blocks above that belongs to other allocators (OTP 22 and 23 share one pool).";
    CARRIERS_SIZE = Allocator / "carriers_size", Bytes, Gauge,
        "All carriers of an allocator, or of all allocators (no entity), from imported text: recon_alloc:memory(allocated).";
    BLOCKS_SIZE = Allocator / "blocks_size", Bytes, Gauge, "All blocks of an allocator, or of all allocators (no entity), from imported text: recon_alloc:memory(used).";
    CARRIERS_SIZE_MAX = Allocator / "carriers_size_max", Bytes, Gauge, "Maximum size of multiblock carriers plus maximum size of singleblock carriers since the VM started.";
    MBCS_CARRIERS_SIZE_MAX = Allocator / "mbcs_carriers_size_max", Bytes, Gauge,
        "Maximum size of the multiblock carriers in use since the VM started.";
    MBCS_BLOCKS_SIZE_MAX = Allocator / "mbcs_blocks_size_max", Bytes, Gauge,
        "Maximum size of the blocks in multiblock carriers in use since the VM started.";
    MSEG_CARRIERS_SIZE = Allocator / "mseg_carriers_size", Bytes, Gauge,
        "Size of the carriers that are in mseg segments, pool included; the other carriers come from malloc.";
    SEGMENTS_REQUESTED = Allocator / "segments_asked", Count, Counter, "Calls of mseg_alloc and mseg_realloc.";
    ALLOCATIONS = Allocator / "allocations", Count, Counter, "Calls of alloc.";
    FREES = Allocator / "frees", Count, Counter, "Calls of free.";
    REALLOCATIONS = Allocator / "reallocations", Count, Counter, "Calls of realloc.";

    FIXED_SIZE = FixAlloc / "size", Bytes, Gauge, "Blocks of this kind, summed over instances.";

    // The mseg segment cache.
    MSEG_ALLOCATIONS = Mseg / "allocations", Count, Counter, "Segments requested: mseg_alloc calls.";
    MSEG_CACHE_HITS = Mseg / "cache_hits", Count, Counter, "Requests served by the segment cache.";
    MSEG_CREATES = Mseg / "creates", Count, Counter, "Segments mapped.";
    MSEG_DESTROYS = Mseg / "destroys", Count, Counter, "Segments unmapped.";
    MSEG_CACHED = Mseg / "cached_segments", Count, Gauge, "Free segments in the cache.";
    MSEG_SEGMENTS_SIZE = Mseg / "segments_size", Bytes, Gauge, "Segments in use.";

    // Reserved address space.
    MMAP_TOTAL = Mmap / "super_carrier_size", Bytes, Gauge, "The super carrier (`default`, with +MMscs) or the literal area (`literal`).";
    MMAP_USED = Mmap / "super_carrier_used", Bytes, Gauge, "Used part of the super carrier or of the literal area.";
    MMAP_OS_USED = Mmap / "os_used", Bytes, Gauge, "Address space mapped outside the super carrier.";

    HELD_BINARIES = Processes / "held_binaries", Count, Gauge, "Reference-counted binaries that the processes read on request refer to, each counted once.";
    HELD_BINARIES_SIZE = Processes / "held_binaries_size", Bytes, Gauge, "Size of these binaries.";

    // Code and persistent terms, on request.
    CODE_MODULES = Code / "modules", Count, Gauge, "Loaded modules: system_info(loaded).";
    CODE_SIZE = Code / "size", Bytes, Gauge, "Code of the loaded modules, with literals.";
    CODE_OLD_SIZE = Code / "old_size", Bytes, Gauge, "Old code that has not been purged yet.";
    CODE_APPLICATIONS = Code / "applications", Count, Gauge, "Applications with loaded modules, plus one if there are modules without an application.";
    CODE_STOPPED = Code / "stopped", Nanoseconds, Gauge, "Duration of the reading of code sizes; all schedulers are blocked for about this long.";
    PERSISTENT_TERMS = Code / "persistent_terms", Count, Gauge, "persistent_term:info/0, count.";
    PERSISTENT_TERMS_SIZE = Code / "persistent_terms_size", Bytes, Gauge, "persistent_term:info/0, memory.";
    // Distribution.
    DIST_QUEUE = Dist / "queue", Bytes, Gauge, "Bytes in the distribution buffer to the node.";
    DIST_INPUT = Dist / "input", Bytes, Counter, "Bytes received from the node.";
    DIST_OUTPUT = Dist / "output", Bytes, Counter, "Bytes sent to the node.";
    MNESIA_RUNS = Dist / "mnesia", Count, Gauge,
        "For connected nodes with a copy of the Mnesia schema: 1 if Mnesia on this node is connected to Mnesia on the other, 0 if not (every ten seconds).";
    CONNECT_SAMPLES = Connect / "samples", Count, Gauge,
        "Number of times since the last reading that connection attempts were sampled; the entity is empty.";
    CONNECT_ATTEMPTS = Connect / "attempts", Count, Gauge,
        "Lower bound of attempts to connect this node and the other since the last reading: difference of the connection numbers, which count attempts, between the first and the last sampled attempt (every ten seconds).";
    CONNECT_PENDING = Connect / "pending", Count, Gauge, "Number of samples since the last reading with an attempt in progress.";
    CONNECT_OUTGOING = Connect / "outgoing", Count, Gauge, "Sampled attempts made by this node.";
    CONNECT_INCOMING = Connect / "incoming", Count, Gauge, "Sampled attempts made by the other node.";
    CONNECT_CALLERS = Connect / "callers", Count, Gauge,
        "Maximum number of processes waiting for net_kernel to connect to the node, since the last reading.";
    CONNECT_AGAIN = Connect / "again", Count, Gauge,
        "Number of times since the last reading that a visible node had a new connection; with an empty entity, number of samples in which any node had a new connection (every ten seconds).";
    CONNECT_UP = Connect / "up", Count, Gauge,
        "For nodes with counted attempts: 1 if the node is connected now, 0 if not.";

    // Growing ETS tables.
    TABLES_WATCHED = Table / "followed", Count, Gauge,
        "ETS tables whose size is read each second: the largest ones, and those that grew the most; the entity is empty.";
    TABLE_ROWS = Table / "rows", Count, Gauge, "Objects of a followed ETS table that has grown: ets:info(Table, size).";
    TABLE_MEMORY = Table / "memory", Bytes, Gauge, "Memory of this table, without reference-counted binaries: ets:info(Table, memory).";
    TABLE_SAMPLED = Table / "sampled_rows", Count, Gauge,
        "Objects searched for a pid, if the table is a set and readable (every ten seconds).";
    TABLE_PID_PLACE = Table / "pid_place", Count, Gauge,
        "Position of the pid in most of the searched objects: 0 none, 1 the key, 2 within the key, 3 in another element.";
    TABLE_WITH_PID = Table / "rows_with_pid", Count, Gauge, "Objects with a local pid in this position.";
    TABLE_ENDED = Table / "rows_of_ended", Count, Gauge, "Objects with a local pid whose process has exited.";
    TABLE_BINARY_OBJECTS = Table / "binary_rows", Count, Gauge,
        "Objects in the table at the time when its binaries were measured: once a minute per table, if binaries take 32 MB or more.";
    TABLE_BINARY_SAMPLED = Table / "binary_sampled_rows", Count, Gauge,
        "Objects searched for binaries: elements, and elements of tuples in them; 0 if the table cannot be searched.";
    TABLE_BINARY_HIDDEN = Table / "binary_hidden_rows", Count, Gauge,
        "Objects among the first 30 that contain a map, a list or a larger tuple, which are not searched.";
    TABLE_BINARIES = Table / "binaries", Count, Gauge,
        "Reference-counted binaries and their sub-binaries found in the searched objects.";
    TABLE_BINARY_BYTES = Table / "binary_bytes", Bytes, Gauge, "Total size of these binaries and sub-binaries: byte_size/1.";
    TABLE_BINARY_REFERENCED = Table / "binary_referenced", Bytes, Gauge,
        "Total size of the whole binaries that they are or refer to: binary:referenced_byte_size/1.";
    TABLE_BINARY_HELD = Table / "binary_held", Bytes, Gauge,
        "The same size, with each binary divided by its reference count.";

    // Active traces.
    TRACE_SAMPLED = Trace / "sampled", Count, Gauge,
        "Processes sampled for traces: the busiest ones, and a few others if any are busy (every ten seconds); the entity is empty.";
    TRACED = Trace / "traced", Count, Gauge, "Sampled processes traced by this tracer.";
    TRACE_NEW = Trace / "new", Count, Gauge, "1 if new processes or ports will be traced: erlang:trace_info(new_processes, flags).";

    // RabbitMQ's own counters (rabbit_core_metrics): totals and churn every second, all others every ten seconds.
    BROKER_CONNECTIONS = Broker / "connections", Count, Gauge, "Client connections of this node: the table connection_created.";
    BROKER_CHANNELS = Broker / "channels", Count, Gauge, "Channels: the table channel_created.";
    BROKER_CONSUMERS = Broker / "consumers", Count, Gauge, "Consumers: the table consumer_created.";
    BROKER_QUEUES = Broker / "queues", Count, Gauge, "Queues that report their length: the table queue_coarse_metrics.";
    BROKER_CONNECTIONS_OPENED = Broker / "connections_opened", Count, Counter, "Connections opened: connection_churn_metrics.";
    BROKER_CONNECTIONS_CLOSED = Broker / "connections_closed", Count, Counter, "Connections closed.";
    BROKER_CHANNELS_OPENED = Broker / "channels_opened", Count, Counter, "Channels opened.";
    BROKER_CHANNELS_CLOSED = Broker / "channels_closed", Count, Counter, "Channels closed.";
    BROKER_QUEUES_DECLARED = Broker / "queues_declared", Count, Counter, "Queues declared, whether they existed already or not.";
    BROKER_QUEUES_CREATED = Broker / "queues_created", Count, Counter, "Queues created.";
    BROKER_QUEUES_DELETED = Broker / "queues_deleted", Count, Counter, "Queues deleted.";
    BROKER_LOGINS = Broker / "logins", Count, Counter, "Successful logins: auth_attempt_metrics.";
    BROKER_LOGINS_FAILED = Broker / "logins_failed", Count, Counter, "Failed logins.";
    BROKER_PUBLISHED = Broker / "published", Count, Counter, "Messages received from publishers: rabbit_global_counters, RabbitMQ 3.9 and later.";
    BROKER_CONFIRMED = Broker / "confirmed", Count, Counter, "Messages confirmed to publishers.";
    BROKER_UNROUTABLE = Broker / "unroutable", Count, Counter, "Messages routed to no queue: dropped, or returned to the publisher.";
    BROKER_DELIVERED = Broker / "delivered", Count, Counter, "Messages delivered to consumers, or fetched with basic.get.";
    BROKER_REDELIVERED = Broker / "redelivered", Count, Counter, "Redelivered messages among the delivered ones.";
    BROKER_ACKNOWLEDGED = Broker / "acknowledged", Count, Counter, "Messages that consumers acknowledged.";
    BROKER_EMPTY_GETS = Broker / "empty_gets", Count, Counter, "basic.get on an empty queue.";
    BROKER_DEAD_LETTERED_REJECTED = Broker / "dead_lettered_rejected", Count, Counter,
        "Messages dead-lettered because a consumer rejected them, from queues of this node: rabbit_global_counters, RabbitMQ 3.10 and later.";
    BROKER_DEAD_LETTERED_EXPIRED = Broker / "dead_lettered_expired", Count, Counter, "Messages dead-lettered because their TTL expired.";
    BROKER_DEAD_LETTERED_MAXLEN = Broker / "dead_lettered_maxlen", Count, Counter, "Messages dead-lettered because the queue had reached its maximum length.";
    BROKER_DEAD_LETTERED_DELIVERY_LIMIT = Broker / "dead_lettered_delivery_limit", Count, Counter, "Messages dead-lettered because they had reached the queue's delivery limit.";
    BROKER_READY = Broker / "ready", Count, Gauge, "Messages ready in all queues of this node: queue_coarse_metrics, at most 20,000 queues.";
    BROKER_UNACKED = Broker / "unacked", Count, Gauge, "Messages delivered but not acknowledged yet.";
    BROKER_STATISTICS = Broker / "statistics", Count, Gauge, "collect_statistics: 0 none, 1 coarse, 2 fine. With 0 only totals are known.";
    BROKER_MEMORY_ALARM = Broker / "memory_alarm", Count, Gauge, "1 while the memory alarm of this node is active: node_metrics, with the plugin management_agent.";
    BROKER_DISK_ALARM = Broker / "disk_alarm", Count, Gauge, "1 while the disk alarm of this node is active.";
    BROKER_MEMORY_LIMIT = Broker / "memory_limit", Bytes, Gauge, "Memory above which RabbitMQ blocks publishers.";
    BROKER_DISK_LIMIT = Broker / "disk_limit", Bytes, Gauge, "Free disk space below which RabbitMQ blocks publishers.";
    BROKER_DISK_FREE = Broker / "disk_free", Bytes, Gauge, "Free disk space of RabbitMQ's data directory.";
    BROKER_BLOCKED = Broker / "blocked", Count, Gauge, "Connections in the state blocked or blocking: connection_metrics, at most 5,000 connections.";
    BROKER_FLOW = Broker / "flow", Count, Gauge, "Connections in the state flow: they publish faster than a queue or the disk can accept.";
    QUEUE_READY = BrokerQueue / "ready", Count, Gauge, "Messages ready.";
    QUEUE_UNACKED = BrokerQueue / "unacked", Count, Gauge, "Messages delivered but not acknowledged yet.";
    QUEUE_CONSUMERS = BrokerQueue / "consumers", Count, Gauge, "Consumers.";
    QUEUE_PREFETCH = BrokerQueue / "prefetch", Count, Gauge, "Sum of the consumers' prefetch counts.";
    QUEUE_TTL = BrokerQueue / "ttl", Nanoseconds, Gauge, "TTL after which messages are dropped or dead-lettered, by argument or policy; absent without a TTL.";
    QUEUE_MAX_LENGTH = BrokerQueue / "max_length", Count, Gauge, "Maximum number of messages kept, by argument or policy; absent without a limit.";
    QUEUE_UNLIMITED = BrokerQueue / "unlimited", Count, Gauge, "Consumers with acknowledgements and without a prefetch count.";
    QUEUE_DELIVERED = BrokerQueue / "delivered", Count, Counter, "Messages delivered over open channels: channel_queue_metrics, at most 20,000 rows.";
    QUEUE_REDELIVERED = BrokerQueue / "redelivered", Count, Counter, "Redelivered messages among the delivered ones.";
    QUEUE_ACKNOWLEDGED = BrokerQueue / "acknowledged", Count, Counter, "Messages acknowledged.";
    CLIENT_DELIVERED = BrokerClient / "delivered", Count, Counter, "Messages of the queue delivered over channels of this connection.";
    CLIENT_REDELIVERED = BrokerClient / "redelivered", Count, Counter, "Redelivered messages among the delivered ones.";
    CLIENT_ACKNOWLEDGED = BrokerClient / "acknowledged", Count, Counter, "Messages acknowledged over channels of this connection.";
    CLIENT_UNACKED = BrokerClient / "unacked", Count, Gauge, "Messages of any queue that the channel has not acknowledged.";
    CONNECTION_CHANNELS = BrokerConnection / "channels", Count, Gauge, "Channels of the connection.";
    CONNECTION_BLOCKED = BrokerConnection / "blocked", Count, Gauge, "1 while the connection is blocked.";
    OPENER_CONNECTIONS = BrokerOpener / "connections", Count, Gauge, "New connections of this client among sampled new processes, since the start of the recording.";
    OPENER_CHANNELS = BrokerOpener / "channels", Count, Gauge, "New channels of this client among sampled new processes, since the start of the recording.";

    // Cost of measuring.
    AGENT_COST = Agent / "cost", Nanoseconds, Counter, "Wall-clock time used by the agent.";
    AGENT_REDUCTIONS = Agent / "reductions", Reductions, Counter, "Reductions of the agent's processes.";
    AGENT_MEMORY = Agent / "memory", Bytes, Gauge, "Memory of the agent's processes.";
    ROUND_TRIP = Agent / "round_trip", Nanoseconds, Gauge, "Time from request to reply at the recorder.";
    CLOCK_OFFSET = Agent / "clock_offset", Nanoseconds, Gauge,
        "The recorder's clock minus the VM's monotonic time, from the shortest recent round trip.";
    WALL_AHEAD = Agent / "wall_ahead", Nanoseconds, Gauge,
        "The wall clock of the VM's host minus that of the recorder, from the shortest round trip of the last minute.";
    WALL_AHEAD_ERROR = Agent / "wall_ahead_error", Nanoseconds, Gauge,
        "Maximum error of wall_ahead: half of this round trip.";

    // The operating-system process of the VM.
    PROCESS_USER = HostProcess / "user", Nanoseconds, Counter, "CPU time in user mode: /proc/PID/stat utime.";
    PROCESS_SYSTEM = HostProcess / "system", Nanoseconds, Counter, "CPU time in kernel mode: /proc/PID/stat stime.";
    MINOR_FAULTS = HostProcess / "minor_faults", Count, Counter, "Page faults without I/O: /proc/PID/stat minflt.";
    MAJOR_FAULTS = HostProcess / "major_faults", Count, Counter, "Page faults with I/O: /proc/PID/stat majflt.";
    RSS = HostProcess / "rss", Bytes, Gauge, "Resident memory: /proc/PID/status VmRSS.";
    PSS = HostProcess / "pss", Bytes, Gauge, "Proportional set size: Pss of /proc/PID/smaps or smaps_rollup (every ten seconds).";
    ANON_HUGE = HostProcess / "anon_huge_pages", Bytes, Gauge, "Memory in transparent huge pages: AnonHugePages, same source as pss.";
    SWAP = HostProcess / "swap", Bytes, Gauge, "Memory swapped out: /proc/PID/status VmSwap.";
    THREADS = HostProcess / "threads", Count, Gauge, "Threads: /proc/PID/status Threads.";
    OPEN_FDS = HostProcess / "open_fds", Count, Gauge, "Open file descriptors: entries of /proc/PID/fd (every ten seconds; in each sample if the kernel provides their number, Linux 6.2 and later).";

    // Threads of the VM's process.
    THREAD_CPU = HostThread / "cpu", Nanoseconds, Counter, "Time on-CPU: /proc/PID/task/TID/schedstat.";
    THREAD_WAIT = HostThread / "run_queue_wait", Nanoseconds, Counter,
        "Run-queue delay, time in which the thread was runnable without a CPU: /proc/PID/task/TID/schedstat.";
    THREAD_USER = HostThread / "user", Nanoseconds, Counter, "CPU time in user mode: /proc/PID/task/TID/stat.";
    THREAD_SYSTEM = HostThread / "system", Nanoseconds, Counter, "CPU time in kernel mode: /proc/PID/task/TID/stat.";
    VOLUNTARY_SWITCHES = HostThread / "voluntary_switches", Count, Counter,
        "Context switches because the thread waited: /proc/PID/task/TID/status.";
    INVOLUNTARY_SWITCHES = HostThread / "involuntary_switches", Count, Counter,
        "Context switches because the thread was preempted: /proc/PID/task/TID/status.";

    // Control groups of the VM's process, v1 or v2; the tightest limit on the path to the root applies. Entities: `cpu` is the
    // group with the tightest quota, `own_cpu` the group of the VM (the only one that OTP reads), `memory` the group with the
    // tightest memory limit.
    CGROUP_QUOTA = HostCgroup / "quota", Permille, Gauge, "CPU quota in thousandths of a core; absent without a quota.";
    CGROUP_PERIODS = HostCgroup / "periods", Count, Counter, "Enforcement periods in which the group ran: nr_periods.";
    CGROUP_THROTTLED = HostCgroup / "throttled_periods", Count, Counter, "Periods in which the group was throttled: nr_throttled.";
    CGROUP_THROTTLED_TIME = HostCgroup / "throttled_time", Nanoseconds, Counter, "Time for which the threads of the group were throttled.";
    CGROUP_USAGE = HostCgroup / "usage", Nanoseconds, Counter, "CPU time of the group.";
    CGROUP_WEIGHT = HostCgroup / "weight", Count, Gauge, "cpu.shares (v1) or cpu.weight (v2), unconverted.";
    CGROUP_MEMORY_LIMIT = HostCgroup / "memory_limit", Bytes, Gauge, "Memory limit of the group; absent without a limit.";
    CGROUP_MEMORY = HostCgroup / "memory", Bytes, Gauge, "Memory charged to the group.";

    // Pressure.
    PRESSURE_CPU_SOME = HostPressure / "cpu_some", Nanoseconds, Counter, "Time in which at least one task waited for a CPU: pressure/cpu.";
    PRESSURE_MEMORY_SOME = HostPressure / "memory_some", Nanoseconds, Counter, "Time in which at least one task waited for memory.";
    PRESSURE_MEMORY_FULL = HostPressure / "memory_full", Nanoseconds, Counter, "Time in which all tasks waited for memory.";
    PRESSURE_IO_SOME = HostPressure / "io_some", Nanoseconds, Counter, "Time in which at least one task waited for I/O.";
    PRESSURE_IO_FULL = HostPressure / "io_full", Nanoseconds, Counter, "Time in which all tasks waited for I/O.";

    // Mappings of the process by kind: /proc/PID/smaps (every ten seconds).
    MAPPING_COUNT = HostMapping / "mappings", Count, Gauge, "Mappings of this kind.";
    MAPPING_SIZE = HostMapping / "size", Bytes, Gauge, "Address space of these mappings: Size.";
    MAPPING_RESIDENT = HostMapping / "resident", Bytes, Gauge, "Resident memory of these mappings: Rss.";
    MAPPING_PSS = HostMapping / "pss", Bytes, Gauge, "Proportional set size of these mappings, with shared pages divided by the number of processes: Pss.";
    MAPPING_SWAP = HostMapping / "swap", Bytes, Gauge, "Memory of these mappings that is swapped out: Swap.";
    MAPPING_LAZY_FREE = HostMapping / "lazy_free", Bytes, Gauge,
        "Resident pages freed with MADV_FREE that the kernel has not reclaimed yet: LazyFree.";
    MAPPING_HUGE = HostMapping / "huge_pages", Bytes, Gauge, "Memory of these mappings in transparent huge pages: AnonHugePages.";

    // Contents of the mappings: carriers, recognised by their headers, and other recognisable structures. Pages are counted one
    // by one (/proc/PID/pagemap), so only the entity `unknown` is a remainder.
    CONTENT_COUNT = HostContent / "count", Count, Gauge, "Number of carriers, segments, stacks or chunks.";
    CONTENT_SIZE = HostContent / "size", Bytes, Gauge, "Address space of these.";
    CONTENT_RESIDENT = HostContent / "resident", Bytes, Gauge, "Resident memory of these.";
    CONTENT_SWAPPED = HostContent / "swapped", Bytes, Gauge, "Memory of these that is swapped out.";
    CONTENT_IN_USE = HostContent / "in_use", Bytes, Gauge,
        "malloc: size of the chunks in use, by their headers. malloc keeps the rest as free memory.";
    CONTENT_COST = HostContent / "cost", Nanoseconds, Gauge, "Duration of the scan; the entity is empty.";
    CONTENT_FAULTS = HostContent / "faults", Count, Gauge,
        "Minor page faults of the process during the scan, which may have missed these pages; the entity is empty.";
    CONTENT_GONE = HostContent / "gone", Bytes, Gauge,
        "Resident memory that was unmapped during the scan, so that the kernel may have counted it and the scan not found it; the entity is empty.";

    // Listening TCP sockets of the VM's process. If several share an address (SO_REUSEPORT), the values are those of the socket with
    // the longest queue.
    ACCEPT_QUEUE = HostListen / "queue", Count, Gauge,
        "Length of the accept queue: netlink sock_diag, or else rx_queue of /proc/PID/net/tcp and tcp6 (less often if these files are expensive to read).";
    ACCEPT_QUEUE_LIMIT = HostListen / "limit", Count, Gauge,
        "Limit of the accept queue, the minimum of backlog and net.core.somaxconn: netlink sock_diag. A full queue has one entry more.";
    ACCEPT_QUEUE_OTHERS_LIMIT = HostListen / "others_limit", Count, Gauge,
        "Lowest limit of an accept queue of another program in the network namespace: netlink sock_diag only.";
    LISTENING_SOCKETS = HostListen / "sockets", Count, Gauge,
        "Listening TCP sockets of the VM's network namespace, of all processes.";
    LISTEN_OVERFLOWS = HostListen / "overflows", Count, Counter,
        "Connections rejected because an accept queue was full: ListenOverflows of /proc/PID/net/netstat, whole network namespace.";
    LISTEN_DROPS = HostListen / "drops", Count, Counter,
        "Connections rejected for any reason: ListenDrops, whole network namespace.";
    PASSIVE_OPENS = HostListen / "passive_opens", Count, Counter,
        "Connections that entered an accept queue: PassiveOpens of /proc/PID/net/snmp, whole network namespace.";

    // TCP connections of the VM's process, accepted or opened by it. At most 2,048 connections of the network namespace are read.
    TCP_SAMPLED = HostTcp / "looked_at", Count, Gauge,
        "TCP connections of the network namespace that were read, of all processes.";
    TCP_CONNECTIONS = HostTcp / "connections", Count, Gauge,
        "Open connections that the VM has accepted from this listening socket; absent if the limit was exceeded.";
    TCP_SILENT = HostTcp / "silent", Count, Gauge,
        "Connections that have received nothing for 30 s or more: tcpi_last_data_recv (every ten seconds). For connections opened by the VM: 10 s or more, at most 64 of them.";
    TCP_BEGUN = HostTcp / "begun", Count, Counter,
        "Connections accepted from this listening socket since the start of the recording. Connections are read once a second, so short ones may be missed. Absent if the limit was exceeded.";
    TCP_LIVED = HostTcp / "lived", Count, Counter,
        "Connections that began and ended during the recording, by lifetime in seconds, which is the number after the comma in the entity; 0 to 60.";
    TCP_CLOSED = HostTcp / "closed", Count, Gauge,
        "Connections of this listening socket that the VM's side closed first in the last ten seconds: sockets in TIME_WAIT, by sock_diag (every five seconds). Reset connections are not included.";
    TCP_UNREAD = HostTcp / "unread", Count, Gauge,
        "Connections with 4,096 or more unread bytes both in this reading and in the previous one.";
    TCP_WAITING = HostTcp / "waiting_bytes", Bytes, Gauge,
        "Bytes in the receive queues of this listening socket's connections, without connections whose queue is unchanged since the previous reading: these may be idle.";
    TCP_UNREAD_BYTES = HostTcp / "unread_bytes", Bytes, Gauge,
        "Bytes in the receive queue of one connection with unread bytes: rqueue of sock_diag, or rx_queue of /proc/PID/net/tcp and tcp6. At most eight connections at a time.";
    TCP_RECEIVED = HostTcp / "received", Bytes, Counter,
        "Bytes that this connection has received, read or not: tcpi_bytes_received.";

    // UDP sockets of the VM's process. If several share an address (SO_REUSEPORT), the values are their sums.
    UDP_DROPS = HostUdp / "drops", Count, Counter,
        "Datagrams dropped by the kernel at the VM's sockets, usually because the receive buffer was full: drops of /proc/PID/net/udp and udp6.";
    UDP_QUEUE = HostUdp / "queue", Bytes, Gauge,
        "Memory of datagrams in the receive buffer: rx_queue.";
    UDP_RECEIVED = HostUdp / "received", Count, Counter,
        "Datagrams delivered to any socket: InDatagrams of /proc/PID/net/snmp, whole network namespace, IPv4.";

    // Open files of the VM's process (every ten seconds).
    OPEN_FILES_SAMPLED = HostFiles / "looked_at", Count, Gauge,
        "Number of open files in an evenly spread sample: links of /proc/PID/fd, at most 1,024.";
    OPEN_FILES_OF_KIND = HostFiles / "open", Count, Gauge,
        "Sampled files of this kind; only kinds with at least a sixteenth of the sample.";

    // External programs (os:cmd/1, open_port/2), which are children of erl_child_setup, and their descendants.
    PROGRAMS_CPU = HostPrograms / "cpu", Nanoseconds, Counter,
        "CPU time of all external programs and their descendants, living and ended, erl_child_setup included: /proc/PID/stat utime, stime, cutime, cstime. With an entity: CPU time observed of processes of this name.";
    PROGRAMS_ALIVE = HostPrograms / "alive", Count, Gauge,
        "Living processes of external programs, orphans included, zombies excluded.";
    PROGRAMS_CHILDREN = HostPrograms / "children", Count, Gauge,
        "Children of erl_child_setup: external programs started by the VM itself that have not ended.";
    PROGRAMS_ORPHANS = HostPrograms / "orphans", Count, Gauge,
        "Living processes left behind by an external program that has ended; they belong to no port.";
    PROGRAMS_ZOMBIES = HostPrograms / "zombies", Count, Gauge,
        "Zombies: processes of external programs that have ended, but whose parent has not waited for them.";
    PROGRAMS_RESIDENT = HostPrograms / "resident", Bytes, Gauge,
        "Sum of the resident memory of external programs; shared pages are counted once per process.";
    PROGRAMS_OLDEST = HostPrograms / "oldest", Nanoseconds, Gauge,
        "Age of the oldest living process of this name.";
    PROGRAMS_ENDED = HostPrograms / "ended", Count, Counter,
        "External programs that have ended: the number of reads by erl_child_setup, one per program; syscr of /proc/PID/task/PID/io.";

    // The host.
    CPU_BUSY = HostCpu / "busy", Nanoseconds, Counter,
        "CPU time of all CPUs, without idle, iowait and steal: /proc/stat.";
    CPU_IDLE = HostCpu / "idle", Nanoseconds, Counter, "Idle time of all CPUs, iowait included: /proc/stat.";
    CPU_STEAL = HostCpu / "steal", Nanoseconds, Counter, "Steal, CPU time that the hypervisor gave to other guests: /proc/stat.";
    CPUS_ONLINE = HostCpu / "cpus_online", Count, Gauge, "Online CPUs: /proc/stat.";
    CPUS_ALLOWED = HostCpu / "cpus_allowed", Count, Gauge, "CPUs that the VM may use: /proc/PID/status Cpus_allowed_list.";
    RUNNABLE_TASKS = HostCpu / "runnable_tasks", Count, Gauge, "Tasks running or runnable on the host: /proc/stat procs_running.";
    MEMORY_AVAILABLE = HostCpu / "memory_available", Bytes, Gauge, "Memory available without swapping: /proc/meminfo.";
    SWAP_IN = HostCpu / "swap_in", Bytes, Counter, "Bytes read from swap by all processes: /proc/vmstat pswpin.";
    SWAP_OUT = HostCpu / "swap_out", Bytes, Counter, "Bytes written to swap by all processes: /proc/vmstat pswpout.";
    WALL_CLOCK = HostCpu / "wall_clock", Nanoseconds, Gauge,
        "The recorder's wall clock minus its monotonic clock: jumps if the host's time is set. Absent for a host \
         read by the agent, which has different clocks.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn metrics_are_unique() {
        let mut seen = HashSet::new();
        for metric in METRICS {
            assert!(seen.insert((metric.group, metric.name)), "{}/{} twice", metric.group, metric.name);
        }
    }

    #[test]
    fn groups_of_families_have_no_metrics() {
        for family in FAMILIES {
            assert!(METRICS.iter().all(|metric| metric.group != family.group), "{}", family.group);
        }
    }
}
