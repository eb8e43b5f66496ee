//! Joins findings of one rule about processes of one kind that wait in the same place.
//!
//! A peer that does not read blocks one connection, and fifty such peers block fifty. The fault and the remedy are the same.

use std::mem::{Discriminant, discriminant};

use beamtune_model::diagnosis::compare;
use beamtune_model::{
    Account, Claim, Cost, CpuUse, Evidence, Finding, Outcome, Period, Signal, Subject, Unit, Verdict,
};

use crate::signals::kinds::Kind;
use crate::text;

/// Maximum number of processes that a joined finding names (judgement).
const MAX_MEMBERS: usize = 20;

/// Adds to each finding about a process where the process waits, and joins similar findings of one rule.
pub(crate) fn join(verdicts: &mut [Verdict], period: &Period) {
    for verdict in verdicts {
        if let Outcome::Found(found) = &mut verdict.outcome {
            *found = by_kind(std::mem::take(found), period);
        }
    }
}

/// Groups findings by kind and unit, and joins each group.
fn by_kind(found: Vec<Finding>, period: &Period) -> Vec<Finding> {
    let mut groups: Vec<(Option<Kind>, Vec<Finding>)> = Vec::new();
    for mut finding in found {
        let process = finding.subject.as_ref().and_then(Subject::pid).and_then(|pid| period.process(pid));
        let kind = process.and_then(Kind::of).filter(|_| !finding.latent);
        finding.signals.extend(kind.as_ref().and_then(Kind::signal));
        let alike = groups.iter_mut().find(|(other, group)| {
            kind.is_some()
                && *other == kind
                && group.first().is_some_and(|first| measured(first) == measured(&finding))
        });
        match alike {
            Some((_, group)) => group.push(finding),
            None => groups.push((kind, vec![finding])),
        }
    }
    groups.into_iter().flat_map(|(kind, group)| joined(kind, group)).collect()
}

/// Unit of the first number, and the claim. Findings of one rule that differ in these are not joined.
type Measured = (Option<Unit>, Option<(Account, Option<CpuUse>, Discriminant<Cost>)>);

/// Findings with the same value may be joined.
fn measured(finding: &Finding) -> Measured {
    let unit = finding.evidence.first().map(|evidence| evidence.unit);
    (unit, finding.claim.map(|claim| (claim.account, claim.part, discriminant(&claim.cost))))
}

/// Joins the findings of a group into one, which is about their kind of processes.
fn joined(kind: Option<Kind>, mut group: Vec<Finding>) -> Vec<Finding> {
    let Some(kind) = kind.filter(|_| group.len() > 1) else { return group };
    let cost = |finding: &Finding| finding.claim.map_or(0.0, |claim| claim.cost.value());
    let is_worse = |a: &Finding, b: &Finding| {
        let by_harm = b.level.cmp(&a.level).then(b.severity.total_cmp(&a.severity));
        by_harm.then(cost(b).total_cmp(&cost(a))).then_with(|| compare(a, b))
    };
    group.sort_by(is_worse);
    let count = group.len();
    let members: Vec<Signal> = group
        .iter()
        .filter_map(|finding| finding.subject.clone())
        .take(MAX_MEMBERS)
        .map(Signal::Member)
        .collect();
    let sum = sum(&group);
    let claim = claim(&group);
    let others: Vec<Signal> = group.iter().flat_map(|finding| finding.signals.clone()).collect();
    let Some(worst) = group.into_iter().next() else { return Vec::new() };
    let mut signals: Vec<Signal> = Vec::new();
    for signal in others.into_iter().chain(members) {
        if !signals.contains(&signal) {
            signals.push(signal);
        }
    }
    let worst_subject = worst.subject.as_ref().map(Subject::to_string).unwrap_or_default();
    let waiting = claim.and_then(|claim| match claim.cost {
        Cost::Waiting(count) => Some(text::number(count.round())),
        _ => None,
    });
    let processes = text::several(count, &kind.name);
    let (title, worst_title) = match (&kind.place, waiting) {
        (_, Some(waiting)) => {
            (format!("{processes} have {waiting} messages or callers waiting"), Some(worst.title))
        }
        (Some(place), None) => (format!("{processes} wait in {place}"), Some(worst.title)),
        (None, None) => (format!("{processes}; worst: {}", worst.title), None),
    };
    let place = kind.place.as_ref().map(|place| format!("in {place}"));
    let parts = [place, worst_title.map(|title| format!("worst: {title}")), Some(worst.detail)];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let detail = parts.join("; ");
    let number = Evidence::number("processes", count as f64, Unit::Count);
    let number = match &kind.place {
        Some(place) => number.with_text(format!("in {place}")),
        None => number,
    };
    let evidence = [Some(number), sum, Some(Evidence::text("worst of them", worst_subject))];
    let evidence = evidence.into_iter().flatten().chain(worst.evidence).collect();
    let subject = Some(Subject::ProcessKind { name: kind.name, starter: None });
    vec![Finding { title, detail, subject, signals, claim, evidence, ..worst }]
}

/// Adds up the first number of each finding, if it is a count.
fn sum(group: &[Finding]) -> Option<Evidence> {
    let first = group.first()?.evidence.first()?;
    let values: Vec<f64> = group.iter().filter_map(|finding| finding.evidence.first()?.value).collect();
    let is_sum = first.unit == Unit::Count && values.len() == group.len();
    let (min, max) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
    is_sum.then(|| {
        let each = if min == max { format!("{min:.0} each") } else { format!("{min:.0} to {max:.0} each") };
        let what = format!("{}, sum of {}", first.what, group.len());
        Evidence::number(what, values.iter().sum(), Unit::Count).with_text(each)
    })
}

