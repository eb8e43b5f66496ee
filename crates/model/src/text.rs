//! Characters of untrusted text that must not reach a terminal.

/// Whether a character could mislead a terminal or a reader: control characters, among them C0 and C1 escapes;
/// bidirectional marks and overrides, which make `gpj.exe` read as `exe.jpg`; invisible characters, which make two names
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

#[cfg(test)]
mod tests {
    use super::is_hidden;

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
