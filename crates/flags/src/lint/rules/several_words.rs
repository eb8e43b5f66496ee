//! BF019: quotes around both a flag and its value, which join the two into one word.

use crate::catalog::recognise;
use crate::init_flags::is_known;
use crate::lint::case::{Case, FindingText, short};
use crate::lint::node::SettingKind;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{Place, Role};
use crate::takes::SilentChange;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF019"),
    name: "several-words-in-one",
    description: "A flag and its value, or several flags, that quotes join into one word.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    let reason = "For the launcher and for shells, quotes keep spaces within a word. In a partly quoted list item or variable, the quotes are part of the value.";
    for judged in &case.judged {
        let setting = judged.setting;
        let part = case.node.part_of(setting);
        let starts = judged.outcomes.iter().any(|outcome| outcome.starts());
        if setting.kind != SettingKind::Flag || !starts || !setting.name.trim().contains(char::is_whitespace)
        {
            continue;
        }
        let is_cut = |altered: &SilentChange| {
            !matches!(altered, SilentChange::Rounded | SilentChange::Raised | SilentChange::Lowered)
        };
        let is_one = setting.known_value().is_some_and(|value| !value.trim().contains(char::is_whitespace));
        let is_whole = is_one && !judged.outcomes.iter().any(|outcome| outcome.altered().iter().any(is_cut));
        let (level, effect) = if is_whole {
            (Level::Note, "skips the space")
        } else {
            (Level::Warning, "uses the part that it can parse and drops the rest")
        };
        let texts = FindingText {
            message: format!("`{}` is one word: {} {effect}", short(setting.name), setting.flag),
            reason: reason.to_owned(),
            remedy: "Quote either the whole variable or list item, or nothing.".to_owned(),
        };
        let span = case.node.span_of(setting);
        found.push(part.finding(&RULE, level, span, setting.name, texts));
    }
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let Some(word) = part.fragment.words.get(flag.at) else { continue };
        if part.fragment.place == Place::RunningNode || !word.text.contains([' ', '\t']) {
            continue;
        }
        let texts = FindingText {
            message: format!(
                "`{}` is one word, so it is the name of an argument that nothing reads",
                short(&word.text)
            ),
            reason: reason.to_owned(),
            remedy: "Quote either the whole variable or list item, or nothing.".to_owned(),
        };
        found.push(part.finding(&RULE, Level::Warning, word.span.clone(), &word.text, texts));
    }
    quoted_flags(case, found);
}

/// Reports flags that start with a quote: when a shell splits a variable, quotes remain in the words.
fn quoted_flags(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for part in &case.node.parts {
        let Place::Variable { effect, .. } = &part.fragment.place else { continue };
        if effect.role != Role::Words || effect.ignored.is_some() {
            continue;
        }
        for word in part.fragment.words.iter().filter(|word| !word.dynamic) {
            let Some(flag) = word.text.strip_prefix(['"', '\'']) else { continue };
            if recognise(flag).is_none() && !is_known(flag) {
                continue;
            }
            let texts = FindingText {
                message: format!("`{}` starts with a literal quote: unless something removes it, it is not a flag", short(&word.text)),
                reason: "The value is split at spaces regardless of quotes; to the VM a word that starts with a quote is a plain argument (tested on OTP 23, 25, 27 and 29)."
                    .to_owned(),
                remedy: "Remove the inner quotes, unless the program that expands the value does so.".to_owned(),
            };
            found.push(part.finding(&RULE, Level::Note, word.span.clone(), flag, texts));
        }
    }
}
