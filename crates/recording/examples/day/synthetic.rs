//! A large, busy, synthetic node: 64 + 64 schedulers, with noise in all values that are noisy on a real node.
//!
//! The model reproduces the property that determines the size of a recording: how many low bits of each series are noise. Times per
//! state vary by some percent, and counters by the square root of their rate. Times in clock ticks are multiples of 10 ms. Most
//! allocator counters are constant. All schedulers are busy, including dirty ones. This is the worst case, because a sleeping scheduler
//! has constant counters.

use std::cell::RefCell;
use std::rc::Rc;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    Clock, Incarnation, Nanos, PortRow, ProcessRow, ProcessTick, Rank, RunSampleRow, SampleBuilder,
    SampleRequest, Source, SourceTrouble, Span, SpawnRow, TableRow, facts, metrics, units,
};

const NORMAL: usize = 64;
const DIRTY_CPU: usize = 64;
const DIRTY_IO: usize = 10;
/// Number of threads other than schedulers, aux and poll threads: signal handling, threads of NIFs.
const OTHER_THREADS: usize = 10;
const STATES: [&str; 7] = ["emulator", "gc", "port", "other", "check_io", "aux", "sleep"];
/// Shares of the busy time of a normal scheduler; the rest of the second is `sleep`.
const SHARES: [f64; 6] = [0.70, 0.11, 0.08, 0.06, 0.03, 0.02];
/// Share of the time in which microstate accounting is enabled.
const WINDOW: f64 = 0.1;
const ALLOCATORS: [&str; 9] = [
    "binary_alloc",
    "driver_alloc",
    "eheap_alloc",
    "ets_alloc",
    "fix_alloc",
    "ll_alloc",
    "sl_alloc",
    "std_alloc",
    "temp_alloc",
];
const MEMORY: [&str; 9] =
    ["total", "processes", "processes_used", "system", "atom", "atom_used", "binary", "code", "ets"];
const PROCESSES: usize = 100_000;
const CLOCK_TICK_NS: i64 = 10_000_000;

/// Deterministic pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a uniformly distributed number from 0 to 1.
    fn even(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a uniformly distributed index below `end`.
    fn below(&mut self, end: usize) -> usize {
        (self.even() * end as f64) as usize
    }

    /// Returns an approximately normally distributed number, with mean 0 and standard deviation 1.
    fn normal(&mut self) -> f64 {
        let parts = self.bits();
        let sum: u64 = (0..4).map(|part| parts >> (16 * part) & 0xffff).sum();
        (sum as f64 / 65_535.0 - 2.0) * 1.732
    }

    /// Returns a random number of events in one second, for a mean rate.
    fn events(&mut self, mean: f64) -> i64 {
        (mean + mean.sqrt() * self.normal()).max(0.0) as i64
    }
}

struct Thread {
    entity: String,
    /// Utilization at full load.
    activity: f64,
    states: [i64; STATES.len()],
    active: i64,
    total: i64,
    cpu: i64,
    wait: i64,
    voluntary: i64,
    involuntary: i64,
    /// Share of the thread's CPU time in kernel mode.
    system_share: f64,
    /// Whether microstate accounting covers the thread.
    accounted: bool,
    /// Whether the thread is a scheduler, which has scheduler wall time.
    scheduler: bool,
}

#[derive(Default)]
struct Allocator {
    entity: String,
    busy: bool,
    values: [i64; 17],
}

/// State of the node at one second.
pub struct Node {
    random: Random,
    second: i64,
    threads: Vec<Thread>,
    run_queues: Vec<i64>,
    allocators: Vec<Allocator>,
    load: f64,
    drift: f64,
    counters: [i64; 24],
    queue: i64,
}

