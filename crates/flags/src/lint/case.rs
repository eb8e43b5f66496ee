//! Determines for each setting of a node how the releases treat the value, and how other settings affect it.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::hazards::{Conflict, ConflictKind, RelativePosition, hazards};
use super::node::{Node, Part, Setting, SettingKind, Value};
use super::outcome::{Outcome, Presence, outcomes};
use super::secret::without_secrets;
use super::{Finding, Level, Rule};
use crate::release_runs;
use crate::takes::Verdict;

/// A node whose settings have been evaluated.
pub(super) struct Case<'n, 'a> {
    pub(super) node: &'n Node<'a>,
    /// The evaluated settings, in the order of `node.settings`.
    pub(super) judged: Vec<JudgedSetting<'n, 'a>>,
}

/// A setting with its outcomes, and the other settings that affect it.
pub(super) struct JudgedSetting<'n, 'a> {
    pub(super) setting: &'n Setting<'a>,
    /// The outcome for each release that reads the setting; empty for unknown flags.
    pub(super) outcomes: Rc<[Outcome]>,
    /// The setting that overrides this one.
    pub(super) overridden: Option<&'n Setting<'a>>,
    /// The outcomes of the overriding setting; empty if absent.
    pub(super) overriding: Rc<[Outcome]>,
    /// The flag that disables the allocator of the setting.
    pub(super) disabled: Option<&'n Setting<'a>>,
    /// The settings that conflict with this one.
    pub(super) conflicts: Vec<(&'static Conflict, &'n Setting<'a>)>,
}

impl JudgedSetting<'_, '_> {
    /// Returns the releases whose outcome fulfils a condition.
    pub(super) fn releases(&self, holds: impl Fn(&Outcome) -> bool) -> Vec<u32> {
        self.outcomes.iter().filter(|outcome| holds(outcome)).map(|outcome| outcome.release).collect()
    }

    /// Whether this setting has no effect because of another setting.
    pub(super) fn is_without_effect(&self) -> bool {
        self.overridden.is_some()
            || self.disabled.is_some()
            || self.conflicts.iter().any(|(conflict, _)| conflict.makes == ConflictKind::Cancelled)
    }

    /// Whether the value is missing or looks like the next flag.
    pub(super) fn lacks_value(&self) -> bool {
        match &self.setting.value {
            Value::Missing => true,
            Value::Text(text) => {
                let apart = self.setting.words.len() > 1;
                let mut chars = text.chars();
                self.setting.kind == SettingKind::Flag
                    && apart
                    && matches!(chars.next(), Some('-' | '+'))
                    && chars.next().is_some_and(|second| second.is_ascii_alphabetic() || second == '-')
            }
            Value::Absent | Value::Unknown => false,
        }
    }
}

impl<'n, 'a> Case<'n, 'a> {
    pub(super) fn new(node: &'n Node<'a>) -> Case<'n, 'a> {
        let mut known: HashMap<Key<'_>, Rc<[Outcome]>> = HashMap::new();
        let mut judged = Vec::with_capacity(node.settings.len());
        let mut outcomes_of = |setting: &'n Setting<'a>| -> Rc<[Outcome]> {
            let Some(entry) = setting.entry else { return Rc::default() };
            let releases = &node.part_of(setting).releases;
            let key = Key {
                id: &entry.id,
                letter: setting.letter,
                value: &setting.value,
                kernel: setting.kind == SettingKind::Kernel,
                releases,
            };
            let judge = || outcomes(setting, entry, releases, node.target.machine).into();
            Rc::clone(known.entry(key).or_insert_with(judge))
        };
        for setting in &node.settings {
            let overridden = node.overriding(setting);
            judged.push(JudgedSetting {
                setting,
                outcomes: outcomes_of(setting),
                overridden,
                overriding: overridden.map(&mut outcomes_of).unwrap_or_default(),
                disabled: disabled(node, setting),
                conflicts: conflicts(node, setting),
            });
        }
        Case { node, judged }
    }

