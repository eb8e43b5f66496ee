//! BF028: schedulers that are bound to CPUs in a container.

use crate::lint::case::{Case, Says, works};
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF028"),
    name: "scheduler-binding",
    finds: "Schedulers that are bound to CPUs in a container, where others are bound to the same ones.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| !judged.is_dead()) {
        let setting = judged.setting;
        let binds = matches!(setting.id(), "+sbt" | "+stbt")
            && setting.known_value().is_some_and(|value| value != "u");
        if !binds || !case.node.part_of(setting).site.shared {
            continue;
        }
        let says = Says {
            message: format!("{} binds schedulers to CPUs that the container shares with others", case.quoted(setting)),
            reason: "Every bound VM of a machine takes the same CPUs first, and stays there while others are idle; a quota gives no CPU of its own (manual of erl)."
                .to_owned(),
            remedy: "Leave schedulers unbound, unless the container has CPUs for itself.".to_owned(),
        };
        found.push(case.about(&RULE, Level::Warning, setting, judged.releases(works), says));
    }
}
