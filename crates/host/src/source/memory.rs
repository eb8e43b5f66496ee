//! When the memory of the process is looked at, and what of it is recorded.

use std::collections::BTreeMap;

use beamtune_model::memory::content;
use beamtune_model::{Clock, Nanos, SampleBuilder, Trouble, TroubleKind, facts, metrics};

use crate::error::HostError;
use crate::memory::{ContentSum, Depth, MUCH_PERCENT, MappingSum, MemoryMap, MemoryReader};
use crate::process::Status;
use crate::tree::FileTree;

use super::{HostSource, of_another_host, rollup_ns, some};

/// What looking at the memory may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryBudget {
    /// What a look may take, in CPU time; four times as long while others have the CPU. Nothing of the VM waits for it but changes
    /// of its mappings, and those for a part of it; the next sample should not be late.
    pub look_ns: Nanos,
    /// After a look nothing is looked at for so many times as long.
    pub rest: i64,
}

impl Default for MemoryBudget {
    /// A tenth of a second, in which some 4 GB are looked at, and half a percent of a core.
    fn default() -> Self {
        MemoryBudget { look_ns: 100_000_000, rest: 200 }
    }
}

/// A VM that moves its heaps, or makes and frees carriers, while it is looked at has much that fits nowhere. So often it is looked at
/// in all, for the best of them …
const LOOKS: u32 = 3;
/// … until so many times in a row that was no better: then it is of no known kind.
const IN_VAIN: u32 = 2;

/// Where that is less often than detail is asked for, it is told.
const OFTEN_NS: Nanos = 10_000_000_000;

/// Looks at the memory again and again, and knows when not to.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    reader: MemoryReader,
    budget: MemoryBudget,
    last: Option<Look>,
    too_large: Option<TooLarge>,
    /// How often in a row to look again has shown no more.
    in_vain: u32,
}

/// When the memory was looked at, and what CPU time it took.
#[derive(Debug, Clone, Copy)]
struct Look {
    begin: Nanos,
    end: Nanos,
    took_ns: Nanos,
}

/// With which size it took too long. It is tried again when that is a fifth less; and after some time, for it may have been
/// another process that had the CPU.
#[derive(Debug, Clone, Copy)]
struct TooLarge {
    rss_bytes: i64,
    /// Even without what stands there.
    also_mappings: bool,
    /// How long nothing is tried, and until when.
    wait_ns: Nanos,
    until: Nanos,
}

impl TooLarge {
    const FIRST_WAIT_NS: Nanos = 60_000_000_000;
    const LONGEST_WAIT_NS: Nanos = 3_600_000_000_000;

    /// Once more, or for the first time: each time it waits twice as long.
    fn again(last: Option<TooLarge>, rss_bytes: i64, also_mappings: bool, now: Nanos) -> Self {
        let wait_ns = last.map_or(Self::FIRST_WAIT_NS, |last| last.wait_ns.saturating_mul(2));
        let wait_ns = wait_ns.min(Self::LONGEST_WAIT_NS);
        TooLarge { rss_bytes, also_mappings, wait_ns, until: now.saturating_add(wait_ns) }
    }

    fn holds(&self, rss_bytes: i64, now: Nanos) -> bool {
        now < self.until && rss_bytes > self.rss_bytes / 5 * 4
    }
}

/// What is looked at this time, and why no more than that.
enum Plan {
    All,
    Mappings(Trouble),
    Nothing(Option<Trouble>),
}

impl MemoryWatch {
    /// The same for another process.
    pub fn of_next_life(&self) -> Self {
        MemoryWatch { budget: self.budget, ..MemoryWatch::default() }
    }

    /// Looks at it, and again where much is unexplained.
    fn look<'a, K: Iterator<Item = (u32, &'a str)>>(
        &mut self,
        tree: &impl FileTree,
        pid: u32,
        threads: impl Fn() -> K,
        depth: Depth,
        clock: &dyn Clock,
    ) -> Result<MemoryMap, HostError> {
        let (begin, begin_cpu) = (clock.now(), clock.cpu());
        let mut best = self.reader.read(tree, pid, threads(), depth, clock, self.budget.look_ns)?;
        for looks in 1..LOOKS {
            let Some(unexplained) = best.much_unexplained() else {
                self.in_vain = 0;
                break;
            };
            let spent = clock.cpu().saturating_sub(begin_cpu);
            let left = self.budget.look_ns.saturating_sub(spent);
            if self.in_vain >= IN_VAIN || left < spent / i64::from(looks) {
                break;
            }
            let Ok(again) = self.reader.read(tree, pid, threads(), Depth::Moving, clock, left) else { break };
            if again.contents.as_ref().is_none_or(Result::is_err) {
                break;
            }
            let is_better = again.much_unexplained().is_none_or(|off| off < unexplained / 2);
            self.in_vain = if is_better { 0 } else { self.in_vain + 1 };
            if is_better {
                best = again;
            }
        }
        best.cost_ns = clock.now().saturating_sub(begin);
        Ok(best)
    }

    fn plan(&mut self, status: &Status, now: Nanos) -> Plan {
        let not_looked_at = |why: String| {
            let reason = format!("what stands in the VM's memory is not looked at: {why}");
            Trouble::new(TroubleKind::TimedOut, reason)
        };
        if let Some(Look { begin, end, took_ns }) = self.last
            && now < end.saturating_add(took_ns.saturating_mul(self.budget.rest))
        {
            let is_rare = now.saturating_sub(begin) >= OFTEN_NS;
            let why =
                || format!("it took {} ms, and may take half a percent of the time", took_ns / 1_000_000);
            return Plan::Nothing(is_rare.then(|| not_looked_at(why())));
        }
        let rss_bytes = status.rss_bytes.unwrap_or(0);
        let too_large = self.too_large.filter(|large| large.holds(rss_bytes, now));
        let why = || format!("of so much it takes more than {} ms", self.budget.look_ns / 1_000_000);
        match too_large {
            _ if rollup_ns(status) > self.budget.look_ns => Plan::Nothing(Some(not_looked_at(why()))),
            Some(TooLarge { also_mappings: true, .. }) => Plan::Nothing(Some(not_looked_at(why()))),
            Some(_) => Plan::Mappings(not_looked_at(why())),
            None => Plan::All,
        }
    }
}

