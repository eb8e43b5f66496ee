//! Programs that the VM has started: with `os:cmd`, ports of programs, Elixir's `System.cmd`.
//!
//! Since OTP 19 they are children of `erl_child_setup`, which the VM starts once and which starts all programs for it
//! (erl_child_setup.c). It waits for those that end, so that their CPU time stands on its own account: programs that live too
//! short to be seen are counted as well. Each gets a session of its own (setsid). What a program leaves behind when it ends
//! goes to init, or to the VM where that is process 1 of a container; it is found because
//!
//! - it was seen below `erl_child_setup` before, or is a child of the VM,
//! - or the leader of its session is such a program,
//! - or it was started after the VM, the leader of its session has ended, it is in the VM's control group, and it has the VM's
//!   `BINDIR` in its environment, which `erlexec` sets and programs inherit. Nothing else of the environment is looked at.
//!
//! Cost: two small files for each process, some 15 µs; where there are many, looks are rarer. Needs the kernel's lists of
//! children (CONFIG_PROC_CHILDREN).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Clock, Nanos, SampleBuilder, metrics};

use crate::error::HostError;
use crate::process::{SMALL_FILE_BYTES, Stat};
use crate::text;
use crate::tree::FileTree;

use super::{HostSource, of_another_host, some};

/// After a look nothing is looked at for so many times as long: half a percent of a core.
const REST: i64 = 200;
/// Processes of one look; where there are more, their CPU time is not known.
const MAX_PROGRAMS: usize = 2_000;
/// Threads of one process that are asked for their children: each thread has its own.
const MAX_THREADS: usize = 64;
/// Names that are recorded of a life.
const MAX_NAMES: usize = 40;
/// Entries of /proc that are listed to find orphans, and new ones that are looked at each time, some 15 ms of them.
const MAX_LISTED: usize = 50_000;
const MAX_NEW: usize = 1_500;
/// What starts all programs; the kernel keeps 15 bytes of a name.
const SETUP: &[u8] = b"erl_child_setup";
/// Daemons that come with a VM and outlive what has started them, and other VMs: they are nobody's orphans.
const DAEMONS: [&[u8]; 5] = [b"epmd", b"beam.smp", b"beam", b"run_erl", SETUP];
/// What programs inherit from the VM.
const MARK: &[u8] = b"BINDIR=";

/// What is known of the programs from earlier looks.
#[derive(Debug, Default)]
pub(super) struct ProgramWatch {
    setup: Option<u32>,
    /// All that were seen in the last look, by process id.
    seen: BTreeMap<u32, Seen>,
    /// CPU time of orphans that have ended, less what newly found ones had used before.
    gone_ticks: i64,
    /// The most that was told: a process that ends between two reads is counted a look later.
    told_ticks: i64,
    names: BTreeMap<String, OfName>,
    /// Processes that are not the VM's.
    strangers: HashSet<u32>,
    /// The VM's own mark, once it was looked for.
    mark: Option<Option<Vec<u8>>>,
    has_looked: bool,
    rest_until: Nanos,
}

/// A process at a look.
#[derive(Debug, Clone)]
struct Seen {
    ppid: u32,
    start_ticks: i64,
    ticks: i64,
    name: String,
    is_zombie: bool,
    is_orphan: bool,
    resident_bytes: i64,
}

#[derive(Debug, Default)]
struct OfName {
    ticks: i64,
    alive: i64,
    orphans: i64,
    resident_bytes: i64,
    oldest: Option<i64>,
}

impl<T: FileTree> HostSource<T> {
    /// Looks at the programs.
    pub(super) fn read_programs(&mut self, detail: bool, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        if !self.is_here {
            if detail {
                self.gaps.note("host.programs", Some(of_another_host()));
            }
            return;
        }
        if clock.now() < self.programs.rest_until {
            return;
        }
        let begin = clock.cpu();
        let read = self.look_at_programs(detail, out);
        let took = clock.cpu().saturating_sub(begin);
        self.programs.rest_until = clock.now().saturating_add(took.saturating_mul(REST));
        self.note("host.programs", read);
    }

