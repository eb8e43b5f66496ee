//! BT065: more work arrives than the node can do: processes wait long for a scheduler, or all CPUs are busy and the node does not answer.
//!
//! Fully used CPUs alone are not an overload. It is an overload if work waits for them, and only the VM knows that.

use std::collections::BTreeMap;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Missing, Period, Scale, Signal, Threshold, Unit, facts,
    metrics,
};
use beamtune_stats::Trend;

use crate::remedy;
use crate::rule::{Draft, FAR_SECONDS, Judgement, MINOR, Role, Rule, WARNING};
use crate::signals::limits::growth;
use crate::signals::memory::format_bytes;
use crate::signals::new_processes;
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT065"),
    name: "overload",
    question: "Does more work arrive than the node can do?",
    confirm: "run erlang:statistics(total_run_queue_lengths) again after a minute with half the load: it is almost 0",
    needs: &[],
    account: Account::Delay,
    role: Role::Symptom,
    judge,
    thresholds: &[DELAY, CROWD],
    ..Rule::COMMON
};

const DELAY: Threshold = Threshold::new(
    "overload.delay_seconds",
    "seconds from runnable to running",
    Scale {
        notice: 0.01,
        warning: 0.1,
        critical: 1.0,
        source: "judgement: each step of a request waits this long once, and a request has several",
    },
);

/// If time slices are short, the delay is short, but work that needs many time slices waits before each of them.
const CROWD: Threshold = Threshold::new(
    "overload.runnable_per_scheduler",
    "runnable processes per scheduler",
    Scale {
        notice: 10.0,
        warning: 100.0,
        critical: 2_000.0,
        source: "judgement: work that needs many time slices waits before each of them",
    },
);

/// Fewer waiting processes per scheduler may be the end of a burst, or a batch of a few jobs (judgement).
const MIN_WAITING_PER_SCHEDULER: f64 = 5.0;

/// Schedulers above this utilization are busy (judgement).
const BUSY_UTILIZATION: f64 = 0.9;

/// If scheduler threads use or wait for this share of the CPU, no CPU is left (judgement). Busy wait does not reach it for long.
const FULL_CPU_SHARE: f64 = 0.9;

/// A smaller share of the work is not printed: of thousands of similar processes, the sampled ones do almost nothing.
const MIN_SHARE: f64 = 0.01;

/// Maximum number of process kinds in evidence.
const MAX_KINDS: usize = 3;

/// Severity of a VM that did not answer, whether its schedulers were busy or idle.
const UNANSWERED_SEVERITY: f64 = 50.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    match RunQueue::of(period) {
        Ok(run_queue) => Ok(by_run_queue(period, &run_queue)),
        Err(missing) => by_host(period, missing),
    }
}

/// Processes and ports that wait for the schedulers.
struct RunQueue {
    /// Schedulers online.
    online: f64,
    /// Scheduler utilization.
    utilization: f64,
    /// Median number of waiting processes and ports.
    waiting: f64,
    /// Time until they run.
    delay_seconds: f64,
}

impl RunQueue {
    fn of(period: &Period) -> Result<RunQueue, Missing> {
        let online = view::schedulers_online(period)?.max(1.0);
        let utilization = view::activity(period, kind::SCHEDULER)?.mean();
        let tasks = period.stat(&metrics::ACTIVE_TASKS, "")?;
        // The median is used because one sample may catch many timers that expire together.
        let mut counts: Vec<i64> = tasks.trace.points().iter().map(|(_, count)| *count).collect();
        counts.sort_unstable();
        let median = counts.get(counts.len() / 2).map_or(0.0, |count| *count as f64);
        let waiting = (median - online).max(0.0);
        // Little's law: the number of waiting processes is the rate of time slices, times the delay of each.
        let turns = period.rate(&metrics::CONTEXT_SWITCHES, "")?;
        let delay_seconds = if turns > 0.0 { waiting / turns } else { 0.0 };
        Ok(RunQueue { online, utilization, waiting, delay_seconds })
    }

