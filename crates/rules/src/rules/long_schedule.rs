//! BT016: a process runs on a scheduler for much longer than a time slice.
//!
//! A process yields after some 4,000 reductions, about a millisecond. A NIF, a driver or a BIF that does not count reductions does not
//! yield, and all processes in the run queue of that scheduler wait.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, Scale, Signal, Subject, Threshold, Unit, facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule};
use crate::signals::events::{self, Events};
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT016"),
    name: "long-schedule",
    question: "Does a process block a scheduler for long?",
    confirm: "call erlang:system_monitor(Pid, [{long_schedule, 50}]): the events name the functions of each slice; a host short of CPU at the time refutes it",
    needs: &[&metrics::EVENT_COUNT],
    account: Account::Delay,
    role: Role::Symptom,
    judge,
    thresholds: &[LONGEST],
    ..Rule::COMMON
};

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

/// Up to this number, time slices may be long because the operating system took the CPU away.
const MAX_CHANCE: i64 = 1;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let long = events::of_kind(period, "long_schedule")?;
    let Some(severity) = LONGEST.of(period).severity(long.longest) else {
        return Ok(Judgement::Healthy("no time slice of 50 ms or more".to_owned()));
    };
    let is_single = long.count <= MAX_CHANCE;
    let is_native = runs_native_code(period, &long);
    // Without NIFs outside OTP it is a BIF, most likely one that copies.
    let is_bif = is_native && period.facts.list(facts::NIFS).is_some_and(|nifs| nifs.is_empty());
    let may_be_host = long.may_be_host(period);
    let subject = long.culprit.as_ref().map(|culprit| Subject::process(culprit.subject));
    let longest = text::pause(long.longest);
    let slices = text::counted(long.count as f64, "time slice", "time slices");
    let draft = Draft::new(
        severity,
        match &subject {
            // The process that ran when the CPU was taken away is no culprit.
            _ if may_be_host => format!("Schedulers blocked for up to {longest}, likely for lack of CPU"),
            Some(subject) => {
                format!("Schedulers blocked for up to {longest}, mostly by {}", text::name(subject))
            }
            None => format!("{slices} of 50 ms or more, longest {longest}"),
        },
    )
    .detail(match &subject {
        Some(subject) if may_be_host => format!("{subject} ran in most of them"),
        Some(subject) => text::pid(subject).to_owned(),
        None => String::new(),
    })
    .detail(match (is_native, is_bif) {
        (true, true) => "in BIFs or copying large terms",
        (true, false) => "in native code (NIF, driver or BIF)",
        (false, _) => "",
    })
    .detail(if subject.is_some() { format!("{slices} of 50 ms or more") } else { String::new() })
    .detail(long.culprit.as_ref().map_or("", |culprit| culprit.last.detail.as_str()))
    .guess_if(is_single || may_be_host)
    .signals(may_be_host.then_some(Signal::MayBeHost))
    .costs(Cost::DelaySeconds(long.longest))
    .share(long.seconds / period.seconds().max(1.0))
    .evidence(
        Evidence::number("longest time slice", long.longest, Unit::Seconds).against_scale(LONGEST.of(period)),
    )
    .evidence(Evidence::number("time slices of 50 ms or more", long.rate, Unit::PerSecond))
    .evidence(Evidence::number("time in long slices", long.seconds / period.seconds(), Unit::Cores))
    .because_some(native_modules(period).map(|functions| Evidence::text("NIFs outside OTP", functions)))
    .but_if(
        may_be_host,
        "schedulers waited for a CPU about as long: the operating system may have taken it away",
    )
    .but_if(
        is_single,
        "a single slice: on a host short of CPU the operating system takes the CPU away for as long",
    );
    Ok(Judgement::found(
        long.name_culprit(draft)
        .fix_if(is_bif, || {
            remedy::of(
                period,
                "code.smaller_messages",
                "copy smaller terms: variables of closures given to spawn or Task, messages, ETS objects",
                "a copy does not yield, whatever its size, and no NIF outside OTP is loaded",
                "long_schedule events and p99 of requests under the same load",
            )
        })
        .remedy(remedy::of(
            period,
            "code.yielding_work",
            "see the functions in which the slice began and ended: give the call less work per invocation, or make the NIF dirty",
            "all processes in the run queue of that scheduler wait as long",
            "long_schedule events and p99 of requests under the same load",
        )),
    ))
}

/// Erlang code does more reductions than this per second of run time. Judgement: a tenth of measured slow code; a time slice of 1 ms has
/// 4,000.
const MIN_ERLANG_REDUCTIONS_PER_S: f64 = 400_000.0;

/// Whether the process with most of the slices did almost no reductions in them. Native code does not count its work.
fn runs_native_code(period: &Period, long: &Events<'_>) -> bool {
    let Some(culprit) = &long.culprit else { return false };
    let process = Subject::process(culprit.subject).pid().and_then(|pid| period.process(pid));
    let seconds = long.seconds * culprit.count as f64 / culprit.of.max(1) as f64;
    process.is_some_and(|process| (process.reductions as f64) < MIN_ERLANG_REDUCTIONS_PER_S * seconds)
}

/// Returns the NIFs outside OTP.
fn native_modules(period: &Period) -> Option<String> {
    let functions = period.facts.list(facts::NIFS)?;
    (!functions.is_empty()).then(|| functions.join(", "))
}
