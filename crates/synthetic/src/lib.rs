//! Synthetic nodes: by default a healthy node with two schedulers, recorded for ten seconds.
//!
//! Rules are tested on synthetic nodes. `lab evaluate` also records them to test rules whose fault cannot be reproduced on the available
//! hosts.

#![allow(missing_docs, reason = "the names of most fields are self-explanatory")]

mod fill;

use beamtune_model::{
    CallStack, CpuState, ExitRow, Frame, FrameKind, IncarnationSpan, LockRow, LockSession, LockWaitRow,
    MessageRow, Metric, Nanos, Period, PeriodBuilder, PortRow, ProcessRow, Profile, ProfileBuilder,
    ProfileRow, ProfiledThread, RunSampleRow, Sample, SampleBuilder, SeriesTable, Span, SpawnRow,
    StackSample, TableRow, Tick, WaitSampleRow, units::SECOND_NS,
};

/// The behaviour of a node. CPU and scheduler times are in cores, and memory is in bytes, unless noted. Most fields with two values are
/// an initial value and its growth per second.
#[derive(Clone)]
pub struct SyntheticNode {
    pub seconds: i64,
    pub schedulers: usize,
    pub cpus: i64,
    /// Utilization of each normal scheduler (`scheduler_wall_time`).
    pub utilization: f64,
    /// CPU time of each normal scheduler, as measured by the operating system.
    pub cpu: f64,
    /// Run-queue delay of each normal scheduler, in seconds per second.
    pub run_queue_delay: f64,
    /// Share of the time of each normal scheduler that is spent in GC.
    pub gc: f64,
    pub voluntary_switches: i64,
    pub involuntary_switches: i64,
    pub active_tasks: i64,
    /// Context switches of processes per second.
    pub context_switches: i64,
    /// Open file descriptors: (initial value, growth per second).
    pub open_files: (i64, i64),
    /// Kinds of open files, and the number of sampled files of each kind.
    pub open_kinds: Vec<(&'static str, i64)>,
    pub dirty_cpu_active: f64,
    pub dirty_io_active: f64,
    pub dirty_cpu_queue: i64,
    pub dirty_io_queue: i64,
    /// CPU time of other processes of the host.
    pub other_cpu: f64,
    pub steal: f64,
    /// CPU quota, in thousandths of a core.
    pub quota: Option<i64>,
    pub throttled_periods_of_10: i64,
    pub throttled: f64,
    /// Number of processes: (initial value, growth per second), as for ports, atoms and tables.
    pub processes: (i64, i64),
    pub ports: (i64, i64),
    pub atoms: (i64, i64),
    pub tables: (i64, i64),
    pub facts: Vec<(&'static str, String)>,
    pub epoll: bool,
    pub descriptors: i64,
    /// For each poll thread: CPU time, and the share of the time in which it does not sleep.
    pub poll_threads: Vec<(f64, f64)>,
    pub total_reductions: i64,
    /// Bytes received through ports per second, and the growth of this rate per second; `None` if not recorded.
    pub input: Option<(i64, i64)>,
    pub busiest: Vec<SyntheticProcess>,
    pub spawns: Vec<SpawnRow>,
    /// Process exits that are reported each second; `None` as in recordings of versions that did not record exits.
    pub exits: Option<Vec<ExitRow>>,
    /// Spawn rate per second.
    pub spawned: i64,
    /// Spawned processes per second that are still alive when sampled.
    pub spawned_alive: i64,
    /// ETS tables that are recorded each second.
    pub ets: Vec<TableRow>,
    pub sockets: Vec<PortRow>,
    pub events: Vec<SystemMonitorEvent>,
    /// Resident memory.
    pub resident: i64,
    /// Resident memory in huge pages.
    pub huge: i64,
    /// Initial total of `erlang:memory/0`.
    pub used: i64,
    pub swapped: i64,
    pub major_faults: i64,
    /// Share of time in which tasks of the host waited for memory (PSI).
    pub memory_pressure: f64,
    /// Memory of the control group, and its limit.
    pub group_memory: Option<(i64, i64)>,
    /// Kernel CPU time of the process.
    pub system: f64,
    /// Drift of the VM's clock, in seconds per second.
    pub clock_gain: f64,
    /// Difference between the system time of the VM and that of the host at the end, in seconds; positive if the VM is ahead.
    pub clock_ahead: f64,
    /// Step of the host's clock in the middle of the recording, in seconds.
    pub clock_step: f64,
    /// First and last second of each incarnation of the VM; empty for a single one.
    pub incarnations: Vec<(i64, i64)>,
    /// Samples of a distribution connection, evenly spaced.
    pub dist_samples: Vec<DistSample>,
    pub allocators: Vec<SyntheticAllocator>,
    /// Growth in blocks per second of the last allocator in [`Node::allocators`].
    pub block_growth: i64,
    /// Size of the binaries that processes refer to, summed over all processes; `None` if not recorded.
    pub referenced_binary_bytes: Option<i64>,
    /// Memory in `fix_alloc` by kind; empty as in older recordings.
    pub fix_alloc_kinds: Vec<(&'static str, i64)>,
    /// Messages in all message queues.
    pub queued_messages: i64,
    /// Words reclaimed by GC per second.
    pub reclaimed_words: i64,
    /// Growth of the resident memory per second.
    pub resident_growth: i64,
    /// Additional resident memory in every fourth second.
    pub resident_waves: i64,
    /// Kinds of memory of `erlang:memory/0`: (name, initial value, growth per second).
    pub kinds: Vec<(&'static str, i64, i64)>,
    /// Resident memory that was freed with `MADV_FREE` and not yet reclaimed.
    pub lazy_free: i64,
    /// Additional binary memory in every fourth second.
    pub binary_waves: i64,
    /// Recognised contents of resident memory: (entity, resident, in use). Empty if pages were not examined.
    pub contents: Vec<(&'static str, i64, Option<i64>)>,
    /// mseg segments requested and mapped per second.
    pub segments: (i64, i64),
    /// Mapped segments per second that are never unmapped.
    pub segments_leaked: i64,
    /// Literal area: used and total.
    pub literals: (i64, i64),
    /// Memory mapped outside the super carrier.
    pub mapped: i64,
    /// Super carrier, if any: used and total.
    pub super_carrier: Option<(i64, i64)>,
    /// Large tables: name, initial memory, growth per second.
    pub large_tables: Vec<(&'static str, i64, i64)>,
    /// GCs per second, and optional waves: (interval in milliseconds, additional GCs per wave).
    pub gcs: (i64, Option<(i64, i64)>),
    /// Duration of a wave of GCs, in milliseconds.
    pub gc_wave_ms: i64,
    pub memory_available: i64,
    /// Duration of lock counting, in nanoseconds; `None` without lock counting.
    pub lock_counting_ns: Option<i64>,
    /// Minor page faults per second.
    pub minor_faults: i64,
    /// Maximum size of the carriers of the first allocator.
    pub carriers_peak: i64,
    /// Scheduler utilization while microstate accounting was enabled; if `None`, [`Node::active`].
    pub msacc_utilization: Option<f64>,
    /// Share of the time in which each scheduler was busy waiting while microstate accounting was enabled; if `None`, CPU time minus
    /// utilization.
    pub msacc_busy_wait: Option<f64>,
    /// Share of the time of each dirty CPU scheduler that is spent in GC.
    pub dirty_gc: f64,
    pub async_threads: usize,
    /// CPU time of each async thread.
    pub async_cpu: f64,
    /// Share of the time in which each async thread does not sleep (msacc).
    pub async_awake: f64,
    /// Idle CPUs of the host.
    pub idle: f64,
    /// Utilization and run-queue length of each scheduler; if empty, all have [`Node::active`] and empty run queues.
    pub per_scheduler: Vec<(f64, i64)>,
    pub locks: Vec<LockRow>,
    pub waits: Vec<LockWaitRow>,
    /// Call stacks of waiting processes, sampled in the first and the last second.
    pub stacks: Vec<WaitSampleRow>,
    /// Sizes of received messages.
    pub messages: Vec<MessageRow>,
    pub listeners: Vec<Listener>,
    /// Accepted and rejected connections per second.
    pub connections: (i64, i64),
    /// Listening sockets of other programs in the VM's network namespace.
    pub other_listeners: i64,
    /// The smallest limit of the accept queues of other programs, if known.
    pub other_accept_queue_limit: Option<i64>,
    /// TCP connections.
    pub tcp: Vec<TcpGroup>,
    /// UDP sockets: address, and dropped datagrams per second.
    pub udp_drops: Vec<(&'static str, i64)>,
    /// Received datagrams per second.
    pub datagrams: i64,
    /// CPU time of external programs, in cores.
    pub programs_cpu: f64,
    /// External programs that end per second.
    pub programs_ended: i64,
    /// External programs by name.
    pub programs: Vec<ExternalPrograms>,
    /// Zombie processes of external programs.
    pub zombies: i64,
    /// Ports of external programs; `None` if not recorded.
    pub program_ports: Option<i64>,
    /// Additional series: metric, entity, initial value and growth per second.
    pub series: Vec<(&'static Metric, &'static str, i64, i64)>,
    /// Trace flags: entity, flag.
    pub trace_flags: Vec<(&'static str, &'static str)>,
    /// Metrics that are not recorded.
    pub missing_metrics: Vec<&'static Metric>,
    /// Whether a CPU profile with a few samples was taken.
    pub is_profiled: bool,
}

/// External programs with the same name.
#[derive(Clone)]
pub struct ExternalPrograms {
    pub name: &'static str,
    /// Number of running programs: (initial value, growth per second).
    pub alive: (i64, i64),
    /// Number of orphans among these programs.
    pub orphans: i64,
    /// CPU time of all these programs, in cores.
    pub cpu: f64,
    /// Resident memory of each program, in bytes.
    pub resident: i64,
    /// Age of the oldest program at the start, in seconds.
    pub oldest: i64,
}

/// A listening address of the VM.
#[derive(Clone)]
pub struct Listener {
    pub address: &'static str,
    /// Connections in the accept queue in each second, repeated cyclically.
    pub waiting: &'static [i64],
    /// Limit of the accept queue, if known.
    pub limit: Option<i64>,
}

/// TCP connections of a listening socket, or to a peer.
#[derive(Clone)]
pub struct TcpGroup {
    /// The listening socket or the peer: `0.0.0.0:8080`, or `to 10.0.0.9:5432`.
    pub group: &'static str,
    /// Number of connections in each second, repeated cyclically; empty for peers.
    pub connections: &'static [i64],
    /// Number of connections with unread bytes.
    pub unread: i64,
    /// Sampled connections: remote end, unread bytes, and received bytes per second (`None` if unknown).
    pub sampled: &'static [(&'static str, i64, Option<i64>)],
}

/// Carriers and blocks of an allocator; sizes in bytes.
#[derive(Clone)]
pub struct SyntheticAllocator {
    pub name: &'static str,
    /// Multiblock carriers: number and size of carriers, number and size of blocks; as for the pool and singleblock carriers.
    pub mbcs: [i64; 4],
    pub pool: [i64; 4],
    pub sbcs: [i64; 4],
    /// Maximum sizes of carriers and of blocks.
    pub peak: (i64, i64),
    /// Requested mseg segments per second.
    pub segments_requested: i64,
}

impl Default for SyntheticAllocator {
    fn default() -> Self {
        SyntheticAllocator {
            name: "eheap_alloc",
            mbcs: [20, 150 << 20, 2_000, 146 << 20],
            pool: [0; 4],
            sbcs: [0; 4],
            peak: (150 << 20, 146 << 20),
            segments_requested: 1,
        }
    }
}

impl SyntheticAllocator {
    /// Returns an allocator with a few hundred small blocks in well utilized carriers.
    pub fn small() -> Self {
        let mbcs = [1, 100 << 10, 400, 96 << 10];
        SyntheticAllocator { mbcs, peak: (mbcs[1], mbcs[3]), ..SyntheticAllocator::default() }
    }
}

/// A sample of a distribution connection, in bytes.
#[derive(Clone, Copy)]
pub struct DistSample {
    pub queue: i64,
    pub output: i64,
}

/// A process that is recorded each second.
#[derive(Clone)]
pub struct SyntheticProcess {
    pub pid: &'static str,
    pub reductions: i64,
    /// Growth of the reductions per second.
    pub reductions_growth: i64,
    /// Message queue length: (initial value, growth per second).
    pub queue: (i64, i64),
    /// Number of samples in which the process is runnable, of ten.
    pub runnable_of_10: i64,
    pub row: ProcessRow,
    /// Call stack while the process waits within a call, recorded each second; empty if it never waits.
    pub waiting_stack: Vec<String>,
    /// The last second in which the process is recorded; `None` if it is recorded until the end.
    pub last_second: Option<i64>,
}

/// A system monitor event that occurs once per second.
#[derive(Clone)]
pub struct SystemMonitorEvent {
    pub kind: &'static str,
    pub milliseconds: i64,
    pub subject: &'static str,
    /// The second of the first event.
    pub first_second: i64,
}

impl Default for SyntheticProcess {
    fn default() -> Self {
        let row = ProcessRow::default();
        let stood = Vec::new();
        SyntheticProcess {
            pid: "<0.77.0>",
            reductions: 0,
            reductions_growth: 0,
            queue: (0, 0),
            runnable_of_10: 0,
            row,
            waiting_stack: stood,
            last_second: None,
        }
    }
}

pub fn node() -> SyntheticNode {
    SyntheticNode {
        seconds: 10,
        schedulers: 2,
        cpus: 2,
        utilization: 0.3,
        cpu: 0.31,
        run_queue_delay: 0.001,
        gc: 0.01,
        voluntary_switches: 100,
        involuntary_switches: 1,
        active_tasks: 3,
        context_switches: 10_000,
        open_files: (30, 0),
        open_kinds: Vec::new(),
        dirty_cpu_active: 0.01,
        dirty_io_active: 0.01,
        dirty_cpu_queue: 0,
        dirty_io_queue: 0,
        other_cpu: 0.1,
        steal: 0.0,
        quota: None,
        throttled_periods_of_10: 0,
        throttled: 0.0,
        processes: (100, 0),
        ports: (20, 0),
        atoms: (15_000, 0),
        tables: (50, 0),
        facts: Vec::new(),
        epoll: true,
        descriptors: 10,
        poll_threads: vec![(0.0, 0.0)],
        total_reductions: 1_000_000,
        input: None,
        busiest: Vec::new(),
        spawns: Vec::new(),
        exits: Some(Vec::new()),
        spawned: 50,
        spawned_alive: 1,
        ets: Vec::new(),
        sockets: Vec::new(),
        events: Vec::new(),
        resident: 200 << 20,
        huge: 0,
        used: 150 << 20,
        swapped: 0,
        major_faults: 0,
        memory_pressure: 0.0,
        group_memory: None,
        system: 0.0,
        clock_gain: 0.0,
        clock_ahead: 0.0,
        clock_step: 0.0,
        incarnations: Vec::new(),
        dist_samples: Vec::new(),
        allocators: vec![
            SyntheticAllocator::default(),
            SyntheticAllocator { name: "fix_alloc", ..SyntheticAllocator::small() },
        ],
        block_growth: 0,
        referenced_binary_bytes: None,
        fix_alloc_kinds: Vec::new(),
        queued_messages: 0,
        reclaimed_words: 1_000_000,
        resident_growth: 0,
        resident_waves: 0,
        lazy_free: 0,
        binary_waves: 0,
        kinds: vec![
            ("processes", 50 << 20, 0),
            ("binary", 30 << 20, 0),
            ("ets", 20 << 20, 0),
            ("code", 10 << 20, 0),
        ],
        contents: Vec::new(),
        segments: (10, 1),
        segments_leaked: 0,
        literals: (10 << 20, 1 << 30),
        mapped: 100 << 20,
        super_carrier: None,
        large_tables: Vec::new(),
        gcs: (100, None),
        gc_wave_ms: 1,
        memory_available: 16 << 30,
        lock_counting_ns: Some(10 * SECOND_NS),
        minor_faults: 100,
        carriers_peak: 0,
        dirty_gc: 0.0,
        async_threads: 1,
        async_cpu: 0.0,
        async_awake: 0.0,
        msacc_utilization: None,
        msacc_busy_wait: None,
        idle: 1.2,
        per_scheduler: Vec::new(),
        locks: vec![LockRow { wait_time: 2_000_000, ..lock("run_queue", None) }],
        waits: Vec::new(),
        messages: Vec::new(),
        stacks: vec![stack_row(95, &["gen_server:loop/7", "proc_lib:init_p_do_apply/3"], &[])],
        listeners: vec![Listener { address: "0.0.0.0:8080", waiting: &[0], limit: Some(128) }],
        connections: (50, 0),
        other_listeners: 0,
        other_accept_queue_limit: None,
        tcp: vec![TcpGroup { group: "0.0.0.0:8080", connections: &[40, 45], unread: 0, sampled: &[] }],
        udp_drops: vec![("0.0.0.0:53", 0)],
        datagrams: 100,
        programs_cpu: 0.0,
        programs_ended: 0,
        programs: vec![ExternalPrograms {
            name: "inet_gethost",
            alive: (2, 0),
            orphans: 0,
            cpu: 0.0,
            resident: 1 << 20,
            oldest: 90_000,
        }],
        zombies: 0,
        series: vec![(&beamtune_model::metrics::TRACE_SAMPLED, "", 25, 0)],
        trace_flags: Vec::new(),
        program_ports: Some(2),
        missing_metrics: Vec::new(),
        is_profiled: true,
    }
}

/// Number of samples of the profile: too few for statements about functions.
const PROFILE_SAMPLES: u32 = 40;

/// Returns a profile of one scheduler, which runs a process.
fn profile() -> Profile {
    let mut builder = ProfileBuilder::default();
    let (kind, name) = ("scheduler".to_owned(), "erts_sched_1".to_owned());
    let thread = builder.thread(ProfiledThread { tid: 7, kind, name });
    let frame = builder.frame(Frame { kind: FrameKind::Erlang, name: "shop_0:run/1".to_owned(), line: None });
    let stack = builder.stack(CallStack { frames: vec![frame], is_complete: true });
    builder.add(StackSample {
        t: 0,
        thread,
        process: Some(80),
        state: CpuState::Process,
        stack,
        count: PROFILE_SAMPLES,
        weight: Nanos::from(PROFILE_SAMPLES) * SECOND_NS / 99,
    });
    let profile = builder.profile();
    (profile.length, profile.rate_hz, profile.has_kernel) = (8 * SECOND_NS, 99, true);
    builder.finish()
}

/// Returns a contended lock (if `id` is given) or lock class.
pub fn lock(class: &str, id: Option<&str>) -> LockRow {
    LockRow {
        class: class.to_owned(),
        id: id.map(str::to_owned),
        locks: 1,
        tries: 1_000_000,
        collisions: 1_000,
        ..LockRow::default()
    }
}

/// Returns the call stack of `count` of a hundred sampled processes, which wait and monitor the processes in `on`.
pub fn stack_row(count: i64, stack: &[&str], on: &[(&str, i64)]) -> WaitSampleRow {
    WaitSampleRow {
        status: "waiting".to_owned(),
        stack: stack.iter().map(|&function| function.to_owned()).collect(),
        count,
        sample_size: 100,
        targets: on.iter().map(|&(who, count)| (who.to_owned(), count)).collect(),
        ..WaitSampleRow::default()
    }
}

impl SyntheticNode {
    pub fn with(mut self, change: impl FnOnce(&mut SyntheticNode)) -> SyntheticNode {
        change(&mut self);
        self
    }

    /// Returns one sample per second, with the facts in the first sample, and the table of series.
    pub fn samples(&self) -> (Vec<Sample>, SeriesTable) {
        let mut table = SeriesTable::default();
        let mut samples = Vec::new();
        for second in 0..=self.seconds {
            let t = second * SECOND_NS;
            let span = Some(Span { begin: t, end: t });
            let mut out =
                SampleBuilder::new(&mut table, Tick { t, incarnation: 0, vm: span, host: span, late: 0 });
            self.fill(second, &mut out);
            if second == 0 {
                out.sample.facts =
                    self.facts().iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            }
            if second == 0 || second == self.seconds {
                out.sample.messages =
                    self.messages.iter().map(|row| MessageRow { t, ..row.clone() }).collect();
                out.sample.wait_samples =
                    self.stacks.iter().map(|row| WaitSampleRow { t, ..row.clone() }).collect();
                // These processes were running, each in one sample.
                out.sample.run_samples.extend((0..10).map(|number| RunSampleRow {
                    t,
                    stack: vec![format!("shop_{number}:run/1")],
                    samples: 1,
                    kind: Some(format!("shop_{number}:init/1")),
                    ..RunSampleRow::default()
                }));
            }
            if self.is_profiled && second == self.seconds {
                out.sample.profiles.push(ProfileRow { t, profile: profile() });
            }
            samples.push(out.sample);
        }
        (samples, table)
    }

    /// Returns the period of the node's samples.
    pub fn period(&self) -> Period {
        let (samples, table) = self.samples();
        self.period_of(&samples, &table)
    }

    /// Returns the period of samples that a test has modified.
    pub fn period_of(&self, samples: &[Sample], table: &SeriesTable) -> Period {
        let mut builder = PeriodBuilder::new(None, self.facts(), 1);
        samples.iter().for_each(|sample| builder.sample(sample, table));
        let mut period = builder.finish();
        let session = |length| LockSession { length, ..LockSession::default() };
        period.lock_session = self.lock_counting_ns.map(session);
        period.locks = self.locks.clone();
        period.lock_waits = self.waits.clone();
        if !self.incarnations.is_empty() {
            let seen = |&(begin, end)| IncarnationSpan { begin: begin * SECOND_NS, end: end * SECOND_NS };
            period.incarnation_spans = self.incarnations.iter().map(seen).collect();
        }
        period
    }
}
