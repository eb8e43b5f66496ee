//! A made-up node: two schedulers, ten seconds, healthy unless somebody says otherwise.
//!
//! Rules are tested on it, and the evaluation of the labs makes recordings of it for what no machine at hand can be sick with.

#![allow(missing_docs, reason = "most of what a node has is said by its name")]

mod fill;

use beamtune_model::{
    ExitRow, LockRow, LockSession, MessageRow, Metric, Period, PeriodBuilder, PortRow, ProcessRow, RanRow,
    Sample, SampleBuilder, Seen, SeriesTable, Span, SpawnRow, StandRow, TableRow, Tick, WaitRow,
    units::SECOND_NS,
};

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
    /// Processes that are scheduled in in each second.
    pub turns: i64,
    pub open_files: (i64, i64),
    /// What they are: kinds, and how many of each were looked at.
    pub open_kinds: Vec<(&'static str, i64)>,
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
    /// Of each poll thread: its CPU, and the share of its time in which it does not sleep.
    pub poll_threads: Vec<(f64, f64)>,
    pub total_reductions: i64,
    /// Bytes that come in through ports in a second, and so many more in each second; `None` where that was not recorded.
    pub input: Option<(i64, i64)>,
    pub busiest: Vec<Busy>,
    pub spawns: Vec<SpawnRow>,
    /// Ends of processes that are told each second; `None` for a recording of before they were.
    pub exits: Option<Vec<ExitRow>>,
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
    /// Binaries that all processes refer to, in bytes; `None` where that was not told.
    pub referred: Option<i64>,
    /// What `fix_alloc` holds, by kind, in bytes; of older recordings nothing is known of it.
    pub fixed: Vec<(&'static str, i64)>,
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
    /// How active the schedulers were while microstate accounting was on, if not as at any other time.
    pub active_when_sampled: Option<f64>,
    /// The share of that time in which each one spun; what the kernel says beyond `active` where it is none.
    pub spinning_when_sampled: Option<f64>,
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
    /// The shortest limit of their queues, where it is known.
    pub others_limit: Option<i64>,
    /// TCP connections.
    pub tcp: Vec<Connected>,
    /// UDP sockets: address, and datagrams that are dropped in each second.
    pub udp_drops: Vec<(&'static str, i64)>,
    /// Datagrams that come in each second.
    pub datagrams: i64,
    /// CPU of the programs that the VM has started, in cores.
    pub programs_cpu: f64,
    /// Such programs that end in each second.
    pub programs_ended: i64,
    /// Programs by name.
    pub programs: Vec<Programs>,
    /// Of what they have started and left behind, processes that nobody has waited for.
    pub zombies: i64,
    /// Ports of programs; `None` where that was not told.
    pub program_ports: Option<i64>,
    /// Series that few nodes have: metric, entity, first value and growth per second.
    pub series: Vec<(&'static Metric, &'static str, i64, i64)>,
    /// Flags of traces: entity, flag.
    pub trace_flags: Vec<(&'static str, &'static str)>,
    pub without: Vec<&'static Metric>,
}

/// Programs of one name.
#[derive(Clone)]
pub struct Programs {
    pub name: &'static str,
    /// (first, growth per second)
    pub alive: (i64, i64),
    /// Of them, orphans.
    pub orphans: i64,
    /// CPU of them together, in cores.
    pub cpu: f64,
    /// Resident memory of each, in bytes.
    pub resident: i64,
    /// For how long the oldest has run, in seconds.
    pub oldest: i64,
}

/// An address that the VM listens on.
#[derive(Clone)]
pub struct Listens {
    pub address: &'static str,
    /// Connections that wait in the first second, in the second one …, and again from the beginning.
    pub waiting: &'static [i64],
    pub limit: Option<i64>,
}

/// TCP connections of a listening socket, or to a peer.
#[derive(Clone)]
pub struct Connected {
    /// `0.0.0.0:8080`, or `to 10.0.0.9:5432`.
    pub group: &'static str,
    /// How many, in the first second, in the second one …, and again from the beginning; of peers none.
    pub connections: &'static [i64],
    /// Those with unread bytes.
    pub unread: i64,
    /// Some of these: the other end, unread bytes, and bytes that come and are read in a second; where that is not known `None`.
    pub followed: &'static [(&'static str, i64, Option<i64>)],
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
    /// So many more in each second.
    pub more: i64,
    pub queue: (i64, i64),
    /// Looks of ten in which it was runnable.
    pub runnable_of_10: i64,
    pub row: ProcessRow,
    /// Where it stood while it waited in the midst of something, in each second; nowhere, if empty.
    pub stood: Vec<String>,
    /// The last second in which it is told of, if that is not the end.
    pub until: Option<i64>,
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
        let row = ProcessRow::default();
        let stood = Vec::new();
        Busy {
            pid: "<0.77.0>",
            reductions: 0,
            more: 0,
            queue: (0, 0),
            runnable_of_10: 0,
            row,
            stood,
            until: None,
        }
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
        turns: 10_000,
        open_files: (30, 0),
        open_kinds: Vec::new(),
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
        poll_threads: vec![(0.0, 0.0)],
        total_reductions: 1_000_000,
        input: None,
        busiest: Vec::new(),
        spawns: Vec::new(),
        exits: Some(Vec::new()),
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
        referred: None,
        fixed: Vec::new(),
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
        active_when_sampled: None,
        spinning_when_sampled: None,
        idle: 1.2,
        uneven: Vec::new(),
        locks: vec![LockRow { waited: 2_000_000, ..lock("run_queue", None) }],
        waits: Vec::new(),
        messages: Vec::new(),
        stands: vec![stand(95, &["gen_server:loop/7", "proc_lib:init_p_do_apply/3"], &[])],
        listeners: vec![Listens { address: "0.0.0.0:8080", waiting: &[0], limit: Some(128) }],
        connections: (50, 0),
        foreign_listeners: 0,
        others_limit: None,
        tcp: vec![Connected { group: "0.0.0.0:8080", connections: &[40, 45], unread: 0, followed: &[] }],
        udp_drops: vec![("0.0.0.0:53", 0)],
        datagrams: 100,
        programs_cpu: 0.0,
        programs_ended: 0,
        programs: vec![Programs {
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

impl Node {
    pub fn with(mut self, change: impl FnOnce(&mut Node)) -> Node {
        change(&mut self);
        self
    }

    /// Its samples, one a second, the facts in the first, and the names of their series.
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
                out.sample.stands = self.stands.iter().map(|row| StandRow { t, ..row.clone() }).collect();
                // Any processes that ran, none of them more than others.
                out.sample.ran.extend((0..10).map(|number| RanRow {
                    t,
                    stack: vec![format!("shop_{number}:run/1")],
                    looks: 1,
                    kind: Some(format!("shop_{number}:init/1")),
                    ..RanRow::default()
                }));
            }
            samples.push(out.sample);
        }
        (samples, table)
    }

    /// What its samples say together.
    pub fn period(&self) -> Period {
        let (samples, table) = self.samples();
        self.period_of(&samples, &table)
    }

    /// The same of samples to which something has happened.
    pub fn period_of(&self, samples: &[Sample], table: &SeriesTable) -> Period {
        let mut builder = PeriodBuilder::new(None, self.facts(), 1);
        samples.iter().for_each(|sample| builder.sample(sample, table));
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
}
