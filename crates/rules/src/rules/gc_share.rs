//! BT011: GC takes a large share of the schedulers' work.

use std::collections::HashMap;

use beamtune_model::rows::CHILD_OF;
use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, Missing, Period, ProcessActivity, ProcessRow, Remedy, Scale,
    Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::signals::forced_gc::{self, Forced};
use crate::signals::hot_code::{self, HotCode, What};
use crate::signals::kinds;
use crate::signals::memory::{self, DEFAULT_FIRST_HEAP_WORDS, FEW_SWEEPS, WORD_BYTES};
use crate::signals::process_memory::{has_long_queue_on_heap, off_heap};
use crate::signals::stack;
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT011"),
    name: "gc-share",
    question: "How much scheduler time does GC take, and for which processes?",
    confirm: "set a larger min_heap_size for the processes named: GCs per message must fall under the same load (beamtune compare --a-env …)",
    needs: &[&metrics::GARBAGE_COLLECTIONS],
    account: Account::CpuUsed,
    role: Role::Symptom,
    text: Some("what msacc:start(10000), msacc:print() prints"),
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "gc-share.gc_share",
    "GC, share of scheduler work",
    Scale {
        notice: 0.15,
        warning: 0.30,
        critical: 0.60,
        source: "judgement; dirty schedulers at 13–36 % gc came with a stuck node in the published reference case",
    },
);

/// Minimum GC that is reported, in cores.
const MIN_CORES: f64 = 0.10;

/// Advised first heap as a multiple of the heap that a process has: room to grow before the next GC.
const HEAP_ROOM: f64 = 1.5;

/// GCs may contend for the shared allocator if they take at least this share of the time of dirty CPU schedulers.
const MIN_DIRTY_SHARE: f64 = 0.13;
/// Minimum mean number of dirty CPU schedulers in GC at the same time. (A node with many of them and one allocator hung at 13–36 % GC.)
const MIN_DIRTY_CORES: f64 = 1.0;

/// Largest first heap advised for all processes of a kind, in words. With larger heaps, live data are the cost, and small processes would
/// take as much memory.
const MAX_KIND_HEAP_WORDS: i64 = memory::LARGE_HEAP_WORDS;

/// Largest first heap advised for a single process, in words: 64 MB. The young heap is allocated in addition to the old one (judgement).
const MAX_PROCESS_HEAP_WORDS: i64 = 8 << 20;

/// At this spawn rate or above, new processes produce the garbage, unless a process has a larger heap than [`SMALL_HEAP_WORDS`]
/// (judgement).
const HIGH_SPAWN_PER_S: f64 = 10.0;
/// Size of a small heap, in words: 256 kB (judgement).
const SMALL_HEAP_WORDS: i64 = 32 << 10;

/// With a heap of this size or larger, what a GC copies is live data: 1 MB (judgement). In words.
const LARGE_HEAP_WORDS: i64 = 128 << 10;

