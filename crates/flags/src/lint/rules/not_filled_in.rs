//! BF025: a shell variable in an args file that is made from EEx.

use std::collections::BTreeMap;

use crate::lint::case::{Case, Says, short};
use crate::lint::maker::Maker;
use crate::lint::node::Part;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF025"),
    name: "variable-not-filled-in",
    finds: "A shell variable in a vm.args.eex, which mix release does not fill in.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    let is_of_mix = |part: &Part<'_>| matches!(part.maker, Maker::Mix | Maker::Nerves);
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
            // What stands in a tag of EEx is Elixir.
            if word
                .text
                .get(..begin)
                .is_some_and(|before| before.matches("<%").count() > before.matches("%>").count())
            {
                continue;
            }
            let owner = owners.get(&(index, at)).and_then(|owner| words.get(*owner)).unwrap_or(word);
            let says = Says {
                message: format!("`{}` stays as it is: mix release fills in no shell variables in this file", short(variable)),
                reason: "Only what stands between <% and %> is filled in, when the release is built; the launcher knows no variables. (Distillery does, with REPLACE_OS_VARS.)"
                    .to_owned(),
                remedy: match owner.text.as_str() {
                    "-setcookie" => "Remove it, and set RELEASE_COOKIE, in the environment or in rel/env.sh.eex.",
                    "-name" | "-sname" => "Remove it, and set RELEASE_NODE in rel/env.sh.eex; for a long name RELEASE_DISTRIBUTION=name, too.",
                    _ => "Set it in rel/env.sh.eex: ERL_FLAGS for flags, and variables of the VM themselves.",
                }
                .to_owned(),
            };
            let span = owner.span.start..word.span.end;
            found.push(part.finding(&RULE, Level::Warning, span, &owner.text, says));
        }
    }
}

/// By part and index of a word, the first word of whatever it belongs to.
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
