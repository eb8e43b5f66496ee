//! Streams the lines of a dump. Memory is bounded, independent of the length of a line or section.

use std::io::{ErrorKind, Read};

use memchr::{memchr, memmem};

/// Size of the buffer, which is large enough to read at the speed of a disk.
const BUFFER_BYTES: usize = 1 << 20;

/// Maximum length of a line that is returned. Longer lines are lists of links, or malicious. At most a hundred bytes are needed.
pub(super) const MAX_LINE_BYTES: usize = 64 << 10;

pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    is_at_end: bool,
    /// Whether only a part of the last line was returned, so that the rest must be skipped.
    is_in_line: bool,
    bytes: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Lines { input, buffer, begin: 0, end: 0, is_at_end: false, is_in_line: false, bytes: 0 }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the next line without its line break, or the beginning of a long line. A last line without a line break may be truncated and
    /// is not returned, unless it is the end mark, which cannot result from truncation.
    pub(super) fn next(&mut self) -> std::io::Result<Option<&[u8]>> {
        self.end_line()?;
        loop {
            let buffered = self.buffered();
            let (length, taken) = match memchr(b'\n', buffered) {
                Some(length) => (length, length + 1),
                None if buffered.len() >= MAX_LINE_BYTES => {
                    self.is_in_line = true;
                    (MAX_LINE_BYTES, MAX_LINE_BYTES)
                }
                None if !self.is_at_end => {
                    self.fill()?;
                    continue;
                }
                None if buffered == b"=end" => (buffered.len(), buffered.len()),
                None => return Ok(None),
            };
            let begin = self.begin;
            self.begin += taken;
            let line = self.buffer.get(begin..begin + length.min(MAX_LINE_BYTES)).unwrap_or_default();
            return Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)));
        }
    }

    /// Returns the next line, unless it begins a section.
    pub(super) fn next_of_section(&mut self) -> std::io::Result<Option<&[u8]>> {
        if self.is_at_section()? { Ok(None) } else { self.next() }
    }

    /// Skips to the beginning of the next section.
    pub(super) fn skip_section(&mut self) -> std::io::Result<()> {
        if self.is_at_section()? {
            return Ok(());
        }
        let mark = memmem::Finder::new(b"\n=");
        loop {
            let buffered = self.buffered();
            if let Some(place) = mark.find(buffered) {
                self.begin += place + 1;
                return Ok(());
            }
            // The mark may begin with the last buffered byte.
            let keep = usize::from(buffered.last() == Some(&b'\n') && !self.is_at_end);
            self.begin = self.end - keep;
            if self.is_at_end {
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn is_at_section(&mut self) -> std::io::Result<bool> {
        self.end_line()?;
        while self.buffered().is_empty() && !self.is_at_end {
            self.fill()?;
        }
        Ok(self.buffered().first() == Some(&b'='))
    }

    fn buffered(&self) -> &[u8] {
        self.buffer.get(self.begin..self.end).unwrap_or_default()
    }

    fn end_line(&mut self) -> std::io::Result<()> {
        while self.is_in_line {
            match memchr(b'\n', self.buffered()) {
                Some(length) => {
                    self.begin += length + 1;
                    self.is_in_line = false;
                }
                None => {
                    self.begin = self.end;
                    if self.is_at_end {
                        self.is_in_line = false;
                    } else {
                        self.fill()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads more input and appends it to the buffered bytes, which never fill the buffer.
    fn fill(&mut self) -> std::io::Result<()> {
        self.buffer.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        loop {
            match self.input.read(room) {
                Ok(0) => self.is_at_end = true,
                Ok(read) => {
                    self.end += read;
                    self.bytes += read as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns single bytes, so that the buffer ends at every possible position.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            let (Some((&byte, rest)), Some(place)) = (self.0.split_first(), room.first_mut()) else {
                return Ok(0);
            };
            *place = byte;
            self.0 = rest;
            Ok(1)
        }
    }

    fn sections(text: &[u8]) -> Vec<String> {
        let mut lines = Lines::new(Slow(text));
        let mut found = Vec::new();
        loop {
            lines.skip_section().expect("readable");
            let Some(line) = lines.next().expect("readable") else { return found };
            found.push(String::from_utf8_lossy(line).into_owned());
        }
    }

    #[test]
    fn sections_are_found_no_matter_where_the_buffer_ends() {
        assert_eq!(sections(b"=a\nx\ny\n\n=b:1\r\n=c\nno=d\n=e"), ["=a", "=b:1", "=c"]);
        assert_eq!(sections(b"\n\n=a\n\n\n=end"), ["=a", "=end"]);
        assert!(sections(b"no section\n\n").is_empty());
        assert!(sections(b"").is_empty());
    }

    #[test]
    fn unterminated_lines_are_dropped_and_long_lines_are_shortened() {
        let long = "z".repeat(3 * BUFFER_BYTES);
        let text = format!("short\n{long}\nnext\ncut");
        let mut lines = Lines::new(text.as_bytes());
        let mut lengths = Vec::new();
        while let Some(line) = lines.next().expect("readable") {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [5, MAX_LINE_BYTES, 4]);
        assert_eq!(lines.bytes(), text.len() as u64);
    }
}
