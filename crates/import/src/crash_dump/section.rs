//! A section of a dump: a line that begins with `=`, followed by lines of the form `key: value`.

use super::lines::MAX_LINE_BYTES;

/// Maximum size of the lines that are kept per section. An allocator has some two hundred lines, a process some thirty.
const MAX_BYTES: usize = 4 * MAX_LINE_BYTES;

/// Maximum length of a name, in bytes. A function has two atoms of at most 255 characters each.
const MAX_NAME_BYTES: usize = 2_100;

#[derive(Default)]
pub(super) struct Section {
    /// The kind of section, such as `proc`.
    pub(super) tag: String,
    /// The id, such as `<0.12.0>`; empty if the section has none.
    pub(super) id: String,
    text: Vec<u8>,
    /// Offsets in `text` of the start, the colon and the end of each line that contains a colon.
    field_offsets: Vec<[usize; 3]>,
}

impl Section {
    /// Starts a new section with its first line.
    pub(super) fn begin(&mut self, line: &[u8]) {
        let line = name(line.strip_prefix(b"=").unwrap_or(line));
        let (tag, id) = line.split_once(':').unwrap_or((&line, ""));
        (self.tag, self.id) = (tag.to_owned(), id.to_owned());
        self.text.clear();
        self.field_offsets.clear();
    }

    pub(super) fn push(&mut self, line: &[u8]) {
        if self.text.len() + line.len() < MAX_BYTES {
            let begin = self.text.len();
            self.field_offsets
                .extend(memchr::memchr(b':', line).map(|colon| [begin, begin + colon, begin + line.len()]));
            self.text.extend_from_slice(line);
            self.text.push(b'\n');
        }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.text.split(|byte| *byte == b'\n').map(text)
    }

    /// Returns the first line, unless it is empty.
    pub(super) fn first_line(&self) -> Option<String> {
        self.text.split(|byte| *byte == b'\n').next().filter(|line| !line.is_empty()).map(name)
    }

    /// Iterates over keys and values, in order.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.field_offsets.iter().filter_map(|&[begin, colon, end]| {
            Some((self.text.get(begin..colon)?, self.text.get(colon + 1..end)?.trim_ascii()))
        })
    }

    /// Returns a value, unless it is empty.
    pub(super) fn bytes(&self, key: &str) -> Option<&[u8]> {
        let (_, value) = self.fields().find(|(known, _)| *known == key.as_bytes())?;
        (!value.is_empty()).then_some(value)
    }

    /// Returns a name or word, shortened if it is longer than any name in a VM.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.bytes(key).map(name)
    }

    /// Returns a non-negative integer; `None` if it exceeds 64 bits.
    pub(super) fn number(&self, key: &str) -> Option<i64> {
        number(self.bytes(key)?)
    }
}

/// Converts a name to text, shortened if it is too long.
pub(super) fn name(bytes: &[u8]) -> String {
    text(bytes.get(..MAX_NAME_BYTES).unwrap_or(bytes))
}

/// Converts bytes to text. Invalid UTF-8 is replaced by U+FFFD.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses a non-negative integer.
pub(super) fn number(bytes: &[u8]) -> Option<i64> {
    let is_number = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(bytes).ok()?.parse().ok())?
}

/// Removes the quotes of an atom that the VM has printed.
pub(super) fn unquoted(atom: &str) -> &str {
    atom.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(atom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_numbers_are_missing() {
        assert_eq!(number(b"12"), Some(12));
        assert_eq!(number(b"9223372036854775807"), Some(i64::MAX));
        for text in ["", "-1", "1x", "18446744073709551613", "+1", "1 2"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn fields_are_found_by_key() {
        let mut section = Section::default();
        section.begin(b"=proc:<0.1.0>");
        for line in ["State: Waiting", "Name: 'a:b'", "Taints:", "no field"] {
            section.push(line.as_bytes());
        }
        assert_eq!((section.tag.as_str(), section.id.as_str()), ("proc", "<0.1.0>"));
        assert_eq!(section.text("Name").as_deref(), Some("'a:b'"));
        assert_eq!((section.text("Taints"), section.number("State")), (None, None));
    }
}
