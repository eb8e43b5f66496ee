//! Finds the ends of quotes, escapes and substitutions in shell words.

use crate::source::error::SourceError;
use crate::source::layer::{Layer, next};
use crate::source::lines::line_end;

/// Maximum nesting of substitutions. Hand-written scripts have two or three levels.
const MAX_DEPTH: usize = 40;

/// A here-document whose text begins on the next line.
#[derive(Debug)]
pub(super) struct HereDocument {
    /// The last line, which ends the here-document.
    last: Vec<u8>,
    /// Whether tabs before the last line are ignored.
    tabs: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Lexer<'l> {
    layer: &'l Layer,
    bytes: &'l [u8],
}

impl<'l> Lexer<'l> {
    pub(super) fn new(layer: &'l Layer) -> Lexer<'l> {
        Lexer { layer, bytes: layer.scan().as_bytes() }
    }

    /// The end of the word at `at`.
    pub(super) fn end_of_word(&self, mut at: usize) -> Result<usize, SourceError> {
        while let Some(byte) = self.bytes.get(at) {
            if matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>') {
                break;
            }
            at = self.end_of_part(at, 0)?;
        }
        Ok(at)
    }

    /// The end of a quoted part, a substitution or an unquoted character.
    fn end_of_part(&self, at: usize, depth: usize) -> Result<usize, SourceError> {
        match self.bytes.get(at) {
            Some(b'\\') => Ok(after_escape(self.layer, at)),
            Some(b'\'') => self.end_of_single(at + 1, at),
            Some(b'"') => self.end_of_double(at + 1, at, depth),
            Some(b'`') => self.end_of_backticks(at),
            Some(b'$') => self.end_of_dollar(at, false, depth),
            _ => Ok(next(self.layer, at)),
        }
    }

    fn end_of_single(&self, begin: usize, quote: usize) -> Result<usize, SourceError> {
        let length = self.bytes[begin..].iter().position(|byte| *byte == b'\'');
        length.map(|length| begin + length + 1).ok_or_else(|| self.unclosed(quote))
    }

    fn end_of_double(&self, mut at: usize, quote: usize, depth: usize) -> Result<usize, SourceError> {
        loop {
            at = match self.bytes.get(at) {
                None => return Err(self.unclosed(quote)),
                Some(b'"') => return Ok(at + 1),
                Some(b'\\') => after_escape(self.layer, at),
                Some(b'`') => self.end_of_backticks(at)?,
                Some(b'$') => self.end_of_dollar(at, true, depth)?,
                Some(_) => next(self.layer, at),
            };
        }
    }

    pub(super) fn end_of_backticks(&self, quote: usize) -> Result<usize, SourceError> {
        let mut at = quote + 1;
        loop {
            match self.bytes.get(at) {
                None => return Err(self.unclosed(quote)),
                Some(b'`') => return Ok(at + 1),
                Some(b'\\') => at = after_escape(self.layer, at),
                Some(_) => at = next(self.layer, at),
            }
        }
    }

    /// The end of the substitution at `$`; a single `$` is literal.
    pub(super) fn end_of_dollar(
        &self,
        at: usize,
        in_double: bool,
        depth: usize,
    ) -> Result<usize, SourceError> {
        let after = at + 1;
        match self.bytes.get(after) {
            Some(b'(') => self.skip_parentheses(after, depth),
            Some(b'{') => self.skip_braces(after, in_double, depth),
            Some(b'\'') if !in_double => {
                // `$'…'` may contain `\'`.
                let mut at = after + 1;
                loop {
                    match self.bytes.get(at) {
                        None => return Err(self.unclosed(after)),
                        Some(b'\'') => return Ok(at + 1),
                        Some(b'\\') => at = after_escape(self.layer, at),
                        Some(_) => at = next(self.layer, at),
                    }
                }
            }
            Some(byte) if is_name(*byte) && !byte.is_ascii_digit() => {
                let rest = &self.bytes[after..];
                Ok(after + rest.iter().position(|byte| !is_name(*byte)).unwrap_or(rest.len()))
            }
            Some(b'0'..=b'9' | b'?' | b'@' | b'*' | b'#' | b'$' | b'!' | b'-') => Ok(after + 1),
            _ => Ok(after),
        }
    }

