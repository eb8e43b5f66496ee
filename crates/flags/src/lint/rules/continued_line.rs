//! BF017: a backslash at the end of a line of an args file.

use crate::lint::case::{Case, Says, short};
use crate::lint::node::is_args_file;
use crate::lint::rules::no_erlang_term::vital_words;
use crate::lint::term::is_no_term;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Change;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF017"),
    name: "continued-line",
    finds: "A backslash at the end of a line of an args file, which joins no lines there.",
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
            // The parameters of kernel and stdlib are Erlang terms, which the end of a line is not.
            let stops = is_no_term(&word.text) && vital.contains(&(index, at));
            let effect = if stops {
                "the parameters of an application are out of step, and the VM does not start".to_owned()
            } else if rest.is_empty() {
                "the end of the line becomes a word of its own".to_owned()
            } else {
                format!("`{}` is no flag any more", short(rest))
            };
            let says = Says {
                message: format!("A backslash joins no lines in an args file: {effect}"),
                reason: "Outside of quotes a backslash takes the next character as it is, even the end of the line (erlexec.c; seen on OTP 23, 25, 27 and 29)."
                    .to_owned(),
                remedy: "Leave the backslash out: the end of a line is a blank like any other.".to_owned(),
            };
            let level = if stops { Level::Error } else { Level::Warning };
            let change = match rest {
                "" => Change::Remove { words: at..at + 1 },
                rest => Change::Replace { word: at, text: rest.to_owned() },
            };
            let span = word.span.start..word.span.start + 1;
            let mut finding = part.finding(&RULE, level, span, "\\", says);
            finding.fix = case.node.fix(part, "Remove the backslash".to_owned(), false, &[change]);
            found.push(finding);
        }
    }
}