impl Node {
    /// Creates a node whose numbers are derived from `seed`.
    pub fn new(seed: u64) -> Rc<RefCell<Self>> {
        let mut random = Random(seed);
        let mut threads = Vec::new();
        let mut kind = |kind: &str, count: usize, activity: &dyn Fn(usize) -> f64, accounted, scheduler| {
            for number in 1..=count {
                threads.push(Thread {
                    entity: format!("{kind}/{number}"),
                    activity: activity(number),
                    states: std::array::from_fn(|_| (random.even() * 1e15) as i64),
                    active: (random.even() * 1e15) as i64,
                    total: 1_000_000_000_000_000,
                    cpu: (random.even() * 1e15) as i64,
                    wait: (random.even() * 1e13) as i64,
                    voluntary: (random.even() * 1e9) as i64,
                    involuntary: (random.even() * 1e7) as i64,
                    system_share: 0.05 + 0.1 * random.even(),
                    accounted,
                    scheduler,
                });
            }
        };
        kind("scheduler", NORMAL, &|_| 1.0, true, true);
        kind("dirty_cpu_scheduler", DIRTY_CPU, &|_| 0.3, true, true);
        kind("dirty_io_scheduler", DIRTY_IO, &|_| 0.1, true, true);
        kind("aux", 1, &|_| 0.02, true, false);
        kind("poll", 1, &|_| 0.1, true, false);
        kind("other/nif_worker", OTHER_THREADS, &|i| if i <= 3 { 0.05 } else { 0.0 }, false, false);
        let allocators = (0..=NORMAL)
            .flat_map(|instance| ALLOCATORS.map(|name| (name, instance)))
            .map(|(name, instance)| Allocator {
                entity: format!("{name}/{instance}"),
                busy: matches!(
                    name,
                    "binary_alloc" | "eheap_alloc" | "ll_alloc" | "temp_alloc" | "ets_alloc"
                ),
                values: std::array::from_fn(|_| (random.even() * 1e6) as i64 * 64),
            })
            .collect();
        Rc::new(RefCell::new(Node {
            random,
            second: -1,
            threads,
            run_queues: vec![0; NORMAL + 2],
            allocators,
            load: 0.5,
            drift: 0.0,
            counters: std::array::from_fn(|i| i as i64 * 1_000_000),
            queue: 0,
        }))
    }

    /// Advances the node to an instant.
    fn advance(&mut self, t: Nanos) {
        while self.second < t / SECOND_NS {
            self.second += 1;
            self.step();
        }
    }

    fn step(&mut self) {
        let random = &mut self.random;
        let day = self.second as f64 / 86_400.0 * std::f64::consts::TAU;
        self.drift = 0.98 * self.drift + 0.01 * random.normal();
        self.load = (0.45 - 0.25 * day.cos() + self.drift).clamp(0.05, 0.95);
        // All threads are read within about 100 µs; the instant jitters.
        let elapsed = 1e9 + 2e5 * random.normal();
        for thread in &mut self.threads {
            let elapsed = elapsed + 2e4 * random.normal();
            let asleep = thread.activity == 0.0 && random.even() < 0.97;
            let used = if asleep {
                0.0
            } else {
                (self.load * thread.activity * (1.0 + 0.1 * random.normal())).clamp(0.000_01, 0.99)
            };
            let mut busy = 0.0;
            for (state, share) in thread.states.iter_mut().zip(SHARES) {
                let time = used * share * elapsed * (1.0 + 0.1 * random.normal()).max(0.0);
                *state += (time * WINDOW) as i64;
                busy += time;
            }
            thread.states[SHARES.len()] += ((elapsed - busy).max(0.0) * WINDOW) as i64;
            thread.active += (busy * (1.0 + 0.01 * random.normal())) as i64;
            thread.total += elapsed as i64;
            if used > 0.0 {
                thread.cpu += (busy * (1.0 + 0.02 * random.normal())) as i64;
                thread.wait += (busy * 0.02 * random.even()) as i64;
                thread.voluntary += random.events(1_500.0 * used);
                thread.involuntary += random.events(40.0 * used);
            }
        }
        for queue in &mut self.run_queues {
            *queue = (*queue + random.events(self.load) - random.events(self.load)).max(0);
        }
        for (index, counter) in self.counters.iter_mut().enumerate() {
            *counter += random.events(self.load * 10_f64.powi(index as i32 % 9));
        }
        self.queue = (self.queue + random.events(20.0) - random.events(20.0)).max(0);
        if self.second % 10 == 0 {
            for allocator in &mut self.allocators {
                if !allocator.busy && random.even() < 0.8 {
                    continue;
                }
                for (index, value) in allocator.values.iter_mut().enumerate() {
                    match index {
                        // Values of blocks and calls always change, those of carriers rarely.
                        0 | 1 | 14..17 => *value += random.events(2_000.0) * if index == 1 { 8 } else { 1 },
                        _ if random.even() < 0.1 => *value += (random.below(9) as i64 - 4) * 32_768,
                        _ => {}
                    }
                }
            }
        }
    }
}

