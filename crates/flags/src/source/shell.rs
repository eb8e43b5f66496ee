//! Reads the variables that a shell script sets, and its commands that start a VM.
//!
//! Scripts are scanned and not executed: comments, quotes, here-documents and substitutions are skipped. A `NAME=value` is read if a
//! command could begin there, or if it follows `export`, `declare` or a similar command. Assignments after `if`, in a loop or a function,
//! or after `&&` are marked as conditional. `$NAME`, `$(…)` and backticks in a value are not expanded. `${NAME:=value}` is ignored.
//!
//! The words of each simple command are passed to [`command`](super::command). They are not marked as conditional, because without the
//! command there would be no VM. File name patterns are not expanded.

mod lexer;

use std::ops::Range;
use std::sync::Arc;

use self::lexer::{HereDocument, Lexer, after_escape, is_name};
use super::Reader;
use super::command::{self, Argument, CommandPart};
use super::erlexec::Split;
use super::error::SourceError;
use super::layer::{Decoder, Layer, Value};
use super::lines::line_end;
use super::quote::{Quote, Style, Syntax};
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
        words: Vec::new(),
        assigned: None,
        here_documents: Vec::new(),
    };
    // Errors are ignored in a script that mentions no variable with flags.
    script.run().or_else(|error| if is_mentioned(layer.text(), scope) { Err(error) } else { Ok(()) })
}

/// Returns the words of the first command in a text that is split as by a shell, but not run by a shell.
pub(super) fn words(layer: &Arc<Layer>) -> Vec<Argument> {
    let bytes = layer.scan().as_bytes();
    let lexer = Lexer::new(layer);
    let mut words = Vec::new();
    // In a shell, a backslash at the end of a line joins lines; in Compose, it is a word that starts with a line end.
    let continues = layer.scan().contains("\\\n");
    let mut at = 0;
    while let Some(byte) = bytes.get(at).filter(|_| !continues && words.len() <= command::MAX_WORDS) {
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        match lexer.end_of_word(at) {
            Ok(end) if end > at => {
                words.push(argument(layer, at..end));
                at = end;
            }
            // The command ends here, or a quote is unclosed.
            _ => break,
        }
    }
    words
}

fn argument(layer: &Arc<Layer>, at: Range<usize>) -> Argument {
    Argument { value: decode(layer, at.clone()), at }
}

/// The kind of word that may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expects {
    /// A command, a reserved word, or an assignment before a command.
    Command,
    /// A name or an assignment, which are the arguments of `export`.
    Assignment,
    /// Any word.
    Argument,
}

