//! BF025: a shell variable in an args file that is made from EEx.

use crate::lint::case::{Case, Says, short};
use crate::lint::maker::Maker;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF025"),
    name: "variable-not-filled-in",
    finds: "A shell variable in a vm.args.eex, which mix release does not fill in.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for (index, part) in case.node.parts.iter().enumerate() {
        if !matches!(part.maker, Maker::Mix | Maker::Nerves) {
            continue;
        }
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
            let owner = case
                .node
                .arguments_of(index)
                .iter()
                .filter(|flag| flag.values.contains(&at))
                .map(|flag| flag.at)
                .chain(
                    case.node
                        .settings
                        .iter()
                        .filter(|setting| setting.part == index && setting.words.contains(&at))
                        .map(|setting| setting.words.start),
                )
                .min()
                .and_then(|owner| words.get(owner))
                .unwrap_or(word);
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
