//! Decides when the memory of the process is read, and records the result.

use std::collections::BTreeMap;

use beamtune_model::memory::content;
use beamtune_model::{Clock, Nanos, SampleBuilder, SourceTrouble, TroubleKind, facts, metrics};

use crate::error::HostError;
use crate::memory::{ContentSum, Depth, MappingSum, MemoryMap, MemoryReader, SIGNIFICANT_PERCENT};
use crate::process::Status;
use crate::tree::FileTree;

use super::{HostSource, remote_host_trouble, rollup_ns, some};

/// Limits for the cost of reading memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Maximum CPU time of one read; its wall time may be four times as long. The next sample should not be late. The VM is delayed only
    /// if it changes its mappings, and only for a part of this time.
    pub read_ns: Nanos,
    /// Minimum pause after a read, as a multiple of its CPU time.
    pub rest_factor: i64,
}

impl Default for MemoryBudget {
    /// 100 ms per read, which is enough for about 4 GB, and at most 0.5 % of a core.
    fn default() -> Self {
        MemoryBudget { read_ns: 100_000_000, rest_factor: 200 }
    }
}

/// Maximum number of reads; the best one is recorded. A read is repeated if the VM moved heaps, or created and freed carriers, because the
/// purpose of much of its memory is then unknown.
const MAX_READS: u32 = 3;
/// Reads are no longer repeated after this many successive repetitions that were no better: the unexplained memory is then of an unknown
/// kind.
const MAX_FRUITLESS: u32 = 2;

/// Interval of detailed samples. Less frequent reads of the memory are reported.
const DETAIL_INTERVAL_NS: Nanos = 10_000_000_000;

/// Reads the memory repeatedly, unless that would be too expensive.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    reader: MemoryReader,
    budget: MemoryBudget,
    last: Option<LastRead>,
    too_large: Option<TooLarge>,
    /// Number of successive repetitions that were no better.
    fruitless: u32,
}

/// Time and CPU time of the last read.
#[derive(Debug, Clone, Copy)]
struct LastRead {
    begin: Nanos,
    end: Nanos,
    took_ns: Nanos,
}

/// A memory size at which reading took too long. Reading is retried when the memory has shrunk by a fifth, or after some time, since
/// another process may have had the CPU.
#[derive(Debug, Clone, Copy)]
struct TooLarge {
    rss_bytes: i64,
    /// Whether even reading only the mappings took too long.
    also_mappings: bool,
    /// Duration and end of the pause until the next attempt.
    wait_ns: Nanos,
    until: Nanos,
}

impl TooLarge {
    const FIRST_WAIT_NS: Nanos = 60_000_000_000;
    const MAX_WAIT_NS: Nanos = 3_600_000_000_000;

    /// Creates the state after a failure. The first pause lasts a minute; each later one is twice as long as the previous one.
    fn again(last: Option<TooLarge>, rss_bytes: i64, also_mappings: bool, now: Nanos) -> Self {
        let wait_ns = last.map_or(Self::FIRST_WAIT_NS, |last| last.wait_ns.saturating_mul(2));
        let wait_ns = wait_ns.min(Self::MAX_WAIT_NS);
        TooLarge { rss_bytes, also_mappings, wait_ns, until: now.saturating_add(wait_ns) }
    }

    fn holds(&self, rss_bytes: i64, now: Nanos) -> bool {
        now < self.until && rss_bytes > self.rss_bytes / 5 * 4
    }
}

/// What to read in this sample, and the reason for not reading more.
enum Plan {
    All,
    Mappings(SourceTrouble),
    Nothing(Option<SourceTrouble>),
}

impl MemoryWatch {
    /// Returns a watch with the same budget for another process.
    pub fn for_next_incarnation(&self) -> Self {
        MemoryWatch { budget: self.budget, ..MemoryWatch::default() }
    }

