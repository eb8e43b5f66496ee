//! BT016: something holds a scheduler for much longer than a time slice.
//!
//! A process gives its scheduler back after some 4,000 reductions, about a millisecond. A NIF, a driver or a built-in function
//! that does not count its work keeps it, and everybody in that scheduler's queue waits.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Signal, Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::signals::events::{Told, told};

pub const RULE: Rule = Rule {
    code: Code("BT016"),
    name: "long-schedule",
    question: "Does anything hold a scheduler for long?",
    confirm: "erlang:system_monitor(Pid, [{long_schedule, 50}]) names the functions that a slice began and ended in; host pressure at the time refutes it",
    needs: &[&metrics::EVENT_COUNT],
    account: Account::Delay,
    role: Role::Symptom,
    judge,
    thresholds: &[LONGEST],
    ..Rule::COMMON
};

/// The longest slice, in seconds.
const LONGEST: Threshold = Threshold::new(
    "long-schedule.longest_seconds",
    "longest time slice in seconds",
    Scale {
        notice: 0.05,
        warning: 0.25,
        critical: 1.0,
        source: "judgement; EMQX reports slices of 240 ms and more, others of 500 ms",
    },
);

/// One slice in a long time may be the operating system's: it had taken the core away.
const FEW: i64 = 1;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let told = told(period, "long_schedule")?;
    let Some(severity) = LONGEST.of(period).severity(told.longest) else {
        return Ok(Judgement::Healthy("no time slice took 50 ms or more".to_owned()));
    };
    let alone = told.count <= FEW;
    let is_native = runs_native_code(period, &told);
    // Without NIFs of the program's own it is a BIF, and most such time goes into copying.
    let is_bif = is_native && period.facts.list(facts::NIFS).is_some_and(|nifs| nifs.is_empty());
    let hosts = told.may_be_the_hosts(period);
    let draft = Draft::new(
        severity,
        match &told.culprit {
            Some(culprit) => format!(
                "{} time slices of 50 ms and more, the longest {:.0} ms; most of {}{}",
                told.count,
                told.longest * 1e3,
                culprit.subject,
                match (is_native, is_bif) {
                    (true, true) => ", in built-in functions or copying large terms",
                    (true, false) => ", in native code (NIF, driver or BIF)",
                    (false, _) => "",
                }
            ),
            None => {
                format!("{} time slices of 50 ms and more, the longest {:.0} ms", told.count, told.longest * 1e3)
            }
        },
    )
    .guess_if(alone || hosts)
    .signals(hosts.then_some(Signal::MayBeHost))
    .costs(Cost::DelaySeconds(told.longest))
    .share(told.seconds / period.seconds().max(1.0))
    .because(Evidence::number("longest slice", told.longest, Unit::Seconds).against_scale(LONGEST.of(period)))
    .because(Evidence::number("such slices", told.rate, Unit::PerSecond))
    .because(Evidence::number("time in them", told.seconds / period.seconds(), Unit::Cores))
    .because_some(native_modules(period).map(|functions| Evidence::text("NIFs outside OTP", functions)))
    .but_if(
        hosts,
        "schedulers waited for a CPU for about as long: it may be the operating system that took the core away",
    )
    .but_if(alone, "it was one only: where the host is short of CPU, the operating system takes the core away for as long");
    Ok(Judgement::found(
        told.blame(draft)
        .fix_if(is_bif, || {
            remedy::of(
                period,
                "code.smaller_messages",
                "look for large terms that are copied: what closures given to spawn or Task refer to, messages, ETS objects",
                "a copy is one piece of work for the scheduler, whatever its size, and no NIF outside OTP is loaded",
                "long_schedule events, and p99 of requests, under the same load",
            )
        })
        .fix(remedy::of(
            period,
            "code.yielding_work",
            "look at what the slice began and ended in: give the call less at a time, or a dirty NIF in place of a plain one",
            "everybody in the queue of that scheduler waits as long",
            "long_schedule events, and p99 of requests, under the same load",
        )),
    ))
}

/// Erlang code does more reductions than this in each second that it runs (judgement: a tenth of what was seen of slow code; a time slice of
/// 1 ms has 4,000).
const ERLANG_REDUCTIONS_PER_S: f64 = 400_000.0;

/// Whether the process of most slices did next to no reductions in them: native code does not count its work.
fn runs_native_code(period: &Period, told: &Told<'_>) -> bool {
    let Some(culprit) = &told.culprit else { return false };
    let process = Subject::process(culprit.subject).pid().and_then(|pid| period.process(pid));
    let seconds = told.seconds * culprit.count as f64 / culprit.of.max(1) as f64;
    process.is_some_and(|process| (process.reductions as f64) < ERLANG_REDUCTIONS_PER_S * seconds)
}

/// NIFs that a program has brought along.
fn native_modules(period: &Period) -> Option<String> {
    let functions = period.facts.list(facts::NIFS)?;
    (!functions.is_empty()).then(|| functions.join(", "))
}
