//! The host as a source of a recording: operating system data of one VM, sampled every second.
//!
//! Expensive items are read only in detailed samples:
//!
//! - the content of memory ([`crate::memory`], about 20 ms per gigabyte);
//! - `smaps_rollup`, if the content is not readable or would take too long. For this file, the kernel walks all of a process's memory and
//!   blocks changes to its mappings (6 ms for 1.9 GB, measured);
//! - the number of open files, which must be counted before Linux 6.2.
//!
//! An item that cannot be read is reported as a gap when the problem starts, and again in each detailed sample. So gaps cover the whole
//! time without a row for every second.
//!
//! The span of a sample is the time in which its counters were read. Expensive items are read after it, because rates of counters refer to
//! the middle of the span.

use std::collections::BTreeMap;

use beamtune_model::{
    Clock, Gap, Incarnation, Metric, Nanos, SampleBuilder, SampleRequest, Source, SourceTrouble, Span,
    TroubleKind, metrics,
};

use crate::cgroup::{Continuation, CpuGroup, Groups};
use crate::discovery::{self, Vm};
use crate::error::HostError;
use crate::facts;
use crate::machine::{self, Machine};
use crate::pressure::Pressure;
use crate::process::{self, Identity, Rollup, SMALL_FILE_BYTES, Status};
use crate::threads::ThreadReader;
use crate::tree::FileTree;
use connections::ConnectionWatch;
pub use memory::MemoryBudget;
use memory::MemoryWatch;
use open_files::OpenFilesWatch;
use own_sockets::OwnSockets;
use programs::ProgramWatch;

/// Maximum number of open files that are counted one by one if the kernel does not provide their number.
const MAX_OPEN_FILES: usize = 100_000;
/// Time limit for reading `smaps_rollup`.
pub(crate) const ROLLUP_BUDGET_NS: Nanos = 100_000_000;
/// Two clocks are not compared if more than this time passed between reading them. Judgement: a tenth of the smallest reported step of the
/// host's wall clock.
const MAX_CLOCK_DISTANCE_NS: Nanos = 10_000_000;
/// Expected time for reading `smaps_rollup`, per kilobyte of resident memory: 3.3 ns were measured, with 4 kB pages.
const ROLLUP_NS_PER_KB: Nanos = 4;

/// Which source announces a new incarnation of the VM in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnouncedBy {
    /// Another source: the one that samples the VM itself, and thus has more precise data.
    OtherSource,
    /// This source, because beamtune cannot connect to the VM.
    HostSource,
}

/// Samples one process and its host.
#[derive(Debug)]
pub struct HostSource<T> {
    tree: T,
    identity: Identity,
    announce: AnnouncedBy,
    tick_ns: Nanos,
    ask: Option<SampleRequest>,
    /// Name of the process's user, for messages.
    user: Option<String>,
    /// Properties of the process at the start of this incarnation, if it was a VM.
    vm: Option<Box<Vm>>,
    /// Time of the last successful sample.
    seen: Nanos,
    /// Why the successor of an ended process is unknown.
    lost_reason: Option<String>,
    /// Whether no sample of this incarnation has been recorded yet.
    first: bool,
    /// Whether the files are those of this host. Another host has its own clock.
    is_here: bool,
    /// The host's page size, once it is known.
    page_bytes: Option<i64>,
    incarnations: u32,
    groups: Groups,
    tightest: Continuation,
    own: Continuation,
    /// Last recorded values of the facts that can change.
    recorded_facts: BTreeMap<&'static str, String>,
    threads: ThreadReader,
    gaps: Gaps,
    /// Why `smaps_rollup` must not be read again.
    rollup_refused: Option<String>,
    memory: MemoryWatch,
    listen: OwnSockets,
    datagrams: OwnSockets,
    connections: ConnectionWatch,
    open_files: OpenFilesWatch,
    programs: ProgramWatch,
    content: Vec<u8>,
}

