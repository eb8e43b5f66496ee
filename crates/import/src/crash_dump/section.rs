//! One section of a dump: a line that begins with `=`, and lines of the form `key: value` up to the next one.

use super::lines::MOST_OF_A_LINE;

/// The most that is held of a section's lines. An allocator has some two hundred, a process thirty.
const MOST_BYTES: usize = 4 * MOST_OF_A_LINE;

/// The most that is told of a name, in bytes. A function has two atoms, each of 255 characters at most.
const MOST_OF_A_NAME: usize = 2_100;

#[derive(Default)]
pub(super) struct Section {
    /// `proc`.
    pub(super) tag: String,
    /// `<0.12.0>`; empty where a section has none.
    pub(super) id: String,
    text: Vec<u8>,
    /// Of each line with a colon in `text`: its begin, its colon, its end.
    places: Vec<[usize; 3]>,
}

impl Section {
    /// Forgets what was, and begins with a line.
    pub(super) fn begin(&mut self, line: &[u8]) {
        let line = name(line.strip_prefix(b"=").unwrap_or(line));
        let (tag, id) = line.split_once(':').unwrap_or((&line, ""));
        (self.tag, self.id) = (tag.to_owned(), id.to_owned());
        self.text.clear();
        self.places.clear();
    }

    pub(super) fn push(&mut self, line: &[u8]) {
        if self.text.len() + line.len() < MOST_BYTES {
            let begin = self.text.len();
            self.places
                .extend(memchr::memchr(b':', line).map(|colon| [begin, begin + colon, begin + line.len()]));
            self.text.extend_from_slice(line);
            self.text.push(b'\n');
        }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.text.split(|byte| *byte == b'\n').map(text)
    }

    /// The first line, where it is not empty.
    pub(super) fn first_line(&self) -> Option<String> {
        self.text.split(|byte| *byte == b'\n').next().filter(|line| !line.is_empty()).map(name)
    }

    /// Keys and values, in their order.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.places.iter().filter_map(|&[begin, colon, end]| {
            Some((self.text.get(begin..colon)?, self.text.get(colon + 1..end)?.trim_ascii()))
        })
    }

    /// A value, if there is one.
    pub(super) fn bytes(&self, key: &str) -> Option<&[u8]> {
        let (_, value) = self.fields().find(|(known, _)| *known == key.as_bytes())?;
        (!value.is_empty()).then_some(value)
    }

    /// A name or a word, in part where it is longer than any that a VM makes.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.bytes(key).map(name)
    }

    /// A whole number; `None` also where it is more than a recording can hold.
    pub(super) fn number(&self, key: &str) -> Option<i64> {
        number(self.bytes(key)?)
    }
}

/// A name, or the beginning of what is too long for one.
pub(super) fn name(bytes: &[u8]) -> String {
    text(bytes.get(..MOST_OF_A_NAME).unwrap_or(bytes))
}

/// With marks in the place of what is no UTF-8.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A whole number that is not negative.
pub(super) fn number(bytes: &[u8]) -> Option<i64> {
    let is_number = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(bytes).ok()?.parse().ok())?
}

/// An atom as the VM prints it, without its quotes.
pub(super) fn unquoted(atom: &str) -> &str {
    atom.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(atom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_missing() {
        assert_eq!(number(b"12"), Some(12));
        assert_eq!(number(b"9223372036854775807"), Some(i64::MAX));
        for text in ["", "-1", "1x", "18446744073709551613", "+1", "1 2"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn fields_are_told_by_their_keys() {
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
