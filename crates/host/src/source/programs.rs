//! External programs: processes that the VM started with `os:cmd`, `open_port` or Elixir's `System.cmd`.
//!
//! Since OTP 19, they are children of `erl_child_setup`, a process that the VM starts once and that starts all programs on its behalf
//! (erl_child_setup.c). It waits for its children, so the kernel adds their CPU time to that of `erl_child_setup` when they end. This
//! includes programs that run too briefly to be sampled. Each program has its own session (setsid).
//!
//! When a program ends, its children are adopted by init, or by the VM if that is process 1 of a container. Such an orphan is recognized if
//!
//! - it was a descendant of `erl_child_setup` in an earlier sample, or is a child of the VM,
//! - or its session leader is a known program,
//! - or it was started after the VM, its session leader has ended, it is in the VM's control group, and it has the VM's `BINDIR` in its
//!   environment. `erlexec` sets this variable, and programs inherit it. No other variable is used.
//!
//! Cost: two small files per process, about 15 µs. With many processes, sampling is less frequent. The kernel must provide lists of
//! children (CONFIG_PROC_CHILDREN).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Clock, Nanos, SampleBuilder, metrics};

use crate::error::HostError;
use crate::process::{SMALL_FILE_BYTES, Stat};
use crate::text;
use crate::tree::FileTree;

use super::{HostSource, remote_host_trouble, some};

/// Minimum pause after sampling, as a multiple of its CPU time: 0.5 % of a core.
const REST_FACTOR: i64 = 200;
/// Maximum number of programs and their descendants; if there are more, their CPU time is unknown.
const MAX_PROGRAMS: usize = 2_000;
/// Maximum number of threads per process whose lists of children are read: each thread has its own list.
const MAX_THREADS: usize = 64;
/// Maximum number of recorded names per incarnation.
const MAX_NAMES: usize = 40;
/// Maximum number of entries of /proc that are listed to find orphans, and of new entries that are examined in one sample (about 15 ms).
const MAX_LISTED: usize = 50_000;
const MAX_NEW: usize = 1_500;
/// Name of the process that starts all programs; the kernel truncates names to 15 bytes.
const CHILD_SETUP: &[u8] = b"erl_child_setup";
/// Programs that are not orphans although their parents have ended: daemons that belong to a VM, and other VMs.
const DAEMONS: [&[u8]; 5] = [b"epmd", b"beam.smp", b"beam", b"run_erl", CHILD_SETUP];
/// The environment variable that programs inherit from the VM.
const MARKER: &[u8] = b"BINDIR=";

/// Programs known from earlier samples.
#[derive(Debug, Default)]
pub(super) struct ProgramWatch {
    child_setup: Option<u32>,
    /// All processes of the last sample, by process id.
    seen: BTreeMap<u32, Program>,
    /// CPU time of orphans that have ended, minus the CPU time of orphans before they were found.
    gone_ticks: i64,
    /// The highest total reported so far. The total can decrease: a process that ends between two reads is counted one sample later.
    reported_ticks: i64,
    names: BTreeMap<String, NameTotals>,
    /// Processes that do not belong to the VM.
    unrelated: HashSet<u32>,
    /// The VM's own value of the variable; `None` if it has not been read yet.
    marker: Option<Option<Vec<u8>>>,
    has_sampled: bool,
    rest_until: Nanos,
}

/// A process in a sample.
#[derive(Debug, Clone)]
struct Program {
    ppid: u32,
    start_ticks: i64,
    ticks: i64,
    name: String,
    is_zombie: bool,
    is_orphan: bool,
    resident_bytes: i64,
}

#[derive(Debug, Default)]
struct NameTotals {
    ticks: i64,
    alive: i64,
    orphans: i64,
    resident_bytes: i64,
    oldest: Option<i64>,
}

impl<T: FileTree> HostSource<T> {
    /// Samples the programs, unless the pause after the last sample has not ended yet.
    pub(super) fn read_programs(&mut self, detail: bool, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        if !self.is_here {
            if detail {
                self.gaps.note("host.programs", Some(remote_host_trouble()));
            }
            return;
        }
        if clock.now() < self.programs.rest_until {
            return;
        }
        let begin = clock.cpu();
        let read = self.sample_programs(detail, out);
        let took = clock.cpu().saturating_sub(begin);
        self.programs.rest_until = clock.now().saturating_add(took.saturating_mul(REST_FACTOR));
        self.note("host.programs", read);
    }

