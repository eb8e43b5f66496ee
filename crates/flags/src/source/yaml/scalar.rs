//! Maps the bytes of a YAML scalar to the characters of its value.
//!
//! The parser reports the value of a scalar and where it begins, but not the byte range of each character. This module computes the ranges
//! by the rules of YAML 1.2, chapters 7 and 8. The result is discarded unless it equals the value from the parser.

use std::ops::Range;
use std::sync::Arc;

use saphyr_parser::ScalarStyle;

use crate::source::layer::{Decoder, Layer, Value};
use crate::source::quote::{Quote, Syntax};

/// Decodes the scalar that begins at `at`. `text` is the input of the parser, and `value` the value from the parser; `None` if the
/// computed value differs.
pub(super) fn decode(
    layer: &Arc<Layer>,
    text: &str,
    at: usize,
    style: ScalarStyle,
    value: &str,
) -> Option<Arc<Layer>> {
    let mut scalar =
        Scalar { text, bytes: text.as_bytes(), decoder: Decoder::new(layer), length: value.len() };
    let (end, inner) = match style {
        ScalarStyle::Plain => (scalar.plain(at)?, (at, Quote::YamlPlain)),
        ScalarStyle::SingleQuoted => (scalar.single(at)?, (at + 1, Quote::YamlSingle)),
        ScalarStyle::DoubleQuoted => (scalar.double(at)?, (at + 1, Quote::YamlDouble)),
        ScalarStyle::Literal => {
            let indent = scalar.indentation(at);
            (scalar.block(at, indent, value, false)?, (at, Quote::YamlLiteral(indent)))
        }
        ScalarStyle::Folded => {
            let indent = scalar.indentation(at);
            (scalar.block(at, indent, value, true)?, (at, Quote::YamlFolded))
        }
    };
    let whole = at..end;
    // A template tag on a separate line is not part of the value; rewriting the value would remove the tag.
    let hidden = text.get(whole.clone())? != layer.scan().get(whole.clone())?;
    let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
    let syntax = if hidden || block { Syntax::Same } else { Syntax::Yaml };
    let decoded = scalar.decoder.finish(Value { whole, inner, syntax });
    (decoded.scan() == value).then_some(decoded)
}

struct Scalar<'l> {
    text: &'l str,
    bytes: &'l [u8],
    decoder: Decoder<'l>,
    /// The length of the value in bytes.
    length: usize,
}

