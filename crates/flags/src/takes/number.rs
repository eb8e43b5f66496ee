//! Parses and rounds numbers as the emulator does, with the C library.

use serde::Deserialize;

use super::Rounding;

/// How the emulator parses a number. Text after the digits is ignored unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberParsing {
    /// `atoi`: 0 if there are no digits; wraps around beyond 32 bits.
    #[default]
    Int,
    /// `sscanf("%d")`: rejected if there are no digits; wraps around beyond 32 bits.
    SomeInt,
    /// `strtol`: 0 if there are no digits; rejected beyond 64 bits.
    Long,
    /// `strtol` with a check of the end pointer: rejected if there are no digits, and beyond 64 bits.
    SomeLong,
    /// Like `SomeLong`, but text after the digits is rejected.
    Whole,
    /// An Erlang integer that is truncated to its lowest 32 bits; text after the digits is rejected.
    Low32,
}

/// A number as the emulator parses it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Number<'t> {
    pub(super) value: i64,
    /// The number did not fit into 32 bits and was truncated.
    pub(super) wrapped: bool,
    /// The text has no digits.
    pub(super) none: bool,
    /// The text after the digits.
    pub(super) rest: &'t str,
}

/// Parses a number. The error is the reason why the VM rejects the text.
pub(super) fn read(text: &str, reads: NumberParsing) -> Result<Number<'_>, String> {
    let (exact, rest) = leading(text);
    let none = exact.is_none();
    let exact = exact.unwrap_or_default();
    let long = i64::try_from(exact);
    if none && !matches!(reads, NumberParsing::Int | NumberParsing::Long) {
        return Err("not a number".to_owned());
    }
    if matches!(reads, NumberParsing::Whole | NumberParsing::Low32) && !rest.is_empty() {
        return Err(format!("`{rest}` after the number is not allowed"));
    }
    let value = match reads {
        // Beyond 64 bits strtol returns the nearest bound.
        NumberParsing::Int | NumberParsing::SomeInt => {
            i64::from(low_32_bits(long.unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX })))
        }
        NumberParsing::Low32 => i64::from(exact as i32),
        NumberParsing::Long | NumberParsing::SomeLong | NumberParsing::Whole => {
            long.map_err(|_| "the number has more than 64 bits".to_owned())?
        }
    };
    Ok(Number { value, wrapped: i128::from(value) != exact, none, rest })
}

/// Parses a number like `sscanf("%d")` and returns it with the rest of the text.
pub(super) fn scan(text: &str) -> Option<(i32, &str)> {
    let (exact, rest) = leading(text);
    let exact = exact?;
    let long = i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX });
    Some((low_32_bits(long), rest))
}

/// Truncates a `long` to an `int`.
pub(super) fn low_32_bits(long: i64) -> i32 {
    long as i32
}

/// Parses a number after optional white space and an optional sign, and returns it with the rest of the text.
/// Numbers beyond 128 bits saturate.
fn leading(text: &str) -> (Option<i128>, &str) {
    let unsigned = text.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    let (sign, digits) = match unsigned.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, unsigned.strip_prefix('+').unwrap_or(unsigned)),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    if digits.is_empty() {
        return (None, text);
    }
    let value = digits
        .bytes()
        .fold(0_i128, |value, digit| value.saturating_mul(10).saturating_add(i128::from(digit - b'0')));
    (Some(sign * value), rest)
}

/// Rounds a number; `None` if the result depends on other settings.
pub(super) fn round(number: i64, rounds: Option<Rounding>) -> Option<i64> {
    Some(match rounds {
        None => number,
        Some(Rounding::ByOther) => return None,
        Some(Rounding::PowerOfTwo) => {
            let power = u64::try_from(number).unwrap_or_default().max(1).checked_next_power_of_two()?;
            i64::try_from(power).ok()?
        }
        Some(Rounding::HeapSize) => heap_size(number)?,
        Some(Rounding::AtLeast(minimum)) => number.max(minimum),
        Some(Rounding::AtMost(maximum)) => number.min(maximum),
        Some(Rounding::UpToMultipleOf(step)) => number.checked_add(step - 1)? / step * step,
    })
}

