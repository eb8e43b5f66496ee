//! BT065: more work comes than the node can do: processes wait long for a scheduler, or all CPUs are busy and the node does not answer.
//!
//! Full use of the CPU is what CPUs are for. Only that work waits for them makes it an overload, and of that the VM alone can tell.

use std::collections::BTreeMap;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Missing, Period, Scale, Signal, Threshold, Unit, facts,
    metrics,
};
use beamtune_stats::Trend;

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Role, Rule, WARNING};
use crate::signals::limits::growth;
use crate::signals::memory::megabytes;
use crate::signals::new_processes;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT065"),
    name: "overload",
    question: "Does more work come than the node can do?",
    confirm: "erlang:statistics(total_run_queue_lengths) again in a minute, and with half of the load: it must fall to next to nothing",
    needs: &[],
    account: Account::Delay,
    role: Role::Symptom,
    judge,
    thresholds: &[DELAY, CROWD],
    ..Rule::COMMON
};

/// Until a process that becomes runnable gets its turn, in seconds.
const DELAY: Threshold = Threshold::new(
    "overload.delay_seconds",
    "seconds from runnable to running",
    Scale {
        notice: 0.01,
        warning: 0.1,
        critical: 1.0,
        source: "judgement: each step of a request waits that long once, and a request has several",
    },
);

/// Processes that wait for each scheduler: where turns are short each comes soon, and work of many turns takes so many times longer.
const CROWD: Threshold = Threshold::new(
    "overload.runnable_per_scheduler",
    "runnable processes for each scheduler",
    Scale {
        notice: 10.0,
        warning: 100.0,
        critical: 2_000.0,
        source: "judgement: work that needs many turns takes that many times longer",
    },
);

/// Fewer waiting for each scheduler than this are the ends of bursts, or a batch of a few jobs (judgement).
const FEWEST_WAITING: f64 = 5.0;

/// From this share of their time on schedulers count as busy (judgement).
const BUSY: f64 = 0.9;

/// From this share of the CPUs on that scheduler threads use or wait for, they leave nothing: busy waiting does not reach it for long
/// (judgement).
const ALL_CPU: f64 = 0.9;

/// A smaller share of the work says nothing: of thousands that are alike those looked at do next to nothing.
const WORTH_SHARE: f64 = 0.01;

/// Kinds of processes that are named.
const MAX_KINDS: usize = 3;

/// The VM said nothing while its schedulers were busy, or idle: both are as bad for whoever waits.
const UNANSWERED: f64 = 50.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    match Waiting::of(period) {
        Ok(waiting) => Ok(by_waiting(period, &waiting)),
        Err(missing) => by_host(period, missing),
    }
}

/// What waits for the schedulers.
struct Waiting {
    /// Schedulers online.
    online: f64,
    /// Share of their time in which they were active.
    active: f64,
    /// Runnable processes and ports that wait, in half of the samples at least.
    count: f64,
    /// Until their turn comes, in seconds.
    delay_seconds: f64,
}

impl Waiting {
    fn of(period: &Period) -> Result<Waiting, Missing> {
        let online = view::schedulers_online(period)?.max(1.0);
        let active = view::activity(period, kind::SCHEDULER)?.mean();
        let tasks = period.stat(&metrics::ACTIVE_TASKS, "")?;
        // Of timers that go off together one sample may see all: the median does not.
        let mut counts: Vec<i64> = tasks.trace.points().iter().map(|(_, count)| *count).collect();
        counts.sort_unstable();
        let median = counts.get(counts.len() / 2).map_or(0.0, |count| *count as f64);
        let count = (median - online).max(0.0);
        // Little's law: what waits is the rate at which turns come, times how long each waited.
        let turns = period.rate(&metrics::CONTEXT_SWITCHES, "")?;
        let delay_seconds = if turns > 0.0 { count / turns } else { 0.0 };
        Ok(Waiting { online, active, count, delay_seconds })
    }

    fn each(&self) -> f64 {
        self.count / self.online
    }
}

fn by_waiting(period: &Period, waiting: &Waiting) -> Judgement {
    let &Waiting { online, active, count, delay_seconds } = waiting;
    let each = waiting.each();
    let rising = trend_of(period, &metrics::PROCESS_COUNT);
    let severity = [DELAY.of(period).severity(delay_seconds), CROWD.of(period).severity(each)]
        .into_iter()
        .flatten()
        .reduce(f64::max);
    let Some(severity) = severity.filter(|_| active >= BUSY && each >= FEWEST_WAITING) else {
        return Judgement::Healthy(format!(
            "the {online:.0} schedulers are busy for {:.0} % of the time; {each:.1} processes wait for each, {} until their turn",
            active * 100.0,
            seconds_text(delay_seconds)
        ));
    };
    // What grows gets worse by itself.
    let severity = if rising.is_some() { severity.max(WARNING) } else { severity };
    let more =
        rising.map_or(String::new(), |trend| format!("; {:.0} more come each second than end", trend.slope));
    let draft = Draft::new(
        severity,
        format!(
            "{count:.0} processes wait for {online:.0} schedulers: {} until a turn, and long work takes {:.0} times as long{more}",
            seconds_text(delay_seconds),
            each + 1.0
        ),
    )
    .costs(Cost::Waiting(count))
    .signals(rising.map(|_| Signal::Backlog))
    .because(
        Evidence::number("waiting for each scheduler, median", each, Unit::Count)
            .against_scale(CROWD.of(period)),
    )
    .because(
        Evidence::number("until a runnable process runs", delay_seconds, Unit::Seconds)
            .against_scale(DELAY.of(period))
            .with_text("waiting, divided by the turns in a second"),
    )
    .because(Evidence::number("time in which schedulers were active", active, Unit::Ratio))
    .because_some(arrivals(period, rising))
    .because_some(memory(period))
    .because_some(busiest(period))
    .because_some(newest(period))
    .but_if(
        rising.is_none(),
        "a batch of jobs that nobody waits for may be meant to run like this: then give it priority low",
    );
    Judgement::found(bounded(period, draft))
}

