//! Which findings are consequences of other findings.
//!
//! There are two ways. A table names pairs of rules of which one is known to cause the other, with the condition and the reason. In
//! addition, claims compete: if causes claim most of the part of the CPU account that a symptom claims, the symptom follows from them. Both
//! depend on codes, subjects, claims and signals, never on text.

mod conditions;
mod cpu;
mod table;

use beamtune_model::diagnosis::compare;
use beamtune_model::{Finding, Follows, Level, Outcome, Signal, Subject, Verdict};

use conditions::{has_the_cpu, takes_half};
use table::Relation;

use crate::rule::Role;

/// The rule about too many processes for the schedulers.
const OVERLOAD: &str = "BT065";

/// A cause below this level explains nothing, unless its rule says otherwise.
const MIN_LEVEL: Level = Level::Warning;

/// Whether a finding may explain another one. A finding that only says where CPU time goes explains only notices, and follows from findings
/// of any level.
fn explains(cause: &Finding, effect: &Finding) -> bool {
    let is_where_only = |finding: &Finding| finding.has(&Signal::WhereOnly);
    let as_notice = crate::rule(cause.code.0).is_some_and(|rule| rule.explains_as_notice);
    cause.level >= MIN_LEVEL
        || is_where_only(effect)
        || as_notice && (effect.level < MIN_LEVEL || !is_where_only(cause))
}

/// Causes explain a symptom if they claim at least this share of what it claims (judgement: half).
const EXPLAINS: f64 = 0.5;

/// Why a symptom follows from causes with the same claim.
const CLAIMS_THE_SAME: &str = "it accounts for most of the CPU time in this finding";

/// The rule that evaluates flags alone, whatever effect the recording shows.
const BY_FLAG: &str = "BT064";

/// Removes a finding about a flag alone if another finding says as much about that flag: its effect on this node matters more than a
/// possible effect.
pub fn drop_repeated(verdicts: &mut [Verdict]) {
    let says_as_much = |finding: &Finding, other: &Finding| {
        let is_same = finding.subject.as_ref().is_some_and(|subject| other.is_about(subject));
        let entry = finding.remedies.first().map(|remedy| remedy.entry.as_str());
        let mends_it = other.remedies.iter().any(|remedy| Some(remedy.entry.as_str()) == entry);
        other.code.0 != BY_FLAG && !other.latent && other.level >= finding.level && (is_same || mends_it)
    };
    let told: Vec<(usize, usize)> = findings(verdicts)
        .filter(|(_, finding)| finding.code.0 == BY_FLAG)
        .filter(|(_, finding)| findings(verdicts).any(|(_, other)| says_as_much(finding, other)))
        .map(|(place, _)| place)
        .collect();
    for (verdict, finding) in told.into_iter().rev() {
        let Some(Verdict { outcome, .. }) = verdicts.get_mut(verdict) else { continue };
        if let Outcome::Found(found) = outcome {
            found.remove(finding);
            if found.is_empty() {
                *outcome = Outcome::Healthy("other findings report the problems with its flags".to_owned());
            }
        }
    }
}

/// Sets which finding each finding follows from, replacing earlier values.
pub fn relate(verdicts: &mut [Verdict]) {
    for verdict in verdicts.iter_mut() {
        if let Outcome::Found(found) = &mut verdict.outcome {
            found.iter_mut().for_each(|finding| finding.follows = None);
        }
    }
    let mut follows = Vec::new();
    for (place, effect) in findings(verdicts) {
        let known = by_table(verdicts, effect);
        let competed = || by_claims(verdicts, effect);
        if let Some((cause, explained)) = known.map(|cause| (cause, None)).or_else(competed) {
            follows.push((place, cause, explained));
        }
    }
    for ((verdict, finding), cause, explained) in follows {
        if let Some(Verdict { outcome: Outcome::Found(found), .. }) = verdicts.get_mut(verdict)
            && let Some(finding) = found.get_mut(finding)
        {
            finding.follows = Some(cause);
            if let Some(claim) = &mut finding.claim {
                claim.explained = explained.or(claim.explained);
            }
        }
    }
}

