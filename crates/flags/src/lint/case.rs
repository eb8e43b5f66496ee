//! What is known of each setting of a node: what the releases make of it, and what other settings do to it.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::hazards::{Beside, Makes, Stands, hazards};
use super::node::{Node, Part, Setting, Value, Via};
use super::outcome::{Outcome, Presence, outcomes};
use super::secret::without_secrets;
use super::{Finding, Level, Rule};
use crate::release_runs;
use crate::takes::Verdict;

/// A node with all that is known of its settings.
pub(super) struct Case<'n, 'a> {
    pub(super) node: &'n Node<'a>,
    /// In the order of the node's settings.
    pub(super) judged: Vec<Judged<'n, 'a>>,
}

/// A setting, judged.
pub(super) struct Judged<'n, 'a> {
    pub(super) setting: &'n Setting<'a>,
    /// For each release that reads it; empty for flags that nobody knows.
    pub(super) outcomes: Rc<[Outcome]>,
    /// The setting that takes its place.
    pub(super) overridden: Option<&'n Setting<'a>>,
    /// What the releases make of that one; empty where there is none.
    pub(super) overriding: Rc<[Outcome]>,
    /// The flag that switches its allocator off.
    pub(super) disabled: Option<&'n Setting<'a>>,
    /// Settings that it does not go with.
    pub(super) besides: Vec<(&'static Beside, &'n Setting<'a>)>,
}

impl Judged<'_, '_> {
    /// The releases in which something holds.
    pub(super) fn releases(&self, holds: impl Fn(&Outcome) -> bool) -> Vec<u32> {
        self.outcomes.iter().filter(|outcome| holds(outcome)).map(|outcome| outcome.release).collect()
    }

    /// Whether another setting takes all effect from it.
    pub(super) fn is_dead(&self) -> bool {
        self.overridden.is_some()
            || self.disabled.is_some()
            || self.besides.iter().any(|(beside, _)| beside.makes == Makes::Cancelled)
    }

    /// Whether its value is missing, or is what looks like the next flag.
    pub(super) fn lacks_value(&self) -> bool {
        match &self.setting.value {
            Value::Missing => true,
            Value::Text(text) => {
                let apart = self.setting.words.len() > 1;
                let mut chars = text.chars();
                self.setting.via == Via::Flag
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
                kernel: setting.via == Via::Kernel,
                releases,
            };
            let judge = || outcomes(setting, entry, releases, node.target.machine).into();
            Rc::clone(known.entry(key).or_insert_with(judge))
        };
        for setting in &node.settings {
            let overridden = node.overriding(setting);
            judged.push(Judged {
                setting,
                outcomes: outcomes_of(setting),
                overridden,
                overriding: overridden.map(&mut outcomes_of).unwrap_or_default(),
                disabled: disabled(node, setting),
                besides: besides(node, setting),
            });
        }
        Case { node, judged }
    }

    /// Those with an entry, which are the first of their words.
    pub(super) fn known(&self) -> impl Iterator<Item = &Judged<'n, 'a>> {
        self.judged.iter().filter(|judged| judged.setting.entry.is_some() && !judged.setting.repeated)
    }

    /// A finding about a setting, without a fix.
    pub(super) fn about(
        &self,
        rule: &Rule,
        level: Level,
        setting: &Setting<'_>,
        releases: Vec<u32>,
        says: Says,
    ) -> Finding {
        let part = self.node.part_of(setting);
        let span = self.node.span_of(setting);
        let name = if setting.via == Via::Kernel {
            format!("-kernel {}", setting.name)
        } else {
            setting.name.to_owned()
        };
        Finding { releases, ..part.finding(rule, level, span, name, says) }
    }

    /// A setting in backquotes, as it is written.
    pub(super) fn quoted(&self, setting: &Setting<'_>) -> String {
        format!("`{}`", short(&self.node.written(setting)))
    }