fn pid(number: usize) -> String {
    format!("<0.{}.{}>", number % 32_768 + 100, number / 32_768)
}

/// The VM of a node.
pub struct Vm(pub Rc<RefCell<Node>>, pub Option<SampleRequest>);

impl Source for Vm {
    fn name(&self) -> &'static str {
        "vm"
    }

    fn request(&mut self, ask: SampleRequest, _clock: &dyn Clock) -> Result<(), SourceTrouble> {
        self.0.borrow_mut().advance(ask.t);
        self.1 = Some(ask);
        Ok(())
    }

    fn collect(
        &mut self,
        _deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble> {
        let node = &mut *self.0.borrow_mut();
        let begin = clock.now();
        let detail = self.1.is_some_and(|ask| ask.detail);
        if node.second == 0 {
            node.introduce(out, begin, clock.wall());
        }
        node.vm_series(out);
        node.busiest(out);
        if detail {
            node.allocators(out);
            node.rows(begin, out);
        }
        Ok(Span { begin, end: begin + 12_000_000 + node.random.below(5_000_000) as i64 })
    }
}

/// The host of a node.
pub struct Host(pub Rc<RefCell<Node>>);

impl Source for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn request(&mut self, _ask: SampleRequest, _clock: &dyn Clock) -> Result<(), SourceTrouble> {
        Ok(())
    }

    fn collect(
        &mut self,
        _deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble> {
        let node = &mut *self.0.borrow_mut();
        let begin = clock.now();
        node.host_series(out);
        Ok(Span { begin, end: begin + 2_000_000 + node.random.below(1_000_000) as i64 })
    }
}

impl Node {
    fn introduce(&self, out: &mut SampleBuilder<'_>, mono0: Nanos, wall0: i64) {
        out.sample.incarnation = Some(Incarnation {
            id: 0,
            node: "large@synthetic".to_owned(),
            os_pid: Some(4_711),
            boot: "-576460751 1700000000".to_owned(),
            mono0,
            wall0,
        });
        for (key, value) in [
            (facts::NODE_NAME, "large@synthetic"),
            (facts::OTP_RELEASE, "27"),
            (facts::SCHEDULERS, "64"),
            (facts::PERF_COUNTER_HZ, "1000000000"),
            (facts::NATIVE_TIME_HZ, "1000000000"),
        ] {
            out.fact(key, value);
        }
    }

