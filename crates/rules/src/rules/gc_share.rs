//! BT011: collecting garbage takes much of the schedulers' time.

use std::collections::HashMap;

use beamtune_model::rows::CHILD_OF;
use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessRow, ProcessUse, Remedy, Scale, Subject,
    Threshold, Unit, Use, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::signals::hot_code;
use crate::signals::kinds;
use crate::signals::memory::{self, DEFAULT_FIRST_HEAP_WORDS, FEW_SWEEPS, WORD_BYTES};
use crate::signals::process_memory::{has_long_queue_on_heap, off_heap};
use crate::signals::stack;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT011"),
    name: "gc-share",
    question: "How much of the working time goes into collecting garbage, and for whom?",
    confirm: "a larger min_heap_size for the processes named, under the same load: collections per message must fall (beamtune compare --a-env …)",
    needs: &[&metrics::GARBAGE_COLLECTIONS],
    account: Account::CpuUsed,
    role: Role::Symptom,
    text: Some("what msacc:start(10000), msacc:print() prints"),
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

/// Collections as a share of the time in which schedulers worked.
const SHARE: Threshold = Threshold::new(
    "gc-share.gc_share",
    "GC, share of the schedulers' work",
    Scale {
        notice: 0.15,
        warning: 0.30,
        critical: 0.60,
        source: "judgement; dirty schedulers at 13–36 % gc came with a stuck node in the published reference case",
    },
);

/// Below this nobody would win anything by a change.
const WORTH_CORES: f64 = 0.10;

/// The heap that one needs, with room to grow before the next collection.
const ROOM: f64 = 1.5;

/// From so much of the time of dirty CPU schedulers on, they may wait for their shared allocator while they collect …
const DIRTY_SHARE: f64 = 0.13;
/// … if so many collect at a time on average that they meet there. (A node stood still with 13–36 % of many of them, and one allocator.)
const DIRTY_MEET: f64 = 1.0;

/// Beyond this it is what lives in a heap that costs: no size for all that are started alike, also those that stay small. In words.
const LARGEST_FOR_ALL_WORDS: i64 = memory::LARGE_HEAP_WORDS;

/// The same of one process: 64 MB. The young heap that is asked for comes beside the old one, and beyond that it costs too much memory
/// (judgement). In words.
const LARGEST_FOR_ONE_WORDS: i64 = 8 << 20;

/// Where so many processes are started in a second (judgement) …
const MANY_NEW: f64 = 10.0;
/// … the garbage is rather theirs than that of one with a smaller heap: 256 kB (judgement). In words.
const SMALL_HEAP_WORDS: i64 = 32 << 10;