/// Returns the smallest heap size, in words, that is at least `words` (`erts_init_gc`, OTP 23 to 27).
fn heap_size(words: i64) -> Option<i64> {
    let (mut before, mut size) = (12_i64, 38_i64);
    if words <= before {
        return Some(before);
    }
    // Up to the 23rd size, each size is the sum of the previous two plus one word for a header.
    let mut index = 1;
    while size < words {
        let next =
            if index < 22 { before.checked_add(size)?.checked_add(1)? } else { size.checked_add(size / 5)? };
        (before, size) = (size, next);
        index += 1;
    }
    Some(size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_parsed_as_in_c() {
        let check = |text: &str, reads: NumberParsing, value: i64, wrapped: bool, none: bool, rest: &str| {
            assert_eq!(read(text, reads), Ok(Number { value, wrapped, none, rest }), "{text:?} {reads:?}");
        };
        check("8k", NumberParsing::Int, 8, false, false, "k");
        check(" +12", NumberParsing::Int, 12, false, false, "");
        check("-3", NumberParsing::Long, -3, false, false, "");
        check("zzz", NumberParsing::Int, 0, false, true, "zzz");
        check("", NumberParsing::Long, 0, false, true, "");
        // As atoi of the C library on 64-bit Linux.
        check("100000000000", NumberParsing::Int, 1_215_752_192, true, false, "");
        check("4294967297", NumberParsing::SomeInt, 1, true, false, "");
        check("99999999999999999999", NumberParsing::Int, -1, true, false, "");
        check("-99999999999999999999", NumberParsing::Int, 0, true, false, "");
        check("100000000000", NumberParsing::SomeLong, 100_000_000_000, false, false, "");
        check("2147483648", NumberParsing::Low32, -2_147_483_648, true, false, "");
        check("99999999999999999999", NumberParsing::Low32, 1_661_992_959, true, false, "");
    }

    #[test]
    fn malformed_numbers_are_rejected() {
        for (text, reads) in [
            ("k", NumberParsing::SomeInt),
            ("", NumberParsing::SomeLong),
            ("8k", NumberParsing::Whole),
            ("8k", NumberParsing::Low32),
            ("99999999999999999999", NumberParsing::Long),
        ] {
            assert!(read(text, reads).is_err(), "{text:?} {reads:?}");
        }
    }

    #[test]
    fn numbers_are_rounded_up_to_heap_sizes() {
        let check = |words: i64, expect: i64| assert_eq!(heap_size(words), Some(expect), "{words}");
        check(0, 12);
        check(12, 12);
        check(13, 38);
        check(233, 233);
        check(234, 376);
        check(32_768, 46_422);
        check(833_026, 833_026);
        check(833_027, 999_631);
    }

    #[test]
    fn each_kind_of_rounding_is_applied() {
        let check = |number: i64, rounds: Rounding, expect: Option<i64>| {
            assert_eq!(round(number, Some(rounds)), expect, "{number} {rounds:?}");
        };
        check(1025, Rounding::PowerOfTwo, Some(2048));
        check(134_217_727, Rounding::PowerOfTwo, Some(134_217_728));
        check(1, Rounding::AtLeast(8192), Some(8192));
        check(200, Rounding::AtMost(100), Some(100));
        check(1000, Rounding::UpToMultipleOf(16), Some(1008));
        check(0, Rounding::UpToMultipleOf(16), Some(0));
        check(5, Rounding::ByOther, None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(text in "\\PC{0,30}") {
            for reads in [NumberParsing::Int, NumberParsing::SomeInt, NumberParsing::Long, NumberParsing::SomeLong, NumberParsing::Whole, NumberParsing::Low32] {
                let _ = read(&text, reads);
            }
        }

        #[test]
        fn rounding_never_makes_a_number_smaller(number in 0_i64..1 << 40) {
            for rounds in [Rounding::PowerOfTwo, Rounding::HeapSize, Rounding::UpToMultipleOf(16)] {
                prop_assert!(round(number, Some(rounds)).is_some_and(|rounded| rounded >= number));
            }
        }
    }
}
