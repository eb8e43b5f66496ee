//! Parses a change of a flag that a user requests.

use crate::Verdict;
use crate::catalog::entries;
use crate::init_flags::is_repeatable;
use crate::lint::RELEASES;
use crate::source::Format;

use super::walk::flag_uses;
use super::{ArgsError, FlagUse, Input, Shape};

/// A requested change of a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlagChange {
    /// Set the value of a flag.
    Set {
        /// The name of the flag, as in [`Given::flag`].
        flag: String,
        /// The words to write if the file does not have the flag yet.
        words: Vec<String>,
    },
    /// Remove a flag.
    Unset {
        /// The name of the flag, as in [`Given::flag`].
        flag: String,
    },
}

impl FlagChange {
    /// Parses a flag with its value, as in `vm.args`: `+sbwt none`, `-kernel net_ticktime 30`.
    ///
    /// # Errors
    /// If the text is not exactly one flag, if no release has the flag, or if the flag can be repeated.
    pub fn set(text: &str) -> Result<FlagChange, ArgsError> {
        let (given, words) = one_flag(text)?;
        if given.flag.starts_with('+') && given.entry.is_none() {
            return Err(ArgsError::Unknown { flag: given.flag });
        }
        let is_head = |spelling: &str| spelling.split(' ').next() == Some(given.flag.as_str());
        if given.entry.is_none()
            && let Some(entry) = entries().iter().find(|entry| is_head(entry.spelling()))
        {
            let value = entry.example.as_deref().unwrap_or("VALUE");
            let example = format!("{} {value}", entry.spelling());
            return Err(ArgsError::NoParameter { flag: given.flag, example });
        }
        Ok(FlagChange::Set { flag: given.flag, words })
    }

    /// Parses a flag without a value: `+K`, `-kernel net_ticktime`.
    ///
    /// # Errors
    /// As for [`set`](Self::set), except that a flag that no release has can be removed.
    pub fn unset(text: &str) -> Result<FlagChange, ArgsError> {
        // The name of an application parameter consists of two words, such as `-kernel net_ticktime`.
        let is_pair = text.starts_with('-') && text.split_whitespace().count() == 2;
        let given = if is_pair { one_flag(&format!("{text} x"))?.0 } else { one_flag(text)?.0 };
        if !is_pair && !given.values.is_empty() {
            return Err(ArgsError::NotOneFlag { text: text.to_owned() });
        }
        Ok(FlagChange::Unset { flag: given.flag })
    }

    /// Returns the name of the flag to change.
    pub fn flag(&self) -> &str {
        match self {
            FlagChange::Set { flag, .. } | FlagChange::Unset { flag } => flag,
        }
    }
}

/// Parses a text that must be exactly one flag, and returns the flag and the words of the text.
pub(super) fn one_flag(text: &str) -> Result<(FlagUse, Vec<String>), ArgsError> {
    let none = || ArgsError::NotOneFlag { text: text.to_owned() };
    let input = Input::read(Format::VmArgs, text).map_err(|_| none())?;
    let words: Vec<String> =
        input.fragments.iter().flat_map(|fragment| &fragment.words).map(|word| word.text.clone()).collect();
    let mut found = flag_uses(&input, 0);
    let (Some(given), true) = (found.pop(), found.is_empty()) else { return Err(none()) };
    if is_repeatable(&given.flag) {
        return Err(ArgsError::Accumulates { flag: given.flag });
    }
    // `+sbtw` starts with `+sbt`, but no release accepts `w` as its value.
    if let (Shape::Glued(..), Some(entry), Some(value)) = (&given.shape, given.entry, given.values.first()) {
        let is_taken = |otp: u32| !matches!(entry.check(Some(value), otp), Verdict::Refused { .. });
        if !RELEASES.into_iter().any(is_taken) {
            return Err(ArgsError::Unknown { flag: words.into_iter().next().unwrap_or_default() });
        }
    }
    let taken = match &given.shape {
        Shape::Apart(range) => range.len(),
        Shape::Glued(..) => 1,
        Shape::Pair { .. } => 3,
        Shape::OfVariable { .. } => 0,
    };
    // An extra word would have no effect, so the user probably made a mistake.
    if taken == words.len() { Ok((given, words)) } else { Err(none()) }
}

/// Quotes words for an args file.
pub(super) fn quoted(words: &[String]) -> String {
    let plain = |c: char| !matches!(c, '"' | '\'' | '\\' | '#') && !c.is_whitespace();
    let written = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            return word.clone();
        }
        let mut text = String::from("\"\"");
        for c in word.chars() {
            if !plain(c) {
                text.push('\\');
            }
            text.push(c);
        }
        text
    });
    written.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_must_be_exactly_one_flag() {
        let flag = |text: &str| FlagChange::set(text).map(|request| request.flag().to_owned());
        assert_eq!(flag("+sbwt none"), Ok("+sbwt".to_owned()));
        assert_eq!(flag("+sbwtnone"), Ok("+sbwt".to_owned()));
        assert_eq!(flag("-kernel net_ticktime 30"), Ok("-kernel net_ticktime".to_owned()));
        assert_eq!(flag("-heart"), Ok("-heart".to_owned()));
        assert_eq!(flag("+xyz 1"), Err(ArgsError::Unknown { flag: "+xyz".to_owned() }));
        assert_eq!(flag("+sbtw none"), Err(ArgsError::Unknown { flag: "+sbtw".to_owned() }));
        assert!(matches!(flag("-pa x"), Err(ArgsError::Accumulates { .. })));
        assert!(matches!(flag("-kernel net_ticktime"), Err(ArgsError::NoParameter { .. })));
        for text in [
            "",
            "sbwt none",
            "+sbwt none +P 1",
            "+sbwt none more",
            "+P 'x",
            "-kernel a 1 b 2",
            "+c false x",
            "+c foo",
        ] {
            assert!(matches!(flag(text), Err(ArgsError::NotOneFlag { .. })), "{text}: {:?}", flag(text));
        }
        assert_eq!(FlagChange::unset("+K").map(|request| request.flag().to_owned()), Ok("+K".to_owned()));
        assert_eq!(
            FlagChange::unset("-kernel x").map(|request| request.flag().to_owned()),
            Ok("-kernel x".to_owned())
        );
        assert_eq!(FlagChange::unset("+xyz").map(|request| request.flag().to_owned()), Ok("+xyz".to_owned()));
        assert!(FlagChange::unset("+K true").is_err());
    }
}
