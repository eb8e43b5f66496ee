//! BT047: processes that do not live for long begin with the smallest heap, and copy all that they have each time it is full.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Subject, Threshold, Unit, Use, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::new_processes;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT047"),
    name: "small-first-heaps",
    question: "Do new processes grow their heap step by step?",
    confirm: "min_heap_size for these processes, under the same load: collections per request must fall, and memory stay within its guard",
    needs: &[&metrics::GARBAGE_COLLECTIONS, &metrics::SPAWNED, &metrics::PROCESS_COUNT],
    account: Account::CpuUsed,
    topics: &[Topic::MemoryCpu],
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

/// Collections as a share of the time in which normal schedulers worked.
const SHARE: Threshold = Threshold::new(
    "small-first-heaps.gc_share",
    "GC, share of the normal schedulers' work",
    Scale {
        notice: 0.10,
        warning: 0.25,
        critical: 0.75,
        source: "judgement: what a heap that suffices saves is most of that",
    },
);

/// Below this nobody would win anything by a change …
const WORTH_CORES: f64 = 0.03;
/// … and below this share of the CPU that the node could use little.
const WORTH_SHARE: f64 = 0.05;

/// With fewer new processes per second they are not what is collected.
const FEW_SPAWNS: f64 = 20.0;

/// Collections of a new process: fewer are no growth worth a word, more than the steps up to gigabytes can come from others only.
const STEPS: std::ops::RangeInclusive<f64> = 3.0..=40.0;

/// Of the collections of a growing process, those after which its heap is larger: 12 of 18 were (lab small-first-heaps, OTP 25).
const GROWING: f64 = 2.0 / 3.0;

/// Heaps grow by about this factor, as the row of Fibonacci does (grow_heap in erl_gc.c).
const GROWTH: f64 = 1.618;

/// No larger first heap is advised, in words (371 kB, a step of the VM's own row): one above 512 kB has a carrier of its own, which is made
/// and unmade with each process.
const MOST_WORDS: f64 = 46_422.0;

/// Kinds of new processes that are told.
const KINDS: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let collecting = view::collecting(period, &[kind::SCHEDULER])?;
    let rate = period.rate(&metrics::GARBAGE_COLLECTIONS, "")?;
    let spawned = view::spawn_rate(period)?;
    let first_words = period.fact_number(facts::MIN_HEAP_WORDS)? as f64;
    let steps = rate / spawned.max(0.1);
    let share = collecting.share();
    let grows = spawned >= FEW_SPAWNS && STEPS.contains(&steps) && collecting.gc >= WORTH_CORES;
    let Some(severity) = SHARE.of(period).severity(share).filter(|_| grows) else {
        return Ok(Judgement::Healthy(format!(
            "{spawned:.0} new processes and {rate:.0} collections a second, which take {:.2} cores of the normal schedulers",
            collecting.gc
        )));
    };
    let capacity =
        view::capacity(period).map(|capacity| capacity.cores).or_else(|_| view::schedulers_online(period))?;
    let is_little = collecting.gc < WORTH_SHARE * capacity;
    let kinds = new_processes::kinds(period);
    let main = kinds.first().filter(|kind| kind.1 > 0.5).map(|kind| kind.0);
    let (words, seen) = needed(period, main, first_words, steps);
    let prove =
        "collections a second, CPU per request and resident memory under the same load (beamtune compare)";
    let draft = Draft::new(
        severity,
        format!(
            "each of {spawned:.0} new processes a second is collected {steps:.0} times before it ends: its first heap has {first_words:.0} words{}",
            main.map_or(String::new(), |main| format!("; most of them are {main}"))
        ),
    )
    .minor_if(is_little)
    .costs(Cost::CpuCores(collecting.gc))
    .part(Use::Collections)
    .because(Evidence::number("collections", rate, Unit::PerSecond))
    .because(Evidence::number("new processes", spawned, Unit::PerSecond))
    .because(Evidence::number("collections for each of them", steps, Unit::Count).against(*STEPS.start(), "judgement"))
    .because(Evidence::number("time in collections, normal schedulers", collecting.gc, Unit::Cores))
    .because(Evidence::number("share of their work", share, Unit::Ratio).against_scale(SHARE.of(period)))
    .because(
        Evidence::number("heap that they grow to", words * 8.0, Unit::Bytes)
            .with_text(if seen { "the largest one that was seen" } else { "reckoned from their collections" }),
    )
    .because_some((!kinds.is_empty()).then(|| {
        let text: Vec<String> =
            kinds.iter().take(KINDS).map(|(kind, share)| format!("{kind} {:.0} %", share * 100.0)).collect();
        Evidence::text("new processes, of the newest", text.join(", "))
    }))
    .but("collections are not counted by process: where long-lived ones make most of them, see gc-share")
    .but_if(
        period.facts.number(facts::FULLSWEEP_AFTER).is_some_and(|after| after < 100),
        "fullsweep_after is set low, so that many collections copy everything: try its default (65535) first",
    );
    let words = words.round();
    Ok(Judgement::found(
        match main {
            Some(main) => draft.about(Subject::kind(main.to_owned())),
            None => draft,
        }
        .fix(remedy::of(
            period,
            "process.min_heap_size",
            &format!(
                "spawn_opt {{min_heap_size, {words}}} where {} started",
                match main {
                    Some(main) => format!("{main} is"),
                    None => "short-lived processes are".to_owned(),
                }
            ),
            "the heap then suffices from the start, and goes with the process",
            prove,
        ))
        .fix(remedy::of(
            period,
            "+hms",
            &format!(
                "+hms {words}, if nearly all processes are so; {:.0} MB for each 1,000 that live",
                words * 8.0 * 1_000.0 / 1e6
            ),
            "as above, for every process",
            prove,
        )),
    ))
}

/// The heap that such a process comes to need, in words, and whether one was seen.
fn needed(period: &Period, main: Option<&str>, first_words: f64, steps: f64) -> (f64, bool) {
    let seen = period
        .processes
        .iter()
        .filter_map(|process| process.row.as_ref())
        .filter(|row| main.is_some() && row.initial_call.as_deref() == main)
        .filter_map(|row| row.total_heap_words)
        .max()
        .map(|words| words as f64)
        .filter(|words| *words > first_words);
    let reckoned = first_words * GROWTH.powf(steps * GROWING);
    (seen.unwrap_or(reckoned).min(MOST_WORDS), seen.is_some())
}
