//! Reads the variables that a Dockerfile sets with `ENV`.
//!
//! As BuildKit does it: lines that end with the escape character (a backslash, or what `# escape=` says) are joined, and comments
//! and empty lines between them dropped; then `ENV NAME=value …` or the older `ENV NAME the rest`; then quotes are
//! removed and variables filled in, in both forms. Texts of here-documents are stepped over.

use std::ops::Range;
use std::sync::Arc;

use super::Reader;
use super::error::SourceError;
use super::layer::{Decoder, Layer, Value, next};
use super::quote::{Quote, Syntax};
use super::variables::{Scope, Variable, find};

pub(crate) fn read(reader: &mut Reader, layer: &Arc<Layer>) -> Result<(), SourceError> {
    let escape = escape_character(layer.text());
    let bytes = layer.scan().as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let (line, end) = logical_line(layer, at, escape);
        at = end;
        let text = line.scan();
        let begin =
            text.len() - text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}').len();
        let mut instruction = Instruction { layer: &line, escape, at: begin };
        let mut name = instruction.keyword();
        if name == "ONBUILD" {
            name = instruction.keyword();
        }
        match name.as_str() {
            "ENV" => instruction.env(reader)?,
            "RUN" | "COPY" | "ADD" => at = after_here_documents(layer, at, &instruction.here_documents()),
            _ => {}
        }
    }
    Ok(())
}

/// A build stage.
pub(crate) struct Stage<'t> {
    /// The byte at which its line begins.
    pub(crate) begin: usize,
    /// The image or the stage that it is built upon.
    pub(crate) from: &'t str,
    /// What others call it.
    pub(crate) name: Option<&'t str>,
}

/// The build stages of a Dockerfile, in its order.
pub(crate) fn stages(text: &str) -> Vec<Stage<'_>> {
    let mut stages = Vec::new();
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let mut words = line.split_whitespace();
        if words.next().is_some_and(|word| word.eq_ignore_ascii_case("FROM")) {
            let mut words = words.filter(|word| !word.starts_with("--"));
            let from = words.next().unwrap_or_default();
            let name = words.next().filter(|word| word.eq_ignore_ascii_case("AS")).and_then(|_| words.next());
            stages.push(Stage { begin, from, name });
        }
        begin += line.len();
    }
    stages
}

/// The character that `# escape=` names. Such lines stand at the very top, before any other.
fn escape_character(text: &str) -> char {
    for line in text.lines() {
        let Some(comment) = line.trim().strip_prefix('#') else { break };
        let Some((name, value)) = comment.split_once('=') else { break };
        match (name.trim().to_ascii_lowercase().as_str(), value.trim()) {
            ("escape", "`") => return '`',
            ("escape", _) => return '\\',
            _ => {}
        }
    }
    '\\'
}

/// The instruction that begins on the line at `begin`, as one line; and where the next one may begin.
fn logical_line(layer: &Arc<Layer>, begin: usize, escape: char) -> (Arc<Layer>, usize) {
    let bytes = layer.scan().as_bytes();
    let mut decoder = Decoder::new(layer);
    let mut at = begin;
    let mut goes_on = true;
    while goes_on && at < bytes.len() {
        let end =
            bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length);
        let line = layer.scan().get(at..end).unwrap_or_default();
        let trimmed = line.trim_start();
        let first = at == begin;
        let dropped = trimmed.starts_with('#') || (trimmed.trim_end().is_empty() && !first);
        if dropped {
            // A comment on the first line is an instruction of its own, which says nothing.
            goes_on = !first;
        } else {
            let body = line.trim_end_matches(['\r']);
            let before = body.trim_end_matches([' ', '\t']).strip_suffix(escape);
            // A doubled one stands for itself.
            let before = before.filter(|before| !before.ends_with(escape));
            goes_on = before.is_some();
            decoder.copy(at..at + before.unwrap_or(body).len(), Quote::Joined);
        }
        at = (end + 1).min(bytes.len());
    }
    let value = Value { whole: begin..at, inner: (begin, Quote::Joined), syntax: Syntax::Same };
    (decoder.finish(value), at)
}

/// Where the lines behind the texts of here-documents begin.
fn after_here_documents(layer: &Layer, begin: usize, ends: &[(String, bool)]) -> usize {
    let text = layer.scan();
    let mut at = begin;
    for (last, tabs) in ends {
        let mut end = at;
        let found = text.get(at..).unwrap_or_default().split_inclusive('\n').any(|line| {
            end += line.len();
            let line = line.trim_end_matches(['\r', '\n']);
            last == if *tabs { line.trim_start_matches('\t') } else { line }
        });
        // Without its last line it is none; docker refuses the file.
        if !found {
            return begin;
        }
        at = end;
    }
    at
}

struct Instruction<'l> {
    layer: &'l Arc<Layer>,
    escape: char,
    at: usize,
}