/// First heap advised if many small heaps are collected, in words: 20 kB.
const FIRST_HEAP_WORDS: i64 = 2_586;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let collecting = view::gc(period, &[kind::SCHEDULER, kind::DIRTY_CPU])?;
    let (gc, worked, share) = (collecting.gc, collecting.worked, collecting.share());
    let dirty = view::work(period, kind::DIRTY_CPU).map(|work| work.gc()).unwrap_or(0.0);
    let is_imported = period.is_imported();
    let rate = match period.rate(&metrics::GARBAGE_COLLECTIONS, "") {
        Ok(rate) => Some(rate),
        // msacc does not print a rate, and the share is enough.
        Err(_) if is_imported => None,
        Err(missing) => return Err(missing),
    };
    let per_second = rate.map(|rate| format!("{} GCs/s", text::number(rate.round())));
    let sentence = format!("GC: {gc:.2} of {worked:.2} cores of work");
    let sentence = per_second.iter().fold(sentence, |sentence, rate| format!("{sentence}, {rate}"));
    if gc < MIN_CORES {
        return Ok(Judgement::Healthy(sentence));
    }
    let Some(severity) = SHARE.of(period).severity(share) else { return Ok(Judgement::Healthy(sentence)) };
    let culprit = Culprit::of(period);
    // Processes at priority low use only spare CPU time.
    let small = view::is_little_cpu(period, gc) || culprit.is_of_low_priority();

    let forced = Forced::of(period);
    let code = if culprit.is_known() { None } else { allocating_code(period) };
    let of_whom = match (&forced, culprit.kind, culprit.one()) {
        (Some(forced), ..) => format!(", likely forced by {}", text::name(&forced.caller.subject())),
        (None, Some(kind), _) => format!(", likely {}", text::processes(kind)),
        (None, None, Some(process)) => format!(", likely {}", text::name(&process.subject())),
        (None, None, None) if is_imported => String::new(),
        (None, None, None) => match &code {
            Some(code) => format!(", likely in {code}"),
            None => ", spread over many processes".to_owned(),
        },
    };
    let title = format!("GC takes {:.0} % of busy time ({} cores){of_whom}", share * 100.0, text::cores(gc));
    let draft = Draft::new(severity, title)
        .detail(match &forced {
            Some(forced) => text::pid(&forced.caller.subject()).to_owned(),
            None => culprit.detail(),
        })
        .detail(if is_imported && !culprit.is_known() { "processes unknown" } else { "" })
        .detail(format!("schedulers busy {} cores", text::cores(worked)))
        .detail(per_second.unwrap_or_default())
        .minor_if(small)
        .costs(Cost::CpuCores(gc))
        .part(CpuUse::GarbageCollection)
        .evidence(Evidence::number("GC time", gc, Unit::Cores))
        .evidence(
            Evidence::number("GC share of busy time", share, Unit::Ratio).against_scale(SHARE.of(period)),
        )
        .evidence(Evidence::number("GC time on dirty CPU schedulers", dirty, Unit::Cores))
        .because_some(rate.map(|rate| Evidence::number("GC rate", rate, Unit::PerSecond)));
    if let Some(forced) = forced {
        return Ok(Judgement::found(
            draft
                .about(forced.caller.subject())
                .because_some(forced_gc::evidence(forced.caller))
                .remedy(forced_gc::remedy(period, Some(forced.caller))),
        ));
    }
    let heap_words = culprit.heap_words().or_else(|| busy_heap_words(period));
    let draft = culprit
        .evidence()
        .fold(draft, Draft::evidence)
        .because_some(heap_words.filter(|_| !culprit.is_known()).map(|words| {
            Evidence::number("median heap of busy processes", words as f64 * WORD_BYTES, Unit::Bytes)
        }))
        .because_some(culprit.one().and_then(stack::evidence))
        .but_if(
            culprit.is_known() && !culprit.is_sampled,
            "the VM does not count GCs per process: the culprit is inferred from heap size and reductions",
        );
    let has_queue = culprit.with_queue().is_some();
    let hibernates = culprit.hibernates();

    let draft = if hibernates {
        draft.confirmed_by("remove hibernate from the returns of these processes: GCs per second must fall under the same load")
    } else {
        draft
    };

    // Threads in GC hold their allocator even while off-CPU.
    let by_clock = view::states(period, &[kind::DIRTY_CPU]).map_or(0.0, |states| states.gc());
    let may_contend = by_clock >= MIN_DIRTY_CORES
        && dirty_schedulers(period).is_some_and(|threads| by_clock >= MIN_DIRTY_SHARE * threads)
        && view::shares_dirty_allocators(&period.facts);
    let own_allocators = if may_contend { own_allocators(period) } else { None };
    let draft = draft.but_if(
        own_allocators.is_some(),
        "contention for the allocator of dirty schedulers is a guess: lock counting proves it (beamtune locks)",
    );

    let first_heap = period.facts.number(facts::MIN_HEAP_WORDS).unwrap_or(DEFAULT_FIRST_HEAP_WORDS);
    Ok(Judgement::found(
        match culprit.subject() {
            Some(subject) => draft.about(subject),
            None => draft,
        }
        .fix_if(culprit.fullsweep_after().is_some_and(|n| n < FEW_SWEEPS), || {
            remedy::of(
                period,
                "process.fullsweep_after",
                &match is_fullsweep_of_node(period, &culprit) {
                    true => "unset ERL_FULLSWEEP_AFTER, or remove erlang:system_flag(fullsweep_after, N): the default is 65535".to_owned(),
                    false => format!("set spawn_opt {{fullsweep_after, 65535}} (the default) {}", culprit.place()),
                },
                "it is so low that nearly every GC copies the whole heap; with the default, unused binaries are freed later",
                "GC share and binary memory under the same load",
            )
        })
        .fix_if(has_queue, || {
            off_heap(
                period,
                "queued messages are on its heap, and each fullsweep copies them, garbage_collect/0 included",
                "GC share and messages handled per second",
            )
        })
        .remedy(remedy::of(
            period,
            "code.less_garbage",
            &less_garbage(heap_words, code.as_deref()),
            "a GC copies live data, and more garbage means more GCs",
            "GC share and reductions per request under the same load",
        ))
        .remedy(own_allocators)
        .fix_if(hibernates, || {
            remedy::of(
                period,
                "code.hibernate",
                &format!("use {{hibernate_after, 15000}} instead of returning hibernate for each message {}", culprit.place()),
                "each hibernation is a fullsweep that shrinks the heap, and the next message makes it grow again",
                "GC rate and GC share under the same load",
            )
        })
        // A heap full of messages does not show how much heap the process needs.
        .fix_if(!has_queue && !hibernates, || {
            let words = (culprit.heap_words()? as f64 * HEAP_ROOM) as i64;
            let max = if culprit.kind.is_some() { MAX_KIND_HEAP_WORDS } else { MAX_PROCESS_HEAP_WORDS };
            if words > max {
                return None;
            }
            let megabytes = words as f64 * WORD_BYTES / 1e6;
            let cost = match culprit.kind {
                Some(_) => format!("; {:.0} MB per 1,000 processes", megabytes * 1e3),
                None => format!("; {:.1} MB", megabytes.max(0.1)),
            };
            remedy::of(
                period,
                "process.min_heap_size",
                &format!("set spawn_opt {{min_heap_size, {words}}} {}{cost}", culprit.place()),
                "a heap that is large from the start is collected less often",
                "GC rate and GC share under the same load; memory grows by the heap",
            )
        })
        .fix_if(!culprit.is_known() && !is_imported && first_heap < FIRST_HEAP_WORDS, || {
            let processes = period.stat(&metrics::PROCESS_COUNT, "").map_or(0.0, |stat| stat.mean());
            let megabytes = processes * (FIRST_HEAP_WORDS - first_heap) as f64 * WORD_BYTES / 1e6;
            remedy::of(
                period,
                "+hms",
                &format!("+hms {FIRST_HEAP_WORDS} (20 kB per process, {megabytes:.0} MB more for the existing processes)"),
                "short-lived processes then exit before their first GC",
                "GC rate, CPU per request and RSS under the same load",
            )
        }),
    ))
}

