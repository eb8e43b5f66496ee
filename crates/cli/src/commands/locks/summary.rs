//! The summary at the head of the page of `beamtune locks`, from `rules::contention::look`.

use beamtune_model::Period;
use beamtune_model::cpu::kind;
use beamtune_report::locks::{self, Answer};
use beamtune_rules::contention::blocked::{self, Blocked};
use beamtune_rules::contention::look::{self, Look, Watched};

use super::probes::{self, ProbeResult};
use crate::recorder;

/// From a recording; `None` if it holds neither the times of threads nor lock counts.
pub fn from_period(period: &Period) -> Option<locks::Look> {
    look::of_period(period).map(|look| summarize(look, Vec::new()))
}

/// From probes of a running VM.
pub fn from_probes(result: &ProbeResult) -> locks::Look {
    let mut remarks = result.remarks.clone();
    if !result.length.is_zero() {
        remarks.push(probes::cost_sentence(&result.cost, result.length));
    }
    let watched = watched(result);
    let observed = result.blocked.iter().map(|judged| judged.times.length).max().unwrap_or(watched.length);
    let length = observed.max(watched.length);
    summarize(look::of_waits(result.blocked.clone(), &result.waits, watched, length), remarks)
}

/// True if the waits may be written to a recording.
pub fn is_recordable(result: &ProbeResult) -> bool {
    let schedulers = result.blocked.iter().filter(|judged| judged.times.kind == kind::SCHEDULER);
    look::is_told(&result.waits, watched(result), schedulers.map(|judged| judged.times.threads).sum())
}

fn watched(result: &ProbeResult) -> Watched {
    Watched { length: recorder::nanos(result.length), is_least: result.is_lower_bound }
}

/// Puts the results before the remarks.
fn summarize(look: Look, remarks: Vec<String>) -> locks::Look {
    let counted = look.counted.map(|share| {
        format!("threads waited for counted locks during {:.0} % of the schedulers' time", share * 100.0)
    });
    let seen = look.seen.map(|seen| seen.sentence());
    locks::Look {
        answer: answer(look.answer),
        length: look.length,
        kinds: look.kinds.iter().map(kind_summary).collect(),
        means: counted.into_iter().chain(seen).chain(remarks).collect(),
    }
}

fn answer(answer: blocked::Answer) -> Answer {
    match answer {
        blocked::Answer::Yes => Answer::Yes,
        blocked::Answer::No => Answer::No,
        blocked::Answer::NotSure => Answer::NotSure,
    }
}

fn kind_summary(judged: &Blocked) -> locks::Blocked {
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
