//! BF024: a node's name that is given twice, or with words behind it; a cookie that is given twice.

use std::collections::BTreeMap;

use crate::lint::case::{Case, Says, short};
use crate::lint::node::InitFlag;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF024"),
    name: "node-name",
    finds: "-name and -sname given twice, together, or with more than one word behind; -setcookie given twice.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    cookies(case, found);
    for (index, part) in case.node.parts.iter().enumerate() {
        if part.fragment.place == Place::LiveNode {
            continue;
        }
        let words = &part.fragment.words;
        let is_name = |flag: &&InitFlag| {
            let word = words.get(flag.at);
            word.is_some_and(|word| !word.conditional && matches!(word.text.as_str(), "-name" | "-sname"))
        };
        let names: Vec<&InitFlag> = case.node.arguments_of(index).iter().filter(is_name).collect();
        for (nth, flag) in names.iter().enumerate() {
            let Some(word) = words.get(flag.at) else { continue };
            let name = flag.values.first().and_then(|at| words.get(*at));
            let span = word.span.start..name.unwrap_or(word).span.end;
            let given = format!("{} {}", word.text, name.map(|name| short(&name.text)).unwrap_or_default());
            if let Some(last) =
                names.last().filter(|_| nth + 1 < names.len()).and_then(|last| words.get(last.at))
            {
                let says = Says {
                    message: format!("`{given}` does not count: the `{}` behind it does", last.text),
                    reason: "The last of -name and -sname wins, without a word (seen on OTP 23 and 27); nodes with long and with short names cannot talk to each other."
                        .to_owned(),
                    remedy: "Keep one of them.".to_owned(),
                };
                let mut finding = part.finding(&RULE, Level::Warning, span.clone(), &word.text, says);
                finding.related.push((part.file, last.span.clone(), "counts".to_owned()));
                found.push(finding);
            }
            if let Some(second) = flag.values.get(1).and_then(|at| words.get(*at)) {
                let says = Says {
                    message: format!("`{given}` has further words behind it, `{}` first: the node starts without a name", short(&second.text)),
                    reason: "All words up to the next flag belong to it, and with more than one it is not valid. OTP 23 says nothing; OTP 25, 27 and 29 report an error and start all the same."
                        .to_owned(),
                    remedy: "Remove the words behind the name; a comment begins with #.".to_owned(),
                };
                found.push(part.finding(&RULE, Level::Warning, span, &word.text, says));
            }
        }
    }
}

/// A cookie that is given twice, in one place or in several of one node. Its text is not repeated.
fn cookies(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    let mut first: BTreeMap<usize, (usize, &InitFlag)> = BTreeMap::new();
    // In the order of effect, so that the order of files does not matter.
    let mut flags: Vec<&InitFlag> = case.node.arguments.iter().collect();
    flags.sort_by_key(|flag| case.node.parts.get(flag.part).and_then(|part| part.fragment.place.order()));
    for flag in flags {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let Some(word) = part.fragment.words.get(flag.at) else { continue };
        let known = !word.conditional && part.fragment.place != Place::LiveNode;
        if word.text != "-setcookie" || !known {
            continue;
        }
        let Some((before, other)) = first.get(&part.scope) else {
            first.insert(part.scope, (flag.part, flag));
            continue;
        };
        let Some(earlier) = case.node.parts.get(*before) else { continue };
        // Of two assignments of one variable, or of two args files, only one may be in use.
        if flag.part != *before && part.fragment.place.order() == earlier.fragment.place.order() {
            continue;
        }
        let says = Says {
            message: "`-setcookie` is given twice, so neither counts: the node takes the cookie of its file"
                .to_owned(),
            reason: "With more than one the node reads ~/.erlang.cookie, or makes one up, without a word (seen on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: "Keep one of them.".to_owned(),
        };
        let mut finding = part.finding(&RULE, Level::Warning, word.span.clone(), &word.text, says);
        if let Some(other) = earlier.fragment.words.get(other.at) {
            finding.related.push((earlier.file, other.span.clone(), "is the other one".to_owned()));
        }
        found.push(finding);
    }
}