    fn per_scheduler(&self) -> f64 {
        self.waiting / self.online
    }
}

fn by_run_queue(period: &Period, run_queue: &RunQueue) -> Judgement {
    let &RunQueue { online, utilization, waiting, delay_seconds } = run_queue;
    let each = run_queue.per_scheduler();
    let rising = trend_of(period, &metrics::PROCESS_COUNT);
    let severity = [DELAY.of(period).severity(delay_seconds), CROWD.of(period).severity(each)]
        .into_iter()
        .flatten()
        .reduce(f64::max);
    let is_overload = utilization >= BUSY_UTILIZATION && each >= MIN_WAITING_PER_SCHEDULER;
    let Some(severity) = severity.filter(|_| is_overload) else {
        return Judgement::Healthy(format!(
            "scheduler utilization {:.0} %; {} runnable processes per scheduler, {} from runnable to running",
            utilization * 100.0,
            text::number(each),
            text::pause(delay_seconds)
        ));
    };
    // If the number of processes grows, this gets worse even at the same load.
    let severity = if rising.is_some() { severity.max(WARNING) } else { severity };
    let growth = rising.map_or(String::new(), |trend| format!(", +{}/s", text::number(trend.slope.round())));
    let draft = Draft::new(
        severity,
        format!(
            "{} wait {} for {}{growth}",
            text::counted(waiting.round(), "runnable process", "runnable processes"),
            text::pause(delay_seconds),
            text::counted(online, "scheduler", "schedulers")
        ),
    )
    .detail(rising.and_then(|trend| process_limit(period, trend)).unwrap_or_default())
    .detail(format!(
        "{} waiting per scheduler, and each waits before each time slice",
        text::number(each.round())
    ))
    .costs(Cost::Waiting(waiting))
    .signals(rising.map(|_| Signal::Backlog))
    .evidence(
        Evidence::number("runnable processes per scheduler, median", each, Unit::Count)
            .against_scale(CROWD.of(period)),
    )
    .evidence(
        Evidence::number("time from runnable to running", delay_seconds, Unit::Seconds)
            .against_scale(DELAY.of(period))
            .with_text("waiting processes / context switches per second"),
    )
    .evidence(Evidence::number("scheduler utilization", utilization, Unit::Ratio))
    .because_some(spawn_rate(period, rising))
    .because_some(memory(period))
    .because_some(busiest(period))
    .because_some(newest(period))
    .but_if(rising.is_none(), "a batch job may be meant to use all CPU: then give it priority low");
    Judgement::found(bounded(period, draft))
}