    fn vm_series(&mut self, out: &mut SampleBuilder<'_>) {
        for thread in self.threads.iter().filter(|thread| thread.accounted) {
            for (state, value) in STATES.iter().zip(thread.states) {
                let time = units::round_to_microseconds(value, SECOND_NS);
                out.family(&metrics::MSACC, &thread.entity, state, time);
            }
        }
        for thread in self.threads.iter().filter(|thread| thread.scheduler) {
            out.metric(&metrics::SCHEDULER_ACTIVE, &thread.entity, thread.active);
            out.metric(&metrics::SCHEDULER_TOTAL, &thread.entity, thread.total);
        }
        for (thread, length) in self.threads.iter().take(NORMAL).zip(&self.run_queues) {
            out.metric(&metrics::RUN_QUEUE, &thread.entity, *length);
        }
        out.metric(&metrics::RUN_QUEUE, "dirty_cpu", self.run_queues[NORMAL]);
        out.metric(&metrics::RUN_QUEUE, "dirty_io", self.run_queues[NORMAL + 1]);
        for (index, name) in MEMORY.iter().enumerate() {
            let words = (1_u64 << (20 + index)) as f64 * (1.0 + 0.02 * self.random.normal());
            out.family(&metrics::MEMORY, "", name, words as i64 * 8);
        }
        let rates = [
            (&metrics::REDUCTIONS, 8),
            (&metrics::CONTEXT_SWITCHES, 6),
            (&metrics::GARBAGE_COLLECTIONS, 5),
            (&metrics::GC_WORDS_RECLAIMED, 7),
            (&metrics::IO_INPUT, 17),
            (&metrics::IO_OUTPUT, 16),
            (&metrics::SCAN_REDUCTIONS, 15),
            (&metrics::SCAN_SPAWNED, 3),
            (&metrics::SCAN_EXITED, 12),
            (&metrics::AGENT_COST, 14),
            (&metrics::AGENT_REDUCTIONS, 13),
        ];
        for (metric, counter) in rates {
            out.metric(metric, "", self.counters[counter]);
        }
        let gauges = [
            (&metrics::PROCESS_COUNT, PROCESSES as i64, 300.0),
            (&metrics::PORT_COUNT, 12_000, 40.0),
            (&metrics::ATOM_COUNT, 31_245, 0.0),
            (&metrics::ETS_COUNT, 812, 2.0),
            (&metrics::ACTIVE_TASKS, 40, 12.0),
            (&metrics::SCHEDULERS_ONLINE, 64, 0.0),
            (&metrics::SCAN_PROCESSES, PROCESSES as i64, 300.0),
            (&metrics::SCAN_QUEUED, 700, 150.0),
            (&metrics::SCAN_LONGEST_QUEUE, 60, 20.0),
            (&metrics::SCAN_NONEMPTY_QUEUES, 200, 30.0),
            (&metrics::SCAN_COVERAGE, 1_000, 0.0),
            (&metrics::AGENT_MEMORY, 400_000, 30_000.0),
            (&metrics::ROUND_TRIP, 14_000_000, 2_000_000.0),
            (&metrics::CLOCK_OFFSET, 123_456_789_012, 20_000.0),
        ];
        for (metric, level, noise) in gauges {
            out.metric(metric, "", level + (noise * self.random.normal()) as i64);
        }
        for set in ["0", "1", "2"] {
            out.metric(&metrics::POLLSET_KERNEL_POLL, set, 1);
            out.metric(&metrics::POLLSET_FDS, set, self.random.events(4_000.0));
        }
        for peer in ["a@synthetic", "b@synthetic", "c@synthetic"] {
            out.metric(&metrics::DIST_QUEUE, peer, self.random.events(2.0) * 512);
            out.metric(&metrics::DIST_INPUT, peer, self.counters[7]);
            out.metric(&metrics::DIST_OUTPUT, peer, self.counters[6]);
        }
    }

