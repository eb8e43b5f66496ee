//! The rules: what each known cause of a busy, slow or large VM looks like in a recording.
//!
//! [`diagnose`] is a pure function of a [`Period`]: no I/O, no clock, no node. Live nodes, replayed
//! files and trials meet here, so anybody can derive a diagnosis again from the same file.
//!
//! One file per rule in `rules/`, one page per rule in `docs/rules/`, both named after the rule; a test
//! holds them together. What several rules derive from a period in the same way stands in [`view`].

mod acceptors;
mod account;
mod beside;
mod consequences;
pub mod contention;
mod events;
mod fixes;
mod holds;
mod known;
mod memory;
mod place;
pub mod remedy;
pub mod returns;
pub mod rule;
pub mod rules;
pub mod view;
pub mod watch;
mod watermark;

pub use rule::{Judgement, Rule};
pub use rules::RULES;

use beamtune_model::period::NOT_IN_TEXT;
use beamtune_model::{Cost, Diagnosis, Missing, Outcome, Period, Verdict};
use rule::{Draft, NOTICE};

/// Judges a period by every rule, and tells where the CPUs went.
pub fn diagnose(period: &Period) -> Diagnosis {
    Diagnosis { cpu: account::account(period).ok(), ..by(RULES.iter(), period) }
}

/// Judges a period by the rules about memory alone.
pub fn diagnose_memory(period: &Period) -> Diagnosis {
    by(RULES.iter().filter(|rule| is_about_memory(rule.code.0)), period)
}

/// Judges a period by the rules about waiting for locks alone.
pub fn diagnose_locks(period: &Period) -> Diagnosis {
    by(RULES.iter().filter(|rule| rules::ABOUT_LOCKS.contains(&rule.code.0)), period)
}

/// Whether a rule, by its code, is about memory.
pub fn is_about_memory(code: &str) -> bool {
    rules::ABOUT_MEMORY.contains(&code)
}

/// Whether what a rule advises makes memory smaller. Some rules about memory are about the CPU time that it costs.
pub fn is_for_memory(code: &str) -> bool {
    is_about_memory(code) && !rules::MEMORY_THAT_COSTS_CPU.contains(&code)
}

fn by<'a>(rules: impl Iterator<Item = &'a Rule>, period: &Period) -> Diagnosis {
    let verdict = |rule: &Rule| Verdict { code: rule.code, rule: rule.name, outcome: judge(rule, period) };
    let mut verdicts: Vec<Verdict> = rules.map(verdict).collect();
    consequences::note(&mut verdicts);
    Diagnosis { verdicts, cpu: None }
}

fn judge(rule: &Rule, period: &Period) -> Outcome {
    if period.is_crash_dump() && !rules::OF_ONE_MOMENT.contains(&rule.code.0) {
        return Outcome::NotJudged {
            reason: "a crash dump is of one moment and tells nothing of the host: what this rule needs is not in it"
                .to_owned(),
            next: "record the node when it runs again: beamtune record --keep 6h".to_owned(),
        };
    }
    let is_text = period.is_imported() && !period.is_crash_dump();
    match (rule.judge)(period) {
        Ok(Judgement::Found(findings)) => {
            let may_use = view::capacity(period).ok().map(|capacity| capacity.cores);
            Outcome::Found(findings.into_iter().map(|draft| by_cost(draft, may_use).finish(rule)).collect())
        }
        Ok(Judgement::Healthy(sentence)) => Outcome::Healthy(sentence),
        Ok(Judgement::NotJudged { reason, next }) => Outcome::NotJudged { reason, next },
        Err(missing) if is_text && missing.why == NOT_IN_TEXT => not_in_text(rule, missing),
        Err(missing) => Outcome::NotJudged { reason: missing.to_string(), next: missing.next },
    }
}

/// CPU time of less than this share of what the node may use is a notice, however much of its work it is (judgement).
const LITTLE_CPU: f64 = 0.01;

/// Severity follows from the cost, as far as that is known in a unit that all nodes have in common: a tenth of a core is much of two, and
/// nothing of sixty-four.
fn by_cost(draft: Draft, may_use_cores: Option<f64>) -> Draft {
    match (draft.cost(), may_use_cores) {
        (Some(Cost::CpuCores(cores)), Some(may_use)) if cores < LITTLE_CPU * may_use => draft.at_most(NOTICE),
        _ => draft,
    }
}

/// Imported text tells nothing of what a rule needs: what else to copy, where tools print that.
fn not_in_text(rule: &Rule, missing: Missing) -> Outcome {
    match rules::BY_TEXT.iter().find(|(code, _)| *code == rule.code.0) {
        Some((_, printed)) => {
            Outcome::NotJudged { reason: missing.to_string(), next: format!("copy {printed}, too") }
        }
        None => Outcome::NotJudged {
            reason: format!("what only a node can be asked for: {}", missing.why),
            next: "beamtune doctor on the node".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests;
