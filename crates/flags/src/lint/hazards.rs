//! What is wrong with values that a VM takes, as data: what they do not do any more, what they bring with them, and which of
//! them do not go together. The data stands in `data/hazards.toml`.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::OtpVersion;
use crate::catalog::broken;
use crate::takes::Integer;

/// All of it. The keys are those of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hazards {
    pub(crate) undocumented: Vec<String>,
    pub(crate) short_reads: Vec<String>,
    pub(crate) vital: Vec<String>,
    pub(crate) greedy: Vec<Greedy>,
    pub(crate) outdated: Vec<Outdated>,
    pub(crate) trap: Vec<Trap>,
    pub(crate) beside: Vec<Beside>,
    pub(crate) wants: Vec<Wants>,
    pub(crate) parameter: Vec<Parameter>,
    pub(crate) unread: Vec<Unread>,
    pub(crate) variable: Vec<OfProduct>,
}

/// A flag without a value, behind which the launcher of older releases refuses a word that is no flag, unless a value begins like it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Greedy {
    /// The id of its entry.
    pub(crate) flag: String,
    /// The first version that takes the word for one of its own.
    pub(crate) until: OtpVersion,
    /// How words begin that are no trouble.
    pub(crate) except: String,
}

/// A setting that is given for something that it does not do any more.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outdated {
    /// The id of its entry.
    pub(crate) flag: String,
    /// The first version in which it does not do it.
    pub(crate) since: OtpVersion,
    /// Values that ask for as little of it as can be.
    #[serde(default)]
    pub(crate) except: Vec<String>,
    /// It does what it is given for, so that its value matters; only its time is over.
    #[serde(default)]
    pub(crate) deprecated: bool,
    /// Goes on after the flag.
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// A value that works and is a trap: one that `words`, `ends_with`, `integer` or `below_default` describe. Where none of them is given,
/// every value is one, or every one but those of `except`. In `says`, `{default}` stands for the default of the releases at hand, and `{table}` for the memory of a table of so many slots.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trap {
    /// The id of its entry.
    pub(crate) flag: String,
    /// The first version that this holds for; absent: from the beginning.
    pub(crate) from: Option<OtpVersion>,
    /// The first version that this does not hold for any more.
    pub(crate) until: Option<OtpVersion>,
    /// Only for these allocators, by their letters.
    pub(crate) letters: Option<String>,
    /// These values. The empty word is the flag without a value.
    #[serde(default)]
    pub(crate) words: Vec<String>,
    /// Values that end so.
    #[serde(default)]
    pub(crate) ends_with: Vec<String>,
    /// Numbers within these bounds, if the value is a plain number.
    pub(crate) integer: Option<Integer>,
    /// Paths that the rest of the file shows to be those of folders.
    #[serde(default)]
    pub(crate) folder: bool,
    /// Numbers that give less than the default, in the releases where they do.
    #[serde(default)]
    pub(crate) below_default: bool,
    /// All but these values.
    #[serde(default)]
    pub(crate) except: Vec<String>,
    /// Not where one of these is in effect: `+MMsco false`.
    #[serde(default)]
    pub(crate) unless: Vec<String>,
    #[serde(default)]
    pub(crate) level: HazardLevel,
    /// Words, in small letters, of a comment that says the opposite of what happens: with it, it is a warning.
    #[serde(default)]
    pub(crate) against: Vec<String>,
    /// Whether a VM that boots with it does the same without it.
    #[serde(default)]
    pub(crate) removable: bool,
    /// Goes on after the flag.
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HazardLevel {
    Note,
    #[default]
    Warning,
}

/// A setting that does not go with another one. In `says` and `remedy`, `{other}` stands for that as it is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Beside {
    /// The id of its entry.
    pub(crate) flag: String,
    /// The id of the other's.
    pub(crate) other: String,
    pub(crate) from: Option<OtpVersion>,
    /// Only with one of these values; absent: with any.
    #[serde(default)]
    pub(crate) mine: Vec<String>,
    /// Not with one of these values.
    #[serde(default)]
    pub(crate) mine_not: Vec<String>,
    /// Only with a number within these bounds.
    pub(crate) mine_integer: Option<Integer>,
    /// The same for the value of the other.
    #[serde(default)]
    pub(crate) its: Vec<String>,
    #[serde(default)]
    pub(crate) its_not: Vec<String>,
    pub(crate) its_integer: Option<Integer>,
    /// Only if the number, or one of a pair, is less or more than that of the other.
    pub(crate) than: Option<Than>,
    /// The value of the other where it is not given, if that goes against this one, too.
    pub(crate) its_default: Option<String>,
    /// Where the other stands.
    #[serde(default)]
    pub(crate) stands: Stands,
    /// Not where one of these is in effect.
    #[serde(default)]
    pub(crate) unless: Vec<String>,
    pub(crate) makes: Makes,
    /// Whether a VM that boots with it does the same without it.
    #[serde(default)]
    pub(crate) removable: bool,
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// How two numbers compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Than {
    Less,
    More,
}

/// Where the other setting stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stands {
    #[default]
    Anywhere,
    /// Behind, or in a place that counts later.
    After,
}

/// What comes of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Makes {
    /// The VM does not start.
    Refused,
    /// It hangs or crashes.
    Fatal,
    /// One of them has no effect.
    Cancelled,
    /// The value is another one.
    Changed,
    /// It works, and is a trap.
    Risk,
}

/// A setting that needs another one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wants {
    pub(crate) flag: String,
    pub(crate) other: String,
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
    /// Goes on after `why` where erlinit of Nerves starts the node, and may give the other.
    pub(crate) erlinit: Option<String>,
}

/// A parameter of an application that has no effect unless one of kernel is true.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameter {
    /// With its minus.
    pub(crate) application: String,
    pub(crate) names: Vec<String>,
    /// The parameter of kernel.
    pub(crate) unless: String,
    /// Goes on after the parameter.
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// Variables that nobody reads where -env sets them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unread {
    pub(crate) names: Vec<String>,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// A variable of a product that does more than it seems to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfProduct {
    pub(crate) name: String,
    pub(crate) says: String,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

/// All hazards.
pub(crate) fn hazards() -> &'static Hazards {
    static HAZARDS: OnceLock<Hazards> = OnceLock::new();
    HAZARDS.get_or_init(|| {
        toml::from_str(include_str!("../../data/hazards.toml"))
            .unwrap_or_else(|error| broken("hazards", &error))
    })
}

/// The number that a value is, if it is nothing else; quotes may have put blanks before it, which are read over.
pub(crate) fn plain_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

/// The numbers that a value begins with: of `N`, `N:M` and `:M`.
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
    /// Whether it is about this value; `None` is no value.
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

    /// Whether it is about every value, known or not.
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

impl Beside {
    /// Whether two values, as far as they are known, are what this is about.
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
                    ((Some(mine), Some(its)), Than::Less) => mine < its,
                    ((Some(mine), Some(its)), Than::More) => mine > its,
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
    fn every_hazard_is_about_settings_that_exist_and_ends_its_sentences() {
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
        for beside in &hazards.beside {
            known(&beside.flag);
            known(&beside.other);
            part(&beside.says);
            sentence(&beside.why);
            sentence(&beside.remedy);
        }
        for wants in &hazards.wants {
            known(&wants.flag);
            known(&wants.other);
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
    fn numbers_are_found_at_the_beginning_of_a_value() {
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