    fn host_series(&mut self, out: &mut SampleBuilder<'_>) {
        let (mut user, mut system) = (0, 0);
        for thread in &self.threads {
            let in_kernel = (thread.cpu as f64 * thread.system_share) as i64;
            let [user_ticks, system_ticks] = [thread.cpu - in_kernel, in_kernel].map(|ns| ns / CLOCK_TICK_NS);
            let entity = &thread.entity;
            out.metric(&metrics::THREAD_CPU, entity, thread.cpu);
            out.metric(&metrics::THREAD_WAIT, entity, thread.wait);
            out.metric(&metrics::THREAD_USER, entity, user_ticks * CLOCK_TICK_NS);
            out.metric(&metrics::THREAD_SYSTEM, entity, system_ticks * CLOCK_TICK_NS);
            out.metric(&metrics::VOLUNTARY_SWITCHES, entity, thread.voluntary);
            out.metric(&metrics::INVOLUNTARY_SWITCHES, entity, thread.involuntary);
            user += user_ticks;
            system += system_ticks;
        }
        out.metric(&metrics::PROCESS_USER, "", user * CLOCK_TICK_NS);
        out.metric(&metrics::PROCESS_SYSTEM, "", system * CLOCK_TICK_NS);
        out.metric(&metrics::MINOR_FAULTS, "", self.counters[3]);
        out.metric(&metrics::MAJOR_FAULTS, "", 17);
        out.metric(&metrics::RSS, "", (9_000_000 + (20_000.0 * self.random.normal()) as i64) * 4_096);
        out.metric(&metrics::SWAP, "", 0);
        out.metric(&metrics::THREADS, "", self.threads.len() as i64);
        let counters = [
            (&metrics::CGROUP_PERIODS, "cpu", 1),
            (&metrics::CGROUP_THROTTLED, "cpu", 0),
            (&metrics::CGROUP_THROTTLED_TIME, "cpu", 8),
            (&metrics::CGROUP_USAGE, "cpu", 17),
            (&metrics::PRESSURE_CPU_SOME, "host", 5),
            (&metrics::PRESSURE_MEMORY_SOME, "host", 4),
            (&metrics::PRESSURE_MEMORY_FULL, "host", 3),
            (&metrics::PRESSURE_IO_SOME, "host", 14),
            (&metrics::PRESSURE_IO_FULL, "host", 13),
        ];
        for (metric, entity, counter) in counters {
            out.metric(metric, entity, self.counters[counter]);
        }
        out.metric(&metrics::CPU_BUSY, "", (user + system + self.counters[2]) * CLOCK_TICK_NS);
        out.metric(&metrics::CPU_IDLE, "", (self.second * 12_800 - user - system) * CLOCK_TICK_NS);
        out.metric(&metrics::CPU_STEAL, "", self.counters[0] * CLOCK_TICK_NS);
        out.metric(&metrics::CPUS_ONLINE, "", 128);
        out.metric(&metrics::RUNNABLE_TASKS, "", self.random.events(50.0 * self.load));
        out.metric(
            &metrics::MEMORY_AVAILABLE,
            "",
            (50_000_000 + (9_000.0 * self.random.normal()) as i64) * 1_024,
        );
    }

    /// Adds twelve processes that are always busy, and eight random ones.
    fn busiest(&mut self, out: &mut SampleBuilder<'_>) {
        for place in 0..20 {
            let number = if place < 12 { place } else { self.random.below(PROCESSES) };
            let reductions = 3e6 * self.load / (place + 1) as f64 * (1.0 + 0.1 * self.random.normal());
            let process = ProcessTick {
                pid: pid(number).into(),
                reductions: reductions as i64,
                queue: if place == 0 { self.queue } else { self.random.events(1.0) },
                runnable: Some(self.random.even() < self.load),
            };
            out.sample.busiest.push(process);
        }
    }

    fn allocators(&self, out: &mut SampleBuilder<'_>) {
        let metrics = [
            &metrics::MBCS_BLOCKS,
            &metrics::MBCS_BLOCKS_SIZE,
            &metrics::MBCS_CARRIERS,
            &metrics::MBCS_CARRIERS_SIZE,
            &metrics::SBCS_BLOCKS,
            &metrics::SBCS_BLOCKS_SIZE,
            &metrics::SBCS_CARRIERS,
            &metrics::SBCS_CARRIERS_SIZE,
            &metrics::POOL_BLOCKS,
            &metrics::POOL_BLOCKS_SIZE,
            &metrics::POOL_CARRIERS,
            &metrics::POOL_CARRIERS_SIZE,
            &metrics::FOREIGN_BLOCKS_SIZE,
            &metrics::CARRIERS_SIZE_MAX,
            &metrics::ALLOCATIONS,
            &metrics::FREES,
            &metrics::REALLOCATIONS,
        ];
        for allocator in &self.allocators {
            for (metric, value) in metrics.iter().zip(allocator.values) {
                out.metric(metric, &allocator.entity, value);
            }
        }
    }

