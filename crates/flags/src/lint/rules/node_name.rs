//! BF024: a node's name or a cookie that does not count, because of others or of words behind it.

use std::collections::BTreeMap;

use crate::lint::case::{Case, Says, short};
use crate::lint::maker::Maker;
use crate::lint::node::{InitFlag, Part};
use crate::lint::rules::overridden::place;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Place, Word};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF024"),
    name: "node-name",
    finds: "-name and -sname given twice, together, or with more than one word behind; -setcookie given twice; any of them in a mix release; a long name without a host.",
    level: Level::Warning,
};

/// Where there are both, the first of these counts (`erl_distribution.erl`).
const NAMES: &[&str] = &["-sname", "-name"];

/// More of them in one node are not compared with each other.
const CANDIDATES: usize = 256;

/// A flag that is certainly there.
#[derive(Clone, Copy)]
struct Given<'c> {
    part: &'c Part<'c>,
    flag: &'c InitFlag,
    word: &'c Word,
}

impl Given<'_> {
    /// Whether both are there: of two assignments of one variable, or of two args files, only one may be in use.
    fn is_beside(&self, other: &Given<'_>) -> bool {
        self.flag.part == other.flag.part
            || self.part.fragment.place.order() != other.part.fragment.place.order()
    }

    fn is(&self, other: &Given<'_>) -> bool {
        self.flag.part == other.flag.part && self.flag.at == other.flag.at
    }

    fn value(&self, nth: usize) -> Option<&Word> {
        self.flag.values.get(nth).and_then(|at| self.part.fragment.words.get(*at))
    }

    /// Whether it has one word behind it, as a name needs.
    fn is_valid(&self) -> bool {
        self.flag.values.len() == 1 && self.value(0).is_some_and(|name| !name.text.starts_with('-'))
    }
}

/// The flags of these names in each node, in the order of effect, so that the order of files does not matter.
fn given<'c>(case: &'c Case<'_, '_>, names: &[&str]) -> Vec<Vec<Given<'c>>> {
    let mut scopes: BTreeMap<usize, Vec<Given<'_>>> = BTreeMap::new();
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let Some(word) = part.fragment.words.get(flag.at) else { continue };
        let is_certain = !word.conditional && part.fragment.place != Place::LiveNode;
        // What stands in a mix release is told on its own.
        if names.contains(&word.text.as_str()) && is_certain && part.maker != Maker::Mix {
            scopes.entry(part.scope).or_default().push(Given { part, flag, word });
        }
    }
    let mut scopes: Vec<_> = scopes.into_values().collect();
    for all in &mut scopes {
        all.sort_by_key(|given| given.part.fragment.place.order());
        all.truncate(CANDIDATES);
    }
    scopes
}

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    in_mix_release(case, found);
    for all in given(case, &["-setcookie"]) {
        cookies(&all, found);
    }
    for all in given(case, NAMES) {
        for one in &all {
            let beside: Vec<Given<'_>> = all.iter().filter(|other| other.is_beside(one)).copied().collect();
            name(one, &beside, found);
        }
    }
}

/// A name among those that are given beside it, itself among them.
fn name(one: &Given<'_>, beside: &[Given<'_>], found: &mut Vec<Finding>) {
    let first = |name: &str| beside.iter().find(|other| other.word.text == name);
    let counts = NAMES.iter().filter_map(|name| first(name)).find(|first| first.is_valid());
    let is_first = first(&one.word.text).is_some_and(|first| first.is(one));
    if counts.is_some_and(|counts| counts.is(one)) {
        without_host(one, found);
        return;
    }
    let Some(name) = one.value(0) else { return };
    let given = format!("{} {}", one.word.text, short(&name.text));
    let what_counts = counts.map(|counts| {
        let place = match counts.flag.part == one.flag.part {
            true if counts.flag.at < one.flag.at => "before it".to_owned(),
            true => "behind it".to_owned(),
            false => format!("of {}", place(counts.part)),
        };
        format!("the `{}` {place}", counts.word.text)
    });
    let says = match (one.value(1), what_counts) {
        (Some(second), what_counts) if is_first => Says {
            message: format!(
                "`{given}` has further words behind it, `{}` first: it is not valid, and {}",
                short(&second.text),
                match what_counts {
                    Some(other) => format!("{other} counts"),
                    None => "the node starts without a name".to_owned(),
                }
            ),
            reason: format!(
                "All words up to the next flag belong to it, and more than one is no name: \"Invalid {} given to erl\", and the start goes on (seen on OTP 25, 27 and 29; OTP 23 says nothing).",
                one.word.text
            ),
            remedy: "Remove the words behind the name; a comment begins with #.".to_owned(),
        },
        (_, Some(other)) => Says {
            message: format!("`{given}` does not count: {other} does"),
            reason: match is_first {
                true => "-sname beats -name, wherever the two stand (erl_distribution.erl; seen on OTP 23, 25, 27 and 29); nodes with long and with short names cannot talk to each other.".to_owned(),
                false => format!(
                    "Of several the first counts: \"Multiple {} given to erl, using the first\" (seen on OTP 23, 25, 27 and 29).",
                    one.word.text
                ),
            },
            remedy: "Keep one of them.".to_owned(),
        },
        (_, None) => return,
    };
    let span = one.word.span.start..name.span.end;
    let mut finding = one.part.finding(&RULE, Level::Warning, span, &one.word.text, says);
    if let Some(counts) = counts {
        finding.related.push((counts.part.file, counts.word.span.clone(), "counts".to_owned()));
    }
    found.push(finding);
}