    /// The end of the parentheses that open at `begin`.
    pub(super) fn skip_parentheses(&self, begin: usize, depth: usize) -> Result<usize, SourceError> {
        self.check_depth(begin, depth)?;
        // `((` starts an arithmetic expression, in which `<<` is an operator.
        let commands = self.bytes.get(begin + 1) != Some(&b'(');
        let mut here_documents = Vec::new();
        let mut open = 0usize;
        let mut at = begin;
        while let Some(byte) = self.bytes.get(at) {
            at = match byte {
                b'<' if commands && self.begins_here_document(at) => {
                    let (here_document, end) = self.here_document(at)?;
                    here_documents.push(here_document);
                    end
                }
                b'\n' => self.after_here_documents(at + 1, std::mem::take(&mut here_documents)),
                b'(' => {
                    open += 1;
                    at + 1
                }
                b')' => {
                    open -= 1;
                    if open == 0 {
                        return Ok(at + 1);
                    }
                    at + 1
                }
                // A comment may contain an apostrophe.
                b'#' if self.bytes[at - 1].is_ascii_whitespace() => line_end(self.bytes, at),
                _ => self.end_of_part(at, depth + 1)?,
            };
        }
        Err(SourceError::UnclosedTag { at: self.layer.position(begin), tag: "(".to_owned() })
    }

    fn skip_braces(&self, begin: usize, in_double: bool, depth: usize) -> Result<usize, SourceError> {
        self.check_depth(begin, depth)?;
        let mut at = begin + 1;
        while let Some(byte) = self.bytes.get(at) {
            at = match byte {
                b'}' => return Ok(at + 1),
                // Within double quotes, an apostrophe is literal.
                b'\'' if in_double => at + 1,
                _ => self.end_of_part(at, depth + 1)?,
            };
        }
        Err(SourceError::UnclosedTag {
            at: self.layer.position(begin.saturating_sub(1)),
            tag: "${".to_owned(),
        })
    }

    fn check_depth(&self, at: usize, depth: usize) -> Result<(), SourceError> {
        if depth < MAX_DEPTH {
            return Ok(());
        }
        let reason = format!("substitutions are nested more than {MAX_DEPTH} deep in a shell script");
        Err(SourceError::NotJudged { at: self.layer.position(at), reason })
    }

    /// Whether `<<`, and not `<<<`, is at this position.
    pub(super) fn begins_here_document(&self, at: usize) -> bool {
        let rest = &self.bytes[at..];
        rest.starts_with(b"<<") && !rest.starts_with(b"<<<")
    }

    /// Parses `<<WORD` or `<<-WORD`; also returns the end of the word.
    pub(super) fn here_document(&self, begin: usize) -> Result<(HereDocument, usize), SourceError> {
        let mut at = begin + 2;
        let tabs = self.bytes.get(at) == Some(&b'-');
        at += usize::from(tabs);
        while matches!(self.bytes.get(at), Some(b' ' | b'\t')) {
            at += 1;
        }
        let end = self.end_of_word(at)?;
        let word = self.bytes.get(at..end).unwrap_or_default().iter().copied();
        let last = word.filter(|byte| !matches!(byte, b'"' | b'\'' | b'\\')).collect();
        Ok((HereDocument { last, tabs }, end))
    }

    /// The end of the here-documents whose text begins at `at`, which must be the start of a line.
    pub(super) fn after_here_documents(&self, mut at: usize, here_documents: Vec<HereDocument>) -> usize {
        for HereDocument { last, tabs } in here_documents {
            while at < self.bytes.len() {
                let end = line_end(self.bytes, at);
                let line = &self.bytes[at..end];
                let skipped = line.iter().take_while(|byte| tabs && **byte == b'\t').count();
                let line = &line[skipped..];
                at = (end + 1).min(self.bytes.len());
                if line.strip_suffix(b"\r").unwrap_or(line) == last {
                    break;
                }
            }
        }
        at
    }

    fn unclosed(&self, at: usize) -> SourceError {
        let quote = self.bytes.get(at).copied().map_or('"', char::from);
        let effect = "a shell takes all that follows as one word";
        SourceError::UnclosedQuote { at: self.layer.position(at), quote, effect }
    }
}

pub(super) fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The end of the character after a backslash.
pub(super) fn after_escape(layer: &Layer, at: usize) -> usize {
    next(layer, at + 1)
}
