//! BT062: processes at priority high or max that are always busy, or a process at priority low that others wait for.
//!
//! A scheduler selects processes by priority. While a process at max is runnable, none at high runs; while one at high is runnable, none at
//! normal or low runs. Processes at normal and low share a queue, in which a process at low is passed over until its eighth turn
//! (`RESCHEDULE_LOW` in erl_process.h). So high and max are meant for processes that mostly wait.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Remedy, Scale, Signal, Threshold, Unit,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::known_processes;
use crate::signals::{blocking, stack};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT062"),
    name: "priorities",
    question: "Do process priorities make others wait?",
    confirm: "set the process to priority normal under the same load: the run queues get shorter",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::RUN_QUEUE, &metrics::SCHEDULER_ACTIVE],
    account: Account::Delay,
    judge,
    thresholds: &[RUNS, BURSTS],
    ..Rule::COMMON
};

const RUNS: Threshold = Threshold::new(
    "priorities.busy_share",
    "share of samples in which a process at high or max was running or runnable",
    Scale {
        notice: 0.50,
        warning: 0.70,
        critical: 0.97,
        source: "judgement: the priority is meant for processes that mostly wait; OTP's own at high and max are runnable in some percent at most",
    },
);

/// With fewer processes in all run queues together, no process is delayed (judgement: sometimes the one process is the agent).
const MIN_WAITING: f64 = 0.5;

/// Below this scheduler utilization, processes at low get enough time (judgement).
const BUSY_UTILIZATION: f64 = 0.8;

/// A process at low that is running or runnable in this share of its samples mostly waits for a scheduler (judgement).
const MIN_RUNNABLE_SHARE: f64 = 0.7;

/// The VM's and OTP's own processes, whose priority is fixed: other findings cover their work.
const OTP: &[&str] = &["erts_", "net_kernel", "init", "erl_prim_loader", "code_server", "heart", "beamtune"];

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let total = view::all_reductions(period)?;
    let waiting = view::run_queue(period, "scheduler")?;
    let active = view::activity(period, kind::SCHEDULER)?;
    let priority = |process: &ProcessActivity| process.row.as_ref().and_then(|row| row.priority.clone());
    if period.processes.iter().any(|process| process.row.is_some())
        && !period.processes.iter().any(|process| priority(process).is_some())
    {
        return Ok(Judgement::NotJudged {
            reason: "process priorities were not recorded".to_owned(),
            next: "record again with this version of beamtune".to_owned(),
        });
    }
    let of = |wanted: &'static [&'static str]| {
        (period.processes.iter())
            .filter(move |process| priority(process).is_some_and(|is| wanted.contains(&is.as_str())))
            .filter(|process| !is_of_otp(process))
    };
    let runs = |process: &&ProcessActivity| {
        stack::runnable_share(process).is_some_and(|share| RUNS.of(period).severity(share).is_some())
    };
    let raised: Vec<&ProcessActivity> = of(&["high", "max"]).filter(runs).collect();
    let has_all = raised.len() >= active.shares.len();
    let load =
        Load { reductions: total, waiting, online: active.shares.len(), raised: raised.len(), has_all };
    let bursts =
        if raised.is_empty() { bursts(period, of(&["high", "max"]).collect(), &active, &load) } else { None };
    let drafts = raised.iter().map(|process| always_busy(period, process, &load)).chain(bursts);
    let is_full = active.mean() >= BUSY_UTILIZATION;
    let starved = of(&["low"]).filter(|_| is_full).filter_map(|process| starved(period, process, &load));
    let drafts: Vec<Draft> = drafts.chain(starved).collect();
    let known = of(&["high", "max"]).count();
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("busiest processes at priority high or max: {known}, none always busy"),
    ))
}

const BURSTS: Threshold = Threshold::new(
    "priorities.bursts_share",
    "share of scheduler capacity used by processes at high or max",
    Scale {
        notice: 0.40,
        warning: 0.50,
        critical: 0.97,
        source: "judgement: the priority is meant for processes that mostly wait; during a burst nothing is left for others",
    },
);

/// Drafts the finding about processes that are not always busy, but together do much of the work while others wait.
fn bursts(
    period: &Period,
    mut raised: Vec<&ProcessActivity>,
    active: &view::Activity,
    load: &Load,
) -> Option<Draft> {
    raised.sort_by_key(|process| std::cmp::Reverse(process.reductions));
    let first = *raised.first()?;
    let reductions: f64 = raised.iter().map(|process| process.reductions as f64).sum();
    let of_work = reductions / load.reductions.max(1.0);
    let share = of_work.min(1.0) * active.mean();
    let severity = BURSTS.of(period).severity(share).filter(|_| load.waiting >= MIN_WAITING)?;
    let busy =
        raised.iter().filter(|process| process.reductions as f64 >= MIN_SHARE_OF_BURSTS * reductions).count();
    let (others, verb) = match busy {
        0 | 1 => (String::new(), "takes"),
        busy => (format!(" and {} more", busy - 1), "take"),
    };
    let subject = first.subject();
    let draft = Draft::new(
        severity,
        format!(
            "{}{others} at priority {} likely {verb} {:.0} % of the schedulers",
            text::name(&subject),
            priority_of(first),
            share * 100.0
        ),
    )
    .detail(text::pid(&subject))
    .detail(format!("in bursts; {} in run queues", processes(load.waiting)))
    .about(subject)
    // Reductions are not time, and which process waits for which is unknown.
    .inferred_if(true)
    .costs(Cost::Waiting(load.waiting))
    .evidence(Evidence::number("share of all reductions", of_work, Unit::Ratio))
    .evidence(
        Evidence::number("share of scheduler capacity", share, Unit::Ratio).against_scale(BURSTS.of(period)),
    )
    .evidence(Evidence::number("processes in run queues", load.waiting, Unit::Count))
    .because_some(stack::evidence(first));
    Some(draft.remedy(normal_priority(period)))
}