    fn sample_programs(&mut self, detail: bool, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let vm = self.pid();
        let own = self.children(vm, detail)?;
        let setup = self.find_child_setup(&own)?;
        // Parents are read before their children, so a process that ends in between may be missed, but is never counted twice.
        let mut ticks = self.stat_of(setup, |stat| stat.all_ticks()).unwrap_or(0);
        let children = self.children(setup, false)?;
        let session = self.stat_of(vm, |stat| stat.session).unwrap_or(0);
        let mut seen = BTreeMap::new();
        let mut is_whole = self.walk(children.iter().copied(), false, &mut seen);
        // Other children of the VM are orphans if it is process 1 of a container. Processes that a NIF forked are in the VM's session.
        for pid in own.into_iter().filter(|pid| *pid != setup) {
            let is_orphan = self.stat_of(pid, |stat| stat.session != session).unwrap_or(false);
            is_whole &= self.walk([pid].into_iter(), is_orphan, &mut seen);
        }
        if is_whole {
            let missing = |(pid, _): &(&u32, &Program)| !seen.contains_key(pid);
            let missing = self.programs.seen.iter().filter(missing);
            let missing: Vec<(u32, Program)> = missing.map(|(pid, before)| (*pid, before.clone())).collect();
            for (pid, before) in missing {
                let is_same = |stat: &Stat<'_>| stat.start_ticks == before.start_ticks && !stat.is_ending();
                match self.stat_of(pid, |stat| is_same(stat).then_some(stat.ppid)).flatten() {
                    // A child of one of the VM's other threads is not an orphan.
                    Some(ppid) => {
                        is_whole &= self.walk([pid].into_iter(), ppid != vm || before.is_orphan, &mut seen);
                    }
                    // The CPU time of other processes is included in that of the parent that waited for them.
                    None if before.is_orphan && !seen.contains_key(&before.ppid) => {
                        self.programs.gone_ticks += before.ticks;
                    }
                    None => {}
                }
            }
        }
        if detail && is_whole {
            let found = self.find_orphans(setup, &seen)?;
            let before: BTreeSet<u32> = seen.keys().copied().collect();
            is_whole &= self.walk(found.into_iter(), true, &mut seen);
            let new = seen.iter().filter(|(pid, _)| !before.contains(pid));
            self.programs.gone_ticks -= new.map(|(_, found)| found.ticks).sum::<i64>();
        }
        ticks += seen.values().map(|program| program.ticks).sum::<i64>();
        some(out, &metrics::PROGRAMS_CHILDREN, "", i64::try_from(children.len()).ok());
        self.report_programs(is_whole.then_some(ticks), seen, out);
        let ended = self.read_ended(setup, out);
        self.note("host.programs_ended", ended);
        Ok(())
    }

    /// Finds `erl_child_setup` among the VM's children.
    fn find_child_setup(&mut self, own: &[u32]) -> Result<u32, HostError> {
        let vm = self.pid();
        let known = self.programs.child_setup.filter(|pid| !own.contains(pid));
        let is_it = |stat: &Stat<'_>| stat.comm == CHILD_SETUP && stat.ppid == vm;
        let mut candidates = own.iter().copied().chain(known);
        let found = candidates.find(|pid| self.stat_of(*pid, is_it).unwrap_or(false));
        self.programs.child_setup = found;
        let path = || format!("erl_child_setup among the children of process {}", self.identity.pid);
        found.ok_or_else(|| HostError::Missing { path: path() })
    }

    /// Returns the children of a process: those of its main thread, and optionally those of its other threads.
    fn children(&mut self, pid: u32, of_all_threads: bool) -> Result<Vec<u32>, HostError> {
        let mut children = self.children_of_thread(pid, pid)?;
        if of_all_threads {
            let threads = self.tree.list(&format!("/proc/{pid}/task"), MAX_THREADS).unwrap_or_default();
            let others = threads.iter().filter_map(|name| name.parse().ok()).filter(|tid| *tid != pid);
            for tid in others {
                children.extend(self.children_of_thread(pid, tid).unwrap_or_default());
            }
        }
        Ok(children)
    }

    fn children_of_thread(&mut self, pid: u32, tid: u32) -> Result<Vec<u32>, HostError> {
        let path = format!("/proc/{pid}/task/{tid}/children");
        self.tree.read_start(&path, SMALL_FILE_BYTES, &mut self.content)?;
        let number = |field| u32::try_from(text::number(field)?).ok();
        Ok(text::fields(self.content.trim_ascii_end()).map_while(number).collect())
    }

