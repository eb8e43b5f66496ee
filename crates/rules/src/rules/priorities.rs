//! BT062: processes of priority high or max that run all the time, and one of priority low that others wait for.
//!
//! A scheduler takes the processes of its queue by priority: as long as one of priority max is runnable, none of high; as long as one of
//! high, none of normal or low. These two share a queue, and one of low is passed over until its eighth turn (`RESCHEDULE_LOW` in
//! erl_process.h). So high and max are meant for what mostly waits.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Remedy, Scale, Signal, Threshold, Unit,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::known_processes;
use crate::signals::{blocking, stack};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT062"),
    name: "priorities",
    question: "Do priorities of processes keep others waiting?",
    confirm: "the process at priority normal, under the same load: what waited in the run queues must wait less",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::RUN_QUEUE, &metrics::SCHEDULER_ACTIVE],
    account: Account::Delay,
    judge,
    thresholds: &[RUNS, BURSTS],
    ..Rule::COMMON
};

/// Share of the looks in which it ran or was runnable.
const RUNS: Threshold = Threshold::new(
    "priorities.busy_share",
    "share of samples in which a process at high or max was running or runnable",
    Scale {
        notice: 0.50,
        warning: 0.70,
        critical: 0.97,
        source: "judgement: the priority is meant for what mostly waits; OTP's own at high and max are runnable in no more than some percent",
    },
);

/// Processes that wait in all run queues together, from which on somebody is kept waiting (judgement; our own agent is one at times).
const WAITING: f64 = 0.5;

/// Schedulers that are active for less than this have room for what is at low (judgement).
const BUSY: f64 = 0.8;

/// From this share of the looks on a process at low wants to run and mostly does not get to (judgement).
const WANTS: f64 = 0.7;

/// The VM's own processes and those of OTP, whose priority nobody sets: what they do has findings of its own.
const OTP: &[&str] = &["erts_", "net_kernel", "init", "erl_prim_loader", "code_server", "heart", "beamtune"];

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let total = view::all_reductions(period)?;
    let waiting = view::run_queue(period, "scheduler")?;
    let active = view::activity(period, kind::SCHEDULER)?;
    let priority = |process: &ProcessUse| process.row.as_ref().and_then(|row| row.priority.clone());
    let is_looked_at = |process: &&ProcessUse| process.row.is_some();
    let is_known = |process: &&ProcessUse| priority(process).is_some();
    if period.processes.iter().any(|process| is_looked_at(&process))
        && !period.processes.iter().any(|process| is_known(&process))
    {
        return Ok(Judgement::NotJudged {
            reason: "priorities of processes: they were not recorded".to_owned(),
            next: "record again with this version of beamtune".to_owned(),
        });
    }
    let of = |wanted: &'static [&'static str]| {
        (period.processes.iter())
            .filter(move |process| priority(process).is_some_and(|is| wanted.contains(&is.as_str())))
            .filter(|process| !is_of_otp(process))
    };
    let runs = |process: &&ProcessUse| {
        stack::wanted_to_run(process).is_some_and(|share| RUNS.of(period).severity(share).is_some())
    };
    let raised: Vec<&ProcessUse> = of(&["high", "max"]).filter(runs).collect();
    let has_all = raised.len() >= active.shares.len();
    let seen = Seen { total, waiting, online: active.shares.len(), raised: raised.len(), has_all };
    let bursts =
        if raised.is_empty() { bursts(period, of(&["high", "max"]).collect(), &active, &seen) } else { None };
    let drafts = raised.iter().map(|process| keeps_waiting(period, process, &seen)).chain(bursts);
    let is_full = active.mean() >= BUSY;
    let starved = of(&["low"]).filter(|_| is_full).filter_map(|process| is_starved(period, process, &seen));
    let drafts: Vec<Draft> = drafts.chain(starved).collect();
    let known = of(&["high", "max"]).count();
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "{known} processes of priority high or max stood out, and none of them runs most of the time"
        ),
    ))
}

/// Of what the schedulers can do, what those of raised priority do together.
const BURSTS: Threshold = Threshold::new(
    "priorities.bursts_share",
    "share of scheduler capacity used by processes at high or max",
    Scale {
        notice: 0.40,
        warning: 0.50,
        critical: 0.97,
        source: "judgement: the priority is meant for what mostly waits; in bursts so much leaves the others nothing",
    },
);

/// Those that run now and then, but together do much of all work while others wait.
fn bursts(
    period: &Period,
    mut raised: Vec<&ProcessUse>,
    active: &view::Activity,
    seen: &Seen,
) -> Option<Draft> {
    raised.sort_by_key(|process| std::cmp::Reverse(process.reductions));
    let first = *raised.first()?;
    let reductions: f64 = raised.iter().map(|process| process.reductions as f64).sum();
    let of_work = reductions / seen.total.max(1.0);
    let share = of_work.min(1.0) * active.mean();
    let severity = BURSTS.of(period).severity(share).filter(|_| seen.waiting >= WAITING)?;
    let busy =
        raised.iter().filter(|process| process.reductions as f64 >= WORTH_OF_WORK * reductions).count();
    let others = if busy > 1 { format!(" and {} more", busy - 1) } else { String::new() };
    let draft = Draft::new(
        severity,
        format!(
            "{}{others} with priority {} take {:.0} % of scheduler capacity in bursts; {:.1} processes wait in run queues",
            first.title(),
            priority_of(first),
            share * 100.0,
            seen.waiting
        ),
    )
    .about(first.subject())
    // Reductions are no time, and who waits for whom is not known.
    .inferred_if(true)
    .costs(Cost::Waiting(seen.waiting))
    .because(Evidence::number("share of all reductions", of_work, Unit::Ratio))
    .because(Evidence::number("share of scheduler capacity", share, Unit::Ratio).against_scale(BURSTS.of(period)))
    .because(Evidence::number("processes in run queues", seen.waiting, Unit::Count))
    .because_some(stack::evidence(first));
    Some(draft.fix(normal_priority(period)))
}