impl<T: FileTree> HostSource<T> {
    /// Creates a source for the process that currently has this id.
    pub fn new(tree: T, pid: u32, announce: AnnouncedBy) -> Result<Self, HostError> {
        let identity = Identity::of(&tree, pid)?;
        let user = discovery::user_of(&tree, pid);
        Ok(HostSource {
            tree,
            identity,
            announce,
            tick_ns: process::tick_ns(),
            ask: None,
            user,
            vm: None,
            seen: 0,
            lost_reason: None,
            first: true,
            is_here: true,
            page_bytes: i64::try_from(rustix::param::page_size()).ok(),
            incarnations: 0,
            groups: Groups::default(),
            tightest: Continuation::default(),
            own: Continuation::default(),
            recorded_facts: BTreeMap::new(),
            threads: ThreadReader::default(),
            gaps: Gaps::default(),
            rollup_refused: None,
            memory: MemoryWatch::default(),
            listen: OwnSockets::default(),
            datagrams: OwnSockets::default(),
            connections: ConnectionWatch::default(),
            open_files: OpenFilesWatch::default(),
            programs: ProgramWatch::default(),
            content: Vec::new(),
        })
    }

    /// Changes the source to one for a host other than this one.
    pub(crate) fn for_remote_host(self) -> Self {
        HostSource { is_here: false, page_bytes: None, ..self }
    }

    /// Forbids reading `smaps_rollup` for a reason, or allows it again (`None`).
    pub(crate) fn refuse_rollup(&mut self, why: Option<String>) {
        self.rollup_refused = why;
    }

    /// Continues with another process: the VM was restarted.
    pub fn follow(&mut self, pid: u32) -> Result<(), HostError> {
        self.identity = Identity::of(&self.tree, pid)?;
        self.user = discovery::user_of(&self.tree, pid);
        self.vm = None;
        self.lost_reason = None;
        self.first = true;
        self.incarnations += 1;
        self.groups = Groups::default();
        self.tightest = Continuation::default();
        self.own = Continuation::default();
        self.recorded_facts.clear();
        self.threads = ThreadReader::default();
        self.rollup_refused = None;
        self.memory = self.memory.for_next_incarnation();
        self.listen = OwnSockets::default();
        self.datagrams = OwnSockets::default();
        self.connections = ConnectionWatch::default();
        self.open_files = OpenFilesWatch::default();
        self.programs = ProgramWatch::default();
        Ok(())
    }

    /// The process that is sampled.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns a text that distinguishes this incarnation of the VM from others, for recordings without data from the VM itself.
    pub fn boot(&self) -> String {
        self.identity.boot(&self.tree)
    }

    fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Finds the process of a new incarnation of the VM, given the process id that the VM itself reports. In a container, this id differs
    /// from the one in our namespace.
    fn next_process(&self, own_pid: u32, now: Nanos) -> Result<u32, HostError> {
        match &self.vm {
            Some(vm) if vm.pid_inside.is_some() => {
                let gone_ns = now.saturating_sub(self.seen);
                Ok(discovery::successor(&self.tree, vm, gone_ns, Some(own_pid))?.identity.pid)
            }
            // The new incarnation may be in a container. Then the process with this id in our namespace may be an unrelated one.
            Some(_) => Ok(discovery::inspect(&self.tree, own_pid)?.identity.pid),
            None => Ok(own_pid),
        }
    }

    /// Checks that the process still exists and has not been replaced.
    fn check(&mut self) -> Result<(), HostError> {
        let pid = self.pid();
        let stat = process::read_stat(&self.tree, pid, &mut self.content)?;
        if stat.start_ticks != self.identity.start_ticks {
            return Err(HostError::Replaced { pid });
        }
        Ok(())
    }

    /// Finds the control groups, which change if the process is moved.
    fn locate(&mut self) {
        let found = Groups::of(&self.tree, self.pid()).and_then(|groups| {
            self.groups = groups;
            let unseen = self.groups.unseen.clone();
            unseen.map_or(Ok(()), |path| Err(HostError::HiddenGroup { path }))
        });
        self.note("host.cgroup", found);
    }

