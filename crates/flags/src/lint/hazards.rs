//! Data about problems of values that a VM accepts: outdated purposes, side effects, and conflicts with other settings. The data is in
//! `data/hazards.toml`.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::OtpVersion;
use crate::catalog::broken;
use crate::takes::Integer;

/// All hazards. The field names are the keys of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hazards {
    pub(crate) undocumented: Vec<String>,
    pub(crate) short_reads: Vec<String>,
    pub(crate) vital: Vec<String>,
    pub(crate) greedy: Vec<GreedyFlag>,
    pub(crate) outdated: Vec<Outdated>,
    pub(crate) trap: Vec<Trap>,
    #[serde(rename = "beside")]
    pub(crate) conflicts: Vec<Conflict>,
    #[serde(rename = "wants")]
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) parameter: Vec<Parameter>,
    pub(crate) unread: Vec<UnreadVariables>,
    pub(crate) variable: Vec<ProductVariable>,
}

/// A flag with an optional value. If the next word is not a flag, the launcher of older releases takes it as the value, and rejects it
/// unless it starts with a valid letter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GreedyFlag {
    /// The id of the flag.
    pub(crate) flag: String,
    /// The first version that accepts any next word.
    pub(crate) until: OtpVersion,
    /// The valid letters.
    pub(crate) except: String,
}

/// A setting that is usually given for a purpose that it no longer has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outdated {
    /// The id of the setting.
    pub(crate) flag: String,
    /// The first version in which the setting no longer has this purpose.
    pub(crate) since: OtpVersion,
    /// Values that are probably not given for this purpose.
    #[serde(default)]
    pub(crate) except: Vec<String>,
    /// Whether the setting still works, so that its value matters, but is deprecated.
    #[serde(default)]
    pub(crate) deprecated: bool,
    /// The message, which continues a sentence that starts with the setting.
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// A value that works, but has an effect that few people expect. The value is described by `words`, `ends_with`, `integer` or
/// `below_default`. If none of these is given, every value is a trap, apart from those in `except`. In `says`, `{default}` stands for the
/// default of the affected releases, and `{table}` for the memory of a table whose number of slots is the value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trap {
    /// The id of the setting.
    pub(crate) flag: String,
    /// The first version with this effect; `None`: it applies from the first release on.
    pub(crate) from: Option<OtpVersion>,
    /// The first version without this effect.
    pub(crate) until: Option<OtpVersion>,
    /// The letters of the affected allocators; `None`: all.
    pub(crate) letters: Option<String>,
    /// The values that are traps. The empty word means the flag without a value.
    #[serde(default)]
    pub(crate) words: Vec<String>,
    /// Endings of values that are traps.
    #[serde(default)]
    pub(crate) ends_with: Vec<String>,
    /// Bounds of plain numbers that are traps.
    pub(crate) integer: Option<Integer>,
    /// Whether paths are traps if the rest of the file shows that they are directories.
    #[serde(default)]
    pub(crate) folder: bool,
    /// Whether numbers below the default are traps, in the releases with such a default.
    #[serde(default)]
    pub(crate) below_default: bool,
    /// Values that are not traps.
    #[serde(default)]
    pub(crate) except: Vec<String>,
    /// Settings that prevent the effect: `+MMsco false`.
    #[serde(default)]
    pub(crate) unless: Vec<String>,
    #[serde(default)]
    pub(crate) level: HazardLevel,
    /// Lower-case words of a comment that contradict the effect; such a comment makes the finding a warning.
    #[serde(default)]
    pub(crate) against: Vec<String>,
    /// Whether a VM that starts with the setting behaves the same without it.
    #[serde(default)]
    pub(crate) removable: bool,
    /// The message, which continues a sentence that starts with the setting.
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// The level of a hazard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HazardLevel {
    Note,
    #[default]
    Warning,
}