/// Less of what they do together is not told of one of them (judgement).
const WORTH_OF_WORK: f64 = 0.1;

fn normal_priority(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "code.normal_priority",
        "leave it at priority normal; where something of it has to be done at once, do that alone in a process at high that mostly waits",
        "what is at high or max runs before all that is at normal, for as long as it wants",
        "lengths of the run queues, and latency of the others, under the same load",
    )
}

/// What is known of the node.
struct Seen {
    total: f64,
    /// Processes in the run queues.
    waiting: f64,
    online: usize,
    /// Processes of raised priority that run most of the time.
    raised: usize,
    /// Whether these are enough for all schedulers.
    has_all: bool,
}

fn is_of_otp(process: &ProcessUse) -> bool {
    let name = process.row.as_ref().and_then(|row| row.name.as_deref().or(row.initial_call.as_deref()));
    name.is_some_and(|name| OTP.iter().any(|own| name.starts_with(own))) || known_processes::knows(process)
}

fn priority_of(process: &ProcessUse) -> &str {
    process.row.as_ref().and_then(|row| row.priority.as_deref()).unwrap_or_default()
}

fn keeps_waiting(period: &Period, process: &ProcessUse, seen: &Seen) -> Draft {
    let looks = stack::wanted_to_run(process).unwrap_or(0.0);
    let severity = RUNS.of(period).severity(looks).unwrap_or(MINOR);
    let is_alone = seen.waiting < WAITING;
    let priority = priority_of(process);
    let meanwhile = match is_alone {
        true => "nothing waits meanwhile".to_owned(),
        false => format!("{:.1} processes wait meanwhile", seen.waiting),
    };
    let draft = Draft::new(
        severity,
        format!(
            "{} has priority {priority} and was busy in {:.0} % of the looks at it; {meanwhile}",
            process.title(),
            looks * 100.0
        ),
    )
    .about(process.subject())
    .minor_if(is_alone)
    .at_most_warning_if(!seen.has_all)
    .costs((!is_alone).then_some(Cost::Waiting(seen.waiting)));
    let draft = told(draft, period, process, looks, seen)
        .because(Evidence::number("busy processes of priority high or max", seen.raised as f64, Unit::Count))
        .but_if(is_alone, "no process waits for a scheduler: it displaces nobody now")
        .but_if(
            !is_alone && !seen.has_all,
            "other schedulers are left for the others: these wait longer, and are not kept from running",
        );
    draft.fix(normal_priority(period))
}

/// One at low that works through what others wait for, while the schedulers are full.
fn is_starved(period: &Period, process: &ProcessUse, seen: &Seen) -> Option<Draft> {
    let looks = stack::wanted_to_run(process).filter(|share| *share >= WANTS)?;
    let holds = blocking::holds(period).unwrap_or_default();
    let callers = holds.iter().find(|hold| hold.process.is_some_and(|held| held.pid == process.pid));
    let queue = view::mean_queue(process);
    let waits = callers.map_or(queue, |hold| hold.waiting.max(queue));
    if waits < 1.0 || seen.waiting < WAITING {
        return None;
    }
    let what = match callers {
        Some(hold) if hold.waiting > queue => {
            format!("about {:.0} processes wait for its answer", hold.waiting)
        }
        _ => format!("{queue:.0} messages wait for it"),
    };
    let draft = Draft::new(
        RUNS.of(period).severity(looks).unwrap_or(MINOR),
        format!("{} has priority low, and {what} while the schedulers are busy with others", process.title()),
    )
    .about(process.subject())
    .at_most_warning_if(true)
    .signals([Signal::LowPriority])
    .costs(Cost::Waiting(waits));
    Some(
        told(draft, period, process, looks, seen)
            .because(Evidence::number("messages in its queue, mean", queue, Unit::Count))
            .fix(remedy::of(
                period,
                "code.normal_priority",
                "leave it at priority normal: low is for what nobody waits for",
                "at priority low it has one turn for eight of the others in the same run queue",
                "its message queue, and the time until it answers, under the same load",
            )),
    )
}

fn told(draft: Draft, period: &Period, process: &ProcessUse, looks: f64, seen: &Seen) -> Draft {
    let share = if seen.total > 0.0 { process.reductions as f64 / seen.total } else { 0.0 };
    draft
        .because(
            Evidence::number("looks in which it ran or was runnable", looks, Unit::Ratio)
                .against_scale(RUNS.of(period))
                .with_text(format!("{} of {}", process.runnable, process.judged)),
        )
        .because(Evidence::text("priority", priority_of(process)))
        .because(Evidence::number("processes in the run queues", seen.waiting, Unit::Count))
        .because(Evidence::number("schedulers online", seen.online as f64, Unit::Count))
        .because(Evidence::number("its share of all reductions", share, Unit::Ratio))
        .because_some(stack::evidence(process))
}
