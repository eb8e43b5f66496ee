//! BF024: a node name or a cookie that has no effect, because it is given twice or because of the words after it.

use std::collections::BTreeMap;

use crate::lint::case::{Case, FindingText, short};
use crate::lint::node::{InitFlag, Part};
use crate::lint::release_tool::ReleaseTool;
use crate::lint::rules::overridden::place;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Place, Word};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF024"),
    name: "node-name",
    description: "Node names given twice, as both -name and -sname, or with more than one word; cookies given twice; names or cookies in a mix release; a long name without a host.",
    level: Level::Warning,
};

/// The flags that set the node name. If both are given, the first one of this list takes effect (`erl_distribution.erl`).
const NAMES: &[&str] = &["-sname", "-name"];

/// Maximum number of flags that are compared in one node.
const MAX_CANDIDATES: usize = 256;

/// A flag that is certainly given, and its word.
#[derive(Clone, Copy)]
struct NodeFlag<'c> {
    part: &'c Part<'c>,
    flag: &'c InitFlag,
    word: &'c Word,
}

impl NodeFlag<'_> {
    /// Whether both flags are given. If they are in two assignments of the same variable, or in two args files, only one may be in use.
    fn coexists_with(&self, other: &NodeFlag<'_>) -> bool {
        self.flag.part == other.flag.part
            || self.part.fragment.place.order() != other.part.fragment.place.order()
    }

    fn is(&self, other: &NodeFlag<'_>) -> bool {
        self.flag.part == other.flag.part && self.flag.at == other.flag.at
    }

    fn value(&self, nth: usize) -> Option<&Word> {
        self.flag.values.get(nth).and_then(|at| self.part.fragment.words.get(*at))
    }

    /// Whether exactly one word follows, as required for a node name.
    fn is_valid(&self) -> bool {
        self.flag.values.len() == 1 && self.value(0).is_some_and(|name| !name.text.starts_with('-'))
    }
}

/// Returns the flags with these names in each node, in the order of effect, so that the order of files does not matter.
fn node_flags<'c>(case: &'c Case<'_, '_>, names: &[&str]) -> Vec<Vec<NodeFlag<'c>>> {
    let mut scopes: BTreeMap<usize, Vec<NodeFlag<'_>>> = BTreeMap::new();
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let Some(word) = part.fragment.words.get(flag.at) else { continue };
        let is_certain = !word.conditional && part.fragment.place != Place::RunningNode;
        // Flags in a mix release are reported separately.
        if names.contains(&word.text.as_str()) && is_certain && part.release_tool != ReleaseTool::Mix {
            scopes.entry(part.scope).or_default().push(NodeFlag { part, flag, word });
        }
    }
    let mut scopes: Vec<_> = scopes.into_values().collect();
    for all in &mut scopes {
        all.sort_by_key(|given| given.part.fragment.place.order());
        all.truncate(MAX_CANDIDATES);
    }
    scopes
}

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    in_mix_release(case, found);
    for all in node_flags(case, &["-setcookie"]) {
        cookies(&all, found);
    }
    for all in node_flags(case, NAMES) {
        for one in &all {
            let all: Vec<NodeFlag<'_>> =
                all.iter().filter(|other| other.coexists_with(one)).copied().collect();
            name(one, &all, found);
        }
    }
}

/// Checks one node name against all names of the node, including itself.
fn name(one: &NodeFlag<'_>, all: &[NodeFlag<'_>], found: &mut Vec<Finding>) {
    let first = |name: &str| all.iter().find(|other| other.word.text == name);
    let used = NAMES.iter().filter_map(|name| first(name)).find(|first| first.is_valid());
    let is_first = first(&one.word.text).is_some_and(|first| first.is(one));
    if used.is_some_and(|used| used.is(one)) {
        without_host(one, found);
        return;
    }
    let Some(name) = one.value(0) else { return };
    let given = format!("{} {}", one.word.text, short(&name.text));
    let used_name = used.map(|used| {
        let place = match used.flag.part == one.flag.part {
            true if used.flag.at < one.flag.at => "before it".to_owned(),
            true => "after it".to_owned(),
            false => format!("of {}", place(used.part)),
        };
        format!("the `{}` {place}", used.word.text)
    });
    let texts = match (one.value(1), used_name) {
        (Some(second), used_name) if is_first => FindingText {
            message: format!(
                "`{given}` is not valid, because another word follows (`{}`); {}",
                short(&second.text),
                match used_name {
                    Some(other) => format!("{other} is used"),
                    None => "the node starts without a name".to_owned(),
                }
            ),
            reason: format!(
                "All words up to the next flag are its values, but a name must be a single word: \"Invalid {} given to erl\", and the start continues (tested on OTP 25, 27 and 29; OTP 23 prints nothing).",
                one.word.text
            ),
            remedy: "Remove the words after the name; a comment starts with #.".to_owned(),
        },
        (_, Some(other)) => FindingText {
            message: format!("`{given}` has no effect: {other} is used"),
            reason: match is_first {
                true => "-sname overrides -name in any order (erl_distribution.erl; tested on OTP 23, 25, 27 and 29); nodes with long and short names cannot connect to each other.".to_owned(),
                false => format!(
                    "Only the first of several is used: \"Multiple {} given to erl, using the first\" (tested on OTP 23, 25, 27 and 29).",
                    one.word.text
                ),
            },
            remedy: "Keep one of them.".to_owned(),
        },
        (_, None) => return,
    };
    let span = one.word.span.start..name.span.end;
    let mut finding = one.part.finding(&RULE, Level::Warning, span, &one.word.text, texts);
    if let Some(used) = used {
        finding.related.push((used.part.file, used.word.span.clone(), "the name that is used".to_owned()));
    }
    found.push(finding);
}