/// A setting that conflicts with another setting. In `says` and `remedy`, `{other}` stands for the other setting as written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Conflict {
    /// The id of the setting.
    pub(crate) flag: String,
    /// The id of the other setting.
    pub(crate) other: String,
    pub(crate) from: Option<OtpVersion>,
    /// The values of the setting that conflict; empty: any value.
    #[serde(default)]
    pub(crate) mine: Vec<String>,
    /// The values of the setting that do not conflict.
    #[serde(default)]
    pub(crate) mine_not: Vec<String>,
    /// Bounds of the numbers that conflict, if the value of the setting is a number.
    pub(crate) mine_integer: Option<Integer>,
    /// The values of the other setting that conflict; empty: any value.
    #[serde(default)]
    pub(crate) its: Vec<String>,
    /// The values of the other setting that do not conflict.
    #[serde(default)]
    pub(crate) its_not: Vec<String>,
    /// Bounds of the numbers that conflict, if the value of the other setting is a number.
    pub(crate) its_integer: Option<Integer>,
    /// How the number of the setting, or one of a pair `N:M`, must compare with that of the other setting to conflict.
    pub(crate) than: Option<Comparison>,
    /// The default of the other setting, if the default conflicts, too.
    pub(crate) its_default: Option<String>,
    /// The position that the other setting must have to conflict.
    #[serde(default, rename = "stands")]
    pub(crate) position: RelativePosition,
    /// Settings that prevent the conflict.
    #[serde(default)]
    pub(crate) unless: Vec<String>,
    pub(crate) makes: ConflictKind,
    /// Whether a VM that starts with the setting behaves the same without it.
    #[serde(default)]
    pub(crate) removable: bool,
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// The result of comparing two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Comparison {
    Less,
    More,
}

/// The position of the other setting, relative to the setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RelativePosition {
    #[default]
    Anywhere,
    /// Later on the command line, or in a source that takes effect later.
    After,
}

/// The result of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConflictKind {
    /// The VM does not start.
    Refused,
    /// The VM hangs or crashes.
    Fatal,
    /// One of the two settings has no effect.
    Cancelled,
    /// The VM changes the value of the setting.
    Changed,
    /// Both settings work, but have an effect that few people expect.
    Risk,
}

/// A setting that requires another setting.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requirement {
    pub(crate) flag: String,
    pub(crate) other: String,
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
    /// Appended to `why` if erlinit of Nerves starts the node, because erlinit may set the other setting.
    pub(crate) erlinit: Option<String>,
}

/// Parameters of an application that have no effect unless a parameter of kernel is set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameter {
    /// The application, with a minus.
    pub(crate) application: String,
    pub(crate) names: Vec<String>,
    /// The required parameter of kernel.
    pub(crate) unless: String,
    /// The message, which continues a sentence that starts with the parameter.
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// Variables that have no effect if -env sets them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnreadVariables {
    pub(crate) names: Vec<String>,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// A variable of a product with side effects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProductVariable {
    pub(crate) name: String,
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// Returns all hazards.
pub(crate) fn hazards() -> &'static Hazards {
    static HAZARDS: OnceLock<Hazards> = OnceLock::new();
    HAZARDS.get_or_init(|| {
        toml::from_str(include_str!("../../data/hazards.toml"))
            .unwrap_or_else(|error| broken("hazards", &error))
    })
}

/// Parses a plain number. Leading spaces, which a quoted word may contain, are skipped.
pub(crate) fn plain_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

/// Parses the leading numbers of a value `N`, `N:M` or `:M`.
pub(crate) fn numbers(text: &str) -> (Option<i64>, Option<i64>) {
    let (first, rest) = leading(text.trim_start());
    (first, rest.strip_prefix(':').and_then(|rest| leading(rest).0))
}

fn leading(text: &str) -> (Option<i64>, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    (digits.parse().ok(), rest)
}

fn within(range: Integer, number: i64) -> bool {
    range.min.is_none_or(|min| number >= min) && range.max.is_none_or(|max| number <= max)
}

impl Trap {
    /// Whether the trap describes this value; `None` is a flag without a value.
    pub(crate) fn is_about(&self, value: Option<&str>, letter: Option<char>) -> bool {
        if let (Some(letters), Some(letter)) = (&self.letters, letter)
            && !letters.contains(letter)
        {
            return false;
        }
        let text = value.unwrap_or_default();
        let is = |words: &[String]| words.iter().any(|word| word == text);
        self.is_every()
            || self.below_default
            || !self.except.is_empty() && !is(&self.except)
            || is(&self.words)
            || self.ends_with.iter().any(|end| text.ends_with(end.as_str()))
            || self
                .integer
                .is_some_and(|range| plain_number(text).is_some_and(|number| within(range, number)))
    }