/// The function or module that produces most of the garbage, if there is one.
fn allocating_code(period: &Period) -> Option<String> {
    let hot = HotCode::of(period).ok().flatten().filter(HotCode::allocates)?;
    match hot.what {
        What::Function(name) | What::Module(name) => Some(name),
        What::Kind(_) | What::Library(_) => None,
    }
}

/// Median heap size of the processes that do work.
fn busy_heap_words(period: &Period) -> Option<i64> {
    let busy = period.processes.iter().filter(|process| process.reductions > 0);
    let rows = busy.filter_map(|process| process.row.as_ref());
    median(rows.filter_map(|row| row.total_heap_words).collect())
}

fn median(mut numbers: Vec<i64>) -> Option<i64> {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied()
}

/// How to reduce the work of GC. With large heaps, most of what a GC copies is live; with small heaps, GCs are frequent.
fn less_garbage(heap_words: Option<i64>, code: Option<&str>) -> String {
    let place = code.map_or_else(|| "per message".to_owned(), |code| format!("in {code}"));
    match heap_words {
        Some(words) if words >= LARGE_HEAP_WORDS => {
            "move large data off the heap (ETS, persistent_term, binaries), or split the state".to_owned()
        }
        _ => format!(
            "build fewer temporary terms {place}: large intermediate lists and maps, repeated conversions"
        ),
    }
}