/// Finds the cause in the table of relations.
fn by_table(verdicts: &[Verdict], effect: &Finding) -> Option<Follows> {
    by_overload(verdicts, effect).or_else(|| by_pairs(verdicts, effect))
}

/// Finds out why processes wait for schedulers: what uses the CPU, or takes it from the node.
fn by_overload(verdicts: &[Verdict], effect: &Finding) -> Option<Follows> {
    if effect.code.0 != OVERLOAD {
        return None;
    }
    let is_cause = |cause: &&Finding| explains(cause, effect) && (has_the_cpu(cause) || takes_half(cause));
    // Processes that never wait come first, because too few schedulers follow from them, too.
    let waits = |cause: &Finding| !cause.has(&Signal::NeverWaits);
    let (_, cause) = findings(verdicts)
        .filter(|(_, cause)| is_cause(cause))
        .min_by(|a, b| waits(a.1).cmp(&waits(b.1)).then_with(|| compare(a.1, b.1)))?;
    let why = match has_the_cpu(cause) {
        true => "processes wait because the schedulers lack this CPU",
        false => "it uses at least half of the CPU, and the rest is not enough",
    };
    Some(Follows { code: cause.code, rule: cause.rule, why })
}

/// All relations. If several causes are possible, the first one applies.
fn relations() -> impl Iterator<Item = &'static Relation> {
    cpu::FIRST.iter().chain(table::relations()).chain(cpu::LAST)
}

/// Finds the cause in the table of pairs of rules.
fn by_pairs(verdicts: &[Verdict], effect: &Finding) -> Option<Follows> {
    relations().filter(|relation| relation.effects.contains(&effect.code.0)).find_map(|relation| {
        let is_cause = |cause: &&Finding| {
            cause.code.0 == relation.cause && explains(cause, effect) && (relation.is_meant)(cause, effect)
        };
        let (_, cause) = findings(verdicts).find(|(_, cause)| is_cause(cause))?;
        Some(Follows { code: cause.code, rule: cause.rule, why: relation.why })
    })
}

/// Finds the cause by claims on the same part of the CPU account, with the cores that all such causes explain.
fn by_claims(verdicts: &[Verdict], effect: &Finding) -> Option<(Follows, Option<f64>)> {
    let claim = effect.claim.filter(|claim| claim.part.is_some())?;
    if role(effect) != Role::Symptom {
        return None;
    }
    let competes = |cause: &&Finding| {
        let is_same_part =
            cause.claim.is_some_and(|other| (other.account, other.part) == (claim.account, claim.part));
        let pid = |finding: &Finding| finding.subject.as_ref().and_then(Subject::pid).map(str::to_owned);
        let is_elsewhere = pid(cause).zip(pid(effect)).is_some_and(|(one, other)| one != other);
        cause.code != effect.code
            && role(cause) == Role::Cause
            && cause.level >= MIN_LEVEL
            && is_same_part
            && !is_elsewhere
    };
    let cores = |finding: &Finding| finding.claim.map_or(0.0, |claim| claim.cost.value());
    let causes: Vec<&Finding> = findings(verdicts).map(|(_, finding)| finding).filter(competes).collect();
    let explained = causes.iter().map(|cause| cores(cause)).sum::<f64>().min(cores(effect));
    let largest = causes.into_iter().max_by(|a, b| cores(a).total_cmp(&cores(b)))?;
    (explained >= EXPLAINS * cores(effect)).then_some((
        Follows { code: largest.code, rule: largest.rule, why: CLAIMS_THE_SAME },
        Some(explained),
    ))
}

fn role(finding: &Finding) -> Role {
    crate::rule(finding.code.0).map_or(Role::Cause, |rule| rule.role)
}

/// Returns all findings, each with the index of its rule and its index among that rule's findings.
fn findings(verdicts: &[Verdict]) -> impl Iterator<Item = ((usize, usize), &Finding)> {
    verdicts.iter().enumerate().flat_map(|(verdict, judged)| {
        let found: &[Finding] = match &judged.outcome {
            Outcome::Found(found) => found,
            Outcome::Healthy(_) | Outcome::NotJudged { .. } => &[],
        };
        found.iter().enumerate().map(move |(index, finding)| ((verdict, index), finding))
    })
}

#[cfg(test)]
mod tests;
