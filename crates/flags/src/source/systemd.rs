//! Reads `Environment=` and `ExecStart=` of systemd units, and the file names in `EnvironmentFile=`.
//!
//! The syntax follows systemd.syntax(7), systemd.exec(5) and `extract_first_word` in the source of systemd. A line that ends with a
//! backslash is joined with the next one by a space. Items are split at white space and may contain single quotes, double quotes and C
//! escapes. `%` starts a specifier. `$` has no meaning in `Environment=`. Drop-ins and Podman's Quadlets have the same syntax.
//!
//! Commands follow systemd.service(5). Special characters at the start control how a command is started. `${NAME}` is expanded anywhere
//! in a word, `$NAME` only as a separate word, and `$$` is a dollar. A separate `;` ends the command. `ExecStart=`, and `Exec=` of a
//! Quadlet, start the node; `ExecStartPre=` and similar keys start helpers.

use std::ops::Range;
use std::sync::Arc;

use super::command::{self, Argument, CommandPart};
use super::erlexec::Split;
use super::error::SourceError;
use super::layer::{Decoder, Layer, Value, next};
use super::lines::line_end;
use super::quote::{Quote, Style, Syntax};
use super::variables::{Scope, find};
use super::{Place, Reader};

pub(crate) fn read(reader: &mut Reader, layer: &Arc<Layer>) -> Result<(), SourceError> {
    let length = layer.text().len();
    let mut at = 0;
    while at < length {
        let (line, end) = logical_line(layer, at);
        at = end;
        let text = line.scan();
        let Some((key, value)) = text.split_once('=') else { continue };
        let begin = text.len() - value.trim_start().len();
        match key.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}') {
            "Environment" | "DefaultEnvironment" => environment(reader, &line, begin)?,
            "ExecStart" | "Exec" => commands(reader, &line, begin)?,
            "EnvironmentFile" => {
                // A minus means that the file may be missing.
                let begin = begin + usize::from(text[begin..].starts_with('-'));
                let name = Layer::part(&line, begin..text.len());
                reader.words(Place::FileNames, &name, Split::Whole, false)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the logical line that starts at `begin`, and the start of the next one. A comment is an empty line.
fn logical_line(layer: &Arc<Layer>, begin: usize) -> (Arc<Layer>, usize) {
    let bytes = layer.scan().as_bytes();
    let mut decoder = Decoder::new(layer);
    let mut at = begin;
    let mut goes_on = true;
    while goes_on && at < bytes.len() {
        let end = line_end(bytes, at);
        let after = (end + 1).min(bytes.len());
        let first = at == begin;
        let line = &bytes[at..end];
        let comment = line.trim_ascii_start().starts_with(b"#") || line.trim_ascii_start().starts_with(b";");
        if comment {
            goes_on = !first;
        } else {
            let body = line.strip_suffix(b"\r").unwrap_or(line);
            let backslashes = body.iter().rev().take_while(|byte| **byte == b'\\').count();
            goes_on = backslashes % 2 == 1;
            let kept = body.len() - usize::from(goes_on);
            decoder.copy(at..at + kept, Quote::Joined);
            if goes_on {
                decoder.put(' ', at + kept..after, Quote::Joined);
            }
        }
        at = after;
    }
    let value = Value { whole: begin..at, inner: (begin, Quote::Joined), syntax: Syntax::Same };
    (decoder.finish(value), at)
}

/// Reads the assignments of an `Environment=` line from `begin` on.
fn environment(reader: &mut Reader, line: &Arc<Layer>, begin: usize) -> Result<(), SourceError> {
    let bytes = line.scan().as_bytes();
    let mut at = begin;
    while at < bytes.len() {
        if is_space(bytes[at]) {
            at += 1;
            continue;
        }
        let item = item(line, at);
        at = item.end;
        let text = item.layer.scan();
        let Some((name, _)) = text.split_once('=') else { continue };
        let Some(variable) = find(name, Scope::Any) else { continue };
        if let Some((at, quote)) = item.unclosed {
            let effect = "systemd ignores the whole line";
            return Err(SourceError::UnclosedQuote { at: line.position(at), quote, effect });
        }
        let value = Layer::part(&item.layer, name.len() + 1..text.len());
        reader.variable(name, variable, &value, false)?;
    }
    Ok(())
}

/// Reads the commands of a line from `begin` on.
fn commands(reader: &mut Reader, line: &Arc<Layer>, begin: usize) -> Result<(), SourceError> {
    let bytes = line.scan().as_bytes();
    let is_end = |at: usize| bytes.get(at).is_none_or(|byte| is_space(*byte));
    let mut command = Command::default();
    let mut at = begin;
    // systemd rejects longer lines (`LONG_LINE_MAX`).
    while at < bytes.len() && bytes.len() <= MAX_LINE_BYTES {
        if is_space(bytes[at]) {
            at += 1;
        } else if bytes[at] == b';' && is_end(at + 1) {
            std::mem::take(&mut command).read(reader, line)?;
            at += 1;
        } else if bytes[at..].starts_with(b"\\;") && is_end(at + 2) {
            command.arguments.push(Argument { value: Layer::part(line, at + 1..at + 2), at: at..at + 2 });
            at += 2;
        } else {
            let item = item(line, at);
            command.add(&item, at);
            at = item.end;
        }
    }
    command.read(reader, line)
}

const MAX_LINE_BYTES: usize = 1 << 20;

#[derive(Default)]
struct Command {
    arguments: Vec<Argument>,
    /// The special characters before the name of the program.
    prefix: String,
    unclosed: Option<(usize, char)>,
}

impl Command {
    fn add(&mut self, item: &Item, at: usize) {
        let all = item.layer.text();
        let mut begin = 0;
        if self.arguments.is_empty() && self.prefix.is_empty() {
            begin = all.len() - all.trim_start_matches(['-', '@', ':', '+', '!', '|']).len();
            self.prefix = all[..begin].to_owned();
        } else if self.prefix.contains('@') {
            // With `@`, the second word is the `argv[0]` of the program.
            self.prefix = self.prefix.replace('@', "");
            return;
        }
        let value = if self.prefix.contains(':') {
            Layer::part(&item.layer, begin..all.len())
        } else {
            with_marked_variables(&item.layer, begin)
        };
        self.unclosed = self.unclosed.or(item.unclosed);
        self.arguments.push(Argument { value, at: at..item.end });
    }

    fn read(self, reader: &mut Reader, line: &Arc<Layer>) -> Result<(), SourceError> {
        let split = Split::Command(Style::Systemd);
        let layer = Arc::clone(line);
        let written = CommandPart { layer, split, arguments: self.arguments, conditional: false };
        if let (Some((at, quote)), true) = (self.unclosed, command::starts_vm(&written)) {
            let effect = "systemd ignores the whole line";
            return Err(SourceError::UnclosedQuote { at: line.position(at), quote, effect });
        }
        command::read(reader, &[&written])?;
        Ok(())
    }
}

/// Returns a word of a command from `begin` on, with its variables marked as tags.
fn with_marked_variables(word: &Arc<Layer>, begin: usize) -> Arc<Layer> {
    let bytes = word.scan().as_bytes();
    // Compose has the same syntax for dollars.
    let quote = Quote::Compose;
    let mut decoder = Decoder::new(word);
    let mut at = begin;
    let is_name = |name: &[u8]| {
        name.first().is_some_and(|first| !first.is_ascii_digit())
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = match rest {
            [b'$', b'$', ..] if word.tag_at(at).is_none() => {
                decoder.put('$', at..at + 2, quote);
                at += 2;
                continue;
            }
            [b'$', b'{', inner @ ..] => inner
                .iter()
                .position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'))
                .filter(|end| inner.get(*end) == Some(&b'}') && is_name(&inner[..*end]))
                .map(|end| at + end + 3),
            [b'$', name @ ..] if at == begin && is_name(name) => Some(bytes.len()),
            _ => None,
        };
        at = match end.filter(|_| word.tag_at(at).is_none()) {
            Some(end) => {
                decoder.tag(at..end, quote);
                end
            }
            None => decoder.copy_one(at, quote),
        };
    }
    decoder.finish(Value { whole: begin..bytes.len(), inner: (begin, quote), syntax: Syntax::Same })
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

struct Item {
    layer: Arc<Layer>,
    end: usize,
    unclosed: Option<(usize, char)>,
}

/// The item at `begin`.
fn item(line: &Arc<Layer>, begin: usize) -> Item {
    let bytes = line.scan().as_bytes();
    let mut decoder = Decoder::new(line);
    let mut quote = Quote::SystemdBare;
    let mut opened = (begin, '"');
    let mut inner = None;
    let mut at = begin;
    while let Some(byte) = bytes.get(at).copied() {
        if line.tag_at(at).is_some() {
            at = decoder.copy_one(at, quote);
            continue;
        }
        match (byte, quote) {
            (byte, Quote::SystemdBare) if is_space(byte) => break,
            (b'"' | b'\'', Quote::SystemdBare) => {
                opened = (at, char::from(byte));
                quote = Quote::SystemdQuoted(opened.1);
                at += 1;
                inner = inner.or(Some((at, quote)));
            }
            (byte, Quote::SystemdQuoted(open)) if char::from(byte) == open => {
                quote = Quote::SystemdBare;
                at += 1;
            }
            (b'\\', _) => match escape(&bytes[at + 1..]) {
                Some((c, length)) => {
                    decoder.put(c, at..at + 1 + length, quote);
                    at += 1 + length;
                }
                // An unknown escape is literal; systemd logs a warning.
                None => at = decoder.copy_one(at, quote),
            },
            (b'%', _) => at = specifier(&mut decoder, line, at, quote),
            _ => at = decoder.copy_one(at, quote),
        }
    }
    let unclosed = (quote != Quote::SystemdBare).then_some(opened);
    let inner = inner.unwrap_or((begin, Quote::SystemdBare));
    let value = Value { whole: begin..at, inner, syntax: Syntax::Systemd };
    Item { layer: decoder.finish(value), end: at, unclosed }
}

/// Adds `%%`, or a specifier such as `%i`; returns the end of the added text.
fn specifier(decoder: &mut Decoder<'_>, line: &Arc<Layer>, at: usize, quote: Quote) -> usize {
    let range: Range<usize> = at..next(line, at + 1);
    match line.scan().as_bytes().get(at + 1) {
        Some(b'%') => decoder.put('%', range.clone(), quote),
        Some(byte) if byte.is_ascii_alphabetic() => decoder.tag(range.clone(), quote),
        _ => return decoder.copy_one(at, quote),
    }
    range.end
}

/// Parses an escape after the backslash into a character and the length of the escape in bytes; `None` if it is invalid.
fn escape(rest: &[u8]) -> Option<(char, usize)> {
    let number = |digits: usize, radix: u32| {
        let digits = rest.get(1..=digits)?;
        let text = std::str::from_utf8(digits).ok()?;
        let is_digits = text.chars().all(|c| c.is_digit(radix));
        let c = is_digits.then(|| u32::from_str_radix(text, radix).ok())?.and_then(char::from_u32)?;
        (c != '\0').then_some((c, digits.len() + 1))
    };
    let c = match rest.first()? {
        b'a' => '\u{7}',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'v' => '\u{b}',
        b's' => ' ',
        byte @ (b'\\' | b'"' | b'\'') => char::from(*byte),
        // Above 7F, the escape is a byte and not a character, so the text may not be valid UTF-8.
        b'x' => return number(2, 16).filter(|(c, _)| c.is_ascii()),
        b'u' => return number(4, 16),
        b'U' => return number(8, 16),
        _ => return None,
    };
    Some((c, 1))
}
