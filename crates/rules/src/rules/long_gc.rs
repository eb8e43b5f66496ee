//! BT017: a process stands still while its garbage is collected, or has a heap with which it will.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Remedy, Scale, Signal, Subject, Threshold,
    Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::signals::events::{Told, told};
use crate::signals::memory::{self, megabytes};
use crate::signals::process_memory::{has_long_queue_on_heap, off_heap};

pub const RULE: Rule = Rule {
    code: Code("BT017"),
    name: "long-gc",
    question: "Does a process stand still for long while its garbage is collected?",
    confirm: "erlang:system_monitor(Pid, [{long_gc, 100}]) for some minutes: the same process must be named again",
    needs: &[&metrics::EVENT_COUNT],
    account: Account::Delay,
    role: Role::Symptom,
    judge,
    thresholds: &[LONGEST, STANDS],
    ..Rule::COMMON
};

/// The longest collection, in seconds.
const LONGEST: Threshold = Threshold::new(
    "long-gc.longest_seconds",
    "longest GC in seconds",
    Scale {
        notice: 0.1,
        warning: 0.25,
        critical: 2.0,
        source: "judgement: whoever asks the process waits as long; operators report collections of 100 to 500 ms and more",
    },
);

/// Share of time for which the process that is named stands still: so many of those who ask it wait, however short each collection is.
const STANDS: Threshold = Threshold::new(
    "long-gc.gc_share",
    "share of time for which the process stands still in GC",
    Scale {
        notice: 0.01,
        warning: 0.05,
        critical: 0.5,
        source: "judgement: of 20 who ask a process one meets a collection",
    },
);

/// A heap of this size is looked at closely by who operates nodes; of a smaller one the VM tells itself (`large_heap`, from 128 MB on).
const LARGE_BYTES: f64 = 500e6;
/// It may be so on purpose: worth knowing.
const WORTH_KNOWING: f64 = 10.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let told = told(period, "long_gc")?;
    let stands =
        LONGEST.of(period).severity(told.longest).map(|severity| stands_still(period, &told, severity));
    let is_told = |who: &str| {
        let culprit = told.culprit.as_ref().filter(|_| stands.is_some());
        culprit.is_some_and(|culprit| culprit.subject.contains(who))
    };
    let large = large_heap(period, is_told);
    let drafts: Vec<Draft> = stands.into_iter().chain(large).collect();
    Ok(Judgement::found_or_healthy(drafts, "no collection took 100 ms or more"))
}

/// What helps where a large state is alive.
fn less_garbage(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "code.less_garbage",
        "keep large data out of the process's heap: ETS, persistent_term or binaries; split the state over several processes",
        "a full collection copies all that is alive, and nobody is answered meanwhile",
        "long_gc events, and p99 of what asks this process, under the same load",
    )
}

/// The process at work that has the largest heap, if it is large; else that of which the VM has told so. None of which more is told.
fn large_heap(period: &Period, is_told: impl Fn(&str) -> bool) -> Option<Draft> {
    let bytes = |process: &ProcessUse| Some(8.0 * process.row.as_ref()?.total_heap_words? as f64);
    // Those that do nothing are idle-heaps'.
    let works = period.processes.iter().filter(|process| !memory::is_idle(period, process));
    let seen = works.filter_map(|process| Some((process, bytes(process)?)));
    let largest = seen.filter(|(_, bytes)| *bytes >= LARGE_BYTES).max_by(|a, b| a.1.total_cmp(&b.1));
    let events = told(period, "large_heap").ok();
    let event = events.as_ref().and_then(|events| events.culprit.as_ref());
    let (who, pid, has, queue) = match (largest, event) {
        (Some((process, bytes)), _) => {
            (process.title(), process.pid.as_str(), megabytes(bytes), process.queue_max)
        }
        (None, Some(event)) => {
            // "150 MB of heap in lists:map/2"
            let has = event.last.detail.split_once(" of heap").map_or("much", |(has, _)| has);
            (event.subject.to_owned(), event.subject, has.to_owned(), 0)
        }
        (None, None) => return None,
    };
    if is_told(pid) {
        return None;
    }
    let draft = Draft::new(
        WORTH_KNOWING,
        format!("{who} has {has} on its heap: a full collection copies what of it is alive, needs as much memory once more, and nobody is answered meanwhile"),
    )
    .about(Subject::process(&who))
    .signals([Signal::HeapSize])
    .because(Evidence::text("its heap", has))
    .because_some(events.filter(|events| events.count > 0).map(|events| {
        let what = "collections after which some process had 128 MB of heap and more";
        Evidence::number(what, events.count as f64, Unit::Count)
    }))
    .but("a large state may be on purpose")
    .but_if(queue > 1_000, "messages that wait in its queue are a part of its heap");
    Some(draft.fix(less_garbage(period)))
}

/// Collections of 100 ms and more.
fn stands_still(period: &Period, told: &Told<'_>, severity: f64) -> Draft {
    let stands = told.culprit.as_ref().map_or(0.0, |culprit| {
        told.seconds / period.seconds().max(1.0) * culprit.count as f64 / culprit.of.max(1) as f64
    });
    let severity = STANDS.of(period).severity(stands).map_or(severity, |of_time| of_time.max(severity));
    let hosts = told.may_be_the_hosts(period);
    let process = told.culprit.as_ref().and_then(|culprit| {
        period.processes.iter().find(|process| culprit.subject.contains(process.pid.as_str()))
    });
    let queue = process.map_or(0, |process| process.queue_max);
    let draft = Draft::new(
        severity,
        match &told.culprit {
            Some(culprit) => format!(
                "{} stands still for up to {:.0} ms while its garbage is collected",
                culprit.subject,
                told.longest * 1e3
            ),
            None => format!(
                "{} collections of 100 ms and more, the longest {:.0} ms",
                told.count,
                told.longest * 1e3
            ),
        },
    )
    .guess_if(hosts)
    .signals(hosts.then_some(Signal::MayBeHost))
    .costs(Cost::DelaySeconds(told.longest))
    .share(stands)
    .because(
        Evidence::number("longest collection", told.longest, Unit::Seconds).against_scale(LONGEST.of(period)),
    )
    .because(Evidence::number("such collections", told.rate, Unit::PerSecond))
    .because(
        Evidence::number("share of time for which it stands still", stands, Unit::Ratio)
            .against_scale(STANDS.of(period)),
    )
    .because_some((queue > 0).then(|| Evidence::number("messages in its queue", queue as f64, Unit::Count)))
    .but_if(hosts, "schedulers waited for a CPU for about as long: on a host with CPU left it may be short");
    told.blame(draft).fix(less_garbage(period)).fix_if(process.is_some_and(has_long_queue_on_heap), || {
        off_heap(
            period,
            "a long queue on the heap is copied by each full collection",
            "long_gc events, with a queue as long",
        )
    })
}
