//! The lines of a dump as they stream by: neither a line nor a section is ever held whole for its length alone.

use std::io::{ErrorKind, Read};

use memchr::{memchr, memmem};

/// What is held of the dump at a time: large enough that a disk is read at its speed.
const BUFFER_BYTES: usize = 1 << 20;

/// The most that is told of a line: what is longer is a list of links, or hostile. What a rule wants is a hundred at most.
pub(super) const MOST_OF_A_LINE: usize = 64 << 10;

pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    is_at_end: bool,
    /// The line that was given last was longer than what was given: its rest comes first.
    is_in_line: bool,
    bytes: u64,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES];
        Lines { input, buffer, begin: 0, end: 0, is_at_end: false, is_in_line: false, bytes: 0 }
    }

    /// Read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next line without its end, or the beginning of a long one. A last line that does not end may have been cut anywhere, and is
    /// none; but for the mark of the end, which nothing can be cut to.
    pub(super) fn next(&mut self) -> std::io::Result<Option<&[u8]>> {
        self.end_line()?;
        loop {
            let held = self.held();
            let (length, taken) = match memchr(b'\n', held) {
                Some(length) => (length, length + 1),
                None if held.len() >= MOST_OF_A_LINE => {
                    self.is_in_line = true;
                    (MOST_OF_A_LINE, MOST_OF_A_LINE)
                }
                None if !self.is_at_end => {
                    self.fill()?;
                    continue;
                }
                None if held == b"=end" => (held.len(), held.len()),
                None => return Ok(None),
            };
            let begin = self.begin;
            self.begin += taken;
            let line = self.buffer.get(begin..begin + length.min(MOST_OF_A_LINE)).unwrap_or_default();
            return Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)));
        }
    }

    /// The same, unless a section begins there.
    pub(super) fn next_of_section(&mut self) -> std::io::Result<Option<&[u8]>> {
        if self.is_at_section()? { Ok(None) } else { self.next() }
    }

    /// Goes on to where the next section begins.
    pub(super) fn skip_section(&mut self) -> std::io::Result<()> {
        if self.is_at_section()? {
            return Ok(());
        }
        let mark = memmem::Finder::new(b"\n=");
        loop {
            let held = self.held();
            if let Some(place) = mark.find(held) {
                self.begin += place + 1;
                return Ok(());
            }
            // The mark may begin with the last byte that is held.
            let keep = usize::from(held.last() == Some(&b'\n') && !self.is_at_end);
            self.begin = self.end - keep;
            if self.is_at_end {
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn is_at_section(&mut self) -> std::io::Result<bool> {
        self.end_line()?;
        while self.held().is_empty() && !self.is_at_end {
            self.fill()?;
        }
        Ok(self.held().first() == Some(&b'='))
    }

    fn held(&self) -> &[u8] {
        self.buffer.get(self.begin..self.end).unwrap_or_default()
    }

    fn end_line(&mut self) -> std::io::Result<()> {
        while self.is_in_line {
            match memchr(b'\n', self.held()) {
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

    /// Reads more behind what is held, which is never as long as the buffer.
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

    /// Gives a byte at a time, so that every place is once the end of what is held.
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
    fn sections_are_found_wherever_what_is_held_ends() {
        assert_eq!(sections(b"=a\nx\ny\n\n=b:1\r\n=c\nno=d\n=e"), ["=a", "=b:1", "=c"]);
        assert_eq!(sections(b"\n\n=a\n\n\n=end"), ["=a", "=end"]);
        assert!(sections(b"no section\n\n").is_empty());
        assert!(sections(b"").is_empty());
    }

    #[test]
    fn a_line_without_an_end_is_none_and_a_long_one_is_told_in_part() {
        let long = "z".repeat(3 * BUFFER_BYTES);
        let text = format!("short\n{long}\nnext\ncut");
        let mut lines = Lines::new(text.as_bytes());
        let mut lengths = Vec::new();
        while let Some(line) = lines.next().expect("readable") {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [5, MOST_OF_A_LINE, 4]);
        assert_eq!(lines.bytes(), text.len() as u64);
    }
}