    /// Reads counters and cheap gauges. Fails if the whole process is not readable; errors of single items become gaps.
    fn read(&mut self, out: &mut SampleBuilder<'_>) -> Result<Status, HostError> {
        let rss_pages = self.read_process(out)?;
        let status = self.read_status(out)?;
        if self.page_bytes.is_none() {
            let rss = status.rss_bytes.zip(rss_pages);
            self.page_bytes = rss.and_then(|(bytes, pages)| process::page_bytes(bytes, pages));
        }
        match self.threads.read(&self.tree, self.identity.pid, self.tick_ns, out) {
            // The agent read the process, but had no time for its threads.
            Err(error @ (HostError::Late { .. } | HostError::Hangs { .. })) => {
                self.note("host.threads", Err(error));
            }
            read => {
                let trouble = read?;
                self.note("host.schedstat", trouble.schedstat.map_or(Ok(()), Err));
                self.note("host.threads", trouble.other.map_or(Ok(()), Err));
            }
        }
        let machine = self.read_machine(out);
        self.note("host.cpu", machine);
        let swap = self.read_swap_traffic(out);
        self.note("host.swap_traffic", swap);
        let pressure = self.read_pressure(out);
        self.note("host.pressure", pressure);
        let limits = self.read_limits(out);
        self.note("host.cgroup_limits", limits);
        Ok(status)
    }

    /// Reads the counters of the process. Returns its resident memory in pages.
    fn read_process(&mut self, out: &mut SampleBuilder<'_>) -> Result<Option<i64>, HostError> {
        let pid = self.pid();
        let stat = process::read_stat(&self.tree, pid, &mut self.content)?;
        out.metric(&metrics::PROCESS_USER, "", stat.user_ticks.saturating_mul(self.tick_ns));
        out.metric(&metrics::PROCESS_SYSTEM, "", stat.system_ticks.saturating_mul(self.tick_ns));
        out.metric(&metrics::MINOR_FAULTS, "", stat.minor_faults);
        out.metric(&metrics::MAJOR_FAULTS, "", stat.major_faults);
        Ok(stat.rss_pages)
    }

    fn read_status(&mut self, out: &mut SampleBuilder<'_>) -> Result<Status, HostError> {
        let path = format!("/proc/{}/status", self.pid());
        self.tree.read_start(&path, SMALL_FILE_BYTES, &mut self.content)?;
        let status = Status::parse(&self.content);
        some(out, &metrics::RSS, "", status.rss_bytes);
        some(out, &metrics::SWAP, "", status.swap_bytes);
        some(out, &metrics::THREADS, "", status.threads);
        let allowed = status.cpus_allowed.as_deref().and_then(process::cpus_in_list);
        some(out, &metrics::CPUS_ALLOWED, "", allowed);
        Ok(status)
    }

    fn read_machine(&mut self, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let times = machine::cpu_times(&self.tree)?;
        let ns = |ticks: i64| ticks.saturating_mul(self.tick_ns);
        out.metric(&metrics::CPU_BUSY, "", ns(times.busy_ticks));
        out.metric(&metrics::CPU_IDLE, "", ns(times.idle_ticks));
        out.metric(&metrics::CPU_STEAL, "", ns(times.steal_ticks));
        out.metric(&metrics::CPUS_ONLINE, "", times.cpus);
        out.metric(&metrics::RUNNABLE_TASKS, "", times.runnable);
        self.tree.read_start("/proc/meminfo", SMALL_FILE_BYTES, &mut self.content)?;
        some(out, &metrics::MEMORY_AVAILABLE, "", machine::memory_available(&self.content));
        Ok(())
    }

    /// Reads the swap traffic. This is separate from the rest of the host's data, because the file may be hidden in a container.
    fn read_swap_traffic(&mut self, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        self.tree.read_start("/proc/vmstat", SMALL_FILE_BYTES, &mut self.content)?;
        if let Some((read, written)) = machine::swap_pages(&self.content) {
            let page_bytes = self.page_bytes.ok_or(HostError::UnknownPageSize)?;
            out.metric(&metrics::SWAP_IN, "", read.saturating_mul(page_bytes));
            out.metric(&metrics::SWAP_OUT, "", written.saturating_mul(page_bytes));
        }
        Ok(())
    }

