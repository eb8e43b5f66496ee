//! BF021: an application parameter whose value is not an Erlang term, usually because its quotes were removed.

use std::collections::BTreeSet;

use crate::init_flags::may_be_application;
use crate::lint::case::{Case, FindingText, releases_text, short};
use crate::lint::term::is_not_a_term;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Word;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF021"),
    name: "no-erlang-term",
    description: "A parameter of an application whose value is not an Erlang term.",
    level: Level::Error,
};

/// Applications that every VM starts. The VM does not start if their parameters are invalid (tested on OTP 23, 25, 27 and 29).
const ALWAYS_STARTED: &[&str] = &["-kernel", "-stdlib"];

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let words = &part.fragment.words;
        let Some(name) = words.get(flag.at) else { continue };
        let values: Vec<&Word> = flag.values.iter().filter_map(|at| words.get(*at)).collect();
        let known = values.iter().all(|word| !word.dynamic && word.conditional == name.conditional);
        let newline = values.iter().any(|word| word.text.contains(['\n', '\r']));
        let stops = ALWAYS_STARTED.contains(&name.text.as_str());
        if newline || !(stops || known && is_application(&name.text, &values)) {
            continue;
        }
        let all = releases_text(&part.releases);
        if stops && known && values.len() % 2 == 1 {
            let texts = FindingText {
                message: match values.as_slice() {
                    [only] => format!("`{} {}` has no value and is dropped", name.text, short(&only.text)),
                    _ => format!("`{}` has {} words, an odd number: the last one is dropped", name.text, values.len()),
                },
                reason: "The words after the flag are pairs of a parameter and its value; an unpaired last word is silently dropped (tested on OTP 23, 25, 27 and 29)."
                    .to_owned(),
                remedy: "Write a value for each parameter; quote values that contain spaces.".to_owned(),
            };
            let end = values.last().map_or(name.span.end, |last| last.span.end);
            let span = name.span.start..end;
            found.push(part.finding(&RULE, Level::Warning, span, &name.text, texts));
        }
        for pair in values.chunks_exact(2) {
            let [key, value] = pair else { continue };
            if key.dynamic {
                // The key may expand to several words, or to none.
                break;
            }
            let wrong = if is_not_a_term(&key.text) { key } else { value };
            if value.dynamic || !is_not_a_term(&wrong.text) {
                continue;
            }
            let effect = if stops {
                format!("{all} will not start")
            } else {
                format!("the application {} cannot be loaded", name.text.trim_start_matches('-'))
            };
            let texts = FindingText {
                message: format!("`{}` of {} is not an Erlang term: {effect}", short(&wrong.text), name.text),
                reason: "Values on the command line are parsed as Erlang terms. The outer quotes of a word are removed first; only inner quotes reach Erlang."
                    .to_owned(),
                remedy: if wrong.text.starts_with(['{', '[']) {
                    "Put the whole value in single quotes, so that its double quotes reach Erlang.".to_owned()
                } else {
                    format!("For a string, write '\"{}\"', with both kinds of quotes.", short(&wrong.text))
                },
            };
            let level = if stops { Level::Error } else { Level::Warning };
            let span = if flag
                .values
                .first()
                .and_then(|at| words.get(*at))
                .is_some_and(|first| first.span == key.span)
            {
                name.span.start..value.span.end
            } else {
                key.span.start..value.span.end
            };
            found.push(part.finding(&RULE, level, span, &name.text, texts));
        }
    }
}

/// Whether a flag is the name of an application, followed by parameters.
fn is_application(name: &str, values: &[&Word]) -> bool {
    let plain = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let application = name.strip_prefix('-').is_some_and(plain);
    application
        && may_be_application(name)
        && !values.is_empty()
        && values.len().is_multiple_of(2)
        && values.chunks_exact(2).all(|pair| pair.first().is_some_and(|key| plain(&key.text)))
}

/// Returns the words, by part and index, that are parameters of applications that every VM starts, or values of such parameters. If one of
/// these words is not a term, the VM does not start.
pub(in crate::lint) fn vital_words(case: &Case<'_, '_>) -> BTreeSet<(usize, usize)> {
    let mut vital = BTreeSet::new();
    for flag in &case.node.arguments {
        let words =
            case.node.parts.get(flag.part).map(|part| part.fragment.words.as_slice()).unwrap_or_default();
        if words.get(flag.at).is_some_and(|name| ALWAYS_STARTED.contains(&name.text.as_str())) {
            // An unpaired last word is ignored.
            vital.extend(flag.values.chunks_exact(2).flatten().map(|at| (flag.part, *at)));
        }
    }
    vital
}