    /// Reads the memory, and repeats this while the purpose of much memory is unknown.
    fn read<'a, K: Iterator<Item = (u32, &'a str)>>(
        &mut self,
        tree: &impl FileTree,
        pid: u32,
        threads: impl Fn() -> K,
        depth: Depth,
        clock: &dyn Clock,
    ) -> Result<MemoryMap, HostError> {
        let (begin, begin_cpu) = (clock.now(), clock.cpu());
        let mut best = self.reader.read(tree, pid, threads(), depth, clock, self.budget.read_ns)?;
        for reads in 1..MAX_READS {
            let Some(unexplained) = best.significant_unexplained() else {
                self.fruitless = 0;
                break;
            };
            let spent = clock.cpu().saturating_sub(begin_cpu);
            let left = self.budget.read_ns.saturating_sub(spent);
            if self.fruitless >= MAX_FRUITLESS || left < spent / i64::from(reads) {
                break;
            }
            let Ok(again) = self.reader.read(tree, pid, threads(), Depth::Moving, clock, left) else { break };
            if again.contents.as_ref().is_none_or(Result::is_err) {
                break;
            }
            let is_better = again.significant_unexplained().is_none_or(|off| off < unexplained / 2);
            self.fruitless = if is_better { 0 } else { self.fruitless + 1 };
            if is_better {
                best = again;
            }
        }
        best.cost_ns = clock.now().saturating_sub(begin);
        Ok(best)
    }

    fn plan(&mut self, status: &Status, now: Nanos) -> Plan {
        let not_read = |why: String| {
            let reason = format!("the content of the VM's memory was not read: {why}");
            SourceTrouble::new(TroubleKind::TimedOut, reason)
        };
        if let Some(LastRead { begin, end, took_ns }) = self.last
            && now < end.saturating_add(took_ns.saturating_mul(self.budget.rest_factor))
        {
            let is_rare = now.saturating_sub(begin) >= DETAIL_INTERVAL_NS;
            let why = || format!("it took {} ms, and is limited to 0.5 % of the time", took_ns / 1_000_000);
            return Plan::Nothing(is_rare.then(|| not_read(why())));
        }
        let rss_bytes = status.rss_bytes.unwrap_or(0);
        let too_large = self.too_large.filter(|large| large.holds(rss_bytes, now));
        let why = || format!("it would take more than {} ms", self.budget.read_ns / 1_000_000);
        match too_large {
            _ if rollup_ns(status) > self.budget.read_ns => Plan::Nothing(Some(not_read(why()))),
            Some(TooLarge { also_mappings: true, .. }) => Plan::Nothing(Some(not_read(why()))),
            Some(_) => Plan::Mappings(not_read(why())),
            None => Plan::All,
        }
    }
}

impl<T: FileTree> HostSource<T> {
    /// Limits the cost of reading memory, which is done in detailed samples.
    pub fn set_memory_budget(&mut self, budget: MemoryBudget) {
        self.memory.budget = budget;
    }

