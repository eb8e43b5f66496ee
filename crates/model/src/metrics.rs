//! The catalogue of what is measured: every fixed series, and the families whose names are open.
//!
//! The sources write by it, the rules read by it. `docs/recording-format.md` prints it.

use crate::series::{Family, Group, Metric};
use crate::units::{Kind, Unit};

/// Declares metrics as constants and lists them in [`METRICS`].
macro_rules! metrics {
    ($($(#[$doc:meta])* $const:ident = $group:ident / $name:literal, $unit:ident, $kind:ident, $what:literal;)+) => {
        $(#[doc = $what] pub const $const: Metric = Metric {
            group: Group::$group, name: $name, unit: Unit::$unit, kind: Kind::$kind, what: $what,
        };)+
        /// Every metric with a fixed name.
        pub const METRICS: &[&Metric] = &[$(&$const),+];
    };
}

/// Declares families as constants and lists them in [`FAMILIES`].
macro_rules! families {
    ($($const:ident = $group:ident, $unit:ident, $kind:ident, $what:literal;)+) => {
        $(#[doc = $what] pub const $const: Family = Family {
            group: Group::$group, unit: Unit::$unit, kind: Kind::$kind, what: $what,
        };)+
        /// Every family: a group in which the VM gives the names.
        pub const FAMILIES: &[&Family] = &[$(&$const),+];
    };
}

/// Values of [`TABLE_PID_PLACE`].
pub const NO_PID: i64 = 0;
/// The pid is the key.
pub const PID_IS_KEY: i64 = 1;
/// It is part of the key.
pub const PID_IN_KEY: i64 = 2;
/// It is another element of the row.
pub const PID_IN_ROW: i64 = 3;

families! {
    MSACC = Msacc, PerfCounter, Counter,
        "Time per state of a thread: statistics(microstate_accounting). It is on in windows, a tenth of the time, so a state's share of the thread's sum is what counts. Rounded down to whole microseconds. States are an open set; basic builds have aux, check_io, emulator, gc, other, port, sleep.";
    MEMORY = Memory, Bytes, Gauge,
        "Allocated memory by kind: erlang:memory/0 (total, processes, system, atom, binary, code, ets …).";
    TRACE_FLAGS = TraceFlag, Count, Gauge,
        "1 for each flag of a trace that is on: call, procs, send, receive, running, garbage_collection …: erlang:trace_info(Pid, flags).";
}