impl Instruction<'_> {
    /// The next word in capitals; steps over the white space behind it.
    fn keyword(&mut self) -> String {
        let rest = self.layer.scan().get(self.at..).unwrap_or_default();
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let behind = &rest[length..];
        self.at += length + (behind.len() - behind.trim_start().len());
        rest[..length].to_ascii_uppercase()
    }

    /// `NAME=value NAME=value`, or `NAME value`.
    fn env(&self, reader: &mut Reader) -> Result<(), SourceError> {
        let text = self.layer.scan();
        let words = self.words();
        let Some(first) = words.first() else { return Ok(()) };
        if !text[first.clone()].contains('=') {
            let rest = &text[self.at..];
            let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let value = rest[length..].trim_start();
            let value = text.len() - value.len()..text.len();
            return match find(&rest[..length], Scope::Any) {
                Some(variable) => {
                    self.value(reader, &rest[..length], variable, value, Quote::DockerLine(self.escape))
                }
                None => Ok(()),
            };
        }
        for word in words {
            let Some((name, _)) = text[word.clone()].split_once('=') else { continue };
            if let Some(variable) = find(name, Scope::Any) {
                let value = word.start + name.len() + 1..word.end;
                self.value(reader, name, variable, value, Quote::DockerBare(self.escape))?;
            }
        }
        Ok(())
    }

    /// Words at white space, with their quotes.
    fn words(&self) -> Vec<Range<usize>> {
        let text = self.layer.scan();
        let mut words = Vec::new();
        let mut word: Option<usize> = None;
        let mut quote = None;
        let mut characters = text.char_indices().skip_while(|(at, _)| *at < self.at);
        while let Some((at, c)) = characters.next() {
            match quote {
                None if c.is_whitespace() => words.extend(word.take().map(|begin| begin..at)),
                None => {
                    word = word.or(Some(at));
                    quote = Some(c).filter(|c| matches!(c, '"' | '\''));
                }
                Some(open) if c == open => quote = None,
                Some(_) => {}
            }
            if c == self.escape && quote != Some('\'') {
                characters.next();
            }
        }
        words.extend(word.map(|begin| begin..text.len()));
        words
    }

    fn value(
        &self,
        reader: &mut Reader,
        name: &str,
        variable: &Variable,
        range: Range<usize>,
        bare: Quote,
    ) -> Result<(), SourceError> {
        let mut decoder = Decoder::new(self.layer);
        let text = self.layer.scan();
        let (mut quote, mut opened) = (bare, range.start);
        let mut inner = None;
        let mut at = range.start;
        let double = Quote::DockerDouble(self.escape);
        while at < range.end {
            let c = text[at..].chars().next().unwrap_or_default();
            let is_tag = self.layer.tag_at(at).is_some();
            match c {
                _ if is_tag => at = decoder.copy_one(at, quote),
                '"' | '\'' if quote == bare => {
                    quote = if c == '"' { double } else { Quote::DockerSingle };
                    opened = at;
                    at += 1;
                    inner = inner.or(Some((at, quote)));
                }
                '\'' if quote == Quote::DockerSingle => (quote, at) = (bare, at + 1),
                '"' if quote == double => (quote, at) = (bare, at + 1),
                _ if quote == Quote::DockerSingle => at = decoder.copy_one(at, quote),
                '$' => at = self.dollar(&mut decoder, at, quote, range.end),
                c if c == self.escape => at = self.escaped(&mut decoder, at, quote),
                _ => at = decoder.copy_one(at, quote),
            }
        }
        if quote != bare {
            let at = self.layer.position(opened);
            let quote = if quote == double { '"' } else { '\'' };
            return Err(SourceError::UnclosedQuote { at, quote, effect: "docker refuses the file" });
        }
        let inner = inner.unwrap_or((range.start, bare));
        let syntax = Syntax::Docker(self.escape);
        let value = decoder.finish(Value { whole: range, inner, syntax });
        reader.variable(name, variable, &value, false)
    }

    /// Takes what stands behind the escape character at `at`; gives where it ends. In double quotes it escapes only what
    /// has a meaning there.
    fn escaped(&self, decoder: &mut Decoder<'_>, at: usize, quote: Quote) -> usize {
        let end = next(self.layer, at + 1);
        let escaped = self.layer.slice(at + 1..end).chars().next();
        match (escaped, quote) {
            // At the very end it stands for nothing.
            (None, _) => {}
            (Some(c), Quote::DockerDouble(_)) if c != '"' && c != '$' && c != self.escape => {
                return decoder.copy_one(at, quote);
            }
            (Some(c), _) if self.layer.tag_at(at + 1).is_none() => decoder.put(c, at..end, quote),
            _ => decoder.tag(at + 1..end, quote),
        }
        end
    }

    /// Takes `$NAME` or `${…}`; gives where it ends.
    fn dollar(&self, decoder: &mut Decoder<'_>, at: usize, quote: Quote, limit: usize) -> usize {
        let rest = self.layer.scan().get(at + 1..limit).unwrap_or_default();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = if rest.starts_with('{') {
            let mut open = 0usize;
            let closing = rest.char_indices().find(|(_, c)| {
                match c {
                    '{' => open += 1,
                    '}' => open -= 1,
                    _ => {}
                }
                open == 0
            });
            closing.map_or(rest.len(), |(end, _)| end + 1)
        } else {
            rest.find(|c: char| !is_name(c)).unwrap_or(rest.len())
        };
        if length == 0 {
            return decoder.copy_one(at, quote);
        }
        let end = at + 1 + length;
        decoder.tag(at..end, quote);
        end
    }

    /// The last lines of the here-documents that begin on this line, and whether tabs before them count.
    fn here_documents(&self) -> Vec<(String, bool)> {
        let text = self.layer.scan();
        let words = self.words();
        let ends = words.iter().filter_map(|word| {
            let word = text[word.clone()].trim_start_matches(|c: char| c.is_ascii_digit());
            let name = word.strip_prefix("<<")?;
            let (tabs, name) = match name.strip_prefix('-') {
                Some(name) => (true, name),
                None => (false, name),
            };
            let name = name.trim_matches(['"', '\'']);
            (!name.is_empty() && !name.contains('<')).then(|| (name.to_owned(), tabs))
        });
        ends.collect()
    }
}