    fn read_pressure(&mut self, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        for (resource, metrics) in PRESSURE {
            // Without its own v2 group, a process has no pressure other than the host's.
            let file = format!("{resource}.pressure");
            if let Some(content) = self.groups.pressure(&self.tree, &file)? {
                add_pressure(out, "cgroup", metrics, &file, &content)?;
            }
            let path = format!("/proc/pressure/{resource}");
            self.tree.read_start(&path, SMALL_FILE_BYTES, &mut self.content)?;
            add_pressure(out, "host", metrics, &path, &self.content)?;
        }
        Ok(())
    }

    fn read_limits(&mut self, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        if let Some(mut limits) = self.groups.cpu_limits(&self.tree)? {
            self.tightest.shift(&mut limits.tightest);
            self.own.shift(&mut limits.own);
            add_cpu_group(out, "cpu", &limits.tightest);
            add_cpu_group(out, "own_cpu", &limits.own);
        }
        if let Some(limits) = self.groups.memory_limits(&self.tree)? {
            some(out, &metrics::CGROUP_MEMORY_LIMIT, "memory", limits.limit_bytes);
            some(out, &metrics::CGROUP_MEMORY, "memory", limits.used_bytes);
        }
        Ok(())
    }

    /// Reads the number of open files between detailed samples, if the kernel provides it at no cost. One value every ten seconds would not
    /// show growth in a short recording.
    fn read_open_files_cheaply(&self, out: &mut SampleBuilder<'_>) {
        let count = self.tree.cheap_count(&format!("/proc/{}/fd", self.pid()));
        some(out, &metrics::OPEN_FDS, "", count.and_then(|count| i64::try_from(count).ok()));
    }

    fn read_expensive(&mut self, status: &Status, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        let pid = self.pid();
        match self.tree.count(&format!("/proc/{pid}/fd"), MAX_OPEN_FILES) {
            Ok(count) => {
                some(out, &metrics::OPEN_FDS, "", i64::try_from(count).ok());
                self.note("host.open_fds", Ok(()));
                self.read_open_files(count, out);
            }
            Err(error) => self.note("host.open_fds", Err(error)),
        }
        if self.read_memory(status, clock, out) {
            // The values of `smaps_rollup` are the sums over all mappings, which are known now.
            return self.note("host.smaps_rollup", Ok(()));
        }
        let expected_ns = rollup_ns(status);
        let too_large = expected_ns > ROLLUP_BUDGET_NS;
        let would_take = too_large.then(|| format!("would take about {} ms", expected_ns / 1_000_000));
        if let Some(why) = self.rollup_refused.as_ref().or(would_take.as_ref()) {
            let reason = format!(
                "/proc/{pid}/smaps_rollup was not read: it {why}, blocking changes of the VM's memory mappings"
            );
            self.gaps.note("host.smaps_rollup", Some(SourceTrouble::new(TroubleKind::TimedOut, reason)));
            return;
        }
        let begin = clock.now();
        let path = format!("/proc/{pid}/smaps_rollup");
        let read = self.tree.read_start(&path, SMALL_FILE_BYTES, &mut self.content);
        let took_ns = clock.now() - begin;
        if took_ns > ROLLUP_BUDGET_NS {
            self.rollup_refused = Some(format!("took {} ms", took_ns / 1_000_000));
        }
        if matches!(read, Err(HostError::Hangs { .. })) {
            self.rollup_refused = Some("hung".to_owned());
        }
        if read.is_ok() {
            let rollup = Rollup::parse(&self.content);
            some(out, &metrics::PSS, "", rollup.pss_bytes);
            some(out, &metrics::ANON_HUGE, "", rollup.anon_huge_bytes);
        }
        self.note("host.smaps_rollup", read);
    }