metrics! {
    // The VM as a whole.
    REDUCTIONS = Vm / "reductions", Reductions, Counter,
        "Reductions done by scheduled-out processes: statistics(reductions).";
    CONTEXT_SWITCHES = Vm / "context_switches", Count, Counter,
        "Processes scheduled in: statistics(context_switches).";
    GARBAGE_COLLECTIONS = Vm / "garbage_collections", Count, Counter,
        "Collections of process heaps, minor and full: statistics(garbage_collection).";
    GC_WORDS_RECLAIMED = Vm / "gc_words_reclaimed", Words, Counter,
        "Words that collections gave back: statistics(garbage_collection).";
    IO_INPUT = Vm / "io_input", Bytes, Counter, "Bytes received through ports: statistics(io).";
    IO_OUTPUT = Vm / "io_output", Bytes, Counter, "Bytes sent through ports: statistics(io).";
    PROCESS_COUNT = Vm / "process_count", Count, Gauge, "Processes: system_info(process_count).";
    PORT_COUNT = Vm / "port_count", Count, Gauge, "Ports: system_info(port_count).";
    PROGRAM_PORTS = Vm / "program_ports", Count, Gauge,
        "Ports of programs that the VM has started, by port_info(Port, os_pid); where all ports were read at once (every ten seconds).";
    PORTS_READ = Vm / "ports_read", Count, Gauge,
        "Ports whose queues were read in one part of the scan of all ports (every ten seconds).";
    PORT_QUEUES = Vm / "port_queues", Bytes, Gauge,
        "Bytes that wait in the driver queues of those: port_info(Port, queue_size).";
    SOCKETS_READ = Vm / "sockets_read", Count, Gauge,
        "Of those, ports of the inet drivers.";
    SOCKETS_SAMPLED = Vm / "sockets_sampled", Count, Gauge,
        "Of those, chosen by chance, how many were asked whether their process still lives: 100 at most.";
    SOCKETS_ENDED = Vm / "sockets_ended", Count, Gauge,
        "Of those, how many are connected to a process that has ended: port_info(Port, connected).";
    SOCKETS_ENDED_QUEUES = Vm / "sockets_ended_queues", Bytes, Gauge,
        "Bytes that wait in the driver queues of those.";
    SOCKETS_PASSIVE = Vm / "sockets_passive", Count, Gauge,
        "Of the sockets that were asked, TCP connections in passive mode; where binaries take 32 MB or more.";
    SOCKET_BUFFERS = Vm / "socket_buffers", Bytes, Gauge,
        "Receive buffers of those: inet:getopts(Port, [buffer]). A connection has one from when it is read until data come.";
    ATOM_COUNT = Vm / "atom_count", Count, Gauge, "Atoms: system_info(atom_count).";
    ETS_COUNT = Vm / "ets_count", Count, Gauge, "ETS tables: system_info(ets_count).";
    SPAWNED = Vm / "spawned", Count, Counter,
        "Processes started since the VM began, as the number of a new pid tells: slots of the process table are given out in turn. Those that are passed over, because their process is alive, count too.";
    MNESIA_COMMITS = Vm / "mnesia_commits", Count, Counter,
        "Transactions of Mnesia that were committed: mnesia:system_info(transaction_commits). Only where Mnesia runs.";
    MNESIA_RESTARTS = Vm / "mnesia_restarts", Count, Counter,
        "Transactions of Mnesia that met a lock and began anew: mnesia:system_info(transaction_restarts).";
    MNESIA_FAILURES = Vm / "mnesia_failures", Count, Counter,
        "Transactions of Mnesia that were given up: mnesia:system_info(transaction_failures).";
    MNESIA_LOG_WRITES = Vm / "mnesia_log_writes", Count, Counter,
        "Entries that Mnesia has written to its transaction log: mnesia:system_info(transaction_log_writes).";
    MNESIA_LOG_DUMPED = Vm / "mnesia_log_dumped", Count, Counter,
        "Of them, those that were written when the last dump of the log into the tables' files was begun.";
    MNESIA_LOG_THRESHOLD = Vm / "mnesia_log_threshold", Count, Gauge,
        "After so many entries the log is dumped: dump_log_write_threshold of Mnesia.";
    ACTIVE_TASKS = Vm / "active_tasks", Count, Gauge,
        "Running and runnable processes and ports, normal schedulers: statistics(total_active_tasks).";
    SCHEDULERS_ONLINE = Vm / "schedulers_online", Count, Gauge,
        "Schedulers online: system_info(schedulers_online); can be changed while the VM runs.";
    TIME_OFFSET = Vm / "time_offset", Nanoseconds, Gauge,
        "Erlang system time minus Erlang monotonic time: erlang:time_offset/1 (every ten seconds).";

    // Scheduler wall time.
    SCHEDULER_ACTIVE = SchedulerTime / "active", NativeTime, Counter,
        "Time in which the scheduler was not idle (busy waiting counts as idle): statistics(scheduler_wall_time_all).";
    SCHEDULER_TOTAL = SchedulerTime / "total", NativeTime, Counter,
        "Time since the measurement was switched on: statistics(scheduler_wall_time_all).";

    // Run queues.
    RUN_QUEUE = RunQueue / "length", Count, Gauge,
        "Runnable processes and ports that wait for a scheduler: statistics(run_queue_lengths_all).";

    // All processes, scanned one by one.
    SCAN_PROCESSES = Processes / "scanned", Count, Gauge, "Processes that the scan reached.";
    SCAN_REDUCTIONS = Processes / "reductions", Reductions, Counter,
        "Reductions of all scanned processes, added up from scan to scan.";
    SCAN_SPAWNED = Processes / "spawned", Count, Counter, "Processes first seen by a scan (short-lived ones between two scans escape it).";
    SCAN_EXITED = Processes / "exited", Count, Counter, "Processes gone since the scan before.";
    SCAN_QUEUED = Processes / "queued_messages", Count, Gauge, "Messages in the queues of all processes.";
    SCAN_LONGEST_QUEUE = Processes / "longest_queue", Count, Gauge, "Messages in the longest queue.";
    SCAN_NONEMPTY_QUEUES = Processes / "nonempty_queues", Count, Gauge, "Processes whose queue is not empty.";
    SCAN_BINARIES = Processes / "binary_vheap_size", Bytes, Gauge,
        "Binaries outside of heaps that all processes refer to, added up, as their garbage collectors count them; told where there are few processes.";
    EXIT_MONITORED = Processes / "monitored", Count, Gauge, "Processes that are monitored to learn why they end; 100 at most.";
    EXIT_SUPERVISORS = Processes / "supervisors", Count, Gauge,
        "Supervisors that are known, whose children are monitored when they do something; 500 at most.";
    SCAN_COVERAGE = Processes / "coverage", Permille, Gauge,
        "Share of all processes that the scan reached; below 1000 where the agent thinned it to keep its budget.";

    // What the VM tells by itself: system_monitor, if nobody else has it.
    EVENT_COUNT = Events / "count", Count, Counter,
        "Collections of 100 ms and more, slices of 50 ms and more, heaps of 128 MB and more after a collection, processes that had to wait for a port or a node.";
    EVENT_TIME = Events / "time", Nanoseconds, Counter, "How long these collections and slices took, added up.";
    EVENT_LONGEST = Events / "longest", Nanoseconds, Gauge, "The longest of them since the sample before; 0 if there was none.";

    // Poll sets.
    POLLSET_KERNEL_POLL = CheckIo / "kernel_poll", Count, Gauge,
        "1 where the set waits with epoll or kqueue, 0 where with poll or select: system_info(check_io).";
    POLLSET_FDS = CheckIo / "fds", Count, Gauge,
        "File descriptors in the set: total_poll_set_size of system_info(check_io).";

    // Allocators; current values of one instance.
    MBCS_BLOCKS = Allocator / "mbcs_blocks", Count, Gauge, "Blocks in multiblock carriers, of any allocator.";
    MBCS_BLOCKS_SIZE = Allocator / "mbcs_blocks_size", Bytes, Gauge, "Their size.";
    MBCS_CARRIERS = Allocator / "mbcs_carriers", Count, Gauge, "Multiblock carriers.";
    MBCS_CARRIERS_SIZE = Allocator / "mbcs_carriers_size", Bytes, Gauge, "Their size.";
    SBCS_BLOCKS = Allocator / "sbcs_blocks", Count, Gauge, "Blocks in single-block carriers.";
    SBCS_BLOCKS_SIZE = Allocator / "sbcs_blocks_size", Bytes, Gauge, "Their size.";
    SBCS_CARRIERS = Allocator / "sbcs_carriers", Count, Gauge, "Single-block carriers.";
    SBCS_CARRIERS_SIZE = Allocator / "sbcs_carriers_size", Bytes, Gauge, "Their size.";
    POOL_BLOCKS = Allocator / "pool_blocks", Count, Gauge, "Blocks in abandoned carriers of this instance (mbcs_pool).";
    POOL_BLOCKS_SIZE = Allocator / "pool_blocks_size", Bytes, Gauge, "Their size.";
    POOL_CARRIERS = Allocator / "pool_carriers", Count, Gauge, "Abandoned multiblock carriers.";
    POOL_CARRIERS_SIZE = Allocator / "pool_carriers_size", Bytes, Gauge, "Their size.";
    FOREIGN_BLOCKS_SIZE = Allocator / "foreign_blocks_size", Bytes, Gauge,
        "Of the blocks above, those of other allocators (OTP 22 and 23 share one pool).";
    CARRIERS_SIZE = Allocator / "carriers_size", Bytes, Gauge,
        "All carriers of an allocator, or of all of them (no entity), as imported text tells: recon_alloc:memory(allocated).";
    BLOCKS_SIZE = Allocator / "blocks_size", Bytes, Gauge, "The same of all blocks: recon_alloc:memory(used).";
    CARRIERS_SIZE_MAX = Allocator / "carriers_size_max", Bytes, Gauge, "Largest size of mbcs and sbcs carriers, added, since the VM started.";
    MBCS_CARRIERS_SIZE_MAX = Allocator / "mbcs_carriers_size_max", Bytes, Gauge,
        "Largest size of the multiblock carriers in use since the VM started.";
    MBCS_BLOCKS_SIZE_MAX = Allocator / "mbcs_blocks_size_max", Bytes, Gauge,
        "Largest size of the blocks in them since the VM started.";
    MSEG_CARRIERS_SIZE = Allocator / "mseg_carriers_size", Bytes, Gauge,
        "Of all carriers, pool and all, those that are mapped segments; the others are from malloc.";
    SEGMENTS_ASKED = Allocator / "segments_asked", Count, Counter, "Calls of mseg_alloc and mseg_realloc.";
    ALLOCATIONS = Allocator / "allocations", Count, Counter, "Calls of alloc.";
    FREES = Allocator / "frees", Count, Counter, "Calls of free.";
    REALLOCATIONS = Allocator / "reallocations", Count, Counter, "Calls of realloc.";

    FIXED_SIZE = FixAlloc / "size", Bytes, Gauge, "Blocks of this kind, in all instances together.";

    // The segment cache.
    MSEG_ALLOCATIONS = Mseg / "allocations", Count, Counter, "Segments asked for: mseg_alloc calls.";
    MSEG_CACHE_HITS = Mseg / "cache_hits", Count, Counter, "Segments that the cache could give.";
    MSEG_CREATES = Mseg / "creates", Count, Counter, "Segments that had to be mapped anew.";
    MSEG_DESTROYS = Mseg / "destroys", Count, Counter, "Segments given back to the operating system.";
    MSEG_CACHED = Mseg / "cached_segments", Count, Gauge, "Free segments kept in the cache.";
    MSEG_SEGMENTS_SIZE = Mseg / "segments_size", Bytes, Gauge, "Segments in use.";

    // Kept address space.
    MMAP_TOTAL = Mmap / "super_carrier_size", Bytes, Gauge, "The super carrier (`default`, with +MMscs) or the literal area (`literal`).";
    MMAP_USED = Mmap / "super_carrier_used", Bytes, Gauge, "What of it is used.";
    MMAP_OS_USED = Mmap / "os_used", Bytes, Gauge, "Mapped outside of a super carrier.";


    HELD_BINARIES = Processes / "held_binaries", Count, Gauge, "Binaries outside of heaps that the holders that were asked for refer to, each counted once.";
    HELD_BINARIES_SIZE = Processes / "held_binaries_size", Bytes, Gauge, "Their size.";

    // Code and persistent terms, when somebody has asked.
    CODE_MODULES = Code / "modules", Count, Gauge, "Loaded modules: system_info(loaded).";
    CODE_SIZE = Code / "size", Bytes, Gauge, "Their code with its literals.";
    CODE_OLD_SIZE = Code / "old_size", Bytes, Gauge, "Old code that is still there.";
    CODE_APPLICATIONS = Code / "applications", Count, Gauge, "Applications that loaded modules belong to, with one more for those of none.";
    CODE_STOPPED = Code / "stopped", Nanoseconds, Gauge, "How long reading that took: for about so long no scheduler ran.";
    PERSISTENT_TERMS = Code / "persistent_terms", Count, Gauge, "persistent_term:info/0, count.";
    PERSISTENT_TERMS_SIZE = Code / "persistent_terms_size", Bytes, Gauge, "persistent_term:info/0, memory.";
    // Distribution.
    DIST_QUEUE = Dist / "queue", Bytes, Gauge, "Bytes waiting to be sent to the node.";
    DIST_INPUT = Dist / "input", Bytes, Counter, "Bytes received from the node.";
    DIST_OUTPUT = Dist / "output", Bytes, Counter, "Bytes sent to the node.";
    MNESIA_RUNS = Dist / "mnesia", Count, Gauge,
        "Of a connected node that has a copy of Mnesia's schema: 1 where Mnesia runs together with it, 0 where not (every ten seconds).";
    CONNECT_LOOKS = Connect / "samples", Count, Gauge,
        "Samples since the reading before in which attempts to connect to nodes were looked for; the entity is empty.";
    CONNECT_ATTEMPTS = Connect / "attempts", Count, Gauge,
        "Attempts to connect this node and that one since the reading before, at least: by the connection's number, which counts them, from the first one that was seen to the last (every ten seconds).";
    CONNECT_PENDING = Connect / "pending", Count, Gauge, "Samples since the reading before in which an attempt was under way.";
    CONNECT_OUTGOING = Connect / "outgoing", Count, Gauge, "Of these attempts, those that were seen and that this node made.";
    CONNECT_INCOMING = Connect / "incoming", Count, Gauge, "Of these attempts, those that were seen and that the other node made.";
    CONNECT_CALLERS = Connect / "callers", Count, Gauge,
        "The most processes that waited for net_kernel to connect to the node, since the reading before.";
    CONNECT_AGAIN = Connect / "again", Count, Gauge,
        "How often a visible node had another connection than in the samples before, since the reading before; with an empty entity, in how many samples any had (every ten seconds).";
    CONNECT_UP = Connect / "up", Count, Gauge,
        "1 where a node to which attempts were counted is connected now, 0 where it is not.";

    // Single ETS tables that have grown since the agent came.
    TABLES_FOLLOWED = Table / "followed", Count, Gauge,
        "ETS tables whose rows are counted each second: the largest ones, and those that grew the most; the entity is empty.";
    TABLE_ROWS = Table / "rows", Count, Gauge, "Rows of an ETS table that has grown while it was followed: ets:info(Table, size).";
    TABLE_MEMORY = Table / "memory", Bytes, Gauge, "Its memory, without binaries that its rows refer to: ets:info(Table, memory).";
    TABLE_SAMPLED = Table / "sampled_rows", Count, Gauge,
        "How many of its rows were searched for a pid, if it may be read and is a set (every ten seconds).";
    TABLE_PID_PLACE = Table / "pid_place", Count, Gauge,
        "Where most of them have one: 0 nowhere, 1 as the key, 2 within the key, 3 in another element.";
    TABLE_WITH_PID = Table / "rows_with_pid", Count, Gauge, "How many of them have a pid of this node there.";
    TABLE_ENDED = Table / "rows_of_ended", Count, Gauge, "How many of these pids are of processes that have ended.";
    TABLE_BINARY_ROWS = Table / "binary_rows", Count, Gauge,
        "Rows of a table when its binaries were measured: where these take 32 MB or more, each table once a minute.";
    TABLE_BINARY_SAMPLED = Table / "binary_sampled_rows", Count, Gauge,
        "How many of its rows were searched for binaries: elements, and elements of tuples in them; 0 of one that cannot be read so.";
    TABLE_BINARY_HIDDEN = Table / "binary_hidden_rows", Count, Gauge,
        "How many of the first 30 rows have a map, a list or a larger tuple, which are not searched.";
    TABLE_BINARIES = Table / "binaries", Count, Gauge,
        "Binaries found in these rows, of more than 64 bytes or parts of such.";
    TABLE_BINARY_BYTES = Table / "binary_bytes", Bytes, Gauge, "Their size, added up: byte_size/1.";
    TABLE_BINARY_REFERENCED = Table / "binary_referenced", Bytes, Gauge,
        "Size of the binaries that they are parts of, added up: binary:referenced_byte_size/1.";
    TABLE_BINARY_HELD = Table / "binary_held", Bytes, Gauge,
        "The same, where several share one only their share of it, by its count of references.";

    // Traces that are on.
    TRACE_SAMPLED = Trace / "sampled", Count, Gauge,
        "Processes that were asked whether they are traced: the busiest ones, and some others where any are busy (every ten seconds); the entity is empty.";
    TRACED = Trace / "traced", Count, Gauge, "How many of them are traced for this tracer.";
    TRACE_NEW = Trace / "new", Count, Gauge, "1 where new processes or ports will be traced: erlang:trace_info(new_processes, flags).";

    // RabbitMQ's own counters (rabbit_core_metrics): sizes and churn each second, the rest every ten seconds.
    BROKER_CONNECTIONS = Broker / "connections", Count, Gauge, "Client connections of this node: the table connection_created.";
    BROKER_CHANNELS = Broker / "channels", Count, Gauge, "Channels: the table channel_created.";
    BROKER_CONSUMERS = Broker / "consumers", Count, Gauge, "Consumers: the table consumer_created.";
    BROKER_QUEUES = Broker / "queues", Count, Gauge, "Queues that tell their length: the table queue_coarse_metrics.";
    BROKER_CONNECTIONS_OPENED = Broker / "connections_opened", Count, Counter, "Connections opened: connection_churn_metrics.";
    BROKER_CONNECTIONS_CLOSED = Broker / "connections_closed", Count, Counter, "Connections closed.";
    BROKER_CHANNELS_OPENED = Broker / "channels_opened", Count, Counter, "Channels opened.";
    BROKER_CHANNELS_CLOSED = Broker / "channels_closed", Count, Counter, "Channels closed.";
    BROKER_QUEUES_DECLARED = Broker / "queues_declared", Count, Counter, "Queues declared, whether they were there already or not.";
    BROKER_QUEUES_CREATED = Broker / "queues_created", Count, Counter, "Queues created.";
    BROKER_QUEUES_DELETED = Broker / "queues_deleted", Count, Counter, "Queues deleted.";
    BROKER_LOGINS = Broker / "logins", Count, Counter, "Logins that succeeded: auth_attempt_metrics.";
    BROKER_LOGINS_FAILED = Broker / "logins_failed", Count, Counter, "Logins that failed.";
    BROKER_PUBLISHED = Broker / "published", Count, Counter, "Messages received from publishers: rabbit_global_counters, RabbitMQ 3.9 and later.";
    BROKER_CONFIRMED = Broker / "confirmed", Count, Counter, "Messages confirmed to publishers.";
    BROKER_UNROUTABLE = Broker / "unroutable", Count, Counter, "Messages that went to no queue: dropped, or returned to the publisher.";
    BROKER_DELIVERED = Broker / "delivered", Count, Counter, "Messages delivered to consumers, or fetched with basic.get.";
    BROKER_REDELIVERED = Broker / "redelivered", Count, Counter, "Of them, those that had been delivered before.";
    BROKER_ACKNOWLEDGED = Broker / "acknowledged", Count, Counter, "Messages that consumers acknowledged.";
    BROKER_EMPTY_GETS = Broker / "empty_gets", Count, Counter, "basic.get of an empty queue.";
    BROKER_DEAD_LETTERED_REJECTED = Broker / "dead_lettered_rejected", Count, Counter,
        "Messages that went to a dead letter exchange since a consumer rejected them, of queues of this node: rabbit_global_counters, RabbitMQ 3.10 and later.";
    BROKER_DEAD_LETTERED_EXPIRED = Broker / "dead_lettered_expired", Count, Counter, "The same, since their TTL was over.";
    BROKER_DEAD_LETTERED_MAXLEN = Broker / "dead_lettered_maxlen", Count, Counter, "The same, since the queue had its maximal length.";
    BROKER_DEAD_LETTERED_DELIVERY_LIMIT = Broker / "dead_lettered_delivery_limit", Count, Counter, "The same, since they had been delivered too often.";
    BROKER_READY = Broker / "ready", Count, Gauge, "Messages ready in all queues of this node: queue_coarse_metrics, up to 20,000 queues.";
    BROKER_UNACKED = Broker / "unacked", Count, Gauge, "Messages delivered and not acknowledged yet.";
    BROKER_STATISTICS = Broker / "statistics", Count, Gauge, "collect_statistics: 0 none, 1 coarse, 2 fine. Without it only totals are known.";
    BROKER_MEMORY_ALARM = Broker / "memory_alarm", Count, Gauge, "1 while the memory alarm of this node is in effect: node_metrics, with the plugin management_agent.";
    BROKER_DISK_ALARM = Broker / "disk_alarm", Count, Gauge, "The same for free disk space.";
    BROKER_MEMORY_LIMIT = Broker / "memory_limit", Bytes, Gauge, "Memory from which it blocks publishers.";
    BROKER_DISK_LIMIT = Broker / "disk_limit", Bytes, Gauge, "Free disk space below which it blocks publishers.";
    BROKER_DISK_FREE = Broker / "disk_free", Bytes, Gauge, "Free disk space where it keeps its data.";
    BROKER_BLOCKED = Broker / "blocked", Count, Gauge, "Connections in the state blocked or blocking: connection_metrics, up to 5,000 connections.";
    BROKER_FLOW = Broker / "flow", Count, Gauge, "Connections in the state flow: they publish faster than a queue or the disk takes it.";
    QUEUE_READY = BrokerQueue / "ready", Count, Gauge, "Messages ready.";
    QUEUE_UNACKED = BrokerQueue / "unacked", Count, Gauge, "Messages delivered and not acknowledged yet.";
    QUEUE_CONSUMERS = BrokerQueue / "consumers", Count, Gauge, "Consumers.";
    QUEUE_PREFETCH = BrokerQueue / "prefetch", Count, Gauge, "Their prefetch counts, added up.";
    QUEUE_TTL = BrokerQueue / "ttl", Nanoseconds, Gauge, "After so long a message is dropped or dead-lettered, by argument or policy; missing where it stays.";
    QUEUE_MAX_LENGTH = BrokerQueue / "max_length", Count, Gauge, "Most messages that it keeps, by argument or policy; missing where there is no such limit.";
    QUEUE_UNLIMITED = BrokerQueue / "unlimited", Count, Gauge, "Consumers that acknowledge and have no prefetch count.";
    QUEUE_DELIVERED = BrokerQueue / "delivered", Count, Counter, "Messages delivered over channels that are still open: channel_queue_metrics, up to 20,000 rows.";
    QUEUE_REDELIVERED = BrokerQueue / "redelivered", Count, Counter, "Of them, those that had been delivered before.";
    QUEUE_ACKNOWLEDGED = BrokerQueue / "acknowledged", Count, Counter, "Messages acknowledged.";
    CLIENT_DELIVERED = BrokerClient / "delivered", Count, Counter, "Messages of the queue delivered over a channel of this connection.";
    CLIENT_REDELIVERED = BrokerClient / "redelivered", Count, Counter, "Of them, those that had been delivered before.";
    CLIENT_ACKNOWLEDGED = BrokerClient / "acknowledged", Count, Counter, "Messages acknowledged over it.";
    CLIENT_UNACKED = BrokerClient / "unacked", Count, Gauge, "Messages that the channel has not acknowledged, of any queue.";
    CONNECTION_CHANNELS = BrokerConnection / "channels", Count, Gauge, "Channels of the connection.";
    CONNECTION_BLOCKED = BrokerConnection / "blocked", Count, Gauge, "1 while the connection is blocked.";
    OPENER_CONNECTIONS = BrokerOpener / "connections", Count, Gauge, "New connections of this client that were met among new processes, since the recording began.";
    OPENER_CHANNELS = BrokerOpener / "channels", Count, Gauge, "New channels, the same way.";

    // What measuring costs.
    AGENT_COST = Agent / "cost", Nanoseconds, Counter, "Time spent by the agent, wall clock, added up.";
    AGENT_REDUCTIONS = Agent / "reductions", Reductions, Counter, "Reductions of the agent's processes.";
    AGENT_MEMORY = Agent / "memory", Bytes, Gauge, "Memory of the agent's processes.";
    ROUND_TRIP = Agent / "round_trip", Nanoseconds, Gauge, "From request to reply, seen by the recorder.";
    CLOCK_OFFSET = Agent / "clock_offset", Nanoseconds, Gauge,
        "The recorder's clock minus the VM's monotonic time, from the shortest of the last round trips.";
    WALL_AHEAD = Agent / "wall_ahead", Nanoseconds, Gauge,
        "The wall clock of the VM's host minus that of the recorder's, from the shortest round trip of the last minute.";
    WALL_AHEAD_ERROR = Agent / "wall_ahead_error", Nanoseconds, Gauge,
        "By how much that can be wrong: half of that round trip.";

    // The operating system's view of the VM's process.
    PROCESS_USER = HostProcess / "user", Nanoseconds, Counter, "CPU time in user mode: /proc/PID/stat utime.";
    PROCESS_SYSTEM = HostProcess / "system", Nanoseconds, Counter, "CPU time in the kernel: /proc/PID/stat stime.";
    MINOR_FAULTS = HostProcess / "minor_faults", Count, Counter, "Page faults without I/O: /proc/PID/stat minflt.";
    MAJOR_FAULTS = HostProcess / "major_faults", Count, Counter, "Page faults with I/O: /proc/PID/stat majflt.";
    RSS = HostProcess / "rss", Bytes, Gauge, "Resident memory: /proc/PID/status VmRSS.";
    PSS = HostProcess / "pss", Bytes, Gauge, "Proportional resident memory: Pss of /proc/PID/smaps, or of smaps_rollup (every ten seconds).";
    ANON_HUGE = HostProcess / "anon_huge_pages", Bytes, Gauge, "In transparent huge pages: AnonHugePages, from where pss is.";
    SWAP = HostProcess / "swap", Bytes, Gauge, "Swapped out: /proc/PID/status VmSwap.";
    THREADS = HostProcess / "threads", Count, Gauge, "Threads: /proc/PID/status Threads.";
    OPEN_FDS = HostProcess / "open_fds", Count, Gauge, "Open file descriptors: entries of /proc/PID/fd (every ten seconds; in each sample where the kernel tells their number, Linux 6.2 and later).";

    // Its threads.
    THREAD_CPU = HostThread / "cpu", Nanoseconds, Counter, "Time on a CPU: /proc/PID/task/TID/schedstat.";
    THREAD_WAIT = HostThread / "run_queue_wait", Nanoseconds, Counter,
        "Time runnable but not on a CPU: /proc/PID/task/TID/schedstat.";
    THREAD_USER = HostThread / "user", Nanoseconds, Counter, "CPU time in user mode: /proc/PID/task/TID/stat.";
    THREAD_SYSTEM = HostThread / "system", Nanoseconds, Counter, "CPU time in the kernel: /proc/PID/task/TID/stat.";
    VOLUNTARY_SWITCHES = HostThread / "voluntary_switches", Count, Counter,
        "Context switches because the thread waited: /proc/PID/task/TID/status.";
    INVOLUNTARY_SWITCHES = HostThread / "involuntary_switches", Count, Counter,
        "Context switches because another was given the CPU: /proc/PID/task/TID/status.";

    // Its control groups, v1 or v2 alike; the tightest limit on the way to the root counts. Entities: `cpu` is the group
    // with the tightest quota, `own_cpu` the one that the VM is in (all that OTP looks at), `memory` the one with the
    // tightest memory limit.
    CGROUP_QUOTA = HostCgroup / "quota", Permille, Gauge, "CPU quota in thousandths of a core; absent where there is none.";
    CGROUP_PERIODS = HostCgroup / "periods", Count, Counter, "Enforcement periods in which the group ran: nr_periods.";
    CGROUP_THROTTLED = HostCgroup / "throttled_periods", Count, Counter, "Periods in which it was throttled: nr_throttled.";
    CGROUP_THROTTLED_TIME = HostCgroup / "throttled_time", Nanoseconds, Counter, "Time for which its threads were throttled.";
    CGROUP_USAGE = HostCgroup / "usage", Nanoseconds, Counter, "CPU time of the whole group.";
    CGROUP_WEIGHT = HostCgroup / "weight", Count, Gauge, "cpu.shares (v1) or cpu.weight (v2), as it stands there.";
    CGROUP_MEMORY_LIMIT = HostCgroup / "memory_limit", Bytes, Gauge, "The group's memory limit; absent where there is none.";
    CGROUP_MEMORY = HostCgroup / "memory", Bytes, Gauge, "Memory charged to the group.";

    // Pressure.
    PRESSURE_CPU_SOME = HostPressure / "cpu_some", Nanoseconds, Counter, "Time in which some task waited for a CPU: pressure/cpu.";
    PRESSURE_MEMORY_SOME = HostPressure / "memory_some", Nanoseconds, Counter, "Time in which some task waited for memory.";
    PRESSURE_MEMORY_FULL = HostPressure / "memory_full", Nanoseconds, Counter, "Time in which all tasks waited for memory.";
    PRESSURE_IO_SOME = HostPressure / "io_some", Nanoseconds, Counter, "Time in which some task waited for I/O.";
    PRESSURE_IO_FULL = HostPressure / "io_full", Nanoseconds, Counter, "Time in which all tasks waited for I/O.";

    // What the process has mapped, by kind: /proc/PID/smaps (every ten seconds).
    MAPPING_COUNT = HostMapping / "mappings", Count, Gauge, "Mappings of that kind.";
    MAPPING_SIZE = HostMapping / "size", Bytes, Gauge, "Address space that they take: Size.";
    MAPPING_RESIDENT = HostMapping / "resident", Bytes, Gauge, "What of it is in memory: Rss.";
    MAPPING_PSS = HostMapping / "pss", Bytes, Gauge, "The same, shared pages divided by the number of those who share them: Pss.";
    MAPPING_SWAP = HostMapping / "swap", Bytes, Gauge, "What of it is swapped out: Swap.";
    MAPPING_LAZY_FREE = HostMapping / "lazy_free", Bytes, Gauge,
        "Resident pages that the process has given back with MADV_FREE and the kernel has not yet taken: LazyFree.";
    MAPPING_HUGE = HostMapping / "huge_pages", Bytes, Gauge, "What of it stands in transparent huge pages: AnonHugePages.";

    // What stands there: carriers by their own headers, and whatever else has a form by which it can be told. Pages are
    // counted one by one (/proc/PID/pagemap), so nothing here is a remainder but the entity `unknown`.
    CONTENT_COUNT = HostContent / "count", Count, Gauge, "How many there are: carriers, segments, stacks, chunks.";
    CONTENT_SIZE = HostContent / "size", Bytes, Gauge, "Address space that they take.";
    CONTENT_RESIDENT = HostContent / "resident", Bytes, Gauge, "What of it is in memory.";
    CONTENT_SWAPPED = HostContent / "swapped", Bytes, Gauge, "What of it is swapped out.";
    CONTENT_IN_USE = HostContent / "in_use", Bytes, Gauge,
        "Of malloc: the chunks that are handed out, by their headers. The rest is free and kept by malloc.";
    CONTENT_COST = HostContent / "cost", Nanoseconds, Gauge, "How long finding out took; the entity is empty.";
    CONTENT_FAULTS = HostContent / "faults", Count, Gauge,
        "Minor page faults of the process meanwhile, so that pages may have come that were looked for before; the entity is empty.";
    CONTENT_GONE = HostContent / "gone", Bytes, Gauge,
        "Resident memory that went meanwhile, so that the kernel may have counted pages that were not found any more; the entity is empty.";

    // Its listening TCP sockets. Where several share an address (SO_REUSEPORT), that with the longest queue.
    ACCEPT_QUEUE = HostListen / "queue", Count, Gauge,
        "Connections that wait to be accepted: netlink, sock_diag; where that is not to be had, rx_queue of /proc/PID/net/tcp and tcp6 (seldom where reading them is dear).";
    ACCEPT_QUEUE_LIMIT = HostListen / "limit", Count, Gauge,
        "Its limit, the lesser of backlog and net.core.somaxconn: netlink, sock_diag. A full queue holds one more.";
    ACCEPT_QUEUE_OTHERS_LIMIT = HostListen / "others_limit", Count, Gauge,
        "The shortest limit of an accept queue of another program in the network namespace. Only netlink tells it.";
    LISTENING_SOCKETS = HostListen / "sockets", Count, Gauge,
        "Listening TCP sockets of the VM's network namespace, whoever has them.";
    LISTEN_OVERFLOWS = HostListen / "overflows", Count, Counter,
        "Times that a connection was turned away because an accept queue was full: ListenOverflows of /proc/PID/net/netstat, of the whole network namespace.";
    LISTEN_DROPS = HostListen / "drops", Count, Counter,
        "The same for whatever reason: ListenDrops, of the whole network namespace.";
    PASSIVE_OPENS = HostListen / "passive_opens", Count, Counter,
        "Connections that came into an accept queue: PassiveOpens of /proc/PID/net/snmp, of the whole network namespace.";

    // Its TCP connections that have been accepted, or that it has made: 2,048 of the network namespace at most.
    TCP_LOOKED_AT = HostTcp / "looked_at", Count, Gauge,
        "TCP connections of the network namespace that were looked at, whosever they are.";
    TCP_CONNECTIONS = HostTcp / "connections", Count, Gauge,
        "Connections that the VM has accepted from this listening socket and not closed; not where there are more than are looked at.";
    TCP_SILENT = HostTcp / "silent", Count, Gauge,
        "Of those that were looked at, how many have received nothing for 30 s or more: tcpi_last_data_recv (every ten seconds). Of connections that the VM has made: for 10 s or more, 64 such at most.";
    TCP_BEGUN = HostTcp / "begun", Count, Counter,
        "Connections that the VM has accepted from this listening socket since it is recorded, of those that were seen: each second they are looked at, and shorter ones may escape. Not where there are more than are looked at.";
    TCP_LIVED = HostTcp / "lived", Count, Counter,
        "Of those that were seen to begin, how many have ended after about so many seconds, the number behind the comma of the entity; 0 to 60.";
    TCP_CLOSED = HostTcp / "closed", Count, Gauge,
        "Connections of this listening socket that the VM's side closed first in the last ten seconds: sockets in TIME_WAIT, by sock_diag (every five seconds). Connections that were reset are not among them.";
    TCP_UNREAD = HostTcp / "unread", Count, Gauge,
        "Connections that had 4,096 bytes or more that nobody had read, in this look and in the one before.";
    TCP_WAITING = HostTcp / "waiting_bytes", Bytes, Gauge,
        "Bytes in the receive queues of this listening socket's connections, without connections whose queue is as it was in the look before: those may be idle.";
    TCP_UNREAD_BYTES = HostTcp / "unread_bytes", Bytes, Gauge,
        "Bytes in the receive queue of one such connection: rqueue of sock_diag, or rx_queue of /proc/PID/net/tcp and tcp6. Eight connections at most at a time.";
    TCP_RECEIVED = HostTcp / "received", Bytes, Counter,
        "Bytes that this connection has received, read or not: tcpi_bytes_received.";

    // Its UDP sockets. Where several share an address (SO_REUSEPORT), all of them together.
    UDP_DROPS = HostUdp / "drops", Count, Counter,
        "Datagrams that the kernel dropped at the VM's sockets, most often because the receive buffer was full: drops of /proc/PID/net/udp and udp6.";
    UDP_QUEUE = HostUdp / "queue", Bytes, Gauge,
        "Memory that datagrams take which wait in the receive buffer: rx_queue.";
    UDP_RECEIVED = HostUdp / "received", Count, Counter,
        "Datagrams that were delivered to any socket: InDatagrams of /proc/PID/net/snmp, of the whole network namespace, IPv4.";

    // What its open files are (every ten seconds).
    OPEN_FILES_LOOKED_AT = HostFiles / "looked_at", Count, Gauge,
        "Open files that were looked at, evenly over all of them: links of /proc/PID/fd that were read, 1,024 at most.";
    OPEN_FILES_OF_KIND = HostFiles / "open", Count, Gauge,
        "How many of those looked at are of this kind; kinds that a sixteenth of them are of, or more.";

    // Programs that the VM has started (os:cmd, ports of programs), with their descendants: children of erl_child_setup.
    PROGRAMS_CPU = HostPrograms / "cpu", Nanoseconds, Counter,
        "CPU time of all programs that the VM has started and of what these have started, living and ended, with that of erl_child_setup: /proc/PID/stat utime, stime, cutime, cstime. With an entity only what was seen of processes of that name.";
    PROGRAMS_ALIVE = HostPrograms / "alive", Count, Gauge,
        "Living processes of programs, orphans included, zombies not.";
    PROGRAMS_CHILDREN = HostPrograms / "children", Count, Gauge,
        "Children of erl_child_setup: programs that the VM itself has started and that have not ended.";
    PROGRAMS_ORPHANS = HostPrograms / "orphans", Count, Gauge,
        "Living processes that a program of the VM has left behind when it ended: they belong to no port any more.";
    PROGRAMS_ZOMBIES = HostPrograms / "zombies", Count, Gauge,
        "Processes of programs that have ended and that nobody has waited for.";
    PROGRAMS_RESIDENT = HostPrograms / "resident", Bytes, Gauge,
        "Resident memory of programs, added up: pages that several share count for each.";
    PROGRAMS_OLDEST = HostPrograms / "oldest", Nanoseconds, Gauge,
        "For how long the oldest living process of that name has been running.";
    PROGRAMS_ENDED = HostPrograms / "ended", Count, Counter,
        "Programs of the VM that have ended: erl_child_setup reads once for each, syscr of /proc/PID/task/PID/io.";

    // The machine.
    CPU_BUSY = HostCpu / "busy", Nanoseconds, Counter,
        "CPU time of all CPUs that was not idle, iowait or steal: /proc/stat.";
    CPU_IDLE = HostCpu / "idle", Nanoseconds, Counter, "Idle time of all CPUs, iowait included: /proc/stat.";
    CPU_STEAL = HostCpu / "steal", Nanoseconds, Counter, "Time that the hypervisor gave to others: /proc/stat.";
    CPUS_ONLINE = HostCpu / "cpus_online", Count, Gauge, "CPUs online: /proc/stat.";
    CPUS_ALLOWED = HostCpu / "cpus_allowed", Count, Gauge, "CPUs that the VM may run on: /proc/PID/status Cpus_allowed_list.";
    RUNNABLE_TASKS = HostCpu / "runnable_tasks", Count, Gauge, "Tasks running or runnable on the machine: /proc/stat procs_running.";
    MEMORY_AVAILABLE = HostCpu / "memory_available", Bytes, Gauge, "Memory that could be had without swapping: /proc/meminfo.";
    SWAP_IN = HostCpu / "swap_in", Bytes, Counter, "Read back from swap, by anybody: /proc/vmstat pswpin.";
    SWAP_OUT = HostCpu / "swap_out", Bytes, Counter, "Written to swap, by anybody: /proc/vmstat pswpout.";
    WALL_CLOCK = HostCpu / "wall_clock", Nanoseconds, Gauge,
        "The recorder's wall clock minus its monotonic one: jumps where somebody sets the host's time. Not of a host \
         that the node's agent reads, whose clocks are others.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_metric_stands_in_the_catalogue_twice() {
        let mut seen = HashSet::new();
        for metric in METRICS {
            assert!(seen.insert((metric.group, metric.name)), "{}/{} twice", metric.group, metric.name);
        }
    }

    #[test]
    fn open_groups_hold_no_fixed_names() {
        for family in FAMILIES {
            assert!(METRICS.iter().all(|metric| metric.group != family.group), "{}", family.group);
        }
    }
}