/// Reports a long name without a host.
fn without_host(one: &NodeFlag<'_>, found: &mut Vec<Finding>) {
    let Some(name) = one.value(0).filter(|name| !name.dynamic && !name.text.contains('@')) else { return };
    if one.word.text != "-name" {
        return;
    }
    let texts = FindingText {
        message: format!(
            "`-name {}` has no host: the node does not start if the name of its host has no domain",
            short(&name.text)
        ),
        reason: "The node uses the full name of its host, which usually has no domain in a container: \"Can't set long node name!\", exit status 1 (tested on OTP 23, 25, 27 and 29)."
            .to_owned(),
        remedy: format!("Write `-name {0}@HOST`, or `-sname {0}` for a short name.", short(&name.text)),
    };
    let span = one.word.span.start..name.span.end;
    found.push(one.part.finding(&RULE, Level::Note, span, &one.word.text, texts));
}

/// Reports flags that `bin/NAME` of a mix release also sets: it calls elixir with --cookie, and with --name or --sname, for each of its
/// commands (release.init.ex of Elixir 1.9 to 1.20).
fn in_mix_release(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part).filter(|part| part.release_tool == ReleaseTool::Mix)
        else {
            continue;
        };
        let Some(word) = part.fragment.words.get(flag.at) else { continue };
        let tested = "tested with Elixir 1.10, 1.14, 1.18 and 1.20, on OTP 23, 25, 27 and 29";
        let is_cookie = word.text == "-setcookie";
        let texts = if is_cookie {
            FindingText {
                message: "`-setcookie` conflicts with the cookie of the mix release's start script, so neither is used".to_owned(),
                reason: format!(
                    "If two cookies are given, the node uses the one in ~/.erlang.cookie, or creates one, and bin/NAME rpc, remote, stop and pid cannot reach it: \"RPC failed with reason :nodedown\", or :noconnection ({tested})."
                ),
                remedy: "Remove the flag, and set RELEASE_COOKIE in the environment or in rel/env.sh.eex, or `cookie:` of the release in mix.exs.".to_owned(),
            }
        } else if NAMES.contains(&word.text.as_str()) {
            let name = flag.values.first().and_then(|at| part.fragment.words.get(*at));
            let given = format!("{} {}", word.text, name.map(|name| short(&name.text)).unwrap_or_default());
            FindingText {
                message: format!("`{}` has no effect: the start script of a mix release names the node", given.trim_end()),
                reason: match word.text.as_str() {
                    "-name" => format!("bin/NAME passes --sname, or --name, with RELEASE_NODE, unless RELEASE_DISTRIBUTION=none; it comes first and is used ({tested})."),
                    _ => format!("bin/NAME passes --sname with RELEASE_NODE, which comes first and is used. If RELEASE_DISTRIBUTION is name, the -sname overrides it, and bin/NAME rpc, remote, stop and pid cannot reach the node ({tested})."),
                },
                remedy: "Remove the flag, and set RELEASE_NODE in rel/env.sh.eex; for a long name also RELEASE_DISTRIBUTION=name.".to_owned(),
            }
        } else {
            continue;
        };
        let last = flag.values.first().filter(|_| !is_cookie).and_then(|at| part.fragment.words.get(*at));
        let span = word.span.start..last.unwrap_or(word).span.end;
        found.push(part.finding(&RULE, Level::Warning, span, &word.text, texts));
    }
}

/// Reports a cookie that is given twice, in one place or in several places of the node. The message does not contain the cookie.
fn cookies(all: &[NodeFlag<'_>], found: &mut Vec<Finding>) {
    let Some((first, others)) = all.split_first() else { return };
    for one in others.iter().filter(|one| one.coexists_with(first)) {
        let texts = FindingText {
            message: "`-setcookie` is given twice, so neither is used: the node uses its cookie file"
                .to_owned(),
            reason: "If several cookies are given, the node silently reads ~/.erlang.cookie, or creates one (tested on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: "Keep one of them.".to_owned(),
        };
        let mut finding =
            one.part.finding(&RULE, Level::Warning, one.word.span.clone(), &one.word.text, texts);
        finding.related.push((first.part.file, first.word.span.clone(), "the other cookie".to_owned()));
        found.push(finding);
    }
}
