//! BF026: a flag without another setting that it requires to be useful.

use crate::lint::case::{Case, FindingText};
use crate::lint::hazards::hazards;
use crate::lint::release_tool::ReleaseTool;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF026"),
    name: "missing-companion",
    description: "A flag without the setting that it needs, such as -heart without ERL_CRASH_DUMP_SECONDS.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let Some(word) = part.fragment.words.get(flag.at) else { continue };
        for required in hazards().requirements.iter().filter(|required| required.flag == word.text) {
            // The environment of a running emulator is unknown.
            let unseen = part.fragment.place == Place::RunningNode || case.node.is_opaque(part.scope);
            if unseen || case.node.is_given(part.scope, &required.other) {
                continue;
            }
            let erlinit = required.erlinit.as_ref().filter(|_| part.release_tool == ReleaseTool::Nerves);
            let reason = erlinit.map(|erlinit| format!("{} {erlinit}", required.why));
            let texts = FindingText {
                message: format!("`{}` {}", word.text, required.says),
                reason: reason.unwrap_or_else(|| required.why.clone()),
                remedy: required.remedy.clone(),
            };
            let level = if erlinit.is_some() { Level::Note } else { Level::Warning };
            found.push(part.finding(&RULE, level, word.span.clone(), &word.text, texts));
        }
    }
}
