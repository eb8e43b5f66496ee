//! The summary at the top of the page of `beamtune locks`, from `rules::contention::look`.

use beamtune_model::cpu::kind;
use beamtune_model::units::nanos;
use beamtune_model::{Nanos, Period};
use beamtune_report::locks::{self, Answer, Contended, WaitShare};
use beamtune_rules::contention::blocked::{self, KindVerdict};
use beamtune_rules::contention::verdict::{self, ContentionVerdict, Sampling};
use beamtune_rules::contention::{self, ContendedLocks, LockClassWaits, Operation};

use super::probes::{self, ProbeResult};

/// Summarizes a recording; `None` if it contains neither thread times nor lock counts.
pub fn from_period(period: &Period) -> Option<locks::Look> {
    let length = contention::counting_duration(period);
    verdict::of_period(period).map(|look| summarize(look, length, Vec::new(), None))
}

/// Summarizes the probes of a running VM.
pub fn from_probes(result: &ProbeResult) -> locks::Look {
    let cost = (!result.length.is_zero()).then(|| probes::cost_sentence(&result.cost, result.length));
    let watched = watched(result);
    let observed = result.blocked.iter().map(|judged| judged.times.length).max().unwrap_or(watched.length);
    let length = observed.max(watched.length);
    let look = verdict::of_waits(result.blocked.clone(), &result.waits, watched, length);
    summarize(look, None, result.remarks.clone(), cost)
}

/// Lists what threads waited for, longest wait first: counted locks by owner, or sampled operations.
pub fn contended(
    period: &Period,
    contenders: &[LockClassWaits],
    things: &[ContendedLocks],
) -> Vec<Contended> {
    if things.is_empty() {
        return sampled(period);
    }
    let all = things.iter().fold(0_i64, |sum, thing| sum.saturating_add(thing.waited));
    let row = |thing: &ContendedLocks| {
        let contender = contenders.iter().find(|contender| contender.class == thing.class);
        let entity = contender.and_then(|contender| match &thing.id {
            Some(id) => contender.owners.iter().find(|entity| entity.id == *id),
            // Locks that share a load have no individual remedy, so the most contended one is shown as an example.
            None => contender.owners.first().filter(|entity| !entity.kind.has_own_remedy()),
        });
        let place = entity.and_then(|entity| entity.place.as_ref());
        let place = place.or(contender.and_then(|contender| contender.place.as_ref()));
        let is_rest =
            thing.id.is_none() && things.iter().any(|one| one.class == thing.class && one.id.is_some());
        let title = match entity {
            Some(entity) => entity.title.as_str(),
            None if is_rest => "others",
            None => "",
        };
        Contended {
            lock: thing.class.clone(),
            object: title.strip_prefix("the ").unwrap_or(title).to_owned(),
            share: thing.waited as f64 / all.max(1) as f64,
            operation: place.map_or_else(String::new, |(file, line, _)| format!("{file}:{line}")),
        }
    };
    things.iter().map(row).collect()
}

fn sampled(period: &Period) -> Vec<Contended> {
    let operations = contention::operations(period);
    let all = operations.iter().fold(0_i64, |sum, one| sum.saturating_add(one.waited));
    let row = |one: &Operation| {
        // Shows the built-in function, and the function of the emulator in which it waited.
        let inner = one.stack.first().filter(|inner| one.name.as_ref().is_some_and(|name| name != *inner));
        Contended {
            lock: one.class.unwrap_or_default().to_owned(),
            object: String::new(),
            share: one.waited as f64 / all.max(1) as f64,
            operation: match inner {
                Some(inner) => format!("{} ({inner})", one.title()),
                None => one.title().to_owned(),
            },
        }
    };
    operations.iter().map(row).collect()
}

/// True if the waits may be written to a recording.
pub fn is_recordable(result: &ProbeResult) -> bool {
    let schedulers = result.blocked.iter().filter(|judged| judged.times.kind == kind::SCHEDULER);
    verdict::is_recordable(
        &result.waits,
        watched(result),
        schedulers.map(|judged| judged.times.threads).sum(),
    )
}

fn watched(result: &ProbeResult) -> Sampling {
    Sampling { length: nanos(result.length), is_lower_bound: result.is_lower_bound }
}

/// Builds the summary, with the results before the remarks. `counted_length` is how long locks were counted.
fn summarize(
    look: ContentionVerdict,
    counted_length: Option<Nanos>,
    remarks: Vec<String>,
    cost: Option<String>,
) -> locks::Look {
    let counted = look.counted.map(|share| {
        format!("threads waited for counted locks during {:.0} % of the schedulers' time", share * 100.0)
    });
    let counted_share = look.counted.zip(counted_length).map(|(share, length)| WaitShare {
        share,
        interval: None,
        is_lower_bound: false,
        is_counted: true,
        length,
    });
    let sampled_share = look.sampled.map(|seen| WaitShare {
        share: seen.share,
        interval: seen.interval(),
        is_lower_bound: seen.sampling.is_lower_bound,
        is_counted: false,
        length: seen.sampling.length,
    });
    let seen = look.sampled.map(|seen| seen.sentence());
    locks::Look {
        answer: answer(look.verdict),
        length: look.length,
        share: counted_share.or(sampled_share),
        kinds: look.kinds.iter().map(kind_summary).collect(),
        means: counted.into_iter().chain(seen).chain(remarks.iter().cloned()).chain(cost).collect(),
        remarks,
    }
}

fn answer(answer: blocked::Verdict) -> Answer {
    match answer {
        blocked::Verdict::Yes => Answer::Yes,
        blocked::Verdict::No => Answer::No,
        blocked::Verdict::NotSure => Answer::NotSure,
    }
}

fn kind_summary(judged: &KindVerdict) -> locks::Blocked {
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
