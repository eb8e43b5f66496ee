//! BF012: a number followed by a unit, which the emulator ignores.

use crate::lint::case::{Case, FindingText, JudgedSetting};
use crate::lint::rules::fatal_value::cut;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF012"),
    name: "unit-not-understood",
    description: "A number followed by a unit or other text, which the VM ignores.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none() && !judged.lacks_value()) {
        let releases =
            judged.releases(|outcome| cut(outcome.altered()).is_some_and(|rest| !rest.trim().is_empty()));
        let Some(rest) = judged.outcomes.iter().find_map(|outcome| cut(outcome.altered())) else { continue };
        let text = judged.setting.known_value().unwrap_or_default();
        let number = text.strip_suffix(rest).unwrap_or_default();
        let unit = unit_of(judged);
        let effective = judged.outcomes.iter().rev().find_map(|outcome| outcome.effective());
        let gives = effective
            .filter(|effective| *effective != number.trim())
            .map(|effective| format!(", which becomes {effective}"))
            .unwrap_or_default();
        let meant = meant(judged);
        let texts = FindingText {
            message: format!(
                "{} is parsed as {}{gives}: `{rest}` is ignored",
                case.quoted(judged.setting),
                number.trim()
            ),
            reason: format!(
                "The VM does not support units, and silently ignores everything after the digits (tested on OTP 23, 25, 27 and 29).{}",
                unit.map(|unit| format!(" The number is in {unit}.")).unwrap_or_default()
            ),
            remedy: match &meant {
                Some(meant) => format!("Write `{meant}` if you mean that."),
                None => format!(
                    "Write a plain number{}.",
                    unit.map(|unit| format!(", in {unit}")).unwrap_or_default()
                ),
            },
        };
        let mut finding = case.about(&RULE, Level::Warning, judged.setting, releases, texts);
        if let Some(value) = plain(judged) {
            finding.fix = case.node.new_value(judged.setting, &value, false);
        }
        found.push(finding);
    }
}

fn unit_of<'e>(judged: &JudgedSetting<'e, '_>) -> Option<&'e str> {
    let release = judged.outcomes.last()?.release;
    judged.setting.entry?.accepted_for(judged.setting.letter, &release.into())?.unit.as_deref()
}

/// Returns the setting that was probably intended: `+zdbbl 1024` for `+zdbbl 1MB`.
pub(in crate::lint) fn meant(judged: &JudgedSetting<'_, '_>) -> Option<String> {
    let value = plain(judged)?;
    let glued = if judged.setting.words.len() > 1 { " " } else { "" };
    Some(format!("{}{glued}{value}", judged.setting.name))
}

/// Converts a value with a unit of memory or with underscores to a plain number.
fn plain(judged: &JudgedSetting<'_, '_>) -> Option<String> {
    let text = judged.setting.known_value()?;
    let end = text.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
    let (digits, rest) = text.split_at(end);
    let tail: String = rest.chars().filter(|c| *c != '_').collect();
    if rest.starts_with('_') && tail.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(format!("{digits}{tail}"));
    }
    let factor: u64 = match rest.trim().to_ascii_lowercase().as_str() {
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    let one: u64 = match unit_of(judged)? {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "bytes" => 1,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    (bytes % one == 0 && bytes > 0).then(|| (bytes / one).to_string())
}
