//! A made-up node: two schedulers, ten seconds, healthy unless a test says otherwise.

use beamtune_model::{
    Event, Facts, LockRow, LockSession, MessageRow, Metric, Period, PeriodBuilder, PortRow, ProcessRow,
    ProcessTick, RanRow, SampleBuilder, Seen, SeriesTable, Span, SpawnRow, StandRow, TableRow, Tick, WaitRow,
    facts, metrics, units::SECOND_NS,
};

use super::listen::Listens;

/// What a node does in each second; times in cores unless named otherwise.
#[derive(Clone)]
pub struct Node {
    pub seconds: i64,
    pub schedulers: usize,
    pub cpus: i64,
    /// Activity of each normal scheduler, by the VM's clock.
    pub active: f64,
    /// CPU of each normal scheduler, by the operating system.
    pub cpu: f64,
    /// Run-queue wait of each normal scheduler.
    pub wait: f64,
    /// Of each normal scheduler's time, the share collecting garbage.
    pub gc: f64,
    pub voluntary_switches: i64,
    pub involuntary_switches: i64,
    pub active_tasks: i64,
    pub open_files: i64,
    pub dirty_cpu_active: f64,
    pub dirty_io_active: f64,
    pub dirty_cpu_queue: i64,
    pub dirty_io_queue: i64,
    /// CPU of everything else on the host.
    pub foreign: f64,
    pub steal: f64,
    /// Quota in thousandths of a core.
    pub quota: Option<i64>,
    pub throttled_periods_of_10: i64,
    pub throttled: f64,
    /// (first, growth per second)
    pub processes: (i64, i64),
    pub ports: (i64, i64),
    pub atoms: (i64, i64),
    pub tables: (i64, i64),
    pub facts: Vec<(&'static str, String)>,
    pub epoll: bool,
    pub descriptors: i64,
    pub total_reductions: i64,
    pub busiest: Vec<Busy>,
    pub spawns: Vec<SpawnRow>,
    /// Processes that are started in each second.
    pub spawned: i64,
    /// Those of them that are seen alive.
    pub seen_alive: i64,
    /// Tables as they are looked at.
    pub ets: Vec<TableRow>,
    pub sockets: Vec<PortRow>,
    pub events: Vec<Happens>,
    /// Resident memory, and what of it is in huge pages, and what the VM uses, in bytes.
    pub resident: i64,
    pub huge: i64,
    pub used: i64,
    pub swapped: i64,
    pub major_faults: i64,
    /// Share of time in which tasks of the host waited for memory.
    pub memory_pressure: f64,
    /// Memory of the control group and its limit, in bytes.
    pub group_memory: Option<(i64, i64)>,
    /// CPU of the process in the kernel.
    pub system: f64,
    /// Seconds that the VM's clock gains in each second.
    pub clock_gain: f64,
    /// Seconds that its system time is ahead of the host's at the end.
    pub clock_ahead: f64,
    /// Seconds by which the host's time is set in the middle.
    pub clock_step: f64,
    /// First and last second of each life of the VM; this one only, if empty.
    pub lives: Vec<(i64, i64)>,
    /// What is seen of the channel to another node, in looks that are spread evenly.
    pub channel: Vec<Channel>,
    pub allocators: Vec<Allocates>,
    /// Blocks that come on top in each second, of the last of these.
    pub block_growth: i64,
    /// Messages in all queues.
    pub queued: i64,
    /// Words that collections give back in each second.
    pub reclaimed_words: i64,
    /// (first, growth per second) of resident memory beyond what stands in [`Node::resident`].
    pub resident_growth: i64,
    /// So much more is resident in each fourth second.
    pub resident_swings: i64,
    /// Kinds of `erlang:memory/0`: (name, first, growth per second), in bytes.
    pub kinds: Vec<(&'static str, i64, i64)>,
    /// Of what is resident, what is given back and not yet taken.
    pub given_back: i64,
    /// So much more of binaries in every fourth second.
    pub binary_waves: i64,
    /// What was recognised in resident memory: (entity, resident, in use), in bytes. Nobody looked, if empty.
    pub contents: Vec<(&'static str, i64, Option<i64>)>,
    /// Segments asked for and made in each second.
    pub segments: (i64, i64),
    /// Of those that were mapped, such as were not unmapped again.
    pub segments_kept: i64,
    /// The literal area: used and size.
    pub literals: (i64, i64),
    /// What the VM has mapped outside of a super carrier.
    pub mapped: i64,
    /// The super carrier, if there is one: used and size.
    pub super_carrier: Option<(i64, i64)>,
    /// Tables: name, memory in the beginning, and growth in each second.
    pub large_tables: Vec<(&'static str, i64, i64)>,
    /// Collections in each second, and milliseconds between waves with so many more.
    pub collections: (i64, Option<(i64, i64)>),
    /// Milliseconds that such a wave takes.
    pub wave_ms: i64,
    pub memory_available: i64,
    /// Locks were counted for so many nanoseconds; nobody did, if `None`.
    pub locks_counted: Option<i64>,
    /// Page faults without I/O in each second.
    pub minor_faults: i64,
    /// The largest size that the carriers of the first allocator have had, in bytes.
    pub carriers_peak: i64,
    /// Of each dirty CPU scheduler's time, the share collecting garbage.
    pub dirty_gc: f64,
    /// Threads of the async pool, the share of the time in which each uses a CPU, and in which it works (msacc).
    pub async_threads: usize,
    pub async_cpu: f64,
    pub async_awake: f64,
    /// Idle CPUs of the host.
    pub idle: f64,
    /// Activity of single schedulers, and their run queues; all are as [`Node::active`] says, and have none, if empty.
    pub uneven: Vec<(f64, i64)>,
    pub locks: Vec<LockRow>,
    pub waits: Vec<WaitRow>,
    /// Where processes stand, at the first and at the last second.
    pub stands: Vec<StandRow>,
    /// What messages weigh that come.
    pub messages: Vec<MessageRow>,
    pub listeners: Vec<Listens>,
    /// Connections that come in each second, and such as are turned away.
    pub connections: (i64, i64),
    /// Listening sockets of other programs in the VM's network namespace.
    pub foreign_listeners: i64,
    pub without: Vec<&'static Metric>,
}

/// What an allocator has; sizes in bytes.
#[derive(Clone)]
pub struct Allocates {
    pub name: &'static str,
    /// Carriers, their size, blocks, their size.
    pub mbcs: [i64; 4],
    pub pool: [i64; 4],
    pub sbcs: [i64; 4],
    /// The largest size of carriers and of blocks.
    pub peak: (i64, i64),
    pub segments_asked: i64,
}

impl Default for Allocates {
    fn default() -> Self {
        Allocates {
            name: "eheap_alloc",
            mbcs: [20, 150 << 20, 2_000, 146 << 20],
            pool: [0; 4],
            sbcs: [0; 4],
            peak: (150 << 20, 146 << 20),
            segments_asked: 1,
        }
    }
}

impl Allocates {
    /// Some hundred small blocks, in well used carriers.
    pub fn small() -> Self {
        let mbcs = [1, 100 << 10, 400, 96 << 10];
        Allocates { mbcs, peak: (mbcs[1], mbcs[3]), ..Allocates::default() }
    }
}

/// A look at a channel to another node, in bytes.
#[derive(Clone, Copy)]
pub struct Channel {
    pub queue: i64,
    pub output: i64,
}

/// A process that stands out.
#[derive(Clone)]
pub struct Busy {
    pub pid: &'static str,
    pub reductions: i64,
    pub queue: (i64, i64),
    /// Looks of ten in which it was runnable.
    pub runnable_of_10: i64,
    pub row: ProcessRow,
}

/// Something that the VM tells in each second.
#[derive(Clone)]
pub struct Happens {
    pub kind: &'static str,
    pub milliseconds: i64,
    pub subject: &'static str,
    /// In all seconds from this one on.
    pub from: i64,
}

impl Default for Busy {
    fn default() -> Self {
        Busy { pid: "<0.77.0>", reductions: 0, queue: (0, 0), runnable_of_10: 0, row: ProcessRow::default() }
    }
}

pub fn node() -> Node {
    Node {
        seconds: 10,
        schedulers: 2,
        cpus: 2,
        active: 0.3,
        cpu: 0.31,
        wait: 0.001,
        gc: 0.01,
        voluntary_switches: 100,
        involuntary_switches: 1,
        active_tasks: 3,
        open_files: 30,
        dirty_cpu_active: 0.01,
        dirty_io_active: 0.01,
        dirty_cpu_queue: 0,
        dirty_io_queue: 0,
        foreign: 0.1,
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
        total_reductions: 1_000_000,
        busiest: Vec::new(),
        spawns: Vec::new(),
        spawned: 50,
        seen_alive: 1,
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
        lives: Vec::new(),
        channel: Vec::new(),
        allocators: vec![Allocates::default(), Allocates { name: "fix_alloc", ..Allocates::small() }],
        block_growth: 0,
        queued: 0,
        reclaimed_words: 1_000_000,
        resident_growth: 0,
        resident_swings: 0,
        given_back: 0,
        binary_waves: 0,
        kinds: vec![
            ("processes", 50 << 20, 0),
            ("binary", 30 << 20, 0),
            ("ets", 20 << 20, 0),
            ("code", 10 << 20, 0),
        ],
        contents: Vec::new(),
        segments: (10, 1),
        segments_kept: 0,
        literals: (10 << 20, 1 << 30),
        mapped: 100 << 20,
        super_carrier: None,
        large_tables: Vec::new(),
        collections: (100, None),
        wave_ms: 1,
        memory_available: 16 << 30,
        locks_counted: Some(10 * SECOND_NS),
        minor_faults: 100,
        carriers_peak: 0,
        dirty_gc: 0.0,
        async_threads: 1,
        async_cpu: 0.0,
        async_awake: 0.0,
        idle: 1.2,
        uneven: Vec::new(),
        locks: vec![LockRow { waited: 2_000_000, ..lock("run_queue", None) }],
        waits: Vec::new(),
        messages: Vec::new(),
        stands: vec![stand(95, &["gen_server:loop/7", "proc_lib:init_p_do_apply/3"], &[])],
        listeners: vec![Listens { address: "0.0.0.0:8080", waiting: &[0], limit: Some(128) }],
        connections: (50, 0),
        foreign_listeners: 0,
        without: Vec::new(),
    }
}

/// A lock, or a class of them, that is taken often.
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

/// Of a hundred processes, so many that wait there, and monitor these.
pub fn stand(count: i64, stack: &[&str], on: &[(&str, i64)]) -> StandRow {
    StandRow {
        status: "waiting".to_owned(),
        stack: stack.iter().map(|&function| function.to_owned()).collect(),
        count,
        of: 100,
        on: on.iter().map(|&(who, count)| (who.to_owned(), count)).collect(),
        ..StandRow::default()
    }
}

/// What the VM's monotonic clock and the host's wall clock show when the recording begins, in nanoseconds.
const VM_CLOCK: i64 = -576_460_751_000_000_000;
const WALL_CLOCK: i64 = 1_700_000_000_000_000_000;

/// Cores as nanoseconds up to a second.
fn ns(cores: f64, second: i64) -> i64 {
    (cores * (second * SECOND_NS) as f64) as i64
}

impl Node {
    pub fn with(mut self, change: impl FnOnce(&mut Node)) -> Node {
        change(&mut self);
        self
    }

    pub fn period(&self) -> Period {
        let mut table = SeriesTable::default();
        let mut builder = PeriodBuilder::new(None, self.facts(), 1);
        for second in 0..=self.seconds {
            let t = second * SECOND_NS;
            let span = Some(Span { begin: t, end: t });
            let mut out =
                SampleBuilder::new(&mut table, Tick { t, incarnation: 0, vm: span, host: span, late: 0 });
            self.fill(second, &mut out);
            if second == 0 || second == self.seconds {
                out.sample.messages =
                    self.messages.iter().map(|row| MessageRow { t, ..row.clone() }).collect();
                out.sample.stands = self.stands.iter().map(|row| StandRow { t, ..row.clone() }).collect();
            }
            let sample = out.sample;
            builder.sample(&sample, &table);
        }
        let mut period = builder.finish();
        let session = |length| LockSession { length, ..LockSession::default() };
        period.lock_session = self.locks_counted.map(session);
        period.locks = self.locks.clone();
        period.waits = self.waits.clone();
        if !self.lives.is_empty() {
            let seen = |&(begin, end)| Seen { begin: begin * SECOND_NS, end: end * SECOND_NS };
            period.seen = self.lives.iter().map(seen).collect();
        }
        period
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        for (key, value) in [
            (facts::OTP_RELEASE, "25".to_owned()),
            (facts::SCHEDULERS_ONLINE, self.schedulers.to_string()),
            (facts::PERF_COUNTER_HZ, "1000000000".to_owned()),
            (facts::PROCESS_LIMIT, "262144".to_owned()),
            (facts::PORT_LIMIT, "65536".to_owned()),
            (facts::ATOM_LIMIT, "1048576".to_owned()),
            (facts::EMU_ARGS, "[]".to_owned()),
            (facts::CGROUP_PATH, "/".to_owned()),
            (facts::DIRTY_CPU_SCHEDULERS, self.schedulers.to_string()),
            (facts::NOFILE_SOFT, "1000000".to_owned()),
            (facts::HUGE_PAGES, "madvise".to_owned()),
            (facts::CLOCKSOURCE, "tsc".to_owned()),
            (facts::HOST_MEMORY, (16_i64 << 30).to_string()),
            (facts::MACHINE, "QEMU Standard PC".to_owned()),
            (facts::TIME_WARP_MODE, "no_time_warp".to_owned()),
            (facts::TIME_CORRECTION, "true".to_owned()),
            (facts::ASYNC_THREADS, self.async_threads.to_string()),
            (facts::EMU_TYPE, "opt".to_owned()),
            (facts::EMU_FLAVOR, "jit".to_owned()),
            (facts::ARCHITECTURE, "x86_64-pc-linux-gnu".to_owned()),
            (facts::ERTS_VERSION, "13.2.2.16".to_owned()),
            (facts::MIN_HEAP_WORDS, "233".to_owned()),
            (facts::SCHEDULER_BIND_TYPE, "unbound".to_owned()),
            (facts::SCHEDULER_BINDINGS, r#"["unbound","unbound"]"#.to_owned()),
            (facts::CPUS_ALLOWED, "0-1".to_owned()),
            (facts::NUMA_NODES, r#"["0-1"]"#.to_owned()),
        ] {
            facts.set(key, value);
        }
        for (key, value) in &self.facts {
            facts.set(key, value.as_str());
        }
        facts
    }

    fn fill_allocators(&self, s: i64, put: &mut impl FnMut(&'static Metric, &str, i64)) {
        use metrics::*;
        for (place, allocator) in self.allocators.iter().enumerate() {
            let entity = format!("{}/0", allocator.name);
            let is_last = place + 1 == self.allocators.len();
            let mut mbcs = allocator.mbcs;
            mbcs[2] += if is_last { self.block_growth * s } else { 0 };
            for (names, values) in [
                ([&MBCS_CARRIERS, &MBCS_CARRIERS_SIZE, &MBCS_BLOCKS, &MBCS_BLOCKS_SIZE], mbcs),
                ([&POOL_CARRIERS, &POOL_CARRIERS_SIZE, &POOL_BLOCKS, &POOL_BLOCKS_SIZE], allocator.pool),
                ([&SBCS_CARRIERS, &SBCS_CARRIERS_SIZE, &SBCS_BLOCKS, &SBCS_BLOCKS_SIZE], allocator.sbcs),
            ] {
                names.into_iter().zip(values).for_each(|(name, value)| put(name, &entity, value));
            }
            put(&MBCS_CARRIERS_SIZE_MAX, &entity, allocator.peak.0);
            put(&MBCS_BLOCKS_SIZE_MAX, &entity, allocator.peak.1);
            put(&MSEG_CARRIERS_SIZE, &entity, allocator.mbcs[1] + allocator.pool[1] + allocator.sbcs[1]);
            put(&SEGMENTS_ASKED, &entity, allocator.segments_asked * s);
            put(&ALLOCATIONS, &entity, 1_000 * s);
        }
        if let Some(first) = self.allocators.first() {
            put(&CARRIERS_SIZE_MAX, &format!("{}/0", first.name), self.carriers_peak);
        }
        put(&MSEG_ALLOCATIONS, "0", self.segments.0 * s);
        put(&MSEG_CREATES, "0", self.segments.1 * s);
        put(&MSEG_DESTROYS, "0", (self.segments.1 - self.segments_kept) * s);
        put(&MMAP_USED, "literal", self.literals.0);
        put(&MMAP_TOTAL, "literal", self.literals.1);
        put(&MMAP_OS_USED, "default", self.mapped);
        if let Some((used, total)) = self.super_carrier {
            put(&MMAP_USED, "default", used);
            put(&MMAP_TOTAL, "default", total);
        }
        if !self.contents.is_empty() {
            put(&MAPPING_RESIDENT, "anonymous", self.resident);
            put(&MAPPING_LAZY_FREE, "anonymous", self.given_back);
        }
        for (entity, resident, in_use) in &self.contents {
            put(&CONTENT_RESIDENT, entity, *resident);
            put(&CONTENT_SIZE, entity, *resident);
            put(&CONTENT_COUNT, entity, 1);
            if let Some(in_use) = in_use {
                put(&CONTENT_IN_USE, entity, *in_use);
            }
        }
    }

    fn fill(&self, s: i64, out: &mut SampleBuilder<'_>) {
        let mut put = |metric: &'static Metric, entity: &str, value: i64| {
            if !self.without.contains(&metric) {
                out.metric(metric, entity, value);
            }
        };
        let kinds = [
            ("scheduler", self.schedulers, self.active, self.cpu),
            ("dirty_cpu_scheduler", self.schedulers, self.dirty_cpu_active, self.dirty_cpu_active),
            ("dirty_io_scheduler", 10, self.dirty_io_active, 0.0),
        ];
        for (kind, count, active, cpu) in kinds {
            for number in 1..=count {
                let entity = format!("{kind}/{number}");
                let own = self.uneven.get(number - 1).filter(|_| kind == "scheduler");
                put(&metrics::SCHEDULER_ACTIVE, &entity, ns(own.map_or(active, |own| own.0), s));
                if kind == "scheduler" {
                    put(&metrics::RUN_QUEUE, &entity, own.map_or(0, |own| own.1));
                }
                put(&metrics::SCHEDULER_TOTAL, &entity, ns(1.0, s));
                put(&metrics::THREAD_CPU, &entity, ns(cpu, s));
                let wait = if kind == "scheduler" { self.wait } else { 0.0 };
                put(&metrics::THREAD_WAIT, &entity, ns(wait, s));
                put(&metrics::VOLUNTARY_SWITCHES, &entity, self.voluntary_switches * s);
                put(&metrics::INVOLUNTARY_SWITCHES, &entity, self.involuntary_switches * s);
            }
        }
        for number in 0..self.async_threads {
            // What it takes to begin stands on its count for ever.
            put(&metrics::THREAD_CPU, &format!("async/{number}"), 200_000 + ns(self.async_cpu, s));
        }
        put(&metrics::SCHEDULERS_ONLINE, "", self.schedulers as i64);
        put(&metrics::ACTIVE_TASKS, "", self.active_tasks);
        put(&metrics::OPEN_FDS, "", self.open_files);
        put(&metrics::CPUS_ALLOWED, "", self.cpus);
        put(&metrics::CPUS_ONLINE, "", self.cpus);
        let own = self.cpu * self.schedulers as f64 + self.dirty_cpu_active * self.schedulers as f64;
        put(&metrics::PROCESS_USER, "", ns(own, s));
        put(&metrics::PROCESS_SYSTEM, "", ns(self.system, s));
        let swing = if s % 4 == 1 { self.resident_swings } else { 0 };
        put(&metrics::RSS, "", self.resident + self.resident_growth * s + swing);
        put(&metrics::MEMORY_AVAILABLE, "", self.memory_available);
        self.fill_allocators(s, &mut put);
        self.fill_listeners(s, &mut put);
        put(&metrics::ANON_HUGE, "", self.huge);
        put(&metrics::SWAP, "", self.swapped);
        put(&metrics::MINOR_FAULTS, "", self.minor_faults * s);
        put(&metrics::SPAWNED, "", self.spawned * s);
        put(&metrics::CPU_IDLE, "", ns(self.idle, s));
        put(&metrics::MAJOR_FAULTS, "", self.major_faults * s);
        put(&metrics::SWAP_IN, "", 4096 * self.major_faults * s);
        put(&metrics::SWAP_OUT, "", 0);
        put(&metrics::PRESSURE_MEMORY_SOME, "host", ns(self.memory_pressure, s));
        if let Some((used, limit)) = self.group_memory {
            put(&metrics::CGROUP_MEMORY, "memory", used);
            put(&metrics::CGROUP_MEMORY_LIMIT, "memory", limit);
        }
        let gained = |seconds: i64| (self.clock_gain * (seconds * SECOND_NS) as f64) as i64;
        put(&metrics::CLOCK_OFFSET, "", -VM_CLOCK - gained(s));
        let stepped = if 2 * s > self.seconds { self.clock_step } else { 0.0 };
        let wall = |step: f64| WALL_CLOCK + (step * SECOND_NS as f64) as i64;
        put(&metrics::WALL_CLOCK, "", wall(stepped));
        if s == 0 || s == self.seconds {
            let ahead = (self.clock_ahead * SECOND_NS as f64) as i64;
            put(&metrics::TIME_OFFSET, "", wall(self.clock_step) - VM_CLOCK - gained(self.seconds) + ahead);
        }
        let spaces = self.channel.len().saturating_sub(1).max(1) as i64;
        let looks = self.channel.iter().enumerate();
        for (_, look) in looks.filter(|(index, _)| self.seconds * *index as i64 / spaces == s) {
            put(&metrics::DIST_QUEUE, "other@host", look.queue);
            put(&metrics::DIST_OUTPUT, "other@host", look.output);
        }
        put(&metrics::CPU_BUSY, "", ns(own + self.foreign, s));
        put(&metrics::CPU_STEAL, "", ns(self.steal, s));
        if let Some(quota) = self.quota {
            put(&metrics::CGROUP_QUOTA, "cpu", quota);
            put(&metrics::CGROUP_PERIODS, "cpu", 10 * s);
            put(&metrics::CGROUP_THROTTLED, "cpu", self.throttled_periods_of_10 * s);
            put(&metrics::CGROUP_THROTTLED_TIME, "cpu", ns(self.throttled, s));
            put(&metrics::CGROUP_USAGE, "cpu", ns(own, s));
        }
        for (metric, (first, growth)) in [
            (&metrics::PROCESS_COUNT, self.processes),
            (&metrics::PORT_COUNT, self.ports),
            (&metrics::ATOM_COUNT, self.atoms),
            (&metrics::ETS_COUNT, self.tables),
        ] {
            put(metric, "", first + growth * s);
        }
        for kind in ["long_schedule", "long_gc", "large_heap", "busy_port", "busy_dist_port"] {
            let of_kind = || self.events.iter().filter(|happens| happens.kind == kind && s >= happens.from);
            let times = |happens: &Happens| s + 1 - happens.from;
            put(&metrics::EVENT_COUNT, kind, of_kind().map(times).sum());
            let ns = |happens: &Happens| happens.milliseconds * 1_000_000;
            put(&metrics::EVENT_TIME, kind, of_kind().map(|happens| times(happens) * ns(happens)).sum());
            put(&metrics::EVENT_LONGEST, kind, of_kind().map(ns).max().unwrap_or(0));
        }
        let (usual, wave) = self.collections;
        let waves = wave.map_or(0, |(every_ms, size)| {
            let now_ms = s * 1_000;
            let begun = (1..).map(|wave| wave * every_ms).take_while(|begin| *begin < now_ms);
            begun.map(|begin| size * (now_ms - begin).min(self.wave_ms) / self.wave_ms).sum()
        });
        put(&metrics::GARBAGE_COLLECTIONS, "", usual * s + waves);
        put(&metrics::GC_WORDS_RECLAIMED, "", self.reclaimed_words * s);
        put(&metrics::SCAN_PROCESSES, "", self.processes.0);
        put(&metrics::RUN_QUEUE, "dirty_cpu", self.dirty_cpu_queue);
        put(&metrics::RUN_QUEUE, "dirty_io", self.dirty_io_queue);
        put(&metrics::SCAN_REDUCTIONS, "", self.total_reductions * s);
        put(&metrics::REDUCTIONS, "", self.total_reductions * s);
        put(&metrics::SCAN_SPAWNED, "", self.seen_alive * s);
        let longest = self.busiest.iter().map(|busy| busy.queue.0 + busy.queue.1 * s).max().unwrap_or(0);
        put(&metrics::SCAN_LONGEST_QUEUE, "", longest);
        put(&metrics::SCAN_QUEUED, "", self.queued);
        put(&metrics::POLLSET_KERNEL_POLL, "0", i64::from(self.epoll));
        put(&metrics::POLLSET_FDS, "0", self.descriptors);
        put(&metrics::POLLSET_KERNEL_POLL, "1", 0);
        put(&metrics::POLLSET_FDS, "1", 0);
        let grown: i64 = self.kinds.iter().map(|kind| kind.2 * s).sum();
        out.family(&metrics::MEMORY, "", "total", self.used + grown);
        for (kind, first, growth) in &self.kinds {
            let wave = if *kind == "binary" && s % 4 == 3 { self.binary_waves } else { 0 };
            out.family(&metrics::MEMORY, "", kind, first + growth * s + wave);
        }
        for (name, first, growth) in &self.large_tables {
            out.sample.tables.push(TableRow {
                t: s * SECOND_NS,
                id: (*name).to_owned(),
                name: (*name).to_owned(),
                owner: "<0.55.0>".to_owned(),
                memory_bytes: first + growth * s,
                ..TableRow::default()
            });
        }
        for number in 1..=self.schedulers {
            let entity = format!("scheduler/{number}");
            let emulator = (self.active - self.gc).max(0.0);
            let other = (self.cpu - self.active).max(0.0);
            out.family(&metrics::MSACC, &entity, "emulator", ns(emulator, s));
            out.family(&metrics::MSACC, &entity, "gc", ns(self.gc, s));
            out.family(&metrics::MSACC, &entity, "other", ns(other, s));
            out.family(&metrics::MSACC, &entity, "sleep", ns(1.0 - emulator - self.gc - other, s));
        }
        for number in (1..=self.schedulers).filter(|_| self.dirty_gc > 0.0) {
            let entity = format!("dirty_cpu_scheduler/{number}");
            out.family(&metrics::MSACC, &entity, "gc", ns(self.dirty_gc, s));
            out.family(&metrics::MSACC, &entity, "sleep", ns(1.0 - self.dirty_gc, s));
        }
        for number in 0..self.async_threads {
            let entity = format!("async/{number}");
            out.family(&metrics::MSACC, &entity, "port", ns(self.async_awake, s));
            out.family(&metrics::MSACC, &entity, "sleep", ns(1.0 - self.async_awake, s));
        }
        for busy in &self.busiest {
            out.sample.busiest.push(ProcessTick {
                pid: busy.pid.into(),
                reductions: busy.reductions,
                queue: busy.queue.0 + busy.queue.1 * s,
                runnable: Some(s % 10 < busy.runnable_of_10),
            });
            if !busy.row.stack.is_empty() {
                let (pid, stack) = (busy.pid.to_owned(), busy.row.stack.clone());
                out.sample.ran.push(RanRow { t: s * SECOND_NS, pid, stack, looks: 1 });
            }
            out.sample.processes.push(ProcessRow {
                t: s * SECOND_NS,
                pid: busy.pid.to_owned(),
                ..busy.row.clone()
            });
        }
        out.sample.tables.extend(self.ets.iter().cloned());
        out.sample.spawns.extend(self.spawns.iter().cloned());
        out.sample.ports.extend(self.sockets.iter().cloned());
        for happens in self.events.iter().filter(|happens| s >= happens.from) {
            out.sample.events.push(Event {
                t: s * SECOND_NS,
                kind: happens.kind.to_owned(),
                subject: happens.subject.to_owned(),
                detail: format!("{} ms", happens.milliseconds),
            });
        }
    }
}