impl<T: FileTree> HostSource<T> {
    /// Sets what looking at the memory may cost, which is done with detail.
    pub fn set_memory_budget(&mut self, budget: MemoryBudget) {
        self.memory.budget = budget;
    }

    /// Looks at the memory; true if what the kernel tells of all of it is known then.
    pub(super) fn read_memory(
        &mut self,
        status: &Status,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> bool {
        let plan = match self.is_here {
            true => self.memory.plan(status, clock.now()),
            false => Plan::Nothing(Some(of_another_host())),
        };
        let (depth, without) = match plan {
            Plan::All => (Depth::Contents, None),
            Plan::Mappings(why) => (Depth::Mappings, Some(why)),
            Plan::Nothing(why) => {
                if why.is_some() {
                    self.memory_is_not_seen(why);
                }
                return false;
            }
        };
        let (pid, begin, begin_cpu) = (self.pid(), clock.now(), clock.cpu());
        let read = self.memory.look(&self.tree, pid, || self.threads.kinds(), depth, clock);
        self.memory.last =
            Some(Look { begin, end: clock.now(), took_ns: clock.cpu().saturating_sub(begin_cpu) });
        if self.check().is_err() {
            // What was seen may be half of one process and half of another, or of none.
            return false;
        }
        let is_dear = |error: &HostError| matches!(error, HostError::TooDear { .. });
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
                self.tell_memory(map, without, out);
                true
            }
            Err(error) => {
                let error = error.with_owner(self.user.as_deref());
                self.memory_is_not_seen(Some(Trouble::new(error.kind(), error.to_string())));
                false
            }
        }
    }

    /// Neither what is mapped is known nor, therefore, what stands there: one gap says so.
    fn memory_is_not_seen(&mut self, trouble: Option<Trouble>) {
        self.gaps.note("host.memory_map", None);
        self.gaps.note("host.smaps", trouble);
    }

    fn tell_memory(&mut self, map: MemoryMap, without: Option<Trouble>, out: &mut SampleBuilder<'_>) {
        let sum = |part: fn(&MappingSum) -> u64| map.mappings.values().map(part).fold(0, u64::saturating_add);
        some(out, &metrics::PSS, "", reading(sum(|mapping| mapping.pss)));
        some(out, &metrics::ANON_HUGE, "", reading(sum(|mapping| mapping.huge)));
        for (kind, sum) in &map.mappings {
            tell_mapping(out, kind, sum);
        }
        out.metric(&metrics::CONTENT_COST, "", map.cost_ns);
        some(out, &metrics::CONTENT_FAULTS, "", map.faults);
        some(out, &metrics::CONTENT_GONE, "", map.gone_bytes);
        let libraries = (!map.native_libraries.is_empty())
            .then(|| serde_json::Value::from(map.native_libraries).to_string());
        for (key, value) in
            [(facts::MALLOC, map.malloc.map(str::to_owned)), (facts::NATIVE_LIBRARIES, libraries)]
        {
            // Libraries are loaded later, too.
            if let Some(value) = value.filter(|value| self.told.get(key) != Some(value)) {
                out.fact(key, value.clone());
                self.told.insert(key, value);
            }
        }
        let trouble = match &map.contents {
            None => without,
            Some(Ok(contents)) => {
                contents.iter().for_each(|(entity, sum)| tell_content(out, entity, sum));
                cut(contents, map.cut_lists)
            }
            // Also its own user may not, where the kernel's settings do not let processes be traced (kernel.yama.ptrace_scope).
            Some(Err(HostError::Denied { path, .. })) => Some(Trouble::new(
                TroubleKind::Denied,
                format!(
                    "what stands in the VM's memory may not be seen (not allowed to read {path}): run beamtune as root"
                ),
            )),
            Some(Err(error)) => Some(Trouble::new(error.kind(), error.to_string())),
        };
        self.gaps.note("host.memory_map", trouble);
    }
}

/// What is told where more than a little is unknown because lists were cut. A VM that makes and frees carriers all the time has
/// one or the other in each look.
fn cut(contents: &BTreeMap<String, ContentSum>, lists: usize) -> Option<Trouble> {
    let all =
        contents.values().map(|sum| sum.resident.saturating_add(sum.swapped)).fold(0, u64::saturating_add);
    let unknown = contents.get(content::UNKNOWN).map_or(0, |sum| sum.resident.saturating_add(sum.swapped));
    let is_much = lists > 0 && unknown > all / 100 * MUCH_PERCENT;
    let reason = "not all of the VM's lists of carriers could be followed to their end, because they are swapped out or were \
                  just being changed: what is behind counts as unknown";
    is_much.then(|| Trouble::new(TroubleKind::Garbled, reason))
}

fn tell_mapping(out: &mut SampleBuilder<'_>, kind: &str, sum: &MappingSum) {
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

fn tell_content(out: &mut SampleBuilder<'_>, entity: &str, sum: &ContentSum) {
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
