//! BF028: schedulers that are bound to CPUs in a container.

use crate::lint::case::{Case, FindingText, takes_effect};
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF028"),
    name: "scheduler-binding",
    description: "Schedulers that are bound to CPUs in a container, where other VMs are bound to the same ones.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| !judged.is_without_effect()) {
        let setting = judged.setting;
        let binds = matches!(setting.id(), "+sbt" | "+stbt")
            && setting.known_value().is_some_and(|value| value != "u");
        if !binds || !case.node.part_of(setting).site.shared {
            continue;
        }
        let texts = FindingText {
            message: format!("{} binds schedulers to CPUs that the container shares with others", case.quoted(setting)),
            reason: "VMs with bound schedulers all use the same CPUs of the host first, even while others are idle; a quota reserves no CPU (manual of erl)."
                .to_owned(),
            remedy: "Leave schedulers unbound, unless the container has dedicated CPUs.".to_owned(),
        };
        found.push(case.about(&RULE, Level::Warning, setting, judged.releases(takes_effect), texts));
    }
}
