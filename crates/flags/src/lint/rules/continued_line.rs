//! BF017: a backslash at the end of a line of an args file.

use crate::lint::case::{Case, FindingText, short};
use crate::lint::node::is_args_file;
use crate::lint::rules::no_erlang_term::vital_words;
use crate::lint::term::is_not_a_term;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Change;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF017"),
    name: "continued-line",
    description: "A backslash at the end of a line of an args file, where it does not continue the line.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    let vital = vital_words(case);
    for (index, part) in case.node.parts.iter().enumerate().filter(|(_, part)| is_args_file(part.fragment)) {
        for (at, word) in part.fragment.words.iter().enumerate() {
            if word.dynamic || !word.text.starts_with(['\n', '\r']) {
                continue;
            }
            let rest = word.text.trim_start_matches(['\n', '\r']);
            // Parameters of kernel and stdlib must be Erlang terms, but a line end is not a term.
            let stops = is_not_a_term(&word.text) && vital.contains(&(index, at));
            let effect = if stops {
                "the parameters and values of an application no longer form pairs, and the VM does not start"
                    .to_owned()
            } else if rest.is_empty() {
                "the line end becomes a separate word".to_owned()
            } else {
                format!("`{}` is no longer a flag", short(rest))
            };
            let texts = FindingText {
                message: format!("A backslash does not continue a line in an args file: {effect}"),
                reason: "Outside quotes, a backslash escapes the next character, even a line end (erlexec.c; tested on OTP 23, 25, 27 and 29)."
                    .to_owned(),
                remedy: "Remove the backslash: a line end separates words like a space.".to_owned(),
            };
            let level = if stops { Level::Error } else { Level::Warning };
            let change = match rest {
                "" => Change::Remove { words: at..at + 1 },
                rest => Change::Replace { word: at, text: rest.to_owned() },
            };
            let span = word.span.start..word.span.start + 1;
            let mut finding = part.finding(&RULE, level, span, "\\", texts);
            finding.fix = case.node.fix(part, "Remove the backslash".to_owned(), false, &[change]);
            found.push(finding);
        }
    }
}