    /// Returns a value from a process's `stat`; `None` if the process does not exist any more.
    fn stat_of<R>(&mut self, pid: u32, want: impl FnOnce(&Stat<'_>) -> R) -> Option<R> {
        self.tree.read_start(&format!("/proc/{pid}/stat"), SMALL_FILE_BYTES, &mut self.content).ok()?;
        Stat::parse(&self.content).ok().map(|stat| want(&stat))
    }

    /// Adds processes and their descendants to `seen`. Returns false if there are too many.
    fn walk(
        &mut self,
        roots: impl Iterator<Item = u32>,
        is_orphan: bool,
        seen: &mut BTreeMap<u32, Program>,
    ) -> bool {
        let page_bytes = self.page_bytes.unwrap_or(4096);
        let mut waiting: Vec<u32> = roots.collect();
        while let Some(pid) = waiting.pop() {
            if seen.contains_key(&pid) {
                continue;
            }
            if seen.len() >= MAX_PROGRAMS {
                return false;
            }
            let read = |stat: &Stat<'_>| {
                let process = Program {
                    ppid: stat.ppid,
                    start_ticks: stat.start_ticks,
                    ticks: stat.all_ticks(),
                    name: text::printable(&String::from_utf8_lossy(stat.comm)),
                    is_zombie: stat.is_ending(),
                    is_orphan,
                    resident_bytes: stat.rss_pages.unwrap_or(0).saturating_mul(page_bytes),
                };
                (process, stat.threads > 1)
            };
            let Some((process, has_threads)) = self.stat_of(pid, read) else { continue };
            seen.insert(pid, process);
            waiting.extend(self.children(pid, has_threads).unwrap_or_default());
        }
        true
    }

    /// Finds orphans that were not in any sample before their parents ended.
    fn find_orphans(&mut self, setup: u32, seen: &BTreeMap<u32, Program>) -> Result<Vec<u32>, HostError> {
        let listed = self.tree.list("/proc", MAX_LISTED)?;
        let pids: BTreeSet<u32> = listed.iter().filter_map(|name| name.parse().ok()).collect();
        self.programs.unrelated.retain(|pid| pids.contains(pid));
        let new = |pid: &&u32| !seen.contains_key(pid) && !self.programs.unrelated.contains(pid);
        let new: Vec<u32> = pids.iter().filter(new).copied().take(MAX_NEW).collect();
        let vm = self.identity.clone();
        let mut orphans = Vec::new();
        for pid in new.into_iter().filter(|pid| *pid != vm.pid && *pid != setup) {
            let Some((found, ppid, session)) = self.stat_of(pid, |stat| {
                let is_candidate = stat.session != pid && !DAEMONS.contains(&stat.comm) && !stat.is_ending();
                let is_later = stat.start_ticks >= vm.start_ticks && !stat.is_kernel_thread();
                (is_candidate && is_later && stat.session > 0, stat.ppid, stat.session)
            }) else {
                continue;
            };
            // It is a child of a known process that was started after that process was read.
            if ppid == setup || seen.contains_key(&ppid) {
                continue;
            }
            let in_own_session = seen.contains_key(&session);
            // If the parent is in the same session, it still waits for the process.
            let is_alone = found
                && (in_own_session || !pids.contains(&session))
                && self.stat_of(ppid, |parent| parent.session != session).unwrap_or(true);
            if is_alone && (in_own_session || self.is_marked(pid)) {
                orphans.push(pid);
            } else if !in_own_session {
                self.programs.unrelated.insert(pid);
            }
        }
        Ok(orphans)
    }

    /// Whether a process is in the VM's control group and has inherited its `BINDIR`.
    fn is_marked(&mut self, pid: u32) -> bool {
        let vm = self.pid();
        if self.programs.marker.is_none() {
            self.programs.marker = Some(self.marker_of(vm));
        }
        let Some(Some(marker)) = self.programs.marker.clone() else { return false };
        let group = |pid: u32| self.tree.read(&format!("/proc/{pid}/cgroup"), SMALL_FILE_BYTES).ok();
        group(pid).is_some_and(|found| Some(found) == group(vm)) && self.marker_of(pid) == Some(marker)
    }