    /// Adds detailed readings: 40 processes, 15 call stacks, 20 tables, 20 ports, 10 origins of new processes.
    fn rows(&mut self, t: Nanos, out: &mut SampleBuilder<'_>) {
        let random = &mut self.random;
        for place in 0..40 {
            let number = if place < 25 { place } else { random.below(PROCESSES) };
            out.sample.processes.push(ProcessRow {
                t,
                pid: pid(number),
                ranks: vec![Rank::ALL[place % Rank::ALL.len()]],
                name: (number % 3 == 0).then(|| format!("server_{}", number % 500)),
                label: None,
                initial_call: Some(format!("module_{}:init/1", number % 300)),
                current_function: Some("gen_server:loop/7".to_owned()),
                application: Some(format!("application_{}", number % 30)),
                parent: Some(pid(number / 100)),
                status: Some(if random.even() < 0.5 { "waiting" } else { "running" }.to_owned()),
                reductions: 1_000_000_000 + self.second * 3_000 * random.events(20.0),
                queue: random.events(2.0),
                message_queue_data: Some("on_heap".to_owned()),
                memory_bytes: random.events(9e6) * 8,
                total_heap_words: Some(random.events(1e6)),
                binary_bytes: Some(random.events(1e6)),
                minor_gcs: Some(random.below(65_535) as i64),
                fullsweep_after: Some(65_535),
                min_heap_words: Some(233),
                total_bytes: Some(random.events(9e6) * 8),
                fragment_bytes: Some(random.events(1e3) * 8),
                stack: ["gen_server:loop/7", "proc_lib:init_p_do_apply/3"].map(str::to_owned).to_vec(),
                priority: Some("normal".to_owned()),
            });
        }
        for place in 0..15_usize {
            let number = random.below(PROCESSES);
            out.sample.run_samples.push(RunSampleRow {
                t,
                pid: pid(place),
                stack: vec![format!("module_{}:handle_call/3", number % 300), "gen_server:loop/7".to_owned()],
                samples: 1 + random.below(10) as i64,
                is_waiting: random.below(4) == 0,
                ..RunSampleRow::default()
            });
        }
        for place in 0..20_i64 {
            out.sample.tables.push(TableRow {
                t,
                id: format!("table_{place}"),
                name: format!("table_{place}"),
                owner: pid(place as usize),
                owner_name: Some(format!("server_{place}")),
                objects: 100_000 - place * 4_000 + random.events(50.0),
                memory_bytes: (1_000_000_000 - place * 40_000_000 + random.events(1e6)) & !7,
                kind: "set".to_owned(),
                protection: "public".to_owned(),
                options: vec!["read_concurrency".to_owned(), "write_concurrency=auto".to_owned()],
            });
        }
        for _ in 0..20 {
            let number = random.below(12_000);
            out.sample.ports.push(PortRow {
                t,
                id: format!("#Port<0.{number}>"),
                name: "tcp_inet".to_owned(),
                connected: Some(pid(number)),
                input_bytes: random.events(1e8),
                output_bytes: random.events(1e8),
                queue_bytes: random.events(3.0) * 1_024,
                os_pid: None,
            });
        }
        for place in 0..10_i64 {
            out.sample.spawns.push(SpawnRow {
                t,
                what: "process".to_owned(),
                kind: format!("module_{place}:handle/2"),
                creator: Some(format!("supervisor_{place}")),
                count: random.events(30.0 - 2.0 * place as f64),
                sample_size: 200,
                bytes: None,
            });
        }
    }
}
