//! Finds the start and end of a line in a text, and the line and column of a byte.

use super::error::Position;

/// The start of the line that contains the byte at `at`.
pub(crate) fn line_begin(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)
}

/// The end of the line that contains the byte at `at`: its line feed, or the end of the text.
pub(crate) fn line_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

/// An index of the lines of a text, with which the line and column of a byte are found in almost constant time.
#[derive(Debug, Clone)]
pub struct Lines<'t> {
    text: &'t str,
    /// The start of each line.
    begins: Vec<usize>,
    /// The number of characters before each block of [`BLOCK_BYTES`], because lines may be long.
    characters: Vec<usize>,
}

/// Maximum number of bytes whose characters a look-up counts.
const BLOCK_BYTES: usize = 512;

impl<'t> Lines<'t> {
    /// Creates the index of a text.
    pub fn of(text: &'t str) -> Lines<'t> {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let begins = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        let mut before = 0;
        let characters = text.as_bytes().chunks(BLOCK_BYTES).map(|block| {
            before += characters_in(block);
            before
        });
        Lines { text, begins, characters: std::iter::once(0).chain(characters).collect() }
    }

    /// Returns the line and column of a byte.
    pub fn position(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let line = self.begins.partition_point(|begin| *begin <= offset);
        let begin = self.begins.get(line.wrapping_sub(1)).copied().unwrap_or_default();
        let column = self.characters_before(offset) - self.characters_before(begin) + 1;
        Position { offset, line, column }
    }

    /// Returns the byte range of the line that contains a byte, without the line feed.
    pub fn line_at(&self, offset: usize) -> std::ops::Range<usize> {
        let line = self.begins.partition_point(|begin| *begin <= offset.min(self.text.len()));
        let begin = self.begins.get(line.wrapping_sub(1)).copied().unwrap_or_default();
        begin..self.begins.get(line).map_or(self.text.len(), |next| next - 1)
    }

    fn characters_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK_BYTES;
        let rest = self.text.as_bytes().get(block * BLOCK_BYTES..offset).unwrap_or_default();
        self.characters.get(block).copied().unwrap_or_default() + characters_in(rest)
    }
}

/// The number of characters that start in these bytes.
pub(super) fn characters_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn indexed_positions_equal_counted_positions(
            piece in "[aé日\n]{0,40}",
            times in 0..60_usize,
        ) {
            let text = piece.repeat(times);
            let lines = Lines::of(&text);
            for offset in 0..text.len() + 2 {
                prop_assert_eq!(lines.position(offset), Position::of(&text, offset));
                let at = offset.min(text.len());
                prop_assert_eq!(lines.line_at(offset), line_begin(&text, at)..line_end(text.as_bytes(), at));
            }
        }
    }

    #[test]
    fn line_is_found_from_any_byte() {
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