    fn marker_of(&mut self, pid: u32) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        self.tree.read_start(&format!("/proc/{pid}/environ"), SMALL_FILE_BYTES, &mut content).ok()?;
        content.split(|byte| *byte == 0).find(|entry| entry.starts_with(MARKER)).map(<[u8]>::to_vec)
    }

    fn read_ended(&mut self, setup: u32, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let path = format!("/proc/{setup}/task/{setup}/io");
        self.tree.read_start(&path, SMALL_FILE_BYTES, &mut self.content)?;
        some(out, &metrics::PROGRAMS_ENDED, "", text::value(&self.content, "syscr:").and_then(text::reading));
        Ok(())
    }

    fn report_programs(
        &mut self,
        ticks: Option<i64>,
        seen: BTreeMap<u32, Program>,
        out: &mut SampleBuilder<'_>,
    ) {
        let watch = &mut self.programs;
        if let Some(ticks) = ticks {
            watch.reported_ticks = watch.reported_ticks.max(ticks.saturating_add(watch.gone_ticks));
            out.metric(&metrics::PROGRAMS_CPU, "", watch.reported_ticks.saturating_mul(self.tick_ns));
        }
        for totals in watch.names.values_mut() {
            *totals = NameTotals { ticks: totals.ticks, ..NameTotals::default() };
        }
        for (pid, program) in &seen {
            if watch.names.len() >= MAX_NAMES && !watch.names.contains_key(&program.name) {
                continue;
            }
            let before = watch.seen.get(pid).filter(|before| before.start_ticks == program.start_ticks);
            let totals = watch.names.entry(program.name.clone()).or_default();
            totals.ticks += match before {
                Some(before) => (program.ticks - before.ticks).max(0),
                None if watch.has_sampled => program.ticks,
                None => 0,
            };
            if !program.is_zombie {
                totals.alive += 1;
                totals.orphans += i64::from(program.is_orphan);
                totals.resident_bytes = totals.resident_bytes.saturating_add(program.resident_bytes);
                let oldest =
                    totals.oldest.map_or(program.start_ticks, |known| known.min(program.start_ticks));
                totals.oldest = Some(oldest);
            }
        }
        let count = |is: fn(&Program) -> bool| seen.values().filter(|program| is(program)).count() as i64;
        out.metric(&metrics::PROGRAMS_ALIVE, "", count(|program| !program.is_zombie));
        out.metric(&metrics::PROGRAMS_ORPHANS, "", count(|program| program.is_orphan && !program.is_zombie));
        out.metric(&metrics::PROGRAMS_ZOMBIES, "", count(|program| program.is_zombie));
        let resident = seen.values().fold(0_i64, |sum, program| sum.saturating_add(program.resident_bytes));
        out.metric(&metrics::PROGRAMS_RESIDENT, "", resident);
        let up_ns = self
            .tree
            .read_start("/proc/uptime", SMALL_FILE_BYTES, &mut self.content)
            .ok()
            .and_then(|()| uptime_ns(&self.content));
        for (name, totals) in &watch.names {
            out.metric(&metrics::PROGRAMS_CPU, name, totals.ticks.saturating_mul(self.tick_ns));
            out.metric(&metrics::PROGRAMS_ALIVE, name, totals.alive);
            out.metric(&metrics::PROGRAMS_ORPHANS, name, totals.orphans);
            out.metric(&metrics::PROGRAMS_RESIDENT, name, totals.resident_bytes);
            let age = |start: i64| up_ns.map(|up| (up - start.saturating_mul(self.tick_ns)).max(0));
            some(out, &metrics::PROGRAMS_OLDEST, name, totals.oldest.and_then(age));
        }
        watch.seen = seen;
        watch.has_sampled = true;
    }
}

/// Parses the host's uptime in `/proc/uptime`: `1234.56 2345.67`.
fn uptime_ns(content: &[u8]) -> Option<Nanos> {
    let field = text::fields(content.trim_ascii_end()).next()?;
    let mut parts = field.split(|byte| *byte == b'.');
    let seconds = text::reading(parts.next()?)?;
    // The fraction has two digits, according to proc(5).
    let hundredths = parts.next().and_then(text::reading).filter(|part| *part < 100).unwrap_or(0);
    Some(seconds.checked_mul(SECOND_NS)?.saturating_add(hundredths * (SECOND_NS / 100)))
}

#[cfg(test)]
mod tests;