    /// Iterates over the settings with an entry. A variable that sets several flags is returned only once.
    pub(super) fn known(&self) -> impl Iterator<Item = &JudgedSetting<'n, 'a>> {
        self.judged.iter().filter(|judged| judged.setting.entry.is_some() && !judged.setting.repeated)
    }

    /// Creates a finding about a setting, without a fix.
    pub(super) fn about(
        &self,
        rule: &Rule,
        level: Level,
        setting: &Setting<'_>,
        releases: Vec<u32>,
        texts: FindingText,
    ) -> Finding {
        let part = self.node.part_of(setting);
        let span = self.node.span_of(setting);
        let name = if setting.kind == SettingKind::Kernel {
            format!("-kernel {}", setting.name)
        } else {
            setting.name.to_owned()
        };
        Finding { releases, ..part.finding(rule, level, span, name, texts) }
    }

    /// Returns a setting in backquotes, as written in the file.
    pub(super) fn quoted(&self, setting: &Setting<'_>) -> String {
        format!("`{}`", short(&self.node.written(setting)))
    }

    /// Creates an element of [`Finding::related`].
    pub(super) fn related(&self, setting: &Setting<'_>, what: &str) -> (usize, Range<usize>, String) {
        (
            self.node.part_of(setting).file,
            self.node.span_of(setting),
            format!("{} {what}", self.quoted(setting)),
        )
    }
}

impl Part<'_> {
    /// Creates a finding about these bytes of the part, for all releases that read the part, without a fix.
    pub(super) fn finding(
        &self,
        rule: &Rule,
        level: Level,
        span: Range<usize>,
        flag: impl Into<String>,
        texts: FindingText,
    ) -> Finding {
        Finding {
            code: rule.code,
            level,
            file: self.file,
            span,
            // A quoted word may contain a flag and its value.
            flag: without_secrets(&flag.into()),
            releases: self.releases.clone(),
            // The words of the file may contain line ends, but the message must not.
            message: texts.message.replace(char::is_control, " "),
            reason: texts.reason,
            remedy: texts.remedy,
            fix: None,
            related: Vec::new(),
        }
    }
}

/// The texts of a finding.
pub(super) struct FindingText {
    pub(super) message: String,
    pub(super) reason: String,
    pub(super) remedy: String,
}

/// The properties of a setting on which its outcomes depend.
#[derive(PartialEq, Eq, Hash)]
struct Key<'k> {
    id: &'k str,
    letter: Option<char>,
    value: &'k Value,
    kernel: bool,
    releases: &'k [u32],
}

