//! BF034: a flag below a comment that explains a similarly named flag.

use crate::catalog::recognise;
use crate::lint::case::{Case, FindingText};
use crate::lint::comment::comments;
use crate::lint::node::{Setting, SettingKind};
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF034"),
    name: "comment-differs",
    description: "A flag whose comment explains a similarly named flag with the same value.",
    level: Level::Warning,
};

/// Maximum edit distance of two similar flags. With more, the comment is about a different flag.
const MAX_EDITS: usize = 2;
/// Minimum number of words in a comment besides flag and value. With fewer, the comment is a commented-out flag.
const MIN_PROSE_WORDS: usize = 3;

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for setting in case.known().filter(|judged| judged.overridden.is_none()).map(|judged| judged.setting) {
        let part = case.node.part_of(setting);
        let Some(value) =
            setting.known_value().filter(|value| setting.kind == SettingKind::Flag && !value.is_empty())
        else {
            continue;
        };
        let text = part.fragment.file_text();
        let span = case.node.span_of(setting);
        let lines = comments(text, &span);
        let named =
            lines.iter().find_map(|line| Some((line, named(setting, value, text.get(line.clone())?)?)));
        let explains_this =
            |line| text.get(line).is_some_and(|comment: &str| comment.contains(&setting.flag));
        let Some((line, other)) = named.filter(|_| !lines.iter().cloned().any(explains_this)) else {
            continue;
        };
        let given = recognise(&other).is_some_and(|other| case.node.is_given(part.scope, &other.entry.id));
        if given {
            continue;
        }
        let does =
            |flag: &str| recognise(flag).map(|known| known.entry.description.clone()).unwrap_or_default();
        let texts = FindingText {
            message: format!("The comment of {} is about `{other} {value}`", case.quoted(setting)),
            reason: format!("{}: {} {other}: {}", setting.flag, does(&setting.flag), does(&other)),
            remedy: format!("Write `{other} {value}` if you mean that; otherwise correct the comment."),
        };
        let mut finding = case.about(&RULE, Level::Warning, setting, part.releases.clone(), texts);
        finding.related.push((part.file, line.clone(), "names the other flag".to_owned()));
        found.push(finding);
    }
}

/// Returns the flag that a comment line explains, if the name is similar and the value is the same.
fn named(setting: &Setting<'_>, value: &str, comment: &str) -> Option<String> {
    let words: Vec<&str> = comment.trim_start_matches('#').split_whitespace().collect();
    let trimmed = |word: &str| word.trim_matches(|c: char| "`'\":;,.()".contains(c)).to_owned();
    let pair = words.windows(2).find_map(|pair| {
        let (flag, its) = (trimmed(pair.first()?), trimmed(pair.last()?));
        let is_near = (1..=MAX_EDITS).contains(&strsim::osa_distance(&flag, &setting.flag));
        let is_flag = recognise(&flag).is_some_and(|known| known.glued.is_empty());
        (flag.len() > MAX_EDITS + 2 && is_near && is_flag && its == value).then_some(flag)
    })?;
    (words.len() >= 2 + MIN_PROSE_WORDS).then_some(pair)
}
