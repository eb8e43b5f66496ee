//! BF027: schedulers and busy waiting under the CPU limit of a container or a systemd unit.

use std::collections::BTreeSet;

use crate::lint::case::{Case, FindingText, JudgedSetting, takes_effect};
use crate::lint::hazards::numbers;
use crate::lint::node::{Part, Value};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF027"),
    name: "cpu-quota",
    description: "More schedulers than the CPU limit allows, or busy waiting where CPU time is shared or limited.",
    level: Level::Warning,
};

/// The flags that control the busy waiting of idle threads.
const BUSY_WAIT: &[&str] = &["+sbwt", "+sbwtdcpu", "+sbwtdio"];
const NO_BUSY_WAIT: &str = "Write +sbwt none +sbwtdcpu none +sbwtdio none.";

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none()) {
        match judged.setting.id() {
            "+S" => schedulers(case, judged, found),
            id if BUSY_WAIT.contains(&id) => busy_waiting(case, judged, found),
            _ => {}
        }
    }
    let mut reported: BTreeSet<(usize, Option<usize>)> = BTreeSet::new();
    for part in &case.node.parts {
        if is_for_node(part) && reported.insert((part.file, part.site.container)) {
            limit_without_flag(case, part, found);
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

/// Compares the number of schedulers that `+S` gives, if possible of those online, with the quota.
fn schedulers(case: &Case<'_, '_>, judged: &JudgedSetting<'_, '_>, found: &mut Vec<Finding>) {
    let part = case.node.part_of(judged.setting);
    let Some((quota, span)) = &part.site.quota else { return };
    let Value::Text(text) = &judged.setting.value else { return };
    let (all, online) = numbers(text);
    let Some(online) = online.or(all).and_then(|online| u64::try_from(online).ok()) else { return };
    // Even with a quota below one CPU, there is one scheduler.
    let paid = (quota / 1000).max(1);
    if online <= paid {
        return;
    }
    let texts = FindingText {
        message: format!("{} puts {online} schedulers online, but the limit is {} CPUs", case.quoted(judged.setting), cpus(*quota)),
        reason: "When the quota of a period is used up, the kernel stops all threads until the next period, even those that hold locks."
            .to_owned(),
        remedy: format!("Write +S {paid}:{paid}. Since OTP 26.1 the VM detects the quota if +S is omitted."),
    };
    let mut finding = case.about(&RULE, Level::Warning, judged.setting, judged.releases(takes_effect), texts);
    finding.related.push((part.file, span.clone(), "the CPU limit".to_owned()));
    found.push(finding);
}

fn busy_waiting(case: &Case<'_, '_>, judged: &JudgedSetting<'_, '_>, found: &mut Vec<Finding>) {
    let part = case.node.part_of(judged.setting);
    let limited = part.site.quota.is_some();
    let Value::Text(text) = &judged.setting.value else { return };
    if text == "none" || !(limited || part.site.shared) {
        return;
    }
    let where_ = if limited { "under a CPU limit" } else { "in a container, on CPUs shared with others" };
    let texts = FindingText {
        message: format!("{} makes idle threads busy-wait {where_}", case.quoted(judged.setting)),
        reason:
            "Busy waiting uses CPU time: it consumes the quota and takes CPU time from neighbours (manual of erl)."
                .to_owned(),
        remedy: NO_BUSY_WAIT.to_owned(),
    };
    found.push(case.about(&RULE, Level::Warning, judged.setting, judged.releases(takes_effect), texts));
}

/// Whether a part contains flags for a node and not for a tool.
fn is_for_node(part: &Part<'_>) -> bool {
    match &part.fragment.place {
        Place::Variable { effect, .. } => !effect.for_tool && effect.ignored.is_none(),
        Place::ArgsFile { .. } | Place::CommandLine { .. } | Place::RunningNode => true,
        Place::FileNames => false,
    }
}

/// Reports a CPU limit or request if no flag takes it into account.
fn limit_without_flag(case: &Case<'_, '_>, part: &Part<'_>, found: &mut Vec<Finding>) {
    let releases = case.node.target.releases.clone();
    let scope = part.scope;
    if case.node.is_opaque(scope) || part.site.container.is_some() && case.node.is_of_product(scope) {
        return;
    }
    if let Some((quota, span)) = &part.site.quota
        && !case.node.is_given(scope, "+sbwt")
        && !case.node.is_of_product(scope)
    {
        let texts = FindingText {
            message: format!("Idle schedulers busy-wait under the limit of {} CPUs: no +sbwt is given", cpus(*quota)),
            reason: "By default, schedulers busy-wait before they sleep, which consumes the quota. Before OTP 26.1, the VM may not detect the quota and starts one scheduler per CPU of the host."
                .to_owned(),
            remedy: format!("{NO_BUSY_WAIT} Also limit the schedulers: +S {0}:{0}.", (quota / 1000).max(1)),
        };
        found.push(Finding {
            releases: releases.clone(),
            ..part.finding(&RULE, Level::Note, span.clone(), "+sbwt", texts)
        });
    }
    if let Some(span) = &part.site.request
        && part.site.quota.is_none()
        && !case.node.is_given(scope, "+S")
    {
        let texts = FindingText {
            message: "The VM does not see a CPU request without a limit, and no +S is given".to_owned(),
            reason: "A request is not a quota: the VM starts one scheduler per CPU of the host.".to_owned(),
            remedy: "Give as many schedulers as CPUs are requested, at least +S 1:1; or set a limit."
                .to_owned(),
        };
        found.push(Finding { releases, ..part.finding(&RULE, Level::Note, span.clone(), "+S", texts) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_a_cpu_have_no_trailing_zeros() {
        assert_eq!(cpus(500), "0.5");
        assert_eq!(cpus(2000), "2");
        assert_eq!(cpus(1250), "1.25");
        assert_eq!(cpus(1005), "1.005");
    }
}