fn processes(count: f64) -> String {
    text::counted(count, "process", "processes")
}

/// Formats the number of waiting processes: `6 processes wait`.
fn wait(count: f64) -> String {
    text::counted(count, "process waits", "processes wait")
}

/// A process with a smaller share of the work in bursts is not counted (judgement).
const MIN_SHARE_OF_BURSTS: f64 = 0.1;

fn normal_priority(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "code.normal_priority",
        "leave it at priority normal; do only the urgent part in a process at high that mostly waits",
        "a process at high or max runs before all at normal whenever it is runnable",
        "run queues and latency of the others under the same load",
    )
}

/// The load of the node.
struct Load {
    /// Reductions of all processes.
    reductions: f64,
    /// Processes in the run queues.
    waiting: f64,
    /// Schedulers online.
    online: usize,
    /// Processes at high or max that are always busy.
    raised: usize,
    /// Whether these processes occupy all schedulers.
    has_all: bool,
}

fn is_of_otp(process: &ProcessActivity) -> bool {
    let name = process.row.as_ref().and_then(|row| row.name.as_deref().or(row.initial_call.as_deref()));
    name.is_some_and(|name| OTP.iter().any(|own| name.starts_with(own))) || known_processes::knows(process)
}

fn priority_of(process: &ProcessActivity) -> &str {
    process.row.as_ref().and_then(|row| row.priority.as_deref()).unwrap_or_default()
}

/// Drafts the finding about a process at high or max that is always busy.
fn always_busy(period: &Period, process: &ProcessActivity, load: &Load) -> Draft {
    let busy = stack::runnable_share(process).unwrap_or(0.0);
    let severity = RUNS.of(period).severity(busy).unwrap_or(MINOR);
    let is_alone = load.waiting < MIN_WAITING;
    let waiting = match is_alone {
        true => "none waits".to_owned(),
        false => wait(load.waiting),
    };
    let subject = process.subject();
    let draft = Draft::new(
        severity,
        format!(
            "{} at priority {} is {:.0} % busy: {waiting}",
            text::name(&subject),
            priority_of(process),
            busy * 100.0
        ),
    )
    .detail(text::pid(&subject))
    .detail(format!(
        "{} always busy at high or max on {}",
        processes(load.raised as f64),
        text::counted(load.online as f64, "scheduler", "schedulers")
    ))
    .about(subject)
    .minor_if(is_alone)
    .at_most_warning_if(!load.has_all)
    .costs((!is_alone).then_some(Cost::Waiting(load.waiting)));
    let draft = with_evidence(draft, period, process, busy, load)
        .evidence(Evidence::number("busy processes at high or max", load.raised as f64, Unit::Count))
        .but_if(is_alone, "no process waits for a scheduler, so none is delayed now")
        .but_if(
            !is_alone && !load.has_all,
            "other schedulers remain: other processes wait longer, but do run",
        );
    draft.remedy(normal_priority(period))
}

/// Drafts the finding about a process at low that others wait for, while the schedulers are busy.
fn starved(period: &Period, process: &ProcessActivity, load: &Load) -> Option<Draft> {
    let busy = stack::runnable_share(process).filter(|share| *share >= MIN_RUNNABLE_SHARE)?;
    let holds = blocking::blocking_processes(period).unwrap_or_default();
    let callers = holds.iter().find(|hold| hold.process.is_some_and(|held| held.pid == process.pid));
    let queue = view::mean_queue(process);
    let waits = callers.map_or(queue, |hold| hold.waiting.max(queue));
    if waits < 1.0 || load.waiting < MIN_WAITING {
        return None;
    }
    let waiting = match callers {
        Some(hold) if hold.waiting > queue => wait(hold.waiting.round()),
        _ => format!("{} queued", text::counted(queue.round(), "message", "messages")),
    };
    let subject = process.subject();
    let draft = Draft::new(
        RUNS.of(period).severity(busy).unwrap_or(MINOR),
        format!("{} starves at priority low: {waiting}", text::name(&subject)),
    )
    .detail(text::pid(&subject))
    .detail(format!("runnable in {:.0} % of samples while the schedulers run others", busy * 100.0))
    .about(subject)
    .at_most_warning_if(true)
    .signals([Signal::LowPriority])
    .costs(Cost::Waiting(waits));
    Some(
        with_evidence(draft, period, process, busy, load)
            .evidence(Evidence::number("mean queue length", queue, Unit::Count))
            .remedy(remedy::of(
                period,
                "code.normal_priority",
                "leave it at priority normal: low is for work that nothing waits for",
                "at priority low it runs once for every eight time slices of others in its run queue",
                "its queue length and response time under the same load",
            )),
    )
}

fn with_evidence(draft: Draft, period: &Period, process: &ProcessActivity, busy: f64, load: &Load) -> Draft {
    let share = if load.reductions > 0.0 { process.reductions as f64 / load.reductions } else { 0.0 };
    draft
        .evidence(
            Evidence::number("samples running or runnable", busy, Unit::Ratio)
                .against_scale(RUNS.of(period))
                .with_text(format!("{} of {}", process.runnable, process.status_samples)),
        )
        .evidence(Evidence::text("priority", priority_of(process)))
        .evidence(Evidence::number("processes in run queues", load.waiting, Unit::Count))
        .evidence(Evidence::number("schedulers online", load.online as f64, Unit::Count))
        .evidence(Evidence::number("share of all reductions", share, Unit::Ratio))
        .because_some(stack::evidence(process))
}
