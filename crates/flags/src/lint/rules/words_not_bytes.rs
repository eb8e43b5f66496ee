//! BF013: a size in words that looks as if bytes were meant.

use crate::lint::case::{Case, Says, works};
use crate::lint::hazards::plain_number;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF013"),
    name: "words-not-bytes",
    finds: "A size in words that looks as if bytes were meant.",
    level: Level::Note,
};

/// Bytes in a word of a 64-bit VM.
const WORD_BYTES: i64 = 8;
/// People who think of bytes write multiples of this.
const KIB: i64 = 1024;

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none()) {
        let setting = judged.setting;
        let Some(entry) = setting.entry else { continue };
        let Some(number) = setting.known_value().and_then(plain_number) else { continue };
        if number < KIB || number % KIB != 0 {
            continue;
        }
        let releases = judged.releases(|outcome| {
            let words =
                entry.takes_in(outcome.release).is_some_and(|takes| takes.unit.as_deref() == Some("words"));
            works(outcome) && words && entry.default_value_in(outcome.release) != setting.known_value()
        });
        if releases.is_empty() {
            continue;
        }
        let says = Says {
            message: format!("{} is {}: it counts words of 8 bytes", case.quoted(setting), size(number)),
            reason: entry.does.clone(),
            remedy: format!(
                "If {} are meant, write {}; if it is right as it is, there is nothing to do.",
                bytes(number),
                number / WORD_BYTES
            ),
        };
        found.push(case.about(&RULE, Level::Note, setting, releases, says));
    }
}

fn size(words: i64) -> String {
    words.checked_mul(WORD_BYTES).map_or_else(|| "more than any memory".to_owned(), bytes)
}

/// A multiple of 1024 bytes, for a person.
fn bytes(bytes: i64) -> String {
    let kib = bytes / KIB;
    match kib {
        _ if kib % (KIB * KIB) == 0 => format!("{} GiB", kib / (KIB * KIB)),
        _ if kib % KIB == 0 => format!("{} MiB", kib / KIB),
        _ => format!("{kib} KiB"),
    }
}
