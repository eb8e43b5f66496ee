//! BF013: a size in words that looks like a size in bytes.

use std::ops::Range;

use crate::lint::case::{Case, FindingText, takes_effect};
use crate::lint::comment::comments;
use crate::lint::hazards::plain_number;
use crate::lint::{Code, Finding, Level, Rule};

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF013"),
    name: "words-not-bytes",
    description: "A size in words that looks like a size in bytes.",
    level: Level::Note,
};

/// Bytes in a word of a 64-bit VM.
const WORD_BYTES: i64 = 8;
/// Sizes that are meant as bytes are usually multiples of 1024.
const KIB: i64 = 1024;

/// Decimal sizes are usually multiples of a million.
const MILLION: i64 = 1_000_000;
/// Minimum number that looks like a decimal size in bytes. As a number of words it is 2 GB; smaller sizes are plausible in words.
const MIN_DECIMAL_WORDS: i64 = 250 * MILLION;
/// Tolerance between a comment and the number, in percent: a MB has 1,000,000 or 1,048,576 bytes, and people round.
const TOLERANCE_PCT: i64 = 8;

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known().filter(|judged| judged.overridden.is_none()) {
        let setting = judged.setting;
        let Some(entry) = setting.entry else { continue };
        let Some(number) = setting.known_value().and_then(plain_number).filter(|number| *number > 0) else {
            continue;
        };
        let releases = judged.releases(|outcome| {
            let words = entry
                .accepted_in(outcome.release)
                .is_some_and(|takes| takes.unit.as_deref() == Some("words"));
            takes_effect(outcome) && words && entry.default_value_in(outcome.release) != setting.known_value()
        });
        if releases.is_empty() {
            continue;
        }
        let part = case.node.part_of(setting);
        let text = part.fragment.file_text();
        let span = case.node.span_of(setting);
        let comments = comments(text, &span);
        let said: Vec<(&Range<usize>, i64)> = comments
            .iter()
            .flat_map(|line| {
                sizes(text.get(line.clone()).unwrap_or_default()).into_iter().map(move |size| (line, size))
            })
            .collect();
        let is = number.saturating_mul(WORD_BYTES);
        if said.iter().any(|(_, size)| is_roughly(*size, is)) {
            continue;
        }
        let (remedy, comment) = match said.as_slice() {
            // If the comment names several sizes, some are those of other flags or the default. A very different size is unrelated.
            [(line, size)] if (is / WORD_BYTES..=is.saturating_mul(WORD_BYTES)).contains(size) => {
                let remedy =
                    format!("If you mean the {} of the comment, write {}.", bytes(*size), size / WORD_BYTES);
                (remedy, Some((*line).clone()))
            }
            _ if looks_like_bytes(number) => {
                let remedy = format!(
                    "If you mean {}, write {}; otherwise nothing needs to be changed.",
                    bytes(number),
                    number / WORD_BYTES
                );
                (remedy, None)
            }
            _ => continue,
        };
        let texts = FindingText {
            message: format!("{} is {}: the unit is words of 8 bytes", case.quoted(setting), size(number)),
            reason: format!("It {}", entry.effect()),
            remedy,
        };
        let mut finding = case.about(&RULE, Level::Note, setting, releases, texts);
        finding.related.extend(comment.map(|line| (finding.file, line, "contradicts the value".to_owned())));
        found.push(finding);
    }
}

fn looks_like_bytes(number: i64) -> bool {
    number >= KIB && number % KIB == 0 || number >= MIN_DECIMAL_WORDS && number % MILLION == 0
}

fn is_roughly(one: i64, other: i64) -> bool {
    one.abs_diff(other) <= one.unsigned_abs() / 100 * TOLERANCE_PCT.unsigned_abs()
}

/// Finds the sizes in a comment (`100 MB`, `1GiB`), in bytes.
fn sizes(comment: &str) -> Vec<i64> {
    let mut found = Vec::new();
    let mut rest = comment;
    while let Some(begin) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = rest.get(begin..).unwrap_or_default();
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let (number, after) = digits.split_at(end);
        let is_part =
            rest.get(..begin).unwrap_or_default().ends_with(|c: char| c == '.' || c.is_ascii_alphanumeric());
        let unit = after.trim_start();
        let unit = unit.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        let factor = match unit.to_ascii_lowercase().as_str() {
            "kb" | "kib" => Some(KIB),
            "mb" | "mib" => Some(KIB * KIB),
            "gb" | "gib" => Some(KIB * KIB * KIB),
            _ => None,
        };
        let number: Option<i64> = number.parse().ok().filter(|_| !is_part);
        found.extend(number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor)));
        rest = after;
    }
    found
}

fn size(words: i64) -> String {
    words.checked_mul(WORD_BYTES).map_or_else(|| "more than any memory".to_owned(), bytes)
}

/// Formats a number of bytes.
fn bytes(bytes: i64) -> String {
    const MIB: i64 = KIB * KIB;
    match bytes {
        _ if bytes % (KIB * MIB) == 0 => format!("{} GiB", bytes / (KIB * MIB)),
        _ if bytes % MIB == 0 => format!("{} MiB", bytes / MIB),
        _ if bytes % KIB == 0 && bytes < 100 * MILLION => format!("{} KiB", bytes / KIB),
        _ if bytes % (1000 * MILLION) == 0 => format!("{} GB", bytes / (1000 * MILLION)),
        _ => format!("{} MB", bytes / MILLION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_found_in_comments() {
        let check = |comment: &str, expect: &[i64]| assert_eq!(sizes(comment), expect, "{comment:?}");
        check("# 100 MB (1 word = 8 bytes)", &[100 << 20]);
        check("# 512MiB, default 1 gb", &[512 << 20, 1 << 30]);
        check("# v2 MB, 1.5 GB, 12 words, 4k", &[]);
        check("# 99999999999999999999 MB 9999999999999999 GB", &[]);
    }

    #[test]
    fn sizes_are_formatted_in_a_suitable_unit() {
        assert_eq!(bytes(8_000_000_000), "8 GB");
        assert_eq!(bytes(4 << 30), "4 GiB");
        assert_eq!(bytes(400_000_000), "400 MB");
        assert_eq!(bytes(64 << 10), "64 KiB");
    }
}
