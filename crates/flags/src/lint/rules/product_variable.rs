//! BF030: a variable of a product that has no effect or has side effects.

use crate::lint::case::{Case, FindingText};
use crate::lint::hazards::hazards;
use crate::lint::rules::refused_value::capital;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF030"),
    name: "product-variable",
    description: "A variable of a product that has no effect in this file, or has side effects.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for part in &case.node.parts {
        let Place::Variable { name, effect } = &part.fragment.place else { continue };
        let texts = if let Some(why) = effect.ignored {
            let (why, remedy) = why.rsplit_once(": ").unwrap_or((why, "remove it"));
            FindingText {
                message: format!("{name} has no effect in this file"),
                reason: format!("{}.", capital(why)),
                remedy: format!("{}.", capital(remedy)),
            }
        } else if let Some(known) = hazards().variable.iter().find(|variable| variable.name == *name) {
            FindingText {
                message: format!("{name} {}", known.says),
                reason: known.why.clone(),
                remedy: known.remedy.clone(),
            }
        } else {
            continue;
        };
        let span = case.node.span_of_variable(part, name);
        found.push(part.finding(&RULE, Level::Warning, span, name, texts));
    }
}
