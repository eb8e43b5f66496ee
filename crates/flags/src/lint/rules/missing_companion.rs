//! BF026: a flag that needs another setting to do what it is for.

use crate::lint::case::{Case, Says};
use crate::lint::hazards::hazards;
use crate::lint::maker::Maker;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF026"),
    name: "missing-companion",
    finds: "A flag without the setting that it needs, such as -heart without ERL_CRASH_DUMP_SECONDS.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let Some(word) = part.fragment.words.get(flag.at) else { continue };
        for wants in hazards().wants.iter().filter(|wants| wants.flag == word.text) {
            // Of a live emulator we see the arguments, and not its environment.
            let unseen = part.fragment.place == Place::LiveNode || case.node.is_opaque(part.scope);
            if unseen || case.node.is_given(part.scope, &wants.other) {
                continue;
            }
            let erlinit = wants.erlinit.as_ref().filter(|_| part.maker == Maker::Nerves);
            let reason = erlinit.map(|erlinit| format!("{} {erlinit}", wants.why));
            let says = Says {
                message: format!("`{}` {}", word.text, wants.says),
                reason: reason.unwrap_or_else(|| wants.why.clone()),
                remedy: wants.remedy.clone(),
            };
            let level = if erlinit.is_some() { Level::Note } else { Level::Warning };
            found.push(part.finding(&RULE, level, word.span.clone(), &word.text, says));
        }
    }
}