    /// Whether the trap describes every value, even an unknown one.
    pub(crate) fn is_every(&self) -> bool {
        let of_values = self.words.is_empty()
            && self.ends_with.is_empty()
            && self.integer.is_none()
            && !self.below_default;
        of_values && self.except.is_empty()
    }

    pub(crate) fn holds_in(&self, otp: &OtpVersion) -> bool {
        self.from.as_ref().is_none_or(|from| otp >= from)
            && self.until.as_ref().is_none_or(|until| otp < until)
    }
}

impl Conflict {
    /// Whether the conflict describes these two values; `None` is an unknown value.
    pub(crate) fn is_about(&self, mine: Option<&str>, its: Option<&str>) -> bool {
        let fits = |value: Option<&str>, words: &[String], not: &[String], range: Option<Integer>| {
            let is = |words: &[String]| value.is_some_and(|value| words.iter().any(|word| word == value));
            (words.is_empty() || is(words))
                && (not.is_empty() || value.is_some() && !is(not))
                && range.is_none_or(|range| {
                    value.and_then(|value| numbers(value).0).is_some_and(|number| within(range, number))
                })
        };
        fits(mine, &self.mine, &self.mine_not, self.mine_integer)
            && fits(its, &self.its, &self.its_not, self.its_integer)
            && self.than.is_none_or(|than| {
                let (mine, its) = (numbers(mine.unwrap_or_default()), numbers(its.unwrap_or_default()));
                let holds = |pair: (Option<i64>, Option<i64>)| match (pair, than) {
                    ((Some(mine), Some(its)), Comparison::Less) => mine < its,
                    ((Some(mine), Some(its)), Comparison::More) => mine > its,
                    _ => false,
                };
                holds((mine.0, its.0)) || holds((mine.1, its.1))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry;

    #[test]
    fn hazards_refer_to_known_settings_and_have_complete_sentences() {
        let hazards = hazards();
        let known = |id: &str| assert!(entry(id).is_some(), "{id}");
        let sentence = |text: &str| assert!(text.ends_with('.') && text.trim() == text, "{text:?}");
        let part = |text: &str| assert!(!text.ends_with('.') && text.trim() == text, "{text:?}");
        for outdated in &hazards.outdated {
            known(&outdated.flag);
            part(&outdated.says);
            sentence(&outdated.why);
            sentence(&outdated.remedy);
        }
        for greedy in &hazards.greedy {
            known(&greedy.flag);
        }
        for trap in &hazards.trap {
            known(&trap.flag);
            part(&trap.says);
            sentence(&trap.why);
            sentence(&trap.remedy);
            for unless in &trap.unless {
                known(unless.split(' ').next().unwrap_or_default());
            }
        }
        for conflict in &hazards.conflicts {
            known(&conflict.flag);
            known(&conflict.other);
            part(&conflict.says);
            sentence(&conflict.why);
            sentence(&conflict.remedy);
        }
        for required in &hazards.requirements {
            known(&required.flag);
            known(&required.other);
        }
        for unread in &hazards.unread {
            sentence(&unread.why);
            sentence(&unread.remedy);
            assert!(unread.names.iter().all(|name| entry(name).is_none()), "{:?}", unread.names);
        }
        for parameter in &hazards.parameter {
            part(&parameter.says);
            sentence(&parameter.why);
            sentence(&parameter.remedy);
        }
    }

    #[test]
    fn leading_numbers_of_a_value_are_parsed() {
        let check =
            |text: &str, expect: (Option<i64>, Option<i64>)| assert_eq!(numbers(text), expect, "{text:?}");
        check("4", (Some(4), None));
        check("4:2", (Some(4), Some(2)));
        check(":2", (None, Some(2)));
        check("8k", (Some(8), None));
        check("", (None, None));
        check("de", (None, None));
        check("99999999999999999999", (None, None));
    }
}