/// What can be told from outside.
fn by_host(period: &Period, missing: Missing) -> Result<Judgement, Missing> {
    let Ok(used) = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER]) else {
        return Err(missing);
    };
    let threads = view::entities_of(period, metrics::THREAD_CPU.group, &[kind::SCHEDULER]).len() as f64;
    let allowed = period.stat(&metrics::CPUS_ALLOWED, "")?.mean();
    let cores = threads.min(allowed).min(view::quota_cores(period).unwrap_or(f64::INFINITY)).max(0.01);
    let waited = view::thread_cores(period, &metrics::THREAD_WAIT, &[kind::SCHEDULER]).unwrap_or(0.0);
    let share = (used + waited) / cores;
    let unanswered = period.facts.number(facts::UNANSWERED).map(|ns| ns as f64 / SECOND_NS as f64);
    let is_full = share >= ALL_CPU;
    let of = format!("its schedulers use {used:.2} of {cores:.2} cores");
    let summary = match unanswered {
        Some(seconds) if is_full => format!("the node did not answer within {seconds:.0} s, and {of}"),
        Some(seconds) => format!(
            "the node accepts connections and did not answer within {seconds:.0} s, though {of}: it is stopped, or hangs"
        ),
        None if is_full => format!("all CPU is used: {of}; whether processes wait, only the VM can tell"),
        None => return Ok(Judgement::Healthy(of)),
    };
    let severity = if unanswered.is_some() { UNANSWERED } else { MINOR };
    let draft = Draft::new(severity, summary)
        .confidence(Confidence::Inferred)
        .because(
            Evidence::number(
                "CPU that the schedulers use or wait for, of what they may use",
                share,
                Unit::Ratio,
            )
            .with_text("busy waiting alone does not use all of it for long"),
        )
        .because_some(memory(period))
        .because_some(
            period
                .stat(&metrics::THREADS, "")
                .ok()
                .map(|threads| Evidence::number("threads of the VM", threads.last.value as f64, Unit::Count)),
        )
        .but_if(is_full && unanswered.is_none(), "useful work that keeps all CPUs busy looks the same");
    Ok(Judgement::found(if is_full && unanswered.is_some() { bounded(period, draft) } else { draft }))
}

fn bounded(period: &Period, draft: Draft) -> Draft {
    draft.fix(remedy::of(
        period,
        "code.bounded_processes",
        "take in no more than the node completes: a fixed number of workers, a limit of what is in flight, and refuse the rest early",
        "work beyond what the CPUs can do makes everything wait, and ends in memory",
        "the run queue and the process count under the same load: both must stay level",
    ))
}

/// Processes that start, and that end, in a second.
fn arrivals(period: &Period, rising: Option<Trend>) -> Option<Evidence> {
    let started = view::spawn_rate(period).ok()?;
    let ended = (started - rising.map_or(0.0, |trend| trend.slope)).max(0.0);
    Some(
        Evidence::number("processes started", started, Unit::PerSecond)
            .with_text(format!("{ended:.0} end in a second")),
    )
}

/// Memory that rises meanwhile.
fn memory(period: &Period) -> Option<Evidence> {
    let trend = trend_of(period, &metrics::RSS)?;
    let now = period.stat(&metrics::RSS, "").ok()?.last.value as f64;
    let text = format!("{} more each second", megabytes(trend.slope));
    Some(Evidence::number("resident memory", now, Unit::Bytes).with_text(text))
}

fn trend_of(period: &Period, gauge: &beamtune_model::Metric) -> Option<Trend> {
    let stat = period.stat(gauge, "").ok()?;
    growth(&view::trend_points(&stat.trace), f64::INFINITY)
}

/// What those are that do the most, by what they were started with.
fn busiest(period: &Period) -> Option<Evidence> {
    let total = view::all_reductions(period).ok()?;
    let mut kinds: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for process in period.processes.iter().filter(|process| process.reductions > 0) {
        let Some(kind) = process.row.as_ref().and_then(|row| row.initial_call.as_deref()) else { continue };
        let (reductions, count) = kinds.entry(kind).or_default();
        *reductions += process.reductions as f64;
        *count += 1;
    }
    let mut kinds: Vec<(&str, (f64, usize))> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    let told: Vec<String> = kinds
        .iter()
        .take(MAX_KINDS)
        .map(|(kind, (reductions, count))| {
            let share = if total > 0.0 { reductions / total } else { 0.0 };
            match share >= WORTH_SHARE {
                true => format!("{count} {kind} ({:.0} % of all reductions)", share * 100.0),
                false => format!("{count} {kind}"),
            }
        })
        .collect();
    (!told.is_empty()).then(|| Evidence::text("busiest processes that were looked at", told.join(", ")))
}

/// What the newest processes are, and who starts them.
fn newest(period: &Period) -> Option<Evidence> {
    let mut rows: Vec<_> = new_processes::rows(period).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    let told: Vec<String> = rows
        .iter()
        .take(MAX_KINDS)
        .map(|row| {
            let maker = row.maker.as_ref().map_or(String::new(), |maker| format!(", started by {maker}"));
            format!("{} of {} are {}{maker}", row.count, row.of, row.kind)
        })
        .collect();
    (!told.is_empty()).then(|| Evidence::text("newest processes", told.join("; ")))
}

fn seconds_text(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}
