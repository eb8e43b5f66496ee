//! BT011: collecting garbage takes much of the schedulers' time.

use beamtune_model::{Code, Evidence, Missing, Period, ProcessUse, Remedy, Scale, Unit, facts, metrics};

use crate::beside::{has_long_queue_on_heap, off_heap};
use crate::place;
use crate::remedy;
use crate::rule::{Draft, Judgement, NOTICE, Rule};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT011"),
    name: "gc-share",
    question: "How much of the working time goes into collecting garbage, and for whom?",
    confirm: "a larger min_heap_size for the processes named, under the same load: collections per message must fall (beamtune compare --a-env …)",
    needs: &[&metrics::GARBAGE_COLLECTIONS],
    since: 21,
    judge,
};

/// Collections as a share of the time in which schedulers worked.
const SHARE: Scale = Scale {
    notice: 0.15,
    warning: 0.30,
    critical: 0.60,
    source: "judgement; dirty schedulers at 13–36 % gc came with a stuck node in the published reference case",
};

/// Below this nobody would win anything by a change.
const WORTH_CORES: f64 = 0.10;

/// Collections that take less than this share of the CPU that the node could use hold nothing up: RabbitMQ at a moderate
/// load spends 40 % of little work on them.
const WORTH_SHARE: f64 = 0.10;

/// Full sweeps that come so soon are what the time goes into.
const FEW_SWEEPS: i64 = 20;

/// From so much of the time of dirty CPU schedulers on, they may wait for their shared allocator while they collect …
const DIRTY_SHARE: f64 = 0.13;
/// … if so many collect at a time on average that they meet there. (A node stood still with 13–36 % of many of them, and one allocator.)
const DIRTY_MEET: f64 = 1.0;

/// The first heap that is advised where many small ones are collected, in words: about 20 kB.
const FIRST_HEAP_WORDS: i64 = 2_586;
/// By default (`+hms`).
const DEFAULT_FIRST_HEAP_WORDS: i64 = 233;

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
    let Some(score) = SHARE.score(share) else { return Ok(Judgement::Healthy(sentence)) };
    // Without the host, the schedulers are what there is.
    let capacity = view::capacity(period)
        .map(|capacity| capacity.cores)
        .or_else(|_| view::schedulers_online(period))
        .or_else(|_| period.fact_number(facts::SCHEDULERS).map(|all| all as f64))?;
    let small = gc < WORTH_SHARE * capacity;
    let score = if small { score.min(NOTICE) } else { score };

    let culprit = culprit(period);
    let heap = culprit.and_then(|p| p.row.as_ref()).and_then(|row| row.total_heap_words);
    let fullsweep = culprit.and_then(|p| p.row.as_ref()).and_then(|row| row.fullsweep_after);
    let with_queue = culprit.filter(|process| has_long_queue_on_heap(process));
    let draft = Draft::new(
        score,
        match culprit {
            Some(process) => format!(
                "{:.0} % of the schedulers' work is garbage collection, most likely of {}",
                share * 100.0,
                process.title()
            ),
            None if is_imported => format!(
                "{:.0} % of the schedulers' work is garbage collection; of which processes is not known",
                share * 100.0
            ),
            None => format!(
                "{:.0} % of the schedulers' work is garbage collection, spread over many processes",
                share * 100.0
            ),
        },
    )
    .because(Evidence::number("time in collections", gc, Unit::Cores))
    .because(Evidence::number("share of the work", share, Unit::Ratio).against(SHARE.warning, SHARE.source))
    .because(Evidence::number("of it on dirty CPU schedulers: large heaps", dirty, Unit::Cores))
    .because_some(rate.map(|rate| Evidence::number("collections", rate, Unit::PerSecond)))
    .because_some(
        culprit.map(|process| Evidence::text("process with the most work on a large heap", process.title())),
    )
    .because_some(heap.map(|words| Evidence::number("its heap", words as f64 * 8.0, Unit::Bytes)))
    .because_some(fullsweep.map(|n| Evidence::number("its fullsweep_after", n as f64, Unit::Count)))
    .because_some(
        with_queue.map(|process| {
            Evidence::number("messages that lie in it", process.queue_max as f64, Unit::Count)
        }),
    )
    .because_some(culprit.and_then(place::evidence))
    .but_if(
        culprit.is_some(),
        "the VM does not count collections by process: it is named for its heap and its reductions",
    );

    let meet = dirty >= DIRTY_MEET
        && dirty_schedulers(period).is_some_and(|threads| dirty >= DIRTY_SHARE * threads)
        && view::shares_dirty_allocators(&period.facts);
    let own_allocators = if meet { own_allocators(period) } else { None };
    let draft = draft.but_if(
        own_allocators.is_some(),
        "that dirty schedulers wait for their shared allocator is a guess from how many collect at a time: locks that are counted would prove it (beamtune locks, docs/locks.md)",
    );

    let first_heap = period.facts.number(facts::MIN_HEAP_WORDS).unwrap_or(DEFAULT_FIRST_HEAP_WORDS);
    // The heap that it needs, with room to grow before the next collection.
    let words = heap.map_or(100_000, |words| (words as f64 * 1.5) as i64);
    Ok(Judgement::found(
        match culprit {
            Some(process) => draft.about(process.title()),
            None => draft,
        }
        .fix_if(fullsweep.is_some_and(|n| n < FEW_SWEEPS), || {
            remedy::of(
                period,
                "process.fullsweep_after",
                "spawn_opt {fullsweep_after, 65535} (the default) for this process",
                "it is set so low that nearly every collection copies the whole heap",
                "gc share under the same load; binaries that old data refers to are then kept for longer",
            )
        })
        .fix_if(with_queue.is_some(), || {
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
        // Of a heap full of messages, 1.5 times as much is no size to begin with.
        .fix_if(culprit.is_some() && with_queue.is_none(), || {
            remedy::of(
                period,
                "process.min_heap_size",
                &format!("spawn_opt {{min_heap_size, {words}}} for this process"),
                "a heap that is large from the start is collected less often",
                "collections a second and the gc share under the same load; memory grows by the heap",
            )
        })
        .fix_if(culprit.is_none() && !is_imported && first_heap < FIRST_HEAP_WORDS, || {
            let processes = period.stat(&metrics::PROCESS_COUNT, "").map_or(0.0, |stat| stat.mean());
            let megabytes = processes * (FIRST_HEAP_WORDS - first_heap) as f64 * 8.0 / 1e6;
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

/// The process whose heap and work together are largest, if it stands out.
fn culprit(period: &Period) -> Option<&ProcessUse> {
    let weight = |process: &ProcessUse| {
        let heap = process.row.as_ref().and_then(|row| row.total_heap_words).unwrap_or(0);
        heap as f64 * process.reductions as f64
    };
    let total: f64 = period.processes.iter().map(weight).sum();
    let first = period.processes.iter().max_by(|a, b| weight(a).total_cmp(&weight(b)))?;
    (total > 0.0 && weight(first) / total > 0.5).then_some(first)
}
