//! Where lines begin and end in a text.

/// Where the line begins that the byte at `at` stands in.
pub(crate) fn line_begin(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)
}

/// Where the line ends that the byte at `at` stands in: at its line feed, or the end of the text.
pub(crate) fn line_end(bytes: &[u8], at: usize) -> usize {
    let behind = bytes.get(at..).unwrap_or_default();
    behind.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_from_any_of_its_bytes() {
        let text = "ab\n\ncd";
        let check = |at: usize, begin: usize, end: usize| {
            assert_eq!((line_begin(text, at), line_end(text.as_bytes(), at)), (begin, end), "{at}");
        };
        check(0, 0, 2);
        check(2, 0, 2);
        check(3, 3, 3);
        check(4, 4, 6);
        check(6, 4, 6);
    }
}