    fn look_at_programs(&mut self, detail: bool, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let vm = self.pid();
        let own = self.children(vm, detail)?;
        let setup = self.find_setup(&own)?;
        // Parents are read before their children: a process that ends meanwhile may be missed, and never counts twice.
        let mut ticks = self.stat_of(setup, |stat| stat.all_ticks()).unwrap_or(0);
        let children = self.children(setup, false)?;
        let session = self.stat_of(vm, |stat| stat.session).unwrap_or(0);
        let mut seen = BTreeMap::new();
        let mut is_whole = self.walk(children.iter().copied(), false, &mut seen);
        // Orphans of a container whose first process the VM is; what a NIF has forked stays in the VM's session.
        for pid in own.into_iter().filter(|pid| *pid != setup) {
            let is_orphan = self.stat_of(pid, |stat| stat.session != session).unwrap_or(false);
            is_whole &= self.walk([pid].into_iter(), is_orphan, &mut seen);
        }
        if is_whole {
            let missing = |(pid, _): &(&u32, &Seen)| !seen.contains_key(pid);
            let missing = self.programs.seen.iter().filter(missing);
            let missing: Vec<(u32, Seen)> = missing.map(|(pid, before)| (*pid, before.clone())).collect();
            for (pid, before) in missing {
                let is_same = |stat: &Stat<'_>| stat.start_ticks == before.start_ticks && !stat.is_ending();
                match self.stat_of(pid, |stat| is_same(stat).then_some(stat.ppid)).flatten() {
                    // A child of another thread of the VM is no orphan.
                    Some(ppid) => {
                        is_whole &= self.walk([pid].into_iter(), ppid != vm || before.is_orphan, &mut seen);
                    }
                    // Else its time stands with the parent that has waited for it.
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
        self.tell_programs(is_whole.then_some(ticks), seen, out);
        let ended = self.read_ended(setup, out);
        self.note("host.programs_ended", ended);
        Ok(())
    }

    /// The process that starts the programs, among the VM's children.
    fn find_setup(&mut self, own: &[u32]) -> Result<u32, HostError> {
        let vm = self.pid();
        let known = self.programs.setup.filter(|pid| !own.contains(pid));
        let is_it = |stat: &Stat<'_>| stat.comm == SETUP && stat.ppid == vm;
        let mut candidates = own.iter().copied().chain(known);
        let found = candidates.find(|pid| self.stat_of(*pid, is_it).unwrap_or(false));
        self.programs.setup = found;
        let path = || format!("erl_child_setup among the children of process {}", self.identity.pid);
        found.ok_or_else(|| HostError::Missing { path: path() })
    }

    /// The children of a process: those of its main thread, and of the others where these may have some.
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

    /// What is wanted of a process's `stat`; `None` where it is gone.
    fn stat_of<R>(&mut self, pid: u32, want: impl FnOnce(&Stat<'_>) -> R) -> Option<R> {
        self.tree.read_start(&format!("/proc/{pid}/stat"), SMALL_FILE_BYTES, &mut self.content).ok()?;
        Stat::parse(&self.content).ok().map(|stat| want(&stat))
    }

    /// Adds processes with their descendants. False if there were too many.
    fn walk(
        &mut self,
        roots: impl Iterator<Item = u32>,
        is_orphan: bool,
        seen: &mut BTreeMap<u32, Seen>,
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
                let process = Seen {
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

    /// Orphans that were never seen before they became such.
    fn find_orphans(&mut self, setup: u32, seen: &BTreeMap<u32, Seen>) -> Result<Vec<u32>, HostError> {
        let listed = self.tree.list("/proc", MAX_LISTED)?;
        let pids: BTreeSet<u32> = listed.iter().filter_map(|name| name.parse().ok()).collect();
        self.programs.strangers.retain(|pid| pids.contains(pid));
        let new = |pid: &&u32| !seen.contains_key(pid) && !self.programs.strangers.contains(pid);
        let new: Vec<u32> = pids.iter().filter(new).copied().take(MAX_NEW).collect();
        let vm = self.identity.clone();
        let mut orphans = Vec::new();
        for pid in new.into_iter().filter(|pid| *pid != vm.pid && *pid != setup) {
            let Some((found, ppid, session)) = self.stat_of(pid, |stat| {
                let is_left = stat.session != pid && !DAEMONS.contains(&stat.comm) && !stat.is_ending();
                let is_later = stat.start_ticks >= vm.start_ticks && !stat.is_kernel_thread();
                (is_left && is_later && stat.session > 0, stat.ppid, stat.session)
            }) else {
                continue;
            };
            // Started since its parent was looked at.
            if ppid == setup || seen.contains_key(&ppid) {
                continue;
            }
            let of_own = seen.contains_key(&session);
            // Whose parent is of the same session has one that waits for it.
            let is_alone = found
                && (of_own || !pids.contains(&session))
                && self.stat_of(ppid, |parent| parent.session != session).unwrap_or(true);
            if is_alone && (of_own || self.is_marked(pid)) {
                orphans.push(pid);
            } else if !of_own {
                self.programs.strangers.insert(pid);
            }
        }
        Ok(orphans)
    }

    /// Whether a process is in the VM's control group and has its mark.
    fn is_marked(&mut self, pid: u32) -> bool {
        let vm = self.pid();
        if self.programs.mark.is_none() {
            self.programs.mark = Some(self.mark_of(vm));
        }
        let Some(Some(mark)) = self.programs.mark.clone() else { return false };
        let group = |pid: u32| self.tree.read(&format!("/proc/{pid}/cgroup"), SMALL_FILE_BYTES).ok();
        group(pid).is_some_and(|found| Some(found) == group(vm)) && self.mark_of(pid) == Some(mark)
    }

    fn mark_of(&mut self, pid: u32) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        self.tree.read_start(&format!("/proc/{pid}/environ"), SMALL_FILE_BYTES, &mut content).ok()?;
        content.split(|byte| *byte == 0).find(|entry| entry.starts_with(MARK)).map(<[u8]>::to_vec)
    }

    fn read_ended(&mut self, setup: u32, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let path = format!("/proc/{setup}/task/{setup}/io");
        self.tree.read_start(&path, SMALL_FILE_BYTES, &mut self.content)?;
        some(out, &metrics::PROGRAMS_ENDED, "", text::value(&self.content, "syscr:").and_then(text::reading));
        Ok(())
    }

    fn tell_programs(&mut self, ticks: Option<i64>, seen: BTreeMap<u32, Seen>, out: &mut SampleBuilder<'_>) {
        let watch = &mut self.programs;
        if let Some(ticks) = ticks {
            watch.told_ticks = watch.told_ticks.max(ticks.saturating_add(watch.gone_ticks));
            out.metric(&metrics::PROGRAMS_CPU, "", watch.told_ticks.saturating_mul(self.tick_ns));
        }
        for of_name in watch.names.values_mut() {
            *of_name = OfName { ticks: of_name.ticks, ..OfName::default() };
        }
        for (pid, program) in &seen {
            if watch.names.len() >= MAX_NAMES && !watch.names.contains_key(&program.name) {
                continue;
            }
            let before = watch.seen.get(pid).filter(|before| before.start_ticks == program.start_ticks);
            let of_name = watch.names.entry(program.name.clone()).or_default();
            of_name.ticks += match before {
                Some(before) => (program.ticks - before.ticks).max(0),
                None if watch.has_looked => program.ticks,
                None => 0,
            };
            if !program.is_zombie {
                of_name.alive += 1;
                of_name.orphans += i64::from(program.is_orphan);
                of_name.resident_bytes = of_name.resident_bytes.saturating_add(program.resident_bytes);
                let oldest =
                    of_name.oldest.map_or(program.start_ticks, |known| known.min(program.start_ticks));
                of_name.oldest = Some(oldest);
            }
        }
        let count = |is: fn(&Seen) -> bool| seen.values().filter(|program| is(program)).count() as i64;
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
        for (name, of_name) in &watch.names {
            out.metric(&metrics::PROGRAMS_CPU, name, of_name.ticks.saturating_mul(self.tick_ns));
            out.metric(&metrics::PROGRAMS_ALIVE, name, of_name.alive);
            out.metric(&metrics::PROGRAMS_ORPHANS, name, of_name.orphans);
            out.metric(&metrics::PROGRAMS_RESIDENT, name, of_name.resident_bytes);
            let begun = |start: i64| up_ns.map(|up| (up - start.saturating_mul(self.tick_ns)).max(0));
            some(out, &metrics::PROGRAMS_OLDEST, name, of_name.oldest.and_then(begun));
        }
        watch.seen = seen;
        watch.has_looked = true;
    }
}

/// For how long the host has been up, from `/proc/uptime`: `1234.56 2345.67`.
fn uptime_ns(content: &[u8]) -> Option<Nanos> {
    let field = text::fields(content.trim_ascii_end()).next()?;
    let mut parts = field.split(|byte| *byte == b'.');
    let seconds = text::reading(parts.next()?)?;
    // Two digits, proc(5).
    let hundredths = parts.next().and_then(text::reading).filter(|part| *part < 100).unwrap_or(0);
    Some(seconds.checked_mul(SECOND_NS)?.saturating_add(hundredths * (SECOND_NS / 100)))
}

#[cfg(test)]
mod tests;
