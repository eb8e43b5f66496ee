//! Fills the samples of a synthetic node.

use beamtune_model::{
    Event, Facts, Metric, ProcessRow, ProcessTick, RunSampleRow, SampleBuilder, TableRow, facts, metrics,
    units::SECOND_NS,
};

use super::{Listener, SyntheticNode, SystemMonitorEvent};

/// Monotonic time of the VM at the start of the recording, in nanoseconds.
const VM_CLOCK: i64 = -576_460_751_000_000_000;
/// Wall-clock time of the host at the start of the recording, in nanoseconds.
const WALL_CLOCK: i64 = 1_700_000_000_000_000_000;

/// Converts CPU use in cores to the nanoseconds of CPU time used until a second.
fn ns(cores: f64, second: i64) -> i64 {
    (cores * (second * SECOND_NS) as f64) as i64
}

impl SyntheticNode {
    pub(super) fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        for (key, value) in [
            (facts::SYNTHETIC, "a synthetic node".to_owned()),
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
            (facts::FULLSWEEP_AFTER, "65535".to_owned()),
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
            put(&SEGMENTS_REQUESTED, &entity, allocator.segments_requested * s);
            put(&ALLOCATIONS, &entity, 1_000 * s);
        }
        if let Some(first) = self.allocators.first() {
            put(&CARRIERS_SIZE_MAX, &format!("{}/0", first.name), self.carriers_peak);
        }
        self.referenced_binary_bytes.iter().for_each(|bytes| put(&SCAN_BINARIES, "", *bytes));
        self.fix_alloc_kinds.iter().for_each(|(kind, bytes)| put(&FIXED_SIZE, kind, *bytes));
        put(&MSEG_ALLOCATIONS, "0", self.segments.0 * s);
        put(&MSEG_CREATES, "0", self.segments.1 * s);
        put(&MSEG_DESTROYS, "0", (self.segments.1 - self.segments_leaked) * s);
        put(&MMAP_USED, "literal", self.literals.0);
        put(&MMAP_TOTAL, "literal", self.literals.1);
        put(&MMAP_OS_USED, "default", self.mapped);
        if let Some((used, total)) = self.super_carrier {
            put(&MMAP_USED, "default", used);
            put(&MMAP_TOTAL, "default", total);
        }
        if !self.contents.is_empty() {
            put(&MAPPING_COUNT, "anonymous", 140);
            put(&MAPPING_RESIDENT, "anonymous", self.resident);
            put(&MAPPING_LAZY_FREE, "anonymous", self.lazy_free);
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

    fn fill_programs(&self, s: i64, put: &mut impl FnMut(&'static Metric, &str, i64)) {
        let alive = |programs: &crate::ExternalPrograms| programs.alive.0 + programs.alive.1 * s;
        let orphans: i64 = self.programs.iter().map(|programs| programs.orphans).sum();
        let all: i64 = self.programs.iter().map(alive).sum();
        put(&metrics::PROGRAMS_CPU, "", ns(self.programs_cpu, s));
        put(&metrics::PROGRAMS_ENDED, "", self.programs_ended * s);
        put(&metrics::PROGRAMS_ALIVE, "", all);
        put(&metrics::PROGRAMS_CHILDREN, "", all - orphans);
        put(&metrics::PROGRAMS_ORPHANS, "", orphans);
        put(&metrics::PROGRAMS_ZOMBIES, "", self.zombies);
        put(
            &metrics::PROGRAMS_RESIDENT,
            "",
            self.programs.iter().map(|programs| programs.resident * alive(programs)).sum(),
        );
        for programs in &self.programs {
            put(&metrics::PROGRAMS_CPU, programs.name, ns(programs.cpu, s));
            put(&metrics::PROGRAMS_ALIVE, programs.name, alive(programs));
            put(&metrics::PROGRAMS_ORPHANS, programs.name, programs.orphans);
            put(&metrics::PROGRAMS_RESIDENT, programs.name, programs.resident * alive(programs));
            put(&metrics::PROGRAMS_OLDEST, programs.name, (programs.oldest + s) * SECOND_NS);
        }
        if let Some(ports) = self.program_ports {
            put(&metrics::PROGRAM_PORTS, "", ports);
        }
    }

    fn fill_listeners(&self, s: i64, put: &mut impl FnMut(&'static Metric, &str, i64)) {
        for Listener { address, waiting, limit } in &self.listeners {
            put(&metrics::ACCEPT_QUEUE, address, waiting[s as usize % waiting.len()]);
            if let Some(limit) = limit {
                put(&metrics::ACCEPT_QUEUE_LIMIT, address, *limit);
            }
        }
        let churns = self.series.iter().any(|(metric, ..)| metric.name == metrics::TCP_BEGUN.name);
        for listener in self.listeners.iter().filter(|_| !churns) {
            put(&metrics::TCP_BEGUN, listener.address, 0);
        }
        put(&metrics::TCP_SAMPLED, "", self.tcp.len() as i64 * 50);
        for connected in &self.tcp {
            let group = connected.group;
            if !connected.connections.is_empty() {
                let counts = connected.connections;
                put(&metrics::TCP_CONNECTIONS, group, counts[s as usize % counts.len()]);
            }
            put(&metrics::TCP_UNREAD, group, connected.unread);
            for (end, bytes, received) in connected.sampled {
                let entity = format!("{group},{end}");
                put(&metrics::TCP_UNREAD_BYTES, &entity, *bytes);
                if let Some(per_s) = received {
                    put(&metrics::TCP_RECEIVED, &entity, bytes + per_s * s);
                }
            }
        }
        for (address, drops) in &self.udp_drops {
            put(&metrics::UDP_QUEUE, address, 0);
            put(&metrics::UDP_DROPS, address, drops * s);
        }
        put(&metrics::UDP_RECEIVED, "", self.datagrams * s);
        if let Some(limit) = self.other_accept_queue_limit {
            put(&metrics::ACCEPT_QUEUE_OTHERS_LIMIT, "", limit);
        }
        put(&metrics::LISTENING_SOCKETS, "", self.listeners.len() as i64 + self.other_listeners);
        put(&metrics::PASSIVE_OPENS, "", self.connections.0 * s);
        put(&metrics::LISTEN_OVERFLOWS, "", self.connections.1 * s);
        put(&metrics::LISTEN_DROPS, "", self.connections.1 * s);
    }

    pub(super) fn fill(&self, s: i64, out: &mut SampleBuilder<'_>) {
        let mut put = |metric: &'static Metric, entity: &str, value: i64| {
            if !self.missing_metrics.contains(&metric) {
                out.metric(metric, entity, value);
            }
        };
        let kinds = [
            ("scheduler", self.schedulers, self.utilization, self.cpu),
            ("dirty_cpu_scheduler", self.schedulers, self.dirty_cpu_active, self.dirty_cpu_active),
            ("dirty_io_scheduler", 10, self.dirty_io_active, 0.0),
        ];
        for (kind, count, active, cpu) in kinds {
            for number in 1..=count {
                let entity = format!("{kind}/{number}");
                let own = self.per_scheduler.get(number - 1).filter(|_| kind == "scheduler");
                put(&metrics::SCHEDULER_ACTIVE, &entity, ns(own.map_or(active, |own| own.0), s));
                if kind == "scheduler" {
                    put(&metrics::RUN_QUEUE, &entity, own.map_or(0, |own| own.1));
                }
                put(&metrics::SCHEDULER_TOTAL, &entity, ns(1.0, s));
                put(&metrics::THREAD_CPU, &entity, ns(cpu, s));
                let wait = if kind == "scheduler" { self.run_queue_delay } else { 0.0 };
                put(&metrics::THREAD_WAIT, &entity, ns(wait, s));
                put(&metrics::VOLUNTARY_SWITCHES, &entity, self.voluntary_switches * s);
                put(&metrics::INVOLUNTARY_SWITCHES, &entity, self.involuntary_switches * s);
            }
        }
        for number in 0..self.async_threads {
            // The counter includes the CPU time of starting the thread.
            put(&metrics::THREAD_CPU, &format!("async/{number}"), 200_000 + ns(self.async_cpu, s));
        }
        for (number, (cpu, _)) in self.poll_threads.iter().enumerate() {
            put(&metrics::THREAD_CPU, &format!("poll/{number}"), ns(*cpu, s));
            put(&metrics::THREAD_WAIT, &format!("poll/{number}"), 0);
        }
        put(&metrics::SCHEDULERS_ONLINE, "", self.schedulers as i64);
        put(&metrics::ACTIVE_TASKS, "", self.active_tasks);
        put(&metrics::CONTEXT_SWITCHES, "", self.context_switches * s);
        put(&metrics::OPEN_FDS, "", self.open_files.0 + self.open_files.1 * s);
        for (kind, count) in &self.open_kinds {
            put(&metrics::OPEN_FILES_OF_KIND, kind, *count);
        }
        if !self.open_kinds.is_empty() {
            put(&metrics::OPEN_FILES_SAMPLED, "", self.open_kinds.iter().map(|(_, count)| count).sum());
        }
        put(&metrics::CPUS_ALLOWED, "", self.cpus);
        put(&metrics::CPUS_ONLINE, "", self.cpus);
        let polling: f64 = self.poll_threads.iter().map(|(cpu, _)| cpu).sum();
        let own =
            self.cpu * self.schedulers as f64 + self.dirty_cpu_active * self.schedulers as f64 + polling;
        put(&metrics::PROCESS_USER, "", ns(own, s));
        put(&metrics::PROCESS_SYSTEM, "", ns(self.system, s));
        let swing = if s % 4 == 1 { self.resident_waves } else { 0 };
        put(&metrics::RSS, "", self.resident + self.resident_growth * s + swing);
        put(&metrics::MEMORY_AVAILABLE, "", self.memory_available);
        self.fill_allocators(s, &mut put);
        self.fill_listeners(s, &mut put);
        self.fill_programs(s, &mut put);
        for (metric, entity, first, growth) in &self.series {
            put(metric, entity, first + growth * s);
        }
        put(&metrics::TABLES_WATCHED, "", 20);
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
        let spaces = self.dist_samples.len().saturating_sub(1).max(1) as i64;
        let samples = self.dist_samples.iter().enumerate();
        for (_, sample) in samples.filter(|(index, _)| self.seconds * *index as i64 / spaces == s) {
            put(&metrics::DIST_QUEUE, "other@host", sample.queue);
            put(&metrics::DIST_OUTPUT, "other@host", sample.output);
        }
        put(&metrics::CPU_BUSY, "", ns(own + self.other_cpu + self.programs_cpu, s));
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
            let of_kind = || self.events.iter().filter(|event| event.kind == kind && s >= event.first_second);
            let occurrences = |event: &SystemMonitorEvent| s + 1 - event.first_second;
            put(&metrics::EVENT_COUNT, kind, of_kind().map(occurrences).sum());
            let ns = |event: &SystemMonitorEvent| event.milliseconds * 1_000_000;
            put(&metrics::EVENT_TIME, kind, of_kind().map(|event| occurrences(event) * ns(event)).sum());
            put(&metrics::EVENT_LONGEST, kind, of_kind().map(ns).max().unwrap_or(0));
        }
        let (usual, wave) = self.gcs;
        let waves = wave.map_or(0, |(every_ms, size)| {
            let now_ms = s * 1_000;
            let begun = (1..).map(|wave| wave * every_ms).take_while(|begin| *begin < now_ms);
            begun.map(|begin| size * (now_ms - begin).min(self.gc_wave_ms) / self.gc_wave_ms).sum()
        });
        put(&metrics::GARBAGE_COLLECTIONS, "", usual * s + waves);
        put(&metrics::GC_WORDS_RECLAIMED, "", self.reclaimed_words * s);
        put(&metrics::SCAN_PROCESSES, "", self.processes.0);
        put(&metrics::RUN_QUEUE, "dirty_cpu", self.dirty_cpu_queue);
        put(&metrics::RUN_QUEUE, "dirty_io", self.dirty_io_queue);
        put(&metrics::SCAN_REDUCTIONS, "", self.total_reductions * s);
        put(&metrics::REDUCTIONS, "", self.total_reductions * s);
        if let Some((input, more)) = self.input {
            put(&metrics::IO_INPUT, "", input * s + more * s * s / 2);
        }
        put(&metrics::SCAN_SPAWNED, "", self.spawned_alive * s);
        if self.exits.is_some() {
            put(&metrics::EXIT_MONITORED, "", 5);
            put(&metrics::EXIT_SUPERVISORS, "", 20);
        }
        let longest = self.busiest.iter().map(|busy| busy.queue.0 + busy.queue.1 * s).max().unwrap_or(0);
        put(&metrics::SCAN_LONGEST_QUEUE, "", longest);
        put(&metrics::SCAN_QUEUED, "", self.queued_messages);
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
        for (entity, flag) in &self.trace_flags {
            out.family(&metrics::TRACE_FLAGS, entity, flag, 1);
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
            let emulator = (self.msacc_utilization.unwrap_or(self.utilization) - self.gc).max(0.0);
            let other = self.msacc_busy_wait.unwrap_or((self.cpu - self.utilization).max(0.0));
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
        for (number, (_, awake)) in self.poll_threads.iter().enumerate() {
            let entity = format!("poll/{number}");
            out.family(&metrics::MSACC, &entity, "check_io", ns(*awake, s));
            out.family(&metrics::MSACC, &entity, "sleep", ns(1.0 - awake, s));
        }
        for busy in self.busiest.iter().filter(|busy| busy.last_second.is_none_or(|until| s <= until)) {
            out.sample.busiest.push(ProcessTick {
                pid: busy.pid.into(),
                reductions: busy.reductions + busy.reductions_growth * s,
                queue: busy.queue.0 + busy.queue.1 * s,
                runnable: Some(s % 10 < busy.runnable_of_10),
            });
            for (stack, waits) in [(&busy.row.stack, false), (&busy.waiting_stack, true)] {
                if !stack.is_empty() {
                    let (pid, stack) = (busy.pid.to_owned(), stack.clone());
                    out.sample.run_samples.push(RunSampleRow {
                        t: s * SECOND_NS,
                        pid,
                        stack,
                        samples: 1,
                        is_waiting: waits,
                        ..RunSampleRow::default()
                    });
                }
            }
            out.sample.processes.push(ProcessRow {
                t: s * SECOND_NS,
                pid: busy.pid.to_owned(),
                ..busy.row.clone()
            });
        }
        out.sample.tables.extend(self.ets.iter().cloned());
        out.sample.exits.extend(self.exits.iter().flatten().cloned());
        out.sample.spawns.extend(self.spawns.iter().cloned());
        out.sample.ports.extend(self.sockets.iter().cloned());
        for event in self.events.iter().filter(|event| s >= event.first_second) {
            out.sample.events.push(Event {
                t: s * SECOND_NS,
                kind: event.kind.to_owned(),
                subject: event.subject.to_owned(),
                detail: format!("{} ms", event.milliseconds),
            });
        }
    }
}
