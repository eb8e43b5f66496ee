//! Reads the variables that a shell script sets.
//!
//! Scripts are walked through, not run: comments, quotes, here-documents and substitutions are stepped over, and every
//! `NAME=value` where a command may begin, or behind `export` and its like, is taken. What stands behind `if`, in a loop or
//! a function, or behind `&&` may not happen and is marked so. `$NAME`, `$(…)` and backticks in a value are kept as
//! they are. Command lines of `erl`, and `${NAME:=value}`, are not looked at.

mod lexer;

use std::ops::Range;
use std::sync::Arc;

use self::lexer::{HereDocument, Lexer, after_escape, is_name};
use super::Reader;
use super::error::SourceError;
use super::layer::{Decoder, Layer, Value};
use super::quote::{Quote, Syntax};
use super::variables::{Scope, find, is_mentioned};

pub(crate) fn read(reader: &mut Reader, layer: &Arc<Layer>, scope: Scope) -> Result<(), SourceError> {
    let mut script = Script {
        reader,
        layer,
        lexer: Lexer::new(layer),
        scope,
        bytes: layer.scan().as_bytes(),
        at: 0,
        open: 0,
        parentheses: 0,
        guarded: false,
        expects: Expects::Command,
        here_documents: Vec::new(),
    };
    // A script that sets no variable of ours is none of ours, whatever may be wrong with it.
    script.run().or_else(|error| if is_mentioned(layer.text(), scope) { Err(error) } else { Ok(()) })
}

/// What a word would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    /// A command, a reserved word, or an assignment before a command.
    Command,
    /// A name or an assignment: arguments of `export`.
    Assignment,
    /// Anything.
    Argument,
}

struct Script<'r> {
    reader: &'r mut Reader,
    layer: &'r Arc<Layer>,
    lexer: Lexer<'r>,
    scope: Scope,
    bytes: &'r [u8],
    at: usize,
    /// How many `if`, `case`, loops and functions are open.
    open: usize,
    /// How many subshells are open. The patterns of `case` have only the closing one.
    parentheses: usize,
    /// Behind `&&` or `||`.
    guarded: bool,
    expects: Expects,
    /// Those whose texts begin on the next line.
    here_documents: Vec<HereDocument>,
}

impl Script<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or_default()
    }

    fn run(&mut self) -> Result<(), SourceError> {
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\\' if self.peek(1) == b'\n' => self.at += 2,
                b'\\' if self.peek(1) == b'\r' && self.peek(2) == b'\n' => self.at += 3,
                b'\n' => {
                    let here_documents = std::mem::take(&mut self.here_documents);
                    self.at = self.lexer.after_here_documents(self.at + 1, here_documents);
                    // A line may end behind `&&`.
                    self.begin_command(self.guarded && self.expects == Expects::Command);
                }
                b'#' => self.skip_line(),
                b';' => {
                    self.at += 1;
                    self.begin_command(false);
                }
                b'&' | b'|' => {
                    let twice = self.peek(0) == self.peek(1);
                    self.at += if twice { 2 } else { 1 };
                    self.begin_command(twice);
                }
                b'(' if self.peek(1) == b'(' && self.expects == Expects::Command => {
                    self.at = self.lexer.skip_parentheses(self.at, 0)?;
                }
                b'(' => {
                    self.at += 1;
                    self.parentheses += 1;
                    self.begin_command(false);
                }
                b')' => {
                    self.at += 1;
                    self.parentheses = self.parentheses.saturating_sub(1);
                    self.begin_command(false);
                }
                b'<' if self.lexer.begins_here_document(self.at) => {
                    let (here_document, end) = self.lexer.here_document(self.at)?;
                    self.here_documents.push(here_document);
                    self.at = end;
                }
                b'<' | b'>' => {
                    while matches!(self.peek(0), b'<' | b'>' | b'&') {
                        self.at += 1;
                    }
                    self.skip_blanks();
                    self.at = self.lexer.end_of_word(self.at)?;
                }
                _ => self.word()?,
            }
        }
        Ok(())
    }

    fn begin_command(&mut self, guarded: bool) {
        self.expects = Expects::Command;
        self.guarded = guarded;
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(0), b' ' | b'\t') {
            self.at += 1;
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.bytes[self.at..];
        self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }

    fn word(&mut self) -> Result<(), SourceError> {
        let begin = self.at;
        if self.expects != Expects::Argument
            && let Some((name, value)) = self.assignment()
        {
            if self.bytes.get(value) == Some(&b'(') {
                // An array.
                self.at = self.lexer.skip_parentheses(value, 0)?;
                return Ok(());
            }
            let end = self.lexer.end_of_word(value)?;
            if let Some(variable) = find(&name, self.scope) {
                let decoded = decode(self.layer, value..end);
                let conditional = self.open > 0 || self.parentheses > 0 || self.guarded;
                self.reader.variable(&name, variable, &decoded, conditional)?;
            }
            self.at = end;
            return Ok(());
        }
        let end = self.lexer.end_of_word(begin)?;
        // Something that is no part of a word and that nothing above knows.
        self.at = end.max(begin + 1);
        if self.expects == Expects::Command {
            self.command(begin..end);
        }
        Ok(())
    }

    /// `NAME=` or `NAME+=` at this place: the name, and where the value begins.
    fn assignment(&self) -> Option<(String, usize)> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| !is_name(*byte)).unwrap_or(rest.len());
        let name = &rest[..length];
        if name.first().is_none_or(u8::is_ascii_digit) {
            return None;
        }
        let operator = match &rest[length..] {
            [b'=', ..] => 1,
            [b'+', b'=', ..] => 2,
            _ => return None,
        };
        Some((String::from_utf8_lossy(name).into_owned(), self.at + length + operator))
    }

    /// A word where a command may begin: reserved words say what the next one is.
    fn command(&mut self, word: Range<usize>) {
        self.expects = Expects::Argument;
        match self.layer.slice(word) {
            "if" | "case" | "{" | "do" => self.open += 1,
            "fi" | "esac" | "}" | "done" => self.open = self.open.saturating_sub(1),
            "export" | "readonly" | "declare" | "typeset" | "local" | "env" => {
                self.expects = Expects::Assignment;
                return;
            }
            "then" | "else" | "elif" | "while" | "until" | "!" | "time" => {}
            _ => return,
        }
        // `case` and `for` are followed by words, the others by commands.
        self.expects = Expects::Command;
    }
}