/// The first heap that is advised where many small ones are collected, in words: about 20 kB.
const FIRST_HEAP_WORDS: i64 = 2_586;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let collecting = view::collecting(period, &[kind::SCHEDULER, kind::DIRTY_CPU])?;
    let (gc, worked, share) = (collecting.gc, collecting.worked, collecting.share());
    let dirty = view::states(period, &[kind::DIRTY_CPU]).map(|states| states.gc()).unwrap_or(0.0);
    let is_imported = period.is_imported();
    let rate = match period.rate(&metrics::GARBAGE_COLLECTIONS, "") {
        Ok(rate) => Some(rate),
        // The share alone says enough; how many collections it took, msacc does not print.
        Err(_) if is_imported => None,
        Err(missing) => return Err(missing),
    };
    let collections = rate.map_or(String::new(), |rate| format!(" ({rate:.0} collections a second)"));
    let sentence = format!("collecting garbage took {gc:.2} of {worked:.2} cores of work{collections}");
    if gc < WORTH_CORES {
        return Ok(Judgement::Healthy(sentence));
    }
    let Some(severity) = SHARE.of(period).severity(share) else { return Ok(Judgement::Healthy(sentence)) };
    let whose = Whose::of(period);
    // What runs at priority low takes what the others leave.
    let small = view::is_little_cpu(period, gc) || whose.is_of_low_priority();

    let draft = Draft::new(
        severity,
        format!(
            "{:.0} % of the schedulers' work is garbage collection{}",
            share * 100.0,
            match (whose.kind, whose.one()) {
                (Some(call), _) => format!(", most likely of {}", kinds::in_words(call)),
                (None, Some(process)) => format!(", most likely of {}", process.title()),
                (None, None) if is_imported => "; of which processes is not known".to_owned(),
                (None, None) => ", spread over many processes".to_owned(),
            }
        ),
    )
    .minor_if(small)
    .costs(Cost::CpuCores(gc))
    .part(Use::Collections)
    .because(Evidence::number("time in collections", gc, Unit::Cores))
    .because(Evidence::number("share of the work", share, Unit::Ratio).against_scale(SHARE.of(period)))
    .because(Evidence::number("of it on dirty CPU schedulers: large heaps", dirty, Unit::Cores))
    .because_some(rate.map(|rate| Evidence::number("collections", rate, Unit::PerSecond)));
    let draft = whose
        .evidence()
        .fold(draft, Draft::because)
        .because_some(whose.one().and_then(stack::evidence))
        .but_if(
            whose.is_known() && !whose.is_sampled,
            "the VM does not count collections by process: who is named is named for heap and reductions",
        );
    let has_queue = whose.with_queue().is_some();
    let hibernates = whose.hibernates();

    let draft = if hibernates {
        draft.confirmed_by("the same load without hibernate in the returns of these processes: collections a second must fall")
    } else {
        draft
    };

    let meet = dirty >= DIRTY_MEET
        && dirty_schedulers(period).is_some_and(|threads| dirty >= DIRTY_SHARE * threads)
        && view::shares_dirty_allocators(&period.facts);
    let own_allocators = if meet { own_allocators(period) } else { None };
    let draft = draft.but_if(
        own_allocators.is_some(),
        "that dirty schedulers wait for their shared allocator is a guess from how many collect at a time: locks that are counted would prove it (beamtune locks, docs/locks.md)",
    );

    let first_heap = period.facts.number(facts::MIN_HEAP_WORDS).unwrap_or(DEFAULT_FIRST_HEAP_WORDS);
    Ok(Judgement::found(
        match whose.subject() {
            Some(subject) => draft.about(subject),
            None => draft,
        }
        .fix_if(whose.fullsweep_after().is_some_and(|n| n < FEW_SWEEPS), || {
            remedy::of(
                period,
                "process.fullsweep_after",
                &format!("spawn_opt {{fullsweep_after, 65535}} (the default) {}", whose.place()),
                "it is set so low that nearly every collection copies the whole heap",
                "gc share under the same load; binaries that old data refers to are then kept for longer",
            )
        })
        .fix_if(has_queue, || {
            off_heap(
                period,
                "messages that wait lie in its heap, and each full collection copies them, also those that its code orders (garbage_collect)",
                "gc share, and messages handled a second",
            )
        })
        .fix(remedy::of(
            period,
            "code.less_garbage",
            "keep large data out of the process's heap: ETS, persistent_term or binaries; split the state; build less per message",
            "a full collection copies all that is alive, each time",
            "gc share and reductions per request under the same load",
        ))
        .fix(own_allocators)
        .fix_if(hibernates, || {
            remedy::of(
                period,
                "code.hibernate",
                &format!("do not return hibernate for each message {}: hibernate_after 15000 or so in its place", whose.place()),
                "each hibernation collects the whole heap, and makes it as small as can be, so that the next message makes it grow again",
                "collections a second and the gc share under the same load",
            )
        })
        // Of a heap full of messages, 1.5 times as much is no size to begin with.
        .fix_if(!has_queue && !hibernates, || {
            let words = (whose.heap_words()? as f64 * ROOM) as i64;
            let largest =
                if whose.kind.is_some() { LARGEST_FOR_ALL_WORDS } else { LARGEST_FOR_ONE_WORDS };
            if words > largest {
                return None;
            }
            let megabytes = words as f64 * WORD_BYTES / 1e6;
            let cost = match whose.kind {
                Some(_) => format!("; {:.0} MB for each 1,000 of them", megabytes * 1e3),
                None => format!("; {:.1} MB", megabytes.max(0.1)),
            };
            remedy::of(
                period,
                "process.min_heap_size",
                &format!("spawn_opt {{min_heap_size, {words}}} {}{cost}", whose.place()),
                "a heap that is large from the start is collected less often",
                "collections a second and the gc share under the same load; memory grows by the heap",
            )
        })
        .fix_if(!whose.is_known() && !is_imported && first_heap < FIRST_HEAP_WORDS, || {
            let processes = period.stat(&metrics::PROCESS_COUNT, "").map_or(0.0, |stat| stat.mean());
            let megabytes = processes * (FIRST_HEAP_WORDS - first_heap) as f64 * WORD_BYTES / 1e6;
            remedy::of(
                period,
                "+hms",
                &format!("+hms {FIRST_HEAP_WORDS} (about 20 kB a process; {megabytes:.0} MB more for those that run now), then compare"),
                "short-lived processes then end before their first collection",
                "collections a second, CPU per request and RSS under the same load",
            )
        }),
    ))
}