/// Whether a low `fullsweep_after` is a setting of the node, not an option of the process.
fn is_fullsweep_of_node(period: &Period, culprit: &Culprit<'_>) -> bool {
    culprit.fullsweep_after().is_some()
        && culprit.fullsweep_after() == period.facts.number(facts::FULLSWEEP_AFTER)
}

/// Number of dirty CPU schedulers online, or of all if that is unknown.
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
        "dirty schedulers run GCs at the same time, and all allocate from one locked instance of each allocator",
        "throughput and GC share under the same load, and alcu_allocator in beamtune locks",
    )
}

/// The processes that produce most of the garbage: by samples in GC, else by heap size × reductions.
struct Culprit<'a> {
    /// Initial call of several processes of one kind.
    kind: Option<&'a str>,
    /// A single process, or the processes of the kind; empty if none dominates.
    processes: Vec<&'a ProcessActivity>,
    /// Whether they were sampled in GC.
    is_sampled: bool,
}

impl<'a> Culprit<'a> {
    fn of(period: &'a Period) -> Self {
        if let Some(kind) = hot_code::collected_kind(period) {
            return Culprit::sampled(period, kind);
        }
        let weight = |process: &ProcessActivity| {
            let heap = process.row.as_ref().and_then(|row| row.total_heap_words).unwrap_or(0);
            heap as f64 * process.reductions as f64
        };
        let half = period.processes.iter().map(weight).sum::<f64>() / 2.0;
        let is_small = |process: &ProcessActivity| {
            let heap = process.row.as_ref().and_then(|row| row.total_heap_words).unwrap_or(0);
            heap < SMALL_HEAP_WORDS && view::spawn_rate(period).is_ok_and(|rate| rate >= HIGH_SPAWN_PER_S)
        };
        let is_one = |process: &&ProcessActivity| weight(process) > half && !is_small(process);
        if let Some(one) = period.processes.iter().find(is_one) {
            return Culprit { kind: None, processes: vec![one], is_sampled: false };
        }
        let mut kinds: HashMap<&str, (f64, Vec<&ProcessActivity>)> = HashMap::new();
        for process in period.processes.iter().filter(|process| weight(process) > 0.0 && !is_small(process)) {
            let call = process.row.as_ref().and_then(|row| row.initial_call.as_deref());
            let Some(call) = call.filter(|call| *call != view::ANY_FUN) else { continue };
            let kind = kinds.entry(call).or_default();
            kind.0 += weight(process);
            kind.1.push(process);
        }
        let most = kinds.into_iter().find(|(_, (weight, _))| *weight > half);
        most.map_or(
            Culprit { kind: None, processes: Vec::new(), is_sampled: false },
            |(call, (_, processes))| Culprit { kind: Some(call), processes, is_sampled: false },
        )
    }

    /// Returns the processes of a kind, or the process that is registered under this name.
    fn sampled(period: &'a Period, kind: Option<&'a str>) -> Self {
        let row_of = |process: &'a ProcessActivity| process.row.as_ref();
        let named = period
            .processes
            .iter()
            .find(|process| row_of(process).is_some_and(|row| row.name.as_deref() == kind && kind.is_some()));
        if let Some(one) = named {
            return Culprit { kind: None, processes: vec![one], is_sampled: true };
        }
        let is_so = |process: &&ProcessActivity| {
            process.row.as_ref().is_some_and(|row| row.initial_call.as_deref() == kind)
        };
        let processes = period.processes.iter().filter(|process| kind.is_some() && is_so(process)).collect();
        Culprit { kind, processes, is_sampled: true }
    }

    fn is_known(&self) -> bool {
        self.kind.is_some() || !self.processes.is_empty()
    }

