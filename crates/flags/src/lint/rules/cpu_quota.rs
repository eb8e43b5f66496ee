//! BF027: schedulers and their spinning against the CPU limit of a container or a unit.

use std::collections::BTreeSet;

use crate::lint::case::{Case, Judged, Says, works};
use crate::lint::hazards::numbers;
use crate::lint::node::{Part, Value};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF027"),
    name: "cpu-quota",
    finds: "More schedulers than the CPU limit pays for, and threads that spin where CPU time is shared or limited.",
    level: Level::Warning,
};

/// The flags that make idle threads spin.
const SPINNING: &[&str] = &["+sbwt", "+sbwtdcpu", "+sbwtdio"];
const NO_SPINNING: &str = "Write +sbwt none +sbwtdcpu none +sbwtdio none.";

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none()) {
        match judged.setting.id() {
            "+S" => schedulers(case, judged, found),
            id if SPINNING.contains(&id) => spinning(case, judged, found),
            _ => {}
        }
    }
    let mut told: BTreeSet<(usize, Option<usize>)> = BTreeSet::new();
    for part in &case.node.parts {
        if is_for_node(part) && told.insert((part.file, part.site.container)) {
            nothing_said(case, part, found);
        }
    }
}

fn cpus(thousandths: u64) -> String {
    let whole = thousandths / 1000;
    match thousandths % 1000 {
        0 => whole.to_string(),
        part => format!("{whole}.{}", format!("{part:03}").trim_end_matches('0')),
    }
}

/// `+S` against the quota: what is given as online, or as the number of all.
fn schedulers(case: &Case<'_, '_>, judged: &Judged<'_, '_>, found: &mut Vec<Finding>) {
    let part = case.node.part_of(judged.setting);
    let Some((quota, span)) = &part.site.quota else { return };
    let Value::Text(text) = &judged.setting.value else { return };
    let (all, online) = numbers(text);
    let Some(online) = online.or(all).and_then(|online| u64::try_from(online).ok()) else { return };
    // Less than one CPU still gets one scheduler.
    let paid = (quota / 1000).max(1);
    if online <= paid {
        return;
    }
    let says = Says {
        message: format!("{} puts {online} schedulers online where {} CPUs are paid for", case.quoted(judged.setting), cpus(*quota)),
        reason: "When the quota of a period is used up the kernel stops all threads until the next, those that hold locks among them."
            .to_owned(),
        remedy: format!("Write +S {paid}:{paid}. From OTP 26.1 on the VM finds the quota by itself, if +S is left out."),
    };
    let mut finding = case.about(&RULE, Level::Warning, judged.setting, judged.releases(works), says);
    finding.related.push((part.file, span.clone(), "is the CPU limit".to_owned()));
    found.push(finding);
}

fn spinning(case: &Case<'_, '_>, judged: &Judged<'_, '_>, found: &mut Vec<Finding>) {
    let part = case.node.part_of(judged.setting);
    let limited = part.site.quota.is_some();
    let Value::Text(text) = &judged.setting.value else { return };
    if text == "none" || !(limited || part.site.shared) {
        return;
    }
    let where_ = if limited { "under a CPU limit" } else { "in a container, on CPUs that others use too" };
    let says = Says {
        message: format!("{} lets idle threads spin {where_}", case.quoted(judged.setting)),
        reason:
            "Spinning is CPU use: it eats the quota, and takes the CPU from its neighbours (manual of erl)."
                .to_owned(),
        remedy: NO_SPINNING.to_owned(),
    };
    found.push(case.about(&RULE, Level::Warning, judged.setting, judged.releases(works), says));
}

/// Whether a part holds flags of a node, and not of a tool.
fn is_for_node(part: &Part<'_>) -> bool {
    match &part.fragment.place {
        Place::Variable { effect, .. } => !effect.of_tool && effect.ignored.is_none(),
        Place::ArgsFile { .. } | Place::CommandLine { .. } | Place::LiveNode => true,
        Place::FileNames => false,
    }
}

/// A limit or a request, and no flag that takes care of it.
fn nothing_said(case: &Case<'_, '_>, part: &Part<'_>, found: &mut Vec<Finding>) {
    let releases = case.node.target.releases.clone();
    let scope = part.scope;
    if case.node.is_opaque(scope) || part.site.container.is_some() && case.node.is_of_product(scope) {
        return;
    }
    if let Some((quota, span)) = &part.site.quota
        && !case.node.is_given(scope, "+sbwt")
        && !case.node.is_of_product(scope)
    {
        let says = Says {
            message: format!("Idle schedulers spin under the limit of {} CPUs: no +sbwt is given here", cpus(*quota)),
            reason: "By default they spin before they sleep, which is CPU use and eats the quota. Before OTP 26.1 the VM may not even find the quota, and starts a scheduler for each CPU of the machine."
                .to_owned(),
            remedy: format!("{NO_SPINNING} And give as many schedulers as the limit pays for: +S {0}:{0}.", (quota / 1000).max(1)),
        };
        found.push(Finding {
            releases: releases.clone(),
            ..part.finding(&RULE, Level::Note, span.clone(), "+sbwt", says)
        });
    }
    if let Some(span) = &part.site.request
        && part.site.quota.is_none()
        && !case.node.is_given(scope, "+S")
    {
        let says = Says {
            message: "A CPU request without a limit is not seen by the VM, and no +S is given here"
                .to_owned(),
            reason: "A request is no quota: the VM starts one scheduler for each CPU of the machine."
                .to_owned(),
            remedy: "Give as many schedulers as are asked for, +S 1:1 at least; or a limit.".to_owned(),
        };
        found.push(Finding { releases, ..part.finding(&RULE, Level::Note, span.clone(), "+S", says) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_cpu_are_told_without_zeros() {
        assert_eq!(cpus(500), "0.5");
        assert_eq!(cpus(2000), "2");
        assert_eq!(cpus(1250), "1.25");
        assert_eq!(cpus(1005), "1.005");
    }
}
