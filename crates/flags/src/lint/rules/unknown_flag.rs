//! BF001: a word with `+` that is no flag of any release.

use crate::catalog::recognise;
use crate::entries;
use crate::entry::{Argument, Kind};
use crate::init_flags::is_common;
use crate::lint::case::{Case, Says, releases_text};
use crate::lint::hazards::hazards;
use crate::lint::node::Via;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF001"),
    name: "unknown-flag",
    finds: "A flag of the emulator that no release has.",
    level: Level::Error,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in &case.judged {
        let setting = judged.setting;
        let part = case.node.part_of(setting);
        // What a live emulator has started with it knows better than we do.
        if setting.entry.is_some() || setting.via != Via::Flag || part.fragment.place == Place::LiveNode {
            continue;
        }
        let name = setting.name;
        let fatal = recognise(name).map(|known| known.entry).and_then(|entry| {
            let fatal = entry.fatal.iter().find(|fatal| fatal.always)?;
            Some(format!("From OTP {} on: {}", entry.since.first()?, fatal.why))
        });
        // Some flags without a value do not look at what stands behind their letters.
        let like = recognise(name)
            .filter(|known| !known.glued.is_empty() && hazards().short_reads.contains(&known.flag))
            .map(|known| known.flag);
        let undocumented = hazards().undocumented.iter().any(|flag| name.starts_with(flag.as_str()));
        let all = releases_text(&part.releases);
        let (level, message) = match like {
            Some(like) => (
                Level::Warning,
                format!("{} is no flag of the emulator: it is read as {like} by {all}", case.quoted(setting)),
            ),
            None if undocumented => (
                Level::Warning,
                format!("{} is no flag that any manual has, and is taken all the same", case.quoted(setting)),
            ),
            None => (
                Level::Error,
                format!("{} is no flag of the emulator, and stops the start of {all}", case.quoted(setting)),
            ),
        };
        let reason = match (level, fatal) {
            (Level::Error, Some(fatal)) => fatal,
            (Level::Error, None) => "The emulator prints its usage and ends.".to_owned(),
            _ => "The emulator does not look at each letter of a flag (+Lx and +H start OTP 23, 25, 27 and 29)."
                .to_owned(),
        };
        let says = Says { message, reason, remedy: remedy(name) };
        found.push(case.about(&RULE, level, setting, part.releases.clone(), says));
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
                "If {flag} is meant, write its value as a word of its own: `{flag} {}`.",
                known.glued
            );
        }
    }
    match nearest(name).as_slice() {
        [] => "Remove it.".to_owned(),
        [flag] => format!("Remove it; or write `{flag}`, if that is meant: {}", what(flag)),
        several => format!("Remove it; or write `{}`, if one of them is meant.", several.join("` or `")),
    }
}

/// The flag with a minus that a word with a plus was meant to be.
pub(in crate::lint) fn minus(name: &str) -> Option<String> {
    let minus = format!("-{}", name.strip_prefix('+')?);
    is_common(&minus).then_some(minus)
}

fn what(flag: &str) -> String {
    recognise(flag).map(|known| known.entry.does.clone()).unwrap_or_default()
}

/// The flags that differ least from this one, if they differ little.
fn nearest(name: &str) -> Vec<String> {
    let letter = name.chars().nth(2).filter(|letter| "BDEFHILRSTu".contains(*letter)).unwrap_or('u');
    let flags =
        entries().iter().filter(|entry| entry.kind == Kind::EmulatorFlag && entry.removed_in.is_none());
    let most = if name.len() < 5 { 1 } else { 2 };
    let near: Vec<(usize, String)> = flags
        .map(|entry| entry.spelling().replace("<S>", &letter.to_string()))
        .filter(|spelling| spelling.starts_with('+') && spelling.len() > 2 && !spelling.contains('<'))
        .map(|spelling| (distance(name, &spelling), spelling))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    let least = near.iter().map(|(distance, _)| *distance).min();
    near.into_iter().filter(|(distance, _)| Some(*distance) == least).map(|(_, spelling)| spelling).collect()
}

/// How many letters have to be changed, put in or taken out; of a long word only the beginning is compared.
pub(in crate::lint) fn distance(one: &str, other: &str) -> usize {
    const LONGEST: usize = 24;
    let end = one.char_indices().nth(LONGEST).map_or(one.len(), |(end, _)| end);
    strsim::levenshtein(one.get(..end).unwrap_or(one), other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_letter_by_letter() {
        assert_eq!(distance("agecbf", "ageffcbf"), 2);
        assert_eq!(distance("+MBscs", "+MMscs"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
