//! BT017: a process is stopped by a long GC, or has a heap that will cause one.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Remedy, Scale, Signal, Subject,
    Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::signals::events::{self, Events};
use crate::signals::memory;
use crate::signals::process_memory::{has_long_queue_on_heap, off_heap};
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT017"),
    name: "long-gc",
    question: "Is a process stopped for long by its GC?",
    confirm: "call erlang:system_monitor(Pid, [{long_gc, 100}]) for some minutes: the same process is reported again",
    needs: &[&metrics::EVENT_COUNT],
    account: Account::Delay,
    role: Role::Symptom,
    judge,
    thresholds: &[LONGEST, STOPPED],
    ..Rule::COMMON
};

const LONGEST: Threshold = Threshold::new(
    "long-gc.longest_seconds",
    "longest GC in seconds",
    Scale {
        notice: 0.1,
        warning: 0.25,
        critical: 2.0,
        source: "judgement: callers of the process wait as long; operators report GCs of 100 to 500 ms and more",
    },
);

/// Share of time for which GC stops the process. A caller meets a GC with this probability, however short each GC is.
const STOPPED: Threshold = Threshold::new(
    "long-gc.gc_share",
    "share of time for which GC stops the process",
    Scale { notice: 0.01, warning: 0.05, critical: 0.5, source: "judgement: one of 20 callers meets a GC" },
);

/// Operators examine heaps of this size (practice). The VM reports smaller ones, from 128 MB on, in `large_heap` events.
const LARGE_BYTES: f64 = 500e6;
/// Severity of a large heap, which may be intended.
const LARGE_HEAP: f64 = 10.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let long = events::of_kind(period, "long_gc")?;
    let stopped = LONGEST.of(period).severity(long.longest).map(|severity| stopped(period, &long, severity));
    let is_reported = |pid: &str| {
        let culprit = long.culprit.as_ref().filter(|_| stopped.is_some());
        culprit.is_some_and(|culprit| culprit.subject.contains(pid))
    };
    let large = large_heap(period, is_reported);
    let drafts: Vec<Draft> = stopped.into_iter().chain(large).collect();
    Ok(Judgement::found_or_healthy(drafts, "no GC of 100 ms or more"))
}

/// Returns the remedy for a large live state.
fn less_garbage(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "code.less_garbage",
        "move large data off the heap (ETS, persistent_term, binaries), or split the state over several processes",
        "a fullsweep copies all live data, and the process handles no message meanwhile",
        "long_gc events and p99 of its callers under the same load",
    )
}

/// Drafts the finding about the busy process with the largest heap, if that is large; otherwise about the process of `large_heap` events.
/// Processes for which `is_reported` is true are left out.
fn large_heap(period: &Period, is_reported: impl Fn(&str) -> bool) -> Option<Draft> {
    let bytes = |process: &ProcessActivity| Some(8.0 * process.row.as_ref()?.total_heap_words? as f64);
    // Idle processes are judged by idle-heaps.
    let works = period.processes.iter().filter(|process| !memory::is_idle(period, process));
    let heaps = works.filter_map(|process| Some((process, bytes(process)?)));
    let largest = heaps.filter(|(_, bytes)| *bytes >= LARGE_BYTES).max_by(|a, b| a.1.total_cmp(&b.1));
    let events = events::of_kind(period, "large_heap").ok();
    let event = events.as_ref().and_then(|events| events.culprit.as_ref());
    let (process, heap, queue) = match (largest, event) {
        (Some((process, bytes)), _) => (process.title(), text::bytes(bytes), process.queue_max),
        (None, Some(event)) => {
            // "150 MB of heap in lists:map/2"
            let heap = event.last.detail.split_once(" of heap").map_or("128 MB or more", |(heap, _)| heap);
            (event.subject.to_owned(), heap.to_owned(), 0)
        }
        (None, None) => return None,
    };
    let subject = Subject::process(&process);
    if is_reported(subject.pid().unwrap_or(&process)) {
        return None;
    }
    let draft = Draft::new(
        LARGE_HEAP,
        format!("{} has a heap of {heap}: expect long GC pauses", text::name(&subject)),
    )
    .detail(text::pid(&subject))
    .detail("a fullsweep copies its live data, and needs as much memory again meanwhile")
    .about(subject)
    .signals([Signal::HeapSize])
    .evidence(Evidence::text("heap", heap))
    .because_some(events.filter(|events| events.count > 0).map(|events| {
        Evidence::number("GCs that left a heap of 128 MB or more", events.count as f64, Unit::Count)
    }))
    .counter_evidence("a large state may be on purpose")
    .but_if(queue > 1_000, "queued messages are part of its heap");
    Some(draft.remedy(less_garbage(period)))
}

/// Drafts the finding about GCs of 100 ms or more.
fn stopped(period: &Period, long: &Events<'_>, severity: f64) -> Draft {
    let share = long.culprit.as_ref().map_or(0.0, |culprit| {
        long.seconds / period.seconds().max(1.0) * culprit.count as f64 / culprit.of.max(1) as f64
    });
    let severity = STOPPED.of(period).severity(share).map_or(severity, |of_share| of_share.max(severity));
    let may_be_host = long.may_be_host(period);
    let process = long.culprit.as_ref().and_then(|culprit| {
        period.processes.iter().find(|process| culprit.subject.contains(process.pid.as_str()))
    });
    let queue = process.map_or(0, |process| process.queue_max);
    let subject = long.culprit.as_ref().map(|culprit| Subject::process(culprit.subject));
    let longest = text::pause(long.longest);
    let count = text::counted(long.count as f64, "GC", "GCs");
    let draft = Draft::new(
        severity,
        match &subject {
            Some(subject) => format!("GC stops {} for up to {longest}", text::name(subject)),
            None => format!("{count} of 100 ms or more, longest {longest}"),
        },
    )
    .detail(subject.as_ref().map_or("", text::pid))
    .detail(match &subject {
        Some(_) => format!("{:.1} % of the time; {count} of 100 ms or more", share * 100.0),
        None => String::new(),
    })
    .guess_if(may_be_host)
    .signals(may_be_host.then_some(Signal::MayBeHost))
    .costs(Cost::DelaySeconds(long.longest))
    .share(share)
    .evidence(Evidence::number("longest GC", long.longest, Unit::Seconds).against_scale(LONGEST.of(period)))
    .evidence(Evidence::number("GCs of 100 ms or more", long.rate, Unit::PerSecond))
    .evidence(Evidence::number("share of time stopped", share, Unit::Ratio).against_scale(STOPPED.of(period)))
    .because_some((queue > 0).then(|| Evidence::number("queue length", queue as f64, Unit::Count)))
    .but_if(may_be_host, "schedulers waited for a CPU about as long: with free CPUs the GC may be short");
    long.name_culprit(draft).remedy(less_garbage(period)).fix_if(
        process.is_some_and(has_long_queue_on_heap),
        || {
            off_heap(
                period,
                "each fullsweep copies a long on-heap queue",
                "long_gc events with a queue of the same length",
            )
        },
    )
}