/// Prepares a text for a message: removes secrets and truncates long texts.
pub(super) fn short(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let clean: String = without_secrets(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.chars().count() <= MAX_CHARS {
        return clean;
    }
    let begin: String = clean.chars().take(MAX_CHARS).collect();
    format!("{begin}…")
}

/// Formats releases: `OTP 23 to 25 and 27`.
pub(super) fn releases_text(releases: &[u32]) -> String {
    let parts = release_runs(releases);
    match parts.split_last() {
        Some((last, before)) if !before.is_empty() => format!("OTP {} and {last}", before.join(", ")),
        Some((last, _)) => format!("OTP {last}"),
        None => "no release".to_owned(),
    }
}

/// Formats releases and what they do: `OTP 25 rejects`, `OTP 23 to 25 reject`.
pub(super) fn releases_and_verb(releases: &[u32], verb: &str) -> String {
    let ending = if releases.len() == 1 { "s" } else { "" };
    format!("{} {verb}{ending}", releases_text(releases))
}

/// Returns the word for a kind of setting.
pub(super) fn noun(setting: &Setting<'_>) -> &'static str {
    match setting.kind {
        SettingKind::Flag => "flag",
        SettingKind::Variable | SettingKind::Env => "variable",
        SettingKind::Kernel => "parameter",
    }
}

/// Whether one of the settings in `unless`, such as `+MMsco false`, takes or may take effect.
pub(super) fn is_prevented(node: &Node<'_>, setting: &Setting<'_>, unless: &[String]) -> bool {
    let scope = node.part_of(setting).scope;
    unless.iter().any(|unless| {
        let (flag, value) = unless.split_once(' ').unwrap_or((unless, ""));
        match node.effective(setting, flag) {
            Some(other) => other.known_value().is_none_or(|its| its == value),
            None => node.is_given(scope, flag),
        }
    })
}

fn conflicts<'n, 'a>(node: &'n Node<'a>, setting: &Setting<'_>) -> Vec<(&'static Conflict, &'n Setting<'a>)> {
    let Some(entry) = setting.entry.filter(|_| !setting.repeated && setting.kind != SettingKind::Kernel)
    else {
        return Vec::new();
    };
    let about = hazards().conflicts.iter().filter(|conflict| conflict.flag == entry.id);
    about
        .filter_map(|conflict| {
            let other = node.effective(setting, &conflict.other)?;
            let is_placed = match conflict.position {
                RelativePosition::Anywhere => node.are_together(setting, other),
                RelativePosition::After => node.is_later(setting, other),
            };
            let fits = is_placed
                && conflict.is_about(setting.known_value(), other.known_value())
                && !is_prevented(node, setting, &conflict.unless);
            fits.then_some((conflict, other))
        })
        .collect()
}

/// Returns the flag that disables the allocator of a setting.
fn disabled<'n, 'a>(node: &'n Node<'a>, setting: &Setting<'_>) -> Option<&'n Setting<'a>> {
    const ONE: &str = "+M<S>e";
    const ALL: &str = "+Mea";
    let letter = setting.letter.filter(|letter| !matches!(letter, 'I' | 'T'))?;
    if setting.id() == ONE {
        return None;
    }
    let one = node.effective(setting, ONE);
    let all = node.effective(setting, ALL);
    let is = |switch: &Setting<'_>, value: &str| switch.known_value() == Some(value);
    let decides = match (one, all) {
        (Some(one), Some(all)) => Some(if node.is_later(one, all) { all } else { one }),
        (one, all) => one.or(all),
    }?;
    // A setting with the letter `u` still applies to an allocator that is enabled individually.
    let some_on = letter == 'u' && node.is_any(setting, ONE, |one| one.known_value() != Some("false"));
    let off = is(decides, "false") && decides.id() == ONE || is(decides, "min") && decides.id() == ALL;
    (off && !some_on).then_some(decides)
}

/// Whether a release has a setting and starts with it.
pub(super) fn takes_effect(outcome: &Outcome) -> bool {
    outcome.starts() && matches!(outcome.presence, Presence::There | Presence::From(_))
}

/// Returns the reason why a value is rejected or fatal in the newest of these releases.
pub(super) fn why(judged: &JudgedSetting<'_, '_>, releases: &[u32]) -> String {
    let newest = judged.outcomes.iter().rfind(|outcome| releases.contains(&outcome.release));
    match newest.map(|outcome| &outcome.verdict) {
        Some(Verdict::Refused { why } | Verdict::Fatal { why } | Verdict::Unknown { why }) => why.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_releases_are_formatted_as_ranges() {
        let check = |releases: &[u32], expect: &str| assert_eq!(releases_text(releases), expect);
        check(&[25], "OTP 25");
        check(&[23, 24], "OTP 23 and 24");
        check(&[23, 25, 27, 29], "OTP 23, 25, 27 and 29");
        check(&[23, 24, 25], "OTP 23 to 25");
        check(&[23, 24, 25, 27, 28, 29], "OTP 23 to 25 and 27 to 29");
    }

    #[test]
    fn long_texts_are_truncated_between_characters() {
        assert_eq!(short("a\nb"), "a b");
        assert_eq!(short(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
