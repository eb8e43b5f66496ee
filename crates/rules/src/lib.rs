//! The rules. Each recognises one known cause of a busy, slow or large VM in a recording.
//!
//! [`diagnose`] is a pure function of a [`Period`]: no I/O, no clock, no node. Live nodes, recordings and trials all use it, so a diagnosis
//! can be repeated from the same file.
//!
//! One file per rule in `rules/`, one page per rule in `docs/rules/`, both named after the rule; a test compares them. [`view`] contains
//! values that several rules derive from a period in the same way.

mod account;
pub mod contention;
mod fixes;
mod guard;
mod joined;
pub mod relations;
pub mod remedy;
pub mod returns;
pub mod rule;
pub mod rules;
mod signals;
mod text;
pub mod thresholds;
pub mod view;
pub mod watch;

pub use rule::{Judgement, Role, Rule, Topic};
pub use rules::RULES;

use std::sync::Arc;
use std::time::Duration;

use beamtune_model::period::NOT_IN_IMPORT;
use beamtune_model::{Diagnosis, Missing, Outcome, Period, Verdict};
use guard::Fault;
use rule::Totals;

/// Time limit for one rule.
const RULE_LIMIT: Duration = Duration::from_secs(guard::MAX_SECONDS);

/// Evaluates all rules for a period, and accounts for its CPU time.
pub fn diagnose(period: &Arc<Period>) -> Diagnosis {
    let cpu = guarded(period, |period| account::account(period).ok());
    Diagnosis { cpu, ..by(RULES.iter(), period, RULE_LIMIT) }
}

/// Evaluates only the rules about memory.
pub fn diagnose_memory(period: &Arc<Period>) -> Diagnosis {
    by(RULES.iter().filter(|rule| rule.is_about_memory()), period, RULE_LIMIT)
}

/// Evaluates only the rules about lock contention.
pub fn diagnose_locks(period: &Arc<Period>) -> Diagnosis {
    by(RULES.iter().filter(|rule| rule.topics.contains(&Topic::Locks)), period, RULE_LIMIT)
}

/// CPU time of Erlang code, GC included, in cores.
pub fn erlang_cores(period: &Period) -> Result<f64, Missing> {
    signals::hot_code::cores(period)
}

/// Returns the rule with this code.
pub fn rule(code: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.code.0 == code)
}

/// Whether the rule with this code is about memory.
pub fn is_about_memory(code: &str) -> bool {
    rule(code).is_some_and(Rule::is_about_memory)
}

/// Whether the advice of the rule with this code reduces memory. Other rules about memory concern the CPU time that it costs.
pub fn is_for_memory(code: &str) -> bool {
    rule(code).is_some_and(|rule| rule.topics.contains(&Topic::Memory))
}

/// Evaluates some of the rules for a period, and relates their findings to each other.
fn by(rules: impl Iterator<Item = &'static Rule>, period: &Arc<Period>, limit: Duration) -> Diagnosis {
    let rules: Vec<&'static Rule> = rules.collect();
    let (totals, judged) = (guarded(period, totals), Arc::clone(period));
    let outcomes = guard::run(rules.clone(), limit, move |rule| judge(rule, &judged, &totals));
    let verdict = |(rule, outcome): (&Rule, Result<Outcome, Fault>)| Verdict {
        code: rule.code,
        rule: rule.name,
        outcome: outcome.unwrap_or_else(|fault| faulty(rule, fault)),
    };
    let mut verdicts: Vec<Verdict> = rules.into_iter().zip(outcomes).map(verdict).collect();
    joined::join(&mut verdicts, period);
    relations::drop_repeated(&mut verdicts);
    relations::relate(&mut verdicts);
    Diagnosis { verdicts, cpu: None }
}

/// Runs `derive` on a period, with the time limit and the panic protection of a rule. Returns the default value if it fails.
fn guarded<T>(period: &Arc<Period>, derive: fn(&Period) -> T) -> T
where
    T: Default + Send + 'static,
{
    let period = Arc::clone(period);
    let derived = guard::run(vec![()], RULE_LIMIT, move |()| derive(&period));
    derived.into_iter().next().and_then(Result::ok).unwrap_or_default()
}

/// Returns the sizes of a period's accounts.
fn totals(period: &Period) -> Totals {
    Totals {
        cores: view::capacity(period).ok().map(|capacity| capacity.cores),
        idle: account::account(period).ok().map(|account| account.idle_cores()),
        memory: signals::memory::available(period),
        waiting: signals::blocking::waiting_processes(period),
    }
}

/// Reports a failed rule as a fault of beamtune. The other rules are still evaluated.
fn faulty(rule: &Rule, fault: Fault) -> Outcome {
    Outcome::NotJudged {
        reason: format!("fault in beamtune: rule {} {} {fault}", rule.code, rule.name),
        next: "report it with the recording (beamtune redact FILE -o COPY removes names)".to_owned(),
    }
}

/// Evaluates one rule. Missing data become "not judged".
fn judge(rule: &Rule, period: &Period, totals: &Totals) -> Outcome {
    if period.is_crash_dump() && !rule.judges_dumps {
        return Outcome::NotJudged {
            reason:
                "a crash dump describes one moment and not the host; it lacks the data that this rule needs"
                    .to_owned(),
            next: "record the node when it runs again: beamtune record --keep 6h".to_owned(),
        };
    }
    let is_text = period.is_imported() && !period.is_crash_dump();
    match (rule.judge)(period) {
        Ok(Judgement::Found(findings)) => {
            Outcome::Found(findings.into_iter().map(|draft| draft.finish(rule, totals)).collect())
        }
        Ok(Judgement::Healthy(sentence)) if is_short(rule, period) => Outcome::Healthy(format!(
            "{sentence}; {:.0} s is too short to show slow growth",
            period.seconds()
        )),
        Ok(Judgement::Healthy(sentence)) => Outcome::Healthy(sentence),
        Ok(Judgement::NotJudged { reason, next }) => Outcome::NotJudged { reason, next },
        Err(missing) if is_text && missing.why == NOT_IN_IMPORT => not_in_text(rule, missing),
        Err(missing) => Outcome::NotJudged { reason: missing.to_string(), next: missing.next_step },
    }
}

/// Whether a live period is too short to show the problem that the rule detects.
fn is_short(rule: &Rule, period: &Period) -> bool {
    rule.needs_minutes && !period.is_imported() && period.seconds() < rule::MINUTES_SECONDS
}

/// Reports that imported text lacks data, and what else to copy if a tool prints them.
fn not_in_text(rule: &Rule, missing: Missing) -> Outcome {
    match rule.text {
        Some(printed) => {
            Outcome::NotJudged { reason: missing.to_string(), next: format!("also copy {printed}") }
        }
        None => Outcome::NotJudged {
            reason: format!("only a running node provides this: {}", missing.why),
            next: "beamtune doctor on the node".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests;