    /// The process, if it is a single one.
    fn one(&self) -> Option<&'a ProcessActivity> {
        self.processes.first().copied().filter(|_| self.kind.is_none())
    }

    /// Describes pid, heap, and a low `fullsweep_after`.
    fn detail(&self) -> String {
        let subject = self.one().map(ProcessActivity::subject);
        let pid = subject.as_ref().map(|subject| text::pid(subject).to_owned()).filter(|pid| !pid.is_empty());
        let heap = self.heap_words().map(|words| {
            let median = if self.kind.is_some() { "median heap" } else { "heap" };
            format!("{median} {}", text::bytes(words as f64 * WORD_BYTES))
        });
        let fullsweep = self.fullsweep_after().filter(|n| *n < FEW_SWEEPS);
        let fullsweep = fullsweep.map(|n| format!("fullsweep_after {n}"));
        [pid, heap, fullsweep].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn subject(&self) -> Option<Subject> {
        self.kind.map(Subject::kind).or_else(|| Some(self.one()?.subject()))
    }

    /// Says where to set a spawn option.
    fn place(&self) -> String {
        self.kind.map_or_else(
            || {
                format!(
                    "for {}",
                    self.one().map_or("them".to_owned(), |process| text::name(&process.subject()))
                )
            },
            |call| match call.strip_prefix(CHILD_OF) {
                Some(parent) => format!("where {parent} starts them"),
                None => format!("where {} are started", text::processes(call)),
            },
        )
    }

    fn rows(&self) -> impl Iterator<Item = &'a ProcessRow> {
        self.processes.iter().filter_map(|process| process.row.as_ref())
    }

    /// Median heap size, in words.
    fn heap_words(&self) -> Option<i64> {
        median(self.rows().filter_map(|row| row.total_heap_words).collect())
    }

    /// Lowest `fullsweep_after`.
    fn fullsweep_after(&self) -> Option<i64> {
        self.rows().filter_map(|row| row.fullsweep_after).min()
    }

    /// Whether most of them were hibernated when sampled, although they work.
    fn hibernates(&self) -> bool {
        let hibernating = self.rows().filter(|row| memory::hibernates(row)).count();
        self.is_known() && 2 * hibernating > self.rows().count()
    }

    fn is_of_low_priority(&self) -> bool {
        self.is_known() && self.rows().all(|row| row.priority.as_deref() == Some("low"))
    }

    /// The process with the longest queue on its heap, if that is long.
    fn with_queue(&self) -> Option<&'a ProcessActivity> {
        let long = self.processes.iter().copied().filter(|process| has_long_queue_on_heap(process));
        long.max_by_key(|process| process.queue_max)
    }

    fn evidence(&self) -> impl Iterator<Item = Evidence> {
        let (who, heap, fullsweep) = match self.kind {
            Some(kind) if self.is_sampled => (
                Evidence::text("processes most often sampled in GC", kinds::in_words(kind)),
                "median heap",
                "lowest fullsweep_after",
            ),
            Some(kind) => (
                Evidence::text(
                    "processes with most work on large heaps",
                    format!("{} of {}", self.processes.len(), kinds::in_words(kind)),
                ),
                "median heap",
                "lowest fullsweep_after",
            ),
            None => (
                Evidence::text(
                    if self.is_sampled {
                        "process most often sampled in GC"
                    } else {
                        "process with most work on a large heap"
                    },
                    self.one().map(ProcessActivity::title).unwrap_or_default(),
                ),
                "heap",
                "fullsweep_after",
            ),
        };
        [
            self.is_known().then_some(who),
            self.heap_words().map(|words| Evidence::number(heap, words as f64 * WORD_BYTES, Unit::Bytes)),
            self.fullsweep_after().map(|n| Evidence::number(fullsweep, n as f64, Unit::Count)),
            self.with_queue().map(|process| {
                Evidence::number("messages on the heap", process.queue_max as f64, Unit::Count)
                    .with_text(process.title())
            }),
        ]
        .into_iter()
        .flatten()
    }
}
