//! Reads `.env` files as Docker Compose does (compose-go's `dotenv`).
//!
//! There is no standard syntax, but that of Compose is typical. `export` may precede a name. In single quotes, everything except `\'` is
//! literal. Double quotes support escapes and `$NAME`. An unquoted value ends at the end of the line or at ` #`, and its backslashes and
//! inner quotes are literal.

use std::ops::Range;
use std::sync::Arc;

use super::Reader;
use super::error::SourceError;
use super::layer::{Decoder, Layer, Value, next};
use super::lines::line_end;
use super::quote::{Quote, Syntax};
use super::variables::{Scope, Variable, find};

pub(crate) fn read(reader: &mut Reader, layer: &Arc<Layer>) -> Result<(), SourceError> {
    let bytes = layer.scan().as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let line = at..line_end(bytes, at);
        let (name, value) = match assignment(layer, line.clone()) {
            Some(found) => found,
            None => {
                at = line.end + 1;
                continue;
            }
        };
        let quote = bytes.get(value).copied().filter(|byte| matches!(byte, b'"' | b'\''));
        let variable = find(name, Scope::Any);
        at = match (quote, variable) {
            (None, None) => line.end + 1,
            (None, Some(variable)) => {
                bare(reader, layer, name, variable, value..line.end)?;
                line.end + 1
            }
            (Some(quote), variable) => match (end_of_quotes(layer, value, quote), variable) {
                (Some(end), None) => end,
                (Some(end), Some(variable)) => {
                    let decoded = quoted(layer, value..end, quote);
                    reader.variable(name, variable, &decoded, false)?;
                    end
                }
                // The variable is not relevant; the next line may be valid.
                (None, None) => line.end + 1,
                (None, Some(_)) => {
                    let effect = "the whole file is rejected";
                    let quote = char::from(quote);
                    return Err(SourceError::UnclosedQuote { at: layer.position(value), quote, effect });
                }
            },
        };
    }
    Ok(())
}

/// Returns the name on a line and the start of its value; `None` for a comment or another line without an assignment.
fn assignment(layer: &Layer, line: Range<usize>) -> Option<(&str, usize)> {
    let text = layer.scan().get(line.clone())?;
    let mut rest = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    if let Some(after) = rest.strip_prefix("export")
        && after.starts_with([' ', '\t'])
    {
        rest = after.trim_start();
    }
    let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let (name, after) = rest.split_at(length);
    let value = after.trim_start_matches([' ', '\t']).strip_prefix(['=', ':'])?;
    let value = value.trim_start_matches([' ', '\t', '\r']);
    Some((name, line.end - value.len()))
}

/// Returns the end of the quoted text that starts at `begin`; it may span several lines.
fn end_of_quotes(layer: &Layer, begin: usize, quote: u8) -> Option<usize> {
    let bytes = layer.scan().as_bytes();
    let mut at = begin + 1;
    loop {
        match bytes.get(at)? {
            byte if *byte == quote => return Some(at + 1),
            b'\\' => at = next(layer, at + 1),
            _ => at = next(layer, at),
        }
    }
}

fn quoted(layer: &Arc<Layer>, range: Range<usize>, mark: u8) -> Arc<Layer> {
    let quote = if mark == b'"' { Quote::DotenvDouble } else { Quote::DotenvSingle };
    let bytes = layer.scan().as_bytes();
    let mut decoder = Decoder::new(layer);
    let end = range.end - 1;
    let last_brace = last_brace(bytes, range.start..end);
    let mut at = range.start + 1;
    while at < end {
        let is_tag = layer.tag_at(at).is_some();
        match bytes.get(at) {
            Some(b'\\') if !is_tag => {
                let after = next(layer, at + 1).min(end);
                match escape(layer.slice(at + 1..after), mark) {
                    Some(c) => decoder.put(c, at..after, quote),
                    None => decoder.copy(at..after, quote),
                }
                at = after;
            }
            Some(b'$') if mark == b'"' && !is_tag => {
                at = dollar(&mut decoder, bytes, at, quote, end, last_brace);
            }
            _ => at = decoder.copy_one(at, quote),
        }
    }
    let inner = (range.start + 1, quote);
    decoder.finish(Value { whole: range, inner, syntax: Syntax::Dotenv })
}

/// Returns the character that an escape denotes; `None` if the backslash and the character are literal.
fn escape(character: &str, mark: u8) -> Option<char> {
    let c = character.chars().next()?;
    if u32::from(c) == u32::from(mark) {
        return Some(c);
    }
    if mark == b'\'' {
        return None;
    }
    match c {
        '\\' | '$' => Some(c),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'a' => Some('\u{7}'),
        'b' => Some('\u{8}'),
        'f' => Some('\u{c}'),
        'v' => Some('\u{b}'),
        _ => None,
    }
}

/// Returns the position of the last closing brace of a value. A `${` after this position is unclosed; searching for its end each time
/// would take quadratic time.
fn last_brace(bytes: &[u8], value: Range<usize>) -> Option<usize> {
    let last = bytes.get(value.clone())?.iter().rposition(|byte| *byte == b'}')?;
    Some(value.start + last)
}

/// Adds the variable or dollar at `at`, up to `limit`, and returns its end. `$$` is a literal dollar.
fn dollar(
    decoder: &mut Decoder<'_>,
    bytes: &[u8],
    at: usize,
    quote: Quote,
    limit: usize,
    last_brace: Option<usize>,
) -> usize {
    let rest = bytes.get(at + 1..limit).unwrap_or_default();
    let length = match rest.first() {
        Some(b'$') => {
            decoder.put('$', at..at + 2, quote);
            return at + 2;
        }
        Some(b'{') if last_brace.is_some_and(|last| last > at) => {
            rest.iter().position(|byte| *byte == b'}').map(|length| length + 1)
        }
        Some(byte) if byte.is_ascii_alphabetic() || *byte == b'_' => {
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            Some(rest.iter().position(|byte| !is_name(byte)).unwrap_or(rest.len()))
        }
        _ => None,
    };
    match length {
        Some(length) => {
            decoder.tag(at..at + 1 + length, quote);
            at + 1 + length
        }
        None => decoder.copy_one(at, quote),
    }
}

fn bare(
    reader: &mut Reader,
    layer: &Arc<Layer>,
    name: &str,
    variable: &Variable,
    range: Range<usize>,
) -> Result<(), SourceError> {
    let text = layer.scan().get(range.clone()).unwrap_or_default();
    let text = if text.starts_with('#') { "" } else { text };
    let text = text.split(" #").next().unwrap_or_default().trim_end();
    let range = range.start..range.start + text.len();
    let bytes = layer.scan().as_bytes();
    let mut decoder = Decoder::new(layer);
    let last_brace = last_brace(bytes, range.clone());
    let mut at = range.start;
    while at < range.end {
        at = match bytes.get(at) {
            Some(b'$') if layer.tag_at(at).is_none() => {
                dollar(&mut decoder, bytes, at, Quote::DotenvBare, range.end, last_brace)
            }
            _ => decoder.copy_one(at, Quote::DotenvBare),
        };
    }
    let inner = (range.start, Quote::DotenvBare);
    let value = decoder.finish(Value { whole: range, inner, syntax: Syntax::Dotenv });
    reader.variable(name, variable, &value, false)
}