/// Dirty CPU schedulers online, or as many as there are.
fn dirty_schedulers(period: &Period) -> Option<f64> {
    let count = |fact| period.facts.number(fact);
    let threads = count(facts::DIRTY_CPU_SCHEDULERS_ONLINE).or_else(|| count(facts::DIRTY_CPU_SCHEDULERS))?;
    Some(threads as f64)
}

fn own_allocators(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "+Mdai",
        "+Mdai max",
        "several dirty schedulers collect at a time, and all take their memory from one locked instance of each allocator",
        "throughput and gc share under the same load, and beamtune locks: alcu_allocator",
    )
}

/// Whose garbage it is, by heap and work together.
struct Whose<'a> {
    /// What they were started with, where it is several that are alike.
    kind: Option<&'a str>,
    /// One, or several that are alike; none where nothing stands out.
    processes: Vec<&'a ProcessUse>,
    /// Whether they were seen while they were collected.
    is_sampled: bool,
}

impl<'a> Whose<'a> {
    fn of(period: &'a Period) -> Self {
        if let Some(kind) = hot_code::collected_kind(period) {
            return Whose::sampled(period, kind);
        }
        let weight = |process: &ProcessUse| {
            let heap = process.row.as_ref().and_then(|row| row.total_heap_words).unwrap_or(0);
            heap as f64 * process.reductions as f64
        };
        let half = period.processes.iter().map(weight).sum::<f64>() / 2.0;
        let is_small = |process: &ProcessUse| {
            let heap = process.row.as_ref().and_then(|row| row.total_heap_words).unwrap_or(0);
            heap < SMALL_HEAP_WORDS && view::spawn_rate(period).is_ok_and(|rate| rate >= MANY_NEW)
        };
        let is_one = |process: &&ProcessUse| weight(process) > half && !is_small(process);
        if let Some(one) = period.processes.iter().find(is_one) {
            return Whose { kind: None, processes: vec![one], is_sampled: false };
        }
        let mut kinds: HashMap<&str, (f64, Vec<&ProcessUse>)> = HashMap::new();
        for process in period.processes.iter().filter(|process| weight(process) > 0.0 && !is_small(process)) {
            let call = process.row.as_ref().and_then(|row| row.initial_call.as_deref());
            let Some(call) = call.filter(|call| *call != view::ANY_FUN) else { continue };
            let kind = kinds.entry(call).or_default();
            kind.0 += weight(process);
            kind.1.push(process);
        }
        let most = kinds.into_iter().find(|(_, (weight, _))| *weight > half);
        most.map_or(
            Whose { kind: None, processes: Vec::new(), is_sampled: false },
            |(call, (_, processes))| Whose { kind: Some(call), processes, is_sampled: false },
        )
    }

