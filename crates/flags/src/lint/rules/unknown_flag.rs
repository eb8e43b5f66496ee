//! BF001: a word that starts with `+` but is not a flag in any release.

use std::sync::OnceLock;

use crate::catalog::recognise;
use crate::entries;
use crate::entry::{Argument, Entry, Kind};
use crate::init_flags::is_common;
use crate::lint::case::{Case, FindingText, releases_text};
use crate::lint::hazards::hazards;
use crate::lint::node::SettingKind;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF001"),
    name: "unknown-flag",
    description: "An emulator flag that no release has.",
    level: Level::Error,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in &case.judged {
        let setting = judged.setting;
        let part = case.node.part_of(setting);
        // A running emulator has accepted its flags, so an unknown flag is missing in the catalogue.
        if setting.entry.is_some()
            || setting.kind != SettingKind::Flag
            || part.fragment.place == Place::RunningNode
        {
            continue;
        }
        let name = setting.name;
        let fatal = recognise(name).map(|known| known.entry).and_then(|entry| {
            let fatal = entry.fatal.iter().find(|fatal| fatal.always)?;
            Some(format!("From OTP {} on: {}", entry.since.first()?, fatal.why))
        });
        // Some flags without a value ignore further letters in the word.
        let like = recognise(name)
            .filter(|known| !known.glued.is_empty() && hazards().short_reads.contains(&known.flag))
            .map(|known| known.flag);
        let undocumented = hazards().undocumented.iter().any(|flag| name.starts_with(flag.as_str()));
        let all = releases_text(&part.releases);
        let (level, message) = match like {
            Some(like) => (
                Level::Warning,
                format!("{} is not an emulator flag: it is parsed as {like} by {all}", case.quoted(setting)),
            ),
            None if undocumented => {
                (Level::Warning, format!("{} is undocumented, but accepted", case.quoted(setting)))
            }
            None => (
                Level::Error,
                format!("{} is not an emulator flag: {all} will not start", case.quoted(setting)),
            ),
        };
        let reason = match (level, fatal) {
            (Level::Error, Some(fatal)) => fatal,
            (Level::Error, None) => "The emulator prints its usage and exits.".to_owned(),
            _ => {
                "The emulator does not check every letter of a flag (+Lx and +H start OTP 23, 25, 27 and 29)."
                    .to_owned()
            }
        };
        let texts = FindingText { message, reason, remedy: remedy(name) };
        found.push(case.about(&RULE, level, setting, part.releases.clone(), texts));
    }
}

fn remedy(name: &str) -> String {
    if let Some(minus) = minus(name) {
        return format!("Write `{minus}`, with a minus.");
    }
    if let Some(known) = recognise(name).filter(|known| !known.glued.is_empty()) {
        let flag = &known.flag;
        if known.entry.argument != Some(Argument::None) && !known.entry.glued {
            return format!(
                "If you mean {flag}, write its value as a separate word: `{flag} {}`.",
                known.glued
            );
        }
    }
    match nearest(name).as_slice() {
        [] => "Remove the flag.".to_owned(),
        [flag] => format!("Remove the flag, or write `{flag}` if you mean that: it {}", what(flag)),
        several => {
            format!("Remove the flag, or write `{}` if you mean one of them.", several.join("` or `"))
        }
    }
}

/// Returns the common flag with a minus that has the same name as a word with a plus.
pub(in crate::lint) fn minus(name: &str) -> Option<String> {
    let minus = format!("-{}", name.strip_prefix('+')?);
    is_common(&minus).then_some(minus)
}

fn what(flag: &str) -> String {
    recognise(flag).map(|known| known.entry.effect()).unwrap_or_default()
}

/// A candidate for a misspelled flag.
struct Known {
    /// The spelling in the catalogue: `+M<S>as` for `+MBas`.
    spelling: &'static str,
    is_of_allocator: bool,
    /// The set of letters in the spelling, as bits.
    letters: u128,
}