impl Scalar<'_> {
    fn is_complete(&self) -> bool {
        self.decoder.text().len() >= self.length
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// Returns the length in bytes of the line end at `at`; 0 if absent.
    fn line_end(&self, at: usize) -> usize {
        match (self.byte(at), self.byte(at + 1)) {
            (Some(b'\r'), Some(b'\n')) => 2,
            (Some(b'\r' | b'\n'), _) => 1,
            _ => 0,
        }
    }

    /// Returns the number of spaces before this position.
    fn indentation(&self, at: usize) -> usize {
        let before = self.bytes.get(..at).unwrap_or_default();
        before.iter().rev().take_while(|byte| **byte == b' ').count()
    }

    /// Adds the white space from `at` on, and returns its end. White space with one line end is folded to a space; of several line ends,
    /// the first is dropped.
    fn space(&mut self, at: usize, quote: Quote) -> usize {
        let (end, breaks) = self.end_of_space(at);
        match breaks.as_slice() {
            [] => self.decoder.copy(at..end, quote),
            [_] => self.decoder.put(' ', at..end, quote),
            [_, others @ ..] => self.put_breaks(others, quote),
        }
        end
    }

    fn put_breaks(&mut self, breaks: &[Range<usize>], quote: Quote) {
        for one in breaks {
            self.decoder.put('\n', one.clone(), quote);
        }
    }

    /// Returns the end of the white space from `at` on, and the line ends in it.
    fn end_of_space(&self, at: usize) -> (usize, Vec<Range<usize>>) {
        let mut breaks = Vec::new();
        let mut end = at;
        loop {
            let length = self.line_end(end);
            if length > 0 {
                breaks.push(end..end + length);
                end += length;
            } else if matches!(self.byte(end), Some(b' ' | b'\t')) {
                end += 1;
            } else {
                break;
            }
        }
        (end, breaks)
    }

    fn is_space(&self, at: usize) -> bool {
        matches!(self.byte(at), Some(b' ' | b'\t' | b'\r' | b'\n'))
    }

    fn plain(&mut self, begin: usize) -> Option<usize> {
        let mut at = begin;
        while !self.is_complete() {
            self.byte(at)?;
            at = if self.is_space(at) {
                self.space(at, Quote::YamlPlain)
            } else {
                self.decoder.copy_one(at, Quote::YamlPlain)
            };
        }
        Some(at)
    }

    fn single(&mut self, begin: usize) -> Option<usize> {
        let mut at = begin + 1;
        loop {
            at = match (self.byte(at)?, self.byte(at + 1)) {
                (b'\'', Some(b'\'')) => {
                    self.decoder.put('\'', at..at + 2, Quote::YamlSingle);
                    at + 2
                }
                (b'\'', _) => return Some(at + 1),
                _ if self.is_space(at) => self.space(at, Quote::YamlSingle),
                _ => self.decoder.copy_one(at, Quote::YamlSingle),
            };
        }
    }

    fn double(&mut self, begin: usize) -> Option<usize> {
        let mut at = begin + 1;
        loop {
            at = match self.byte(at)? {
                b'"' => return Some(at + 1),
                b'\\' => self.escape(at)?,
                _ if self.is_space(at) => self.space(at, Quote::YamlDouble),
                _ => self.decoder.copy_one(at, Quote::YamlDouble),
            };
        }
    }

    fn escape(&mut self, at: usize) -> Option<usize> {
        let length = self.line_end(at + 1);
        if length > 0 {
            // An escaped line end and the white space after it are dropped; further line ends are kept.
            let (end, breaks) = self.end_of_space(at + 1 + length);
            self.put_breaks(&breaks, Quote::YamlDouble);
            return Some(end);
        }
        let digits = |count: usize| {
            let text = self.text.get(at + 2..at + 2 + count)?;
            char::from_u32(u32::from_str_radix(text, 16).ok()?).map(|c| (c, count + 2))
        };
        let (c, length) = match self.byte(at + 1)? {
            b'0' => ('\0', 2),
            b'a' => ('\u{7}', 2),
            b'b' => ('\u{8}', 2),
            b't' | b'\t' => ('\t', 2),
            b'n' => ('\n', 2),
            b'v' => ('\u{b}', 2),
            b'f' => ('\u{c}', 2),
            b'r' => ('\r', 2),
            b'e' => ('\u{1b}', 2),
            byte @ (b' ' | b'"' | b'/' | b'\\') => (char::from(byte), 2),
            b'N' => ('\u{85}', 2),
            b'_' => ('\u{a0}', 2),
            b'L' => ('\u{2028}', 2),
            b'P' => ('\u{2029}', 2),
            b'x' => digits(2)?,
            b'u' => digits(4)?,
            b'U' => digits(8)?,
            _ => return None,
        };
        self.decoder.put(c, at..at + length, Quote::YamlDouble);
        Some(at + length)
    }

    /// Decodes a block by removing the indentation of its lines. Lines of a folded block are joined, unless one of the two lines has
    /// additional indentation.
    fn block(&mut self, begin: usize, indent: usize, value: &str, folded: bool) -> Option<usize> {
        let quote = if folded { Quote::YamlFolded } else { Quote::YamlLiteral(indent) };
        // Leading empty lines precede `begin`.
        let leading = value.bytes().take_while(|byte| *byte == b'\n').count();
        for _ in 0..leading {
            self.decoder.put('\n', begin..begin, quote);
        }
        let mut at = begin;
        // The line ends since the last line with content.
        let mut breaks: Vec<Range<usize>> = Vec::new();
        let mut end = begin;
        let mut more_before = false;
        let mut first = true;
        while !self.is_complete() && at < self.bytes.len() {
            let rest = self.bytes.get(at..)?;
            let length = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
            let more = matches!(rest.first(), Some(b' ' | b'\t'));
            let joined = folded && !more_before && !more && !first;
            match breaks.as_slice() {
                [one] if joined => self.decoder.put(' ', one.clone(), quote),
                [_, others @ ..] if joined => self.put_breaks(others, quote),
                all => self.put_breaks(all, quote),
            }
            self.decoder.copy(at..at + length, quote);
            breaks.clear();
            (first, more_before) = (false, more);
            at += length;
            end = at;
            // Skip to the next line with content.
            let mut ended = false;
            while self.line_end(at) > 0 {
                let length = self.line_end(at);
                breaks.push(at..at + length);
                at += length;
                let spaces = self.bytes[at..].iter().take(indent).take_while(|byte| **byte == b' ').count();
                if self.line_end(at + spaces) > 0 {
                    at += spaces;
                } else {
                    // A line with less indentation belongs to the next node.
                    ended = spaces < indent;
                    at += if ended { 0 } else { spaces };
                }
            }
            if ended {
                break;
            }
        }
        // Only line ends remain; the parser may have added the last one at the end of the file.
        let mut breaks = breaks.into_iter();
        while !self.is_complete() {
            let one = breaks.next().unwrap_or(end..end);
            end = one.end;
            self.decoder.put('\n', one, quote);
        }
        Some(end)
    }
}