    /// Where another setting stands, for [`Finding::related`].
    pub(super) fn related(&self, setting: &Setting<'_>, what: &str) -> (usize, Range<usize>, String) {
        (
            self.node.part_of(setting).file,
            self.node.span_of(setting),
            format!("{} {what}", self.quoted(setting)),
        )
    }
}

impl Part<'_> {
    /// A finding about these bytes of the part, in all releases that read it, without a fix.
    pub(super) fn finding(
        &self,
        rule: &Rule,
        level: Level,
        span: Range<usize>,
        flag: impl Into<String>,
        says: Says,
    ) -> Finding {
        Finding {
            code: rule.code,
            level,
            file: self.file,
            span,
            // Quotes may have made one word of a flag and its value.
            flag: without_secrets(&flag.into()),
            releases: self.releases.clone(),
            // One line, whatever the words hold.
            message: says.message.replace(char::is_control, " "),
            reason: says.reason,
            remedy: says.remedy,
            fix: None,
            related: Vec::new(),
        }
    }
}

/// The texts of a finding.
pub(super) struct Says {
    pub(super) message: String,
    pub(super) reason: String,
    pub(super) remedy: String,
}

/// What the outcomes of a setting depend on.
#[derive(PartialEq, Eq, Hash)]
struct Key<'k> {
    id: &'k str,
    letter: Option<char>,
    value: &'k Value,
    kernel: bool,
    releases: &'k [u32],
}

/// A text for a message: without secrets, and cut if it is too long.
pub(super) fn short(text: &str) -> String {
    const LONGEST: usize = 60;
    let clean: String = without_secrets(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.chars().count() <= LONGEST {
        return clean;
    }
    let begin: String = clean.chars().take(LONGEST).collect();
    format!("{begin}…")
}

/// `OTP 23 to 25 and 27`.
pub(super) fn releases_text(releases: &[u32]) -> String {
    let parts = release_runs(releases);
    match parts.split_last() {
        Some((last, before)) if !before.is_empty() => format!("OTP {} and {last}", before.join(", ")),
        Some((last, _)) => format!("OTP {last}"),
        None => "no release".to_owned(),
    }
}

/// Whether one of `+MMsco false` and the like is in effect, or may be.
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

fn besides<'n, 'a>(node: &'n Node<'a>, setting: &Setting<'_>) -> Vec<(&'static Beside, &'n Setting<'a>)> {
    let Some(entry) = setting.entry.filter(|_| !setting.repeated && setting.via != Via::Kernel) else {
        return Vec::new();
    };
    let about = hazards().beside.iter().filter(|beside| beside.flag == entry.id);
    about
        .filter_map(|beside| {
            let other = node.effective(setting, &beside.other)?;
            let stands = match beside.stands {
                Stands::Anywhere => node.are_together(setting, other),
                Stands::After => node.is_later(setting, other),
            };
            let fits = stands
                && beside.is_about(setting.known_value(), other.known_value())
                && !is_prevented(node, setting, &beside.unless);
            fits.then_some((beside, other))
        })
        .collect()
}

/// The flag that switches the allocator of a setting off.
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
    // One allocator that is switched on again takes what `u` sets.
    let some_on = letter == 'u' && node.is_any(setting, ONE, |one| one.known_value() != Some("false"));
    let off = is(decides, "false") && decides.id() == ONE || is(decides, "min") && decides.id() == ALL;
    (off && !some_on).then_some(decides)
}

/// Whether a release has a setting and starts with it.
pub(super) fn works(outcome: &Outcome) -> bool {
    outcome.starts() && matches!(outcome.presence, Presence::There | Presence::From(_))
}

/// Why a value is refused or fatal, in the newest of these releases.
pub(super) fn why(judged: &Judged<'_, '_>, releases: &[u32]) -> String {
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
    fn releases_are_told_in_runs() {
        let check = |releases: &[u32], expect: &str| assert_eq!(releases_text(releases), expect);
        check(&[25], "OTP 25");
        check(&[23, 24], "OTP 23 and 24");
        check(&[23, 25, 27, 29], "OTP 23, 25, 27 and 29");
        check(&[23, 24, 25], "OTP 23 to 25");
        check(&[23, 24, 25, 27, 28, 29], "OTP 23 to 25 and 27 to 29");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(short("a\nb"), "a b");
        assert_eq!(short(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
