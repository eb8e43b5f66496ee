//! Which characters of a text from outside must not reach a terminal as they are.

/// Whether a terminal, or a person, would be misled by a character: controls, among them the escapes of both kinds (C0 and
/// C1); marks and overrides of the direction of writing, which let `gpj.exe` be read as `exe.jpg`; what is not seen at all,
/// so that two names look like one; and the tags of plane 14, which are neither.
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
    fn what_steers_or_is_not_seen_is_hidden_and_every_script_is_shown() {
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