/// The value in a range that holds complete quotes and substitutions.
fn decode(layer: &Arc<Layer>, range: Range<usize>) -> Arc<Layer> {
    let mut decoder = Decoder::new(layer);
    let bytes = layer.scan().as_bytes();
    let lexer = Lexer::new(layer);
    let mut inner = None;
    let mut at = range.start;
    let mut quote = Quote::ShellBare;
    while at < range.end {
        let byte = bytes.get(at).copied().unwrap_or_default();
        let is_tag = layer.tag_at(at).is_some();
        match (quote, byte) {
            _ if is_tag => at = decoder.copy_one(at, quote),
            (Quote::ShellSingle, b'\'') | (Quote::ShellDouble, b'"') => {
                quote = Quote::ShellBare;
                at += 1;
            }
            (Quote::ShellSingle, _) => at = decoder.copy_one(at, quote),
            (Quote::ShellBare, b'\'' | b'"') => {
                quote = if byte == b'"' { Quote::ShellDouble } else { Quote::ShellSingle };
                at += 1;
                inner = inner.or(Some((at, quote)));
            }
            // A backslash before a line end joins the lines.
            (_, b'\\') if bytes.get(at + 1) == Some(&b'\n') => at += 2,
            (Quote::ShellDouble, b'\\') if !matches!(bytes.get(at + 1), Some(b'\\' | b'"' | b'$' | b'`')) => {
                at = decoder.copy_one(at, quote);
            }
            (_, b'\\') => {
                let end = after_escape(layer, at);
                match layer.slice(at + 1..end).chars().next() {
                    Some(c) if layer.tag_at(at + 1).is_none() => decoder.put(c, at..end, quote),
                    _ => decoder.tag(at + 1..end, quote),
                }
                at = end;
            }
            (_, b'$' | b'`') => {
                let end = match byte {
                    // The walk has been here and found no fault.
                    b'`' => lexer.end_of_backticks(at),
                    _ => lexer.end_of_dollar(at, quote == Quote::ShellDouble, 0),
                };
                let end = end.unwrap_or(range.end).min(range.end);
                if end == at + 1 {
                    decoder.copy(at..end, quote);
                } else {
                    decoder.tag(at..end, quote);
                }
                at = end;
            }
            _ => at = decoder.copy_one(at, quote),
        }
    }
    let inner = inner.unwrap_or((range.start, Quote::ShellBare));
    decoder.finish(Value { whole: range, inner, syntax: Syntax::Shell })
}