/// A long name whose host the node has to find out by itself.
fn without_host(one: &Given<'_>, found: &mut Vec<Finding>) {
    let Some(name) = one.value(0).filter(|name| !name.dynamic && !name.text.contains('@')) else { return };
    if one.word.text != "-name" {
        return;
    }
    let says = Says {
        message: format!(
            "`-name {}` has no host: where the name of the host has no domain, the node does not start",
            short(&name.text)
        ),
        reason: "The node takes the full name of its host. In containers that has no domain as a rule: \"Can't set long node name!\", exit status 1 (seen on OTP 23, 25, 27 and 29)."
            .to_owned(),
        remedy: format!("Write `-name {0}@HOST`, or `-sname {0}` for a short name.", short(&name.text)),
    };
    let span = one.word.span.start..name.span.end;
    found.push(one.part.finding(&RULE, Level::Note, span, &one.word.text, says));
}

/// What `bin/NAME` of a mix release gives as well: it calls elixir with --cookie, and with --name or --sname, for each of its commands
/// (release.init.ex of Elixir 1.9 to 1.20).
fn in_mix_release(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part).filter(|part| part.maker == Maker::Mix) else {
            continue;
        };
        let Some(word) = part.fragment.words.get(flag.at) else { continue };
        let seen = "seen with Elixir 1.10, 1.14, 1.18 and 1.20, on OTP 23, 25, 27 and 29";
        let is_cookie = word.text == "-setcookie";
        let says = if is_cookie {
            Says {
                message: "`-setcookie` is a second cookie, as the start script of a mix release gives one, so neither counts".to_owned(),
                reason: format!(
                    "With two the node takes the cookie of ~/.erlang.cookie, or makes one up, and bin/NAME rpc, remote, stop and pid do not reach it: \"RPC failed with reason :nodedown\", or :noconnection ({seen})."
                ),
                remedy: "Remove it, and set RELEASE_COOKIE, in the environment or in rel/env.sh.eex, or `cookie:` of the release in mix.exs.".to_owned(),
            }
        } else if NAMES.contains(&word.text.as_str()) {
            let name = flag.values.first().and_then(|at| part.fragment.words.get(*at));
            let given = format!("{} {}", word.text, name.map(|name| short(&name.text)).unwrap_or_default());
            Says {
                message: format!("`{}` does not count: the start script of a mix release gives the node its name", given.trim_end()),
                reason: match word.text.as_str() {
                    "-name" => format!("bin/NAME gives --sname, or --name, with RELEASE_NODE, unless RELEASE_DISTRIBUTION is none; it stands first, and counts ({seen})."),
                    _ => format!("bin/NAME gives --sname with RELEASE_NODE, which stands first, and counts. Where RELEASE_DISTRIBUTION is name, the -sname beats it, and bin/NAME rpc, remote, stop and pid do not reach the node ({seen})."),
                },
                remedy: "Remove it, and set RELEASE_NODE in rel/env.sh.eex; for a long name RELEASE_DISTRIBUTION=name, too.".to_owned(),
            }
        } else {
            continue;
        };
        let last = flag.values.first().filter(|_| !is_cookie).and_then(|at| part.fragment.words.get(*at));
        let span = word.span.start..last.unwrap_or(word).span.end;
        found.push(part.finding(&RULE, Level::Warning, span, &word.text, says));
    }
}

/// A cookie that is given twice, in one place or in several of one node. Its text is not repeated.
fn cookies(all: &[Given<'_>], found: &mut Vec<Finding>) {
    let Some((first, others)) = all.split_first() else { return };
    for one in others.iter().filter(|one| one.is_beside(first)) {
        let says = Says {
            message: "`-setcookie` is given twice, so neither counts: the node takes the cookie of its file"
                .to_owned(),
            reason: "With more than one the node reads ~/.erlang.cookie, or makes one up, without a word (seen on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: "Keep one of them.".to_owned(),
        };
        let mut finding =
            one.part.finding(&RULE, Level::Warning, one.word.span.clone(), &one.word.text, says);
        finding.related.push((first.part.file, first.word.span.clone(), "is the other one".to_owned()));
        found.push(finding);
    }
}