/// Judges from data of the host alone.
fn by_host(period: &Period, missing: Missing) -> Result<Judgement, Missing> {
    let Ok(used) = view::thread_cores(period, &metrics::THREAD_CPU, &[kind::SCHEDULER]) else {
        return Err(missing);
    };
    let threads = view::entities_of(period, metrics::THREAD_CPU.group, &[kind::SCHEDULER]).len() as f64;
    let allowed = period.stat(&metrics::CPUS_ALLOWED, "")?.mean();
    let cores = threads.min(allowed).min(view::quota_cores(period).unwrap_or(f64::INFINITY)).max(0.01);
    let waited = view::thread_cores(period, &metrics::THREAD_WAIT, &[kind::SCHEDULER]).unwrap_or(0.0);
    let share = (used + waited) / cores;
    let unanswered = period.facts.number(facts::UNANSWERED_LENGTH).map(|ns| ns as f64 / SECOND_NS as f64);
    let is_full = share >= FULL_CPU_SHARE;
    let usage = format!("schedulers use {used:.2} of {cores:.2} cores");
    let (title, detail) = match unanswered {
        Some(seconds) if is_full => (format!("Node likely overloaded: no answer in {seconds:.0} s"), usage),
        Some(seconds) => (
            format!("Node does not answer in {seconds:.0} s: likely stopped or hanging"),
            format!("it accepts connections; {usage}"),
        ),
        None if is_full => (
            format!("Node possibly overloaded: {usage}"),
            "only the VM knows whether processes wait".to_owned(),
        ),
        None => return Ok(Judgement::Healthy(usage)),
    };
    let severity = if unanswered.is_some() { UNANSWERED_SEVERITY } else { MINOR };
    let draft = Draft::new(severity, title)
        .detail(detail)
        .confidence(Confidence::Inferred)
        .evidence(
            Evidence::number("CPU used or waited for by schedulers", share, Unit::Ratio)
                .with_text("busy wait alone does not use all of it for long"),
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

/// Formats when the process table is full, if the growth continues.
fn process_limit(period: &Period, trend: Trend) -> Option<String> {
    let limit = period.facts.number(facts::PROCESS_LIMIT)? as f64;
    let now = period.stat(&metrics::PROCESS_COUNT, "").ok()?.last.value as f64;
    let left = (limit - now).max(0.0) / trend.slope;
    (left < FAR_SECONDS).then(|| {
        let numbers = format!("{} of {} processes", text::number(now), text::number(limit));
        format!("process limit reached in {} at this rate ({numbers})", view::duration_text(left))
    })
}

fn bounded(period: &Period, draft: Draft) -> Draft {
    draft.remedy(remedy::of(
        period,
        "code.bounded_processes",
        "accept no more than the node completes: limit workers and requests in flight, reject the rest early",
        "more work than the CPUs can do makes everything wait, and uses up memory",
        "run queue and process count stay level under the same load",
    ))
}

/// Returns the spawn rate and the exit rate.
fn spawn_rate(period: &Period, rising: Option<Trend>) -> Option<Evidence> {
    let spawned = view::spawn_rate(period).ok()?;
    let exited = (spawned - rising.map_or(0.0, |trend| trend.slope)).max(0.0);
    Some(
        Evidence::number("spawn rate", spawned, Unit::PerSecond)
            .with_text(format!("exit rate {}/s", text::number(exited.round()))),
    )
}

/// Returns the resident memory, if it grows.
fn memory(period: &Period) -> Option<Evidence> {
    let trend = trend_of(period, &metrics::RSS)?;
    let now = period.stat(&metrics::RSS, "").ok()?.last.value as f64;
    let growth = format!("+{}/s", format_bytes(trend.slope));
    Some(Evidence::number("resident memory", now, Unit::Bytes).with_text(growth))
}

fn trend_of(period: &Period, gauge: &beamtune_model::Metric) -> Option<Trend> {
    let stat = period.stat(gauge, "").ok()?;
    growth(&view::trend_points(&stat.trace), f64::INFINITY)
}

/// Returns the busiest processes, by initial call.
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
    let names: Vec<String> = kinds
        .iter()
        .take(MAX_KINDS)
        .map(|(kind, (reductions, count))| {
            let share = if total > 0.0 { reductions / total } else { 0.0 };
            match share >= MIN_SHARE {
                true => format!("{count} {kind} ({:.0} % of all reductions)", share * 100.0),
                false => format!("{count} {kind}"),
            }
        })
        .collect();
    (!names.is_empty()).then(|| Evidence::text("busiest sampled processes", names.join(", ")))
}

/// Returns the kinds of the newest processes, and what spawns them.
fn newest(period: &Period) -> Option<Evidence> {
    let mut rows: Vec<_> = new_processes::rows(period).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    let names: Vec<String> = rows
        .iter()
        .take(MAX_KINDS)
        .map(|row| {
            let maker = row.creator.as_ref().map_or(String::new(), |maker| format!(", spawned by {maker}"));
            format!("{} of {} are {}{maker}", row.count, row.sample_size, row.kind)
        })
        .collect();
    (!names.is_empty()).then(|| Evidence::text("newest processes", names.join("; ")))
}
