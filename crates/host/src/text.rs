//! Parsers for the kernel's text files. They take bytes, because names in these files need not be UTF-8. They accept any input:
//! they return a value or `None`, and never panic.

use beamtune_model::text::is_hidden;

/// An error of a parser: expected and actual content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Garble {
    /// What was expected.
    pub expected: &'static str,
    /// The beginning of the actual content, for messages.
    pub actual: String,
}

impl Garble {
    /// Creates the error, with the first 60 bytes of the content.
    pub(crate) fn new(expected: &'static str, actual: &[u8]) -> Self {
        Garble { expected, actual: String::from_utf8_lossy(&actual[..actual.len().min(60)]).into_owned() }
    }
}

/// Parses an unsigned decimal number. `None` on overflow, and if there is anything else in the field.
pub(crate) fn number(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Like [`number`], but returns the type of recorded readings.
pub(crate) fn reading(field: &[u8]) -> Option<i64> {
    i64::try_from(number(field)?).ok()
}

/// Returns the lines, without line feeds.
pub(crate) fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(|byte| *byte == b'\n')
}

/// Returns the fields of a line, which are separated by spaces or tabs.
pub(crate) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty())
}

/// Returns the rest of the line that starts with `key`, trimmed.
pub(crate) fn value<'a>(content: &'a [u8], key: &str) -> Option<&'a [u8]> {
    lines(content).find_map(|line| line.strip_prefix(key.as_bytes())).map(<[u8]>::trim_ascii)
}

/// Parses the size in kilobytes on the line that starts with `key`, as in `VmRSS:  1234 kB`, and returns bytes.
pub(crate) fn kilobytes(content: &[u8], key: &str) -> Option<i64> {
    reading(fields(value(content, key)?).next()?)?.checked_mul(1024)
}

/// Returns the first line as text, trimmed.
pub(crate) fn first_line(content: &[u8]) -> String {
    String::from_utf8_lossy(lines(content).next().unwrap_or_default().trim_ascii()).into_owned()
}

/// Splits a list of NUL-terminated strings, as in `cmdline` and `environ`.
pub(crate) fn strings(content: &[u8]) -> impl Iterator<Item = String> {
    content
        .split_inclusive(|byte| *byte == 0)
        .map(|string| String::from_utf8_lossy(string.strip_suffix(b"\0").unwrap_or(string)).into_owned())
}

/// Returns at most 100 characters of an untrusted text, with `?` for those that are unsafe on a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(100).map(|c| if is_hidden(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_decimal_numbers_are_numbers() {
        let check = |text: &str, expect| assert_eq!(number(text.as_bytes()), expect, "{text:?}");
        check("0", Some(0));
        check("007", Some(7));
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551616", None);
        check("", None);
        check("-1", None);
        check("+1", None);
        check("1 ", None);
        check("0x1f", None);
        assert_eq!(reading(b"18446744073709551615"), None);
    }

    #[test]
    fn empty_strings_in_a_list_are_kept() {
        let check = |text: &str, expect: &[&str]| {
            assert_eq!(strings(text.as_bytes()).collect::<Vec<_>>(), expect, "{text:?}");
        };
        check("beam.smp\0-pa\0\0-noinput\0", &["beam.smp", "-pa", "", "-noinput"]);
        check("cut\0of", &["cut", "of"]);
        check("", &[]);
        check("\0", &[""]);
        check("\0\0", &["", ""]);
    }

    #[test]
    fn a_size_is_parsed_with_any_whitespace() {
        let status = b"Name:\tbeam\nVmRSS:\t    1234 kB\nVmSwap:\t0 kB\nThreads:\t20\n";
        assert_eq!(kilobytes(status, "VmRSS:"), Some(1234 * 1024));
        assert_eq!(kilobytes(status, "VmSwap:"), Some(0));
        assert_eq!(kilobytes(status, "Pss:"), None);
        assert_eq!(value(status, "Threads:"), Some(&b"20"[..]));
        assert_eq!(kilobytes(b"VmRSS: 9223372036854775807 kB", "VmRSS:"), None);
    }
}
