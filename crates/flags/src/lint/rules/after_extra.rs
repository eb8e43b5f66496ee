//! BF032: flags after `-extra`.

use crate::catalog::recognise;
use crate::lint::case::{Case, FindingText, short};
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF032"),
    name: "after-extra",
    description: "An emulator flag after -extra, where all words are arguments of the program.",
    level: Level::Warning,
};

/// Arguments that the scripts of Elixir and its releases add after `-extra`.
const OF_ELIXIR: &[&str] = &["+iex", "+elixirc"];

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for part in &case.node.parts {
        for word in part.fragment.words.get(part.extra.clone()).unwrap_or_default() {
            let is_flag = word.text.starts_with('+') && recognise(&word.text).is_some();
            if word.dynamic || !is_flag || OF_ELIXIR.contains(&word.text.as_str()) {
                continue;
            }
            let texts = FindingText {
                message: format!("`{}` has no effect: it comes after -extra", short(&word.text)),
                reason: "Words after -extra are plain arguments of the program (manual of init).".to_owned(),
                remedy: "Move the flag before -extra.".to_owned(),
            };
            found.push(part.finding(&RULE, Level::Warning, word.span.clone(), &word.text, texts));
        }
    }
}