/// Returns the flags that have more than one letter and were not removed.
fn known() -> &'static [Known] {
    static KNOWN: OnceLock<Vec<Known>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let flags =
            entries().iter().filter(|entry| entry.kind == Kind::EmulatorFlag && entry.removed_in.is_none());
        let known = flags.map(Entry::spelling).filter(|spelling| spelling.starts_with('+')).map(|spelling| {
            let letters = spelling.replace(ALLOCATOR, "");
            Known { spelling, is_of_allocator: spelling.contains(ALLOCATOR), letters: letters_of(&letters) }
        });
        known.filter(|known| known.spelling.len() > 2 && known.letters & letters_of("<") == 0).collect()
    })
}

/// The placeholder for the letter of an allocator.
const ALLOCATOR: &str = "<S>";

/// Returns the set of letters in a text, as bits.
fn letters_of(text: &str) -> u128 {
    text.bytes().filter(u8::is_ascii).fold(0, |letters, byte| letters | 1 << byte)
}

/// Returns the flags with the smallest edit distance to a word, if that distance is small.
fn nearest(name: &str) -> Vec<String> {
    let letter = name.chars().nth(2).filter(|letter| "BDEFHILRSTu".contains(*letter)).unwrap_or('u');
    let letter = letter.encode_utf8(&mut [0; 4]).to_owned();
    let max: u32 = if name.len() < 5 { 1 } else { 2 };
    let mine = letters_of(compared(name));
    // Each letter that only one of the two words contains increases the distance, so most flags can be excluded cheaply.
    let may_be_near = |known: &&Known| {
        let its = known.letters | if known.is_of_allocator { letters_of(&letter) } else { 0 };
        (mine & !its).count_ones().max((its & !mine).count_ones()) <= max
    };
    let near: Vec<(usize, String)> = known()
        .iter()
        .filter(may_be_near)
        .map(|known| known.spelling.replace(ALLOCATOR, &letter))
        .map(|spelling| (distance(name, &spelling), spelling))
        .filter(|(distance, _)| *distance <= max as usize)
        .collect();
    let min = near.iter().map(|(distance, _)| *distance).min();
    near.into_iter().filter(|(distance, _)| Some(*distance) == min).map(|(_, spelling)| spelling).collect()
}

/// Returns the edit distance of two words; only the start of a long word is compared.
pub(in crate::lint) fn distance(one: &str, other: &str) -> usize {
    strsim::levenshtein(compared(one), other)
}

/// Returns the part of a word that is compared.
fn compared(word: &str) -> &str {
    const MAX_LETTERS: usize = 24;
    let end = word.char_indices().nth(MAX_LETTERS).map_or(word.len(), |(end, _)| end);
    word.get(..end).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letter_filter_excludes_no_similar_flag() {
        for name in entries().iter().map(Entry::spelling).filter(|name| name.starts_with('+')) {
            let name = name.replace(ALLOCATOR, "H");
            for other in
                [format!("{name}q"), format!("{name}qz"), name.replacen(|c: char| c.is_lowercase(), "", 1)]
            {
                let letter =
                    other.chars().nth(2).filter(|letter| "BDEFHILRSTu".contains(*letter)).unwrap_or('u');
                let max = if other.len() < 5 { 1 } else { 2 };
                let all = known().iter().map(|known| known.spelling.replace(ALLOCATOR, &letter.to_string()));
                let distances: Vec<(usize, String)> =
                    all.map(|known| (distance(&other, &known), known)).collect();
                let min =
                    distances.iter().map(|(distance, _)| *distance).filter(|distance| *distance <= max).min();
                let expect: Vec<String> = distances
                    .into_iter()
                    .filter(|(distance, _)| Some(*distance) == min)
                    .map(|(_, known)| known)
                    .collect();
                assert_eq!(nearest(&other), expect, "{other}");
            }
        }
    }

    #[test]
    fn edit_distance_counts_changed_letters() {
        assert_eq!(distance("agecbf", "ageffcbf"), 2);
        assert_eq!(distance("+MBscs", "+MMscs"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