    /// Records all facts in the first sample of an incarnation, and only changed ones in later samples.
    fn record_facts(&mut self, status: &Status, out: &mut SampleBuilder<'_>) {
        if self.first {
            let mut found = facts::of_machine(Machine::read(&self.tree));
            found.extend(facts::of_process(&self.tree, self.pid(), status));
            self.vm = discovery::inspect(&self.tree, self.pid()).ok().map(Box::new);
            found.extend(self.vm.iter().flat_map(|vm| facts::of_vm(vm)));
            found.into_iter().for_each(|(key, value)| out.fact(key, value));
        }
        for (key, value) in facts::of_limits(&self.tree, status, &self.groups) {
            if self.recorded_facts.get(key) != Some(&value) {
                out.fact(key, value.as_str());
                self.recorded_facts.insert(key, value);
            }
        }
    }

    fn note(&mut self, item: &'static str, result: Result<(), HostError>) {
        let trouble = result.err().map(|error| {
            let kind = error.kind();
            SourceTrouble::new(kind, error.with_owner(self.user.as_deref()).to_string())
        });
        self.gaps.note(item, trouble);
    }

    fn announce(&self, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        let key = beamtune_model::facts::NODE_NAME;
        let node = out.sample.facts.iter().find(|(found, _)| found == key).map(|(_, value)| value.clone());
        out.sample.incarnation = Some(Incarnation {
            id: self.incarnations,
            node: node.unwrap_or_default(),
            os_pid: Some(self.pid()),
            boot: self.boot(),
            mono0: clock.now(),
            wall0: clock.wall(),
        });
    }
}

impl<T: FileTree> Source for HostSource<T> {
    fn name(&self) -> &'static str {
        "host"
    }

    fn request(&mut self, ask: SampleRequest, _clock: &dyn Clock) -> Result<(), SourceTrouble> {
        // The kernel answers immediately, so nothing needs to be started in advance.
        self.ask = Some(ask);
        Ok(())
    }

    /// Reads the sample. This takes a few milliseconds, and up to 100 ms more with detail. It never waits, so it ignores the deadline.
    fn collect(
        &mut self,
        _deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble> {
        let detail = self.ask.take().is_some_and(|ask| ask.detail) || self.first;
        if detail {
            self.locate();
        }
        let begin = clock.now();
        let readings = out.sample.readings.len();
        let read = self.check().and_then(|()| self.read(out));
        let end = clock.now();
        if self.is_here {
            let wall = clock.wall();
            // If the thread was preempted between reading the two clocks, they would seem to drift apart.
            if clock.now().saturating_sub(end) <= MAX_CLOCK_DISTANCE_NS {
                out.metric(&metrics::WALL_CLOCK, "", wall.saturating_sub(end));
            }
        }
        // If the process has ended, that is the cause of any other error. And the values are valid only if the process was the same before
        // and after reading them.
        let status = self.check().and(read).map_err(|error| {
            out.sample.readings.truncate(readings);
            SourceTrouble::new(error.kind(), self.lost_reason.clone().unwrap_or_else(|| error.to_string()))
        })?;
        self.seen = end;
        if detail {
            self.record_facts(&status, out);
            self.read_expensive(&status, clock, out);
        } else {
            self.read_open_files_cheaply(out);
        }
        self.read_listeners(detail, clock, out);
        self.read_datagrams(detail, clock, out);
        self.read_connections(detail, clock, out);
        self.read_closed(detail, clock, out);
        self.read_programs(detail, clock, out);
        if self.first && self.announce == AnnouncedBy::HostSource {
            self.announce(clock, out);
        }
        self.first = false;
        let span = Span { begin, end };
        self.gaps.report(span, detail, &mut out.sample.gaps);
        Ok(span)
    }

    fn on_restart(&mut self, life: &Incarnation) {
        // The process of the first incarnation is already being sampled.
        if let Some(own_pid) = life.os_pid
            && self.check().is_err()
        {
            match self.next_process(own_pid, life.mono0) {
                // If the new process has already ended, the next sample reports it.
                Ok(pid) => {
                    let _ = self.follow(pid);
                }
                Err(error) => self.lost_reason = Some(error.to_string()),
            }
        }
    }
}