struct Script<'r> {
    reader: &'r mut Reader,
    layer: &'r Arc<Layer>,
    lexer: Lexer<'r>,
    scope: Scope,
    bytes: &'r [u8],
    at: usize,
    /// The number of open `if`, `case`, loops and functions.
    open: usize,
    /// The number of open subshells. The patterns of `case` have only a closing parenthesis.
    parentheses: usize,
    /// Whether the current command follows `&&` or `||`.
    guarded: bool,
    expects: Expects,
    /// The words of the current command.
    words: Vec<Range<usize>>,
    /// The first fragment of the variables that are assigned before the current command.
    assigned: Option<usize>,
    /// The here-documents whose text begins on the next line.
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
                    // A line may end after `&&`.
                    self.begin_command(self.guarded && self.expects == Expects::Command)?;
                }
                b'#' => self.skip_line(),
                b';' => {
                    self.at += 1;
                    self.begin_command(false)?;
                }
                b'&' | b'|' => {
                    let twice = self.peek(0) == self.peek(1);
                    self.at += if twice { 2 } else { 1 };
                    self.begin_command(twice)?;
                }
                b'(' if self.peek(1) == b'(' && self.expects == Expects::Command => {
                    self.at = self.lexer.skip_parentheses(self.at, 0)?;
                }
                b'(' => {
                    self.at += 1;
                    // The preceding word is the name of a function.
                    self.words.clear();
                    self.begin_command(false)?;
                    self.parentheses += 1;
                }
                b')' => {
                    self.at += 1;
                    if self.parentheses == 0 {
                        // The preceding words are a pattern of `case`.
                        self.words.clear();
                    }
                    self.begin_command(false)?;
                    self.parentheses = self.parentheses.saturating_sub(1);
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
        self.end_command()
    }

    fn begin_command(&mut self, guarded: bool) -> Result<(), SourceError> {
        self.end_command()?;
        self.expects = Expects::Command;
        self.guarded = guarded;
        Ok(())
    }

    fn end_command(&mut self) -> Result<(), SourceError> {
        let words = std::mem::take(&mut self.words);
        let assigned = self.assigned.take();
        let Some(first) = words.first() else { return Ok(()) };
        let may_start = command::may_start(&decode(self.layer, first.clone()));
        let number = self.reader.commands;
        // In `NAME=value command`, only this command gets the variable.
        if let Some(begin) = assigned {
            self.reader.give_to_next_command(begin);
        }
        if may_start && words.len() <= command::MAX_WORDS {
            self.command(words)?;
        }
        self.reader.commands += usize::from(assigned.is_some() && self.reader.commands == number);
        Ok(())
    }

    fn command(&mut self, words: Vec<Range<usize>>) -> Result<(), SourceError> {
        let arguments = words.into_iter().map(|word| argument(self.layer, word)).collect();
        let split = Split::Command(Style::Shell);
        let layer = Arc::clone(self.layer);
        command::read(
            self.reader,
            &[&CommandPart { layer, split, arguments, conditional: self.is_conditional() }],
        )?;
        Ok(())
    }

    /// Whether the current command is conditional.
    fn is_conditional(&self) -> bool {
        self.open > 0 || self.parentheses > 0 || self.guarded
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(0), b' ' | b'\t') {
            self.at += 1;
        }
    }

    fn skip_line(&mut self) {
        self.at = line_end(self.bytes, self.at);
    }

    fn word(&mut self) -> Result<(), SourceError> {
        let begin = self.at;
        if self.expects != Expects::Argument
            && let Some((name, value)) = self.assignment()
        {
            if self.bytes.get(value) == Some(&b'(') {
                // The value is an array.
                self.at = self.lexer.skip_parentheses(value, 0)?;
                return Ok(());
            }
            let end = self.lexer.end_of_word(value)?;
            if let Some(variable) = find(&name, self.scope) {
                let decoded = decode(self.layer, value..end);
                let (begin, conditional) = (self.reader.fragments.len(), self.is_conditional());
                self.reader.variable(&name, variable, &decoded, conditional)?;
                if self.expects == Expects::Command {
                    self.assigned.get_or_insert(begin);
                }
            }
            self.at = end;
            return Ok(());
        }
        let end = self.lexer.end_of_word(begin)?;
        // Skip a character that is not part of a word and has no meaning here.
        self.at = end.max(begin + 1);
        let word = self.layer.slice(begin..end);
        let is_redirected = matches!(self.peek(0), b'<' | b'>');
        if is_redirected && word.bytes().all(|byte| byte.is_ascii_digit()) {
            // The number is the file descriptor of a redirection: `2>`.
            return Ok(());
        }
        if self.expects != Expects::Command || !self.begins_another(word) {
            self.words.push(begin..end);
        }
        Ok(())
    }

    /// Parses the assignment `NAME=` or `NAME+=` at the current position into the name and the start of the value.
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

    /// Processes a word at the start of a command, and returns whether another command may begin after the word.
    fn begins_another(&mut self, word: &str) -> bool {
        match word {
            "if" | "case" | "{" | "do" => self.open += 1,
            "fi" | "esac" | "}" | "done" => self.open = self.open.saturating_sub(1),
            "then" | "else" | "elif" | "while" | "until" | "!" | "time" => {}
            "export" | "readonly" | "declare" | "typeset" | "local" => {
                self.expects = Expects::Assignment;
                return false;
            }
            _ => {
                self.expects = Expects::Argument;
                return false;
            }
        }
        // Words follow `case` and `for`, and commands follow the other reserved words.
        true
    }
}

/// Decodes the value in a range that contains only complete quotes and substitutions.
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
            // A backslash at the end of a line joins the lines.
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
                    // The scan has already found the end without an error.
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
