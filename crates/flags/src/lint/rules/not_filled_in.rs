//! BF025: a shell variable in an EEx template of an args file.

use std::collections::BTreeMap;

use crate::lint::case::{Case, FindingText, short};
use crate::lint::node::Part;
use crate::lint::release_tool::ReleaseTool;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF025"),
    name: "variable-not-filled-in",
    description: "A shell variable in a vm.args.eex, which mix release does not expand.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    let is_of_mix = |part: &Part<'_>| matches!(part.release_tool, ReleaseTool::Mix | ReleaseTool::Nerves);
    if !case.node.parts.iter().any(is_of_mix) {
        return;
    }
    let owners = owners(case);
    for (index, part) in case.node.parts.iter().enumerate().filter(|(_, part)| is_of_mix(part)) {
        let words = &part.fragment.words;
        for (at, word) in words.iter().enumerate().filter(|(_, word)| word.dynamic) {
            let Some(begin) = word.text.find("${") else { continue };
            let length = word.text.get(begin..).and_then(|rest| rest.find('}')).unwrap_or(0);
            let variable = word.text.get(begin..=begin + length).unwrap_or("${…}");
            // Text within an EEx tag is Elixir code.
            if word
                .text
                .get(..begin)
                .is_some_and(|before| before.matches("<%").count() > before.matches("%>").count())
            {
                continue;
            }
            let owner = owners.get(&(index, at)).and_then(|owner| words.get(*owner)).unwrap_or(word);
            let texts = FindingText {
                message: format!("`{}` is not expanded: mix release does not expand shell variables in this file", short(variable)),
                reason: "Only text between <% and %> is expanded, when the release is built; the launcher expands no variables. (Distillery does, with REPLACE_OS_VARS.)"
                    .to_owned(),
                remedy: match owner.text.as_str() {
                    "-setcookie" => "Remove the flag, and set RELEASE_COOKIE in the environment or in rel/env.sh.eex.",
                    "-name" | "-sname" => "Remove the flag, and set RELEASE_NODE in rel/env.sh.eex; for a long name also RELEASE_DISTRIBUTION=name.",
                    _ => "Set it in rel/env.sh.eex: flags in ERL_FLAGS, variables of the VM directly.",
                }
                .to_owned(),
            };
            let span = owner.span.start..word.span.end;
            found.push(part.finding(&RULE, Level::Warning, span, &owner.text, texts));
        }
    }
}

/// Maps each word, by part and index, to the first word of the flag or setting to which it belongs.
fn owners(case: &Case<'_, '_>) -> BTreeMap<(usize, usize), usize> {
    let mut owners = BTreeMap::new();
    let mut add = |part: usize, word: usize, owner: usize| {
        let first = owners.entry((part, word)).or_insert(owner);
        *first = owner.min(*first);
    };
    for flag in &case.node.arguments {
        flag.values.iter().for_each(|at| add(flag.part, *at, flag.at));
    }
    for setting in &case.node.settings {
        setting.words.clone().for_each(|at| add(setting.part, at, setting.words.start));
    }
    owners
}
