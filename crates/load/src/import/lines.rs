//! Reads a file line by line, with a maximum line length, and with line numbers for errors.

use std::io::{BufRead, Read};

use super::{FOUND_CHARS, ImportError, Tool};

/// Maximum length of a line. k6 writes a few hundred bytes per point.
const MAX_LINE_BYTES: u64 = 1024 * 1024;

/// The lines of a file.
pub(super) struct Lines<'a> {
    name: String,
    tool: Tool,
    input: Box<dyn BufRead + 'a>,
    number: u64,
    bytes: Vec<u8>,
    text: String,
    is_cut: bool,
}

impl<'a> Lines<'a> {
    pub fn new(name: &str, tool: Tool, input: Box<dyn BufRead + 'a>) -> Self {
        let (bytes, text) = (Vec::new(), String::new());
        Self { name: name.to_owned(), tool, input, number: 0, bytes, text, is_cut: false }
    }

    /// Reads the next line into [`Self::text`], without its line end. Returns false at the end of the file.
    pub fn advance(&mut self) -> Result<bool, ImportError> {
        self.bytes.clear();
        let mut limited = self.input.by_ref().take(MAX_LINE_BYTES + 1);
        let read = limited.read_until(b'\n', &mut self.bytes);
        let read = read.map_err(|source| ImportError::Read { name: self.name.clone(), source })?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if read as u64 > MAX_LINE_BYTES {
            let limit = format!("{MAX_LINE_BYTES} bytes in line {}", self.number);
            return Err(ImportError::TooLarge { name: self.name.clone(), tool: self.tool, limit });
        }
        self.is_cut = self.bytes.last() != Some(&b'\n');
        self.text.clear();
        self.text.push_str(String::from_utf8_lossy(&self.bytes).trim_end_matches(['\n', '\r']));
        Ok(true)
    }

    /// Returns the current line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of the current line, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the current line has no line end. All tools write line ends, so the file was truncated, possibly within a number.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the remark for a file that ends within a line. Callers search remarks for "cut off".
    pub fn cut_remark(&self) -> String {
        format!("Cut off in line {}: only the lines before it were imported.", self.number)
    }

    /// Creates an error for the current line.
    pub fn malformed(&self, expected: impl Into<String>) -> ImportError {
        let mut found: String = self.text.chars().take(FOUND_CHARS).collect();
        if found.trim().is_empty() {
            found = "nothing".to_owned();
        }
        let (name, line) = (self.name.clone(), self.number.max(1));
        ImportError::Malformed { name, tool: self.tool, line, expected: expected.into(), found }
    }

    /// Creates an error for a file that ends too early.
    pub fn ended(&self, expected: impl Into<String>) -> ImportError {
        let (name, line, expected) = (self.name.clone(), self.number + 1, expected.into());
        ImportError::Malformed {
            name,
            tool: self.tool,
            line,
            expected,
            found: "the end of the file".to_owned(),
        }
    }

    /// Creates an error for an exceeded limit.
    pub fn too_large(&self, limit: impl Into<String>) -> ImportError {
        ImportError::TooLarge { name: self.name.clone(), tool: self.tool, limit: limit.into() }
    }
}

/// Splits a line of comma-separated values into unquoted cells (RFC 4180, without line breaks in cells).
pub(super) fn cells(line: &str) -> Vec<String> {
    let mut cells = Vec::new();
    let mut cell = String::new();
    let mut is_quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                cell.push('"');
                chars.next();
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            char => cell.push(char),
        }
    }
    cells.push(cell);
    cells
}

/// The columns of comma-separated values, from their header.
pub(super) struct Columns(Vec<String>);

impl Columns {
    pub fn new(header: &str) -> Self {
        Self(cells(header))
    }

    /// Returns the names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the cell of a column.
    pub fn cell<'a>(&self, cells: &'a [String], name: &str) -> Option<&'a str> {
        let index = self.0.iter().position(|column| column == name)?;
        cells.get(index).map(String::as_str)
    }

    /// Returns the number in the cell of a column; `None` if it is not a number, such as `N/A`.
    pub fn number(&self, cells: &[String], name: &str) -> Option<f64> {
        self.cell(cells, name)?.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_cells_may_contain_commas_and_quotes() {
        assert_eq!(cells(r#"GET,"/a,b ""c""",,3"#), ["GET", r#"/a,b "c""#, "", "3"]);
        assert_eq!(cells(""), [""]);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let mut lines = Lines::new("x", Tool::K6, Box::new(endless));
        assert!(matches!(lines.advance(), Err(ImportError::TooLarge { .. })));
    }
}