    /// Reads the memory. Returns whether the totals of all mappings were read.
    pub(super) fn read_memory(
        &mut self,
        status: &Status,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> bool {
        let plan = match self.is_here {
            true => self.memory.plan(status, clock.now()),
            false => Plan::Nothing(Some(remote_host_trouble())),
        };
        let (depth, without) = match plan {
            Plan::All => (Depth::Contents, None),
            Plan::Mappings(why) => (Depth::Mappings, Some(why)),
            Plan::Nothing(why) => {
                if why.is_some() {
                    self.note_unread_memory(why);
                }
                return false;
            }
        };
        let (pid, begin, begin_cpu) = (self.pid(), clock.now(), clock.cpu());
        let read = self.memory.read(&self.tree, pid, || self.threads.kinds(), depth, clock);
        self.memory.last =
            Some(LastRead { begin, end: clock.now(), took_ns: clock.cpu().saturating_sub(begin_cpu) });
        if self.check().is_err() {
            // The process has ended or was replaced, so the result is invalid.
            return false;
        }
        let is_dear = |error: &HostError| matches!(error, HostError::OverBudget { .. });
        let also_mappings = read.as_ref().is_err_and(is_dear);
        let contents = read.as_ref().ok().and_then(|map| map.contents.as_ref());
        if also_mappings || contents.is_some_and(|contents| contents.as_ref().is_err_and(is_dear)) {
            let (last, rss_bytes) = (self.memory.too_large, status.rss_bytes.unwrap_or(0));
            self.memory.too_large = Some(TooLarge::again(last, rss_bytes, also_mappings, clock.now()));
        } else if contents.is_some() {
            self.memory.too_large = None;
        }
        match read {
            Ok(map) => {
                self.note("host.smaps", Ok(()));
                self.report_memory(map, without, out);
                true
            }
            Err(error) => {
                let error = error.with_owner(self.user.as_deref());
                self.note_unread_memory(Some(SourceTrouble::new(error.kind(), error.to_string())));
                false
            }
        }
    }

    /// Reports one gap for unknown mappings; it includes their content.
    fn note_unread_memory(&mut self, trouble: Option<SourceTrouble>) {
        self.gaps.note("host.memory_map", None);
        self.gaps.note("host.smaps", trouble);
    }

    fn report_memory(&mut self, map: MemoryMap, without: Option<SourceTrouble>, out: &mut SampleBuilder<'_>) {
        let sum = |part: fn(&MappingSum) -> u64| map.mappings.values().map(part).fold(0, u64::saturating_add);
        some(out, &metrics::PSS, "", reading(sum(|mapping| mapping.pss)));
        some(out, &metrics::ANON_HUGE, "", reading(sum(|mapping| mapping.huge)));
        for (kind, sum) in &map.mappings {
            record_mapping(out, kind, sum);
        }
        out.metric(&metrics::CONTENT_COST, "", map.cost_ns);
        some(out, &metrics::CONTENT_FAULTS, "", map.faults);
        some(out, &metrics::CONTENT_GONE, "", map.freed_bytes);
        let libraries = (!map.native_libraries.is_empty())
            .then(|| serde_json::Value::from(map.native_libraries).to_string());
        for (key, value) in
            [(facts::MALLOC, map.malloc.map(str::to_owned)), (facts::NATIVE_LIBRARIES, libraries)]
        {
            // The VM may load libraries later, which changes these facts.
            if let Some(value) = value.filter(|value| self.recorded_facts.get(key) != Some(value)) {
                out.fact(key, value.clone());
                self.recorded_facts.insert(key, value);
            }
        }
        let trouble = match &map.contents {
            None => without,
            Some(Ok(contents)) => {
                contents.iter().for_each(|(entity, sum)| record_content(out, entity, sum));
                truncated_lists(contents, map.cut_lists)
            }
            // Even the process's own user is refused if the kernel forbids tracing (kernel.yama.ptrace_scope).
            Some(Err(HostError::Denied { path, .. })) => Some(SourceTrouble::new(
                TroubleKind::Denied,
                format!("not allowed to read the content of the VM's memory ({path}): run beamtune as root"),
            )),
            Some(Err(error)) => Some(SourceTrouble::new(error.kind(), error.to_string())),
        };
        self.gaps.note("host.memory_map", trouble);
    }
}

/// Returns the reason of a gap if the purpose of much memory is unknown because lists of carriers were truncated. A few truncated lists are
/// normal: if a VM creates and frees carriers all the time, each read has one or two.
fn truncated_lists(contents: &BTreeMap<String, ContentSum>, lists: usize) -> Option<SourceTrouble> {
    let all =
        contents.values().map(|sum| sum.resident.saturating_add(sum.swapped)).fold(0, u64::saturating_add);
    let unknown = contents.get(content::UNKNOWN).map_or(0, |sum| sum.resident.saturating_add(sum.swapped));
    let is_much = lists > 0 && unknown > all / 100 * SIGNIFICANT_PERCENT;
    let reason = "some of the VM's lists of carriers could not be followed to their end, because they were swapped out or \
                  changing: carriers after that point are recorded as unknown";
    is_much.then(|| SourceTrouble::new(TroubleKind::Garbled, reason))
}

fn record_mapping(out: &mut SampleBuilder<'_>, kind: &str, sum: &MappingSum) {
    let values = [
        (&metrics::MAPPING_COUNT, sum.count),
        (&metrics::MAPPING_SIZE, sum.size),
        (&metrics::MAPPING_RESIDENT, sum.resident),
        (&metrics::MAPPING_PSS, sum.pss),
        (&metrics::MAPPING_SWAP, sum.swapped),
        (&metrics::MAPPING_LAZY_FREE, sum.lazy_free),
        (&metrics::MAPPING_HUGE, sum.huge),
    ];
    values.into_iter().for_each(|(metric, value)| some(out, metric, kind, reading(value)));
}

fn record_content(out: &mut SampleBuilder<'_>, entity: &str, sum: &ContentSum) {
    let values = [
        (&metrics::CONTENT_COUNT, Some(sum.count)),
        (&metrics::CONTENT_SIZE, Some(sum.size)),
        (&metrics::CONTENT_RESIDENT, Some(sum.resident)),
        (&metrics::CONTENT_SWAPPED, Some(sum.swapped)),
        (&metrics::CONTENT_IN_USE, sum.in_use),
    ];
    values.into_iter().for_each(|(metric, value)| some(out, metric, entity, value.and_then(reading)));
}

fn reading(value: u64) -> Option<i64> {
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests;