    /// As samples say. A name may be that of one process.
    fn sampled(period: &'a Period, kind: Option<&'a str>) -> Self {
        let row_of = |process: &'a ProcessUse| process.row.as_ref();
        let named = period
            .processes
            .iter()
            .find(|process| row_of(process).is_some_and(|row| row.name.as_deref() == kind && kind.is_some()));
        if let Some(one) = named {
            return Whose { kind: None, processes: vec![one], is_sampled: true };
        }
        let is_so = |process: &&ProcessUse| {
            process.row.as_ref().is_some_and(|row| row.initial_call.as_deref() == kind)
        };
        let processes = period.processes.iter().filter(|process| kind.is_some() && is_so(process)).collect();
        Whose { kind, processes, is_sampled: true }
    }

    fn is_known(&self) -> bool {
        self.kind.is_some() || !self.processes.is_empty()
    }

    /// The only one.
    fn one(&self) -> Option<&'a ProcessUse> {
        self.processes.first().copied().filter(|_| self.kind.is_none())
    }

    fn title(&self) -> Option<String> {
        self.kind.map(str::to_owned).or_else(|| Some(self.one()?.title()))
    }

    fn subject(&self) -> Option<Subject> {
        self.kind.map(Subject::kind).or_else(|| Some(self.one()?.subject()))
    }

    /// Where a setting goes.
    fn place(&self) -> String {
        self.kind.map_or_else(
            || "for this process".to_owned(),
            |call| match call.strip_prefix(CHILD_OF) {
                Some(maker) => format!("where {maker} starts them"),
                None => format!("where {call} is started"),
            },
        )
    }

    fn rows(&self) -> impl Iterator<Item = &'a ProcessRow> {
        self.processes.iter().filter_map(|process| process.row.as_ref())
    }

    /// The median.
    fn heap_words(&self) -> Option<i64> {
        let mut heaps: Vec<i64> = self.rows().filter_map(|row| row.total_heap_words).collect();
        heaps.sort_unstable();
        heaps.get(heaps.len() / 2).copied()
    }

    /// The least.
    fn fullsweep_after(&self) -> Option<i64> {
        self.rows().filter_map(|row| row.fullsweep_after).min()
    }

    /// Whether most of them were in hibernation when they were looked at, though they work.
    fn hibernates(&self) -> bool {
        let hibernating = self.rows().filter(|row| memory::hibernates(row)).count();
        self.is_known() && 2 * hibernating > self.rows().count()
    }

    fn is_of_low_priority(&self) -> bool {
        self.is_known() && self.rows().all(|row| row.priority.as_deref() == Some("low"))
    }

    /// The one with the longest queue, where messages lie in heaps in number.
    fn with_queue(&self) -> Option<&'a ProcessUse> {
        let long = self.processes.iter().copied().filter(|process| has_long_queue_on_heap(process));
        long.max_by_key(|process| process.queue_max)
    }

    fn evidence(&self) -> impl Iterator<Item = Evidence> {
        let (who, heap, fullsweep) = match self.kind {
            Some(call) if self.is_sampled => (
                Evidence::text("most of the processes seen while they were collected", kinds::in_words(call)),
                "heaps of those that stand out, the median",
                "their fullsweep_after, the least",
            ),
            Some(call) => (
                Evidence::text(
                    "processes with the most work on large heaps",
                    format!("{} that stand out are of {}", self.processes.len(), kinds::in_words(call)),
                ),
                "their heaps, the median",
                "their fullsweep_after, the least",
            ),
            None => (
                Evidence::text(
                    "process with the most work on a large heap",
                    self.title().unwrap_or_default(),
                ),
                "its heap",
                "its fullsweep_after",
            ),
        };
        [
            self.is_known().then_some(who),
            self.heap_words().map(|words| Evidence::number(heap, words as f64 * WORD_BYTES, Unit::Bytes)),
            self.fullsweep_after().map(|n| Evidence::number(fullsweep, n as f64, Unit::Count)),
            self.with_queue().map(|process| {
                Evidence::number("messages that lie in it", process.queue_max as f64, Unit::Count)
                    .with_text(process.title())
            }),
        ]
        .into_iter()
        .flatten()
    }
}