/// Adds up claims of waiting messages and of CPU. Delays do not add up, nor does memory: several processes may refer to the same binary.
fn claim(group: &[Finding]) -> Option<Claim> {
    let worst = group.first()?.claim?;
    let claims = || group.iter().filter_map(|finding| finding.claim);
    let adds_up = matches!(worst.cost, Cost::Waiting(_) | Cost::CpuCores(_));
    if !adds_up {
        return Some(worst);
    }
    let total = claims().map(|claim| claim.cost.value()).sum();
    let share = claims().filter_map(|claim| claim.share).sum::<f64>().min(1.0);
    let cost = match worst.cost {
        Cost::CpuCores(_) => Cost::CpuCores(total),
        _ => Cost::Waiting(total),
    };
    Some(Claim { cost, share: worst.share.map(|_| share), ..worst })
}

#[cfg(test)]
mod tests {
    use beamtune_model::{Account, Code, PeriodBuilder, ProcessRow};

    use super::*;

    /// Findings about processes, each given as initial call and current function, with their numbers of messages.
    fn found(processes: &[(&str, &str)], messages: &[f64]) -> Vec<Finding> {
        let mut builder = PeriodBuilder::default();
        let pid = |index: usize| format!("<0.{index}.0>");
        for (index, (call, at)) in processes.iter().enumerate() {
            builder.process(ProcessRow {
                pid: pid(index),
                initial_call: Some((*call).to_owned()),
                current_function: Some((*at).to_owned()),
                stack: vec![(*at).to_owned()],
                ..ProcessRow::default()
            });
        }
        let period = builder.finish();
        let finding = |(index, (_, messages)): (usize, (&(&str, &str), &f64))| {
            let pid = pid(index);
            let subject = period.process(&pid).map(beamtune_model::ProcessActivity::subject);
            let title = period.title_of(&pid);
            let claim = Claim {
                account: Account::Delay,
                part: None,
                cost: Cost::Waiting(*messages),
                share: Some(0.4),
                explained: None,
            };
            Finding {
                title: format!("{title} has {messages} messages"),
                subject,
                claim: Some(claim),
                evidence: vec![Evidence::number("queue length", *messages, Unit::Count)],
                ..Finding::bare(Code("BT006"), messages / 10.0)
            }
        };
        by_kind(processes.iter().zip(messages).enumerate().map(finding).collect(), &period)
    }

    #[test]
    fn processes_of_one_kind_in_one_place_are_one_finding() {
        let recv = ("shop:init/1", "prim_inet:recv0/3");
        let joined = found(&[recv, recv, recv], &[300.0, 500.0, 400.0]);
        assert_eq!(joined.len(), 1, "{joined:#?}");
        let one = &joined[0];
        assert_eq!(
            (&*one.title, &*one.detail),
            (
                "3 shop processes have 1,200 messages or callers waiting",
                "in prim_inet:recv0/3; worst: shop:init/1 (<0.1.0>) has 500 messages"
            )
        );
        assert_eq!(one.subject, Some(Subject::kind("shop:init/1")));
        assert_eq!(one.severity, 50.0);
        assert!(
            one.claim.is_some_and(|claim| (claim.cost, claim.share) == (Cost::Waiting(1_200.0), Some(1.0)))
        );
        let evidence: Vec<_> = one
            .evidence
            .iter()
            .map(|evidence| (&*evidence.what, evidence.value, evidence.text.as_deref()))
            .collect();
        assert_eq!(
            evidence,
            [
                ("processes", Some(3.0), Some("in prim_inet:recv0/3")),
                ("queue length, sum of 3", Some(1_200.0), Some("300 to 500 each")),
                ("worst of them", None, Some("shop:init/1 (<0.1.0>)")),
                ("queue length", Some(500.0), None),
            ]
        );
        let members = one.signals.iter().filter(|signal| matches!(signal, Signal::Member(_))).count();
        assert_eq!(members, 3);
    }

    #[test]
    fn processes_of_different_kinds_or_places_are_not_joined() {
        let recv = ("shop:init/1", "prim_inet:recv0/3");
        for other in [("shop:init/1", "gen:do_call/4"), ("mail:init/1", "prim_inet:recv0/3")] {
            let apart = found(&[recv, other], &[300.0, 400.0]);
            let subjects: Vec<_> =
                apart.iter().filter_map(|finding| finding.subject.as_ref()?.pid()).collect();
            assert_eq!(subjects, ["<0.0.0>", "<0.1.0>"], "{other:?}");
        }
    }

    #[test]
    fn findings_with_different_costs_or_units_are_not_joined() {
        let finding = |cost: Cost, unit: Unit| {
            let claim = Claim { account: Account::Delay, part: None, cost, share: None, explained: None };
            Finding {
                // The same text: the findings differ only in unit and cost.
                evidence: vec![Evidence::number("the same text", 1.0, unit)],
                subject: Some(Subject::process("<0.9.0>")),
                claim: Some(claim),
                ..Finding::bare(Code("BT017"), 50.0)
            }
        };
        let mut builder = PeriodBuilder::default();
        builder.process(ProcessRow {
            pid: "<0.9.0>".to_owned(),
            name: Some("shop".to_owned()),
            ..ProcessRow::default()
        });
        let period = builder.finish();
        let waiting = || finding(Cost::Waiting(2.0), Unit::Count);
        for other in
            [finding(Cost::DelaySeconds(2.0), Unit::Count), finding(Cost::Waiting(2.0), Unit::Seconds)]
        {
            assert_eq!(by_kind(vec![waiting(), other], &period).len(), 2);
        }
        assert_eq!(by_kind(vec![waiting(), waiting()], &period).len(), 1);
    }
}
