//! Text for people: formatting of numbers and sizes, and detection of characters that must not reach a terminal.

/// Whether a character could mislead a terminal or a reader: control characters, including C0 and C1 escapes;
/// bidirectional marks and overrides, which make `gpj.exe` appear as `exe.jpg`; invisible characters, which make different names
/// look equal; and the tag characters of plane 14.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Formats a number without decimals, with thousands separators: `1,817`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 && digits != "0" { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats bytes with decimal prefixes and three significant digits: `998 B`, `14.0 MB`, `1.23 GB`.
pub fn bytes(value: f64) -> String {
    if value.abs() < 1_000.0 {
        return format!("{value:.0} B");
    }
    let mut scaled = value / 1e3;
    let mut unit = "kB";
    for larger in ["MB", "GB", "TB"] {
        if scaled.abs() < 999.5 {
            break;
        }
        (scaled, unit) = (scaled / 1e3, larger);
    }
    match scaled.abs() {
        value if value < 9.995 => format!("{scaled:.2} {unit}"),
        value if value < 99.95 => format!("{scaled:.1} {unit}"),
        _ => format!("{scaled:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(
            [grouped(1_817.0), grouped(134_217_727.0), grouped(-1_234.0)],
            ["1,817", "134,217,727", "-1,234"]
        );
        assert_eq!(grouped(-0.2), "0");
    }

    #[test]
    fn bytes_have_three_digits() {
        let check = |value, expect: &str| assert_eq!(bytes(value), expect);
        check(998.0, "998 B");
        check(32_768.0, "32.8 kB");
        check(200_000.0, "200 kB");
        check(14e6, "14.0 MB");
        check(1.234e9, "1.23 GB");
        check(999_900.0, "1.00 MB");
    }

    #[test]
    fn control_and_invisible_characters_are_hidden_and_all_scripts_are_shown() {
        for c in
            "\0\t\n\r\u{1b}\u{7f}\u{9b}\u{ad}\u{61c}\u{200b}\u{200e}\u{202e}\u{2066}\u{2069}\u{e0041}".chars()
        {
            assert!(is_hidden(c), "{c:?}");
        }
        for c in " a\u{a0}é中あ한עبà🙂…".chars() {
            assert!(!is_hidden(c), "{c:?}");
        }
    }
}