/// Returns the reason of gaps for items that can be read only on this host.
fn remote_host_trouble() -> SourceTrouble {
    SourceTrouble::new(TroubleKind::Unsupported, "not available: the node runs on another host")
}

/// Estimates the time for reading `smaps_rollup`.
fn rollup_ns(status: &Status) -> Nanos {
    status.rss_bytes.unwrap_or(0) / 1024 * ROLLUP_NS_PER_KB
}

type PressureMetrics = (&'static Metric, Option<&'static Metric>);

/// The resources with pressure stall information, and their metrics for `some` and `full`. `full` is not meaningful for the CPU of a whole
/// host.
const PRESSURE: [(&str, PressureMetrics); 3] = [
    ("cpu", (&metrics::PRESSURE_CPU_SOME, None)),
    ("memory", (&metrics::PRESSURE_MEMORY_SOME, Some(&metrics::PRESSURE_MEMORY_FULL))),
    ("io", (&metrics::PRESSURE_IO_SOME, Some(&metrics::PRESSURE_IO_FULL))),
];

fn add_pressure(
    out: &mut SampleBuilder<'_>,
    entity: &str,
    (some_metric, full_metric): PressureMetrics,
    path: &str,
    content: &[u8],
) -> Result<(), HostError> {
    let pressure = Pressure::parse(content).map_err(|garble| HostError::garbled(path, garble))?;
    some(out, some_metric, entity, pressure.some_ns);
    if let Some(metric) = full_metric {
        some(out, metric, entity, pressure.full_ns);
    }
    Ok(())
}

fn add_cpu_group(out: &mut SampleBuilder<'_>, entity: &str, group: &CpuGroup) {
    some(out, &metrics::CGROUP_QUOTA, entity, group.quota_permille);
    some(out, &metrics::CGROUP_PERIODS, entity, group.periods);
    some(out, &metrics::CGROUP_THROTTLED, entity, group.throttled_periods);
    some(out, &metrics::CGROUP_THROTTLED_TIME, entity, group.throttled_ns);
    some(out, &metrics::CGROUP_USAGE, entity, group.usage_ns);
    some(out, &metrics::CGROUP_WEIGHT, entity, group.weight);
}

fn some(out: &mut SampleBuilder<'_>, metric: &Metric, entity: &str, value: Option<i64>) {
    if let Some(value) = value {
        out.metric(metric, entity, value);
    }
}

/// Items that cannot be read, and the end of the gaps reported so far.
#[derive(Debug, Default)]
struct Gaps(BTreeMap<&'static str, OpenGap>);

#[derive(Debug)]
struct OpenGap {
    trouble: SourceTrouble,
    reported_until: Option<Nanos>,
}

impl Gaps {
    /// Updates the state of an item. `trouble` is the reason why it could not be read, `None` if it was read.
    fn note(&mut self, item: &'static str, trouble: Option<SourceTrouble>) {
        match trouble {
            None => {
                self.0.remove(item);
            }
            Some(trouble) => {
                let known = self.0.get(item).is_some_and(|open| open.trouble == trouble);
                if !known {
                    self.0.insert(item, OpenGap { trouble, reported_until: None });
                }
            }
        }
    }

    /// Reports new gaps; with `detail`, reports ongoing gaps, too.
    fn report(&mut self, span: Span, detail: bool, gaps: &mut Vec<Gap>) {
        for (item, open) in &mut self.0 {
            if open.reported_until.is_some() && !detail {
                continue;
            }
            gaps.push(Gap {
                begin: open.reported_until.unwrap_or(span.begin),
                end: span.end,
                source: (*item).to_owned(),
                kind: open.trouble.kind,
                reason: open.trouble.reason.clone(),
            });
            open.reported_until = Some(span.end);
        }
    }
}

mod connections;
mod datagrams;
mod listen;
mod memory;
mod open_files;
mod own_sockets;
mod programs;
#[cfg(test)]
mod tests;
