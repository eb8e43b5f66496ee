//! The answer of `beamtune locks` (`rules::contention::look`), in the words of a page.

use beamtune_model::Period;
use beamtune_model::cpu::kind;
use beamtune_report::locks::{self, Answer};
use beamtune_rules::contention::blocked::{self, Blocked};
use beamtune_rules::contention::look::{self, Look, Watched};

use super::probing::{self, Probed};
use crate::take;

/// From a recording alone; `None` where it tells neither how threads spent their time nor what was counted.
pub fn of_period(period: &Period) -> Option<locks::Look> {
    look::of_period(period).map(|look| told(look, Vec::new()))
}

/// From a look at a running VM.
pub fn of_probed(probed: &Probed) -> locks::Look {
    let mut means = probed.remarks.clone();
    if !probed.length.is_zero() {
        means.push(probing::cost_sentence(&probed.cost, probed.length));
    }
    let watched = watched(probed);
    let looked = probed.blocked.iter().map(|judged| judged.times.length).max().unwrap_or(watched.length);
    let look = look::of_waits(probed.blocked.clone(), &probed.waits, watched, looked.max(watched.length));
    told(look, means)
}

/// Whether what was seen may stand in a recording.
pub fn is_told(probed: &Probed) -> bool {
    let schedulers = probed.blocked.iter().filter(|judged| judged.times.kind == kind::SCHEDULER);
    look::is_told(&probed.waits, watched(probed), schedulers.map(|judged| judged.times.threads).sum())
}

fn watched(probed: &Probed) -> Watched {
    Watched { length: take::nanos(probed.length), is_least: probed.is_least }
}

/// What was found out comes before how.
fn told(look: Look, means: Vec<String>) -> locks::Look {
    let counted = look.counted.map(|share| {
        format!(
            "threads waited for locks that were counted for {:.0} % of the schedulers' time",
            share * 100.0
        )
    });
    let seen = look.seen.map(|seen| seen.sentence());
    locks::Look {
        answer: answer(look.answer),
        length: look.length,
        kinds: look.kinds.iter().map(told_kind).collect(),
        means: counted.into_iter().chain(seen).chain(means).collect(),
    }
}

fn answer(answer: blocked::Answer) -> Answer {
    match answer {
        blocked::Answer::Yes => Answer::Yes,
        blocked::Answer::No => Answer::No,
        blocked::Answer::NotSure => Answer::NotSure,
    }
}

fn told_kind(judged: &Blocked) -> locks::Blocked {
    locks::Blocked {
        kind: judged.times.kind.clone(),
        threads: judged.times.threads,
        awake_share: judged.times.awake_share(),
        blocked_share: judged.times.blocked_share(),
        sleeps_per_second: judged.times.sleeps_per_second(),
        answer: answer(judged.answer),
        why: judged.reason(),
    }
}
