//! Reads the variables that a Dockerfile sets with `ENV`, and the command that its image starts.
//!
//! Parses like BuildKit. Lines that end with the escape character (a backslash, or the one that `# escape=` sets) are joined, and comments
//! and empty lines between them are dropped. Then `ENV NAME=value …` or the older form `ENV NAME the rest` is parsed: quotes are removed
//! and variables marked. Here-documents are skipped.
//!
//! In each stage, the last `ENTRYPOINT` and the last `CMD` take effect and are joined in this order. A JSON list contains the words of a
//! command, anything else is run by a shell. An entry point that is a script is assumed to finally start the command. `RUN` and
//! `HEALTHCHECK` start only helpers; a `RUN` that does nothing but `export` variables is reported as having no effect.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::command::{self, Argument, CommandPart, is_shell};
use super::erlexec::Split;
use super::error::SourceError;
use super::layer::{Decoder, Layer, Value, next};
use super::lines::line_end;
use super::quote::{Quote, Style, Syntax};
use super::shell;
use super::variables::{Scope, Variable, find};
use super::{Place, Reader};

pub(crate) fn read(reader: &mut Reader, layer: &Arc<Layer>) -> Result<(), SourceError> {
    let escape = escape_character(layer.text());
    let bytes = layer.scan().as_bytes();
    let mut image = Image::default();
    let mut line_ends = None;
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
            "FROM" => std::mem::take(&mut image).read(reader)?,
            "CMD" => image.command = Some(instruction.command()),
            "ENTRYPOINT" => image.entry_point = Some(instruction.command()),
            "SHELL" => image.shell = Some(instruction.command()),
            "RUN" | "COPY" | "ADD" => {
                if name == "RUN" {
                    exports(reader, &instruction.command());
                }
                let here_documents = instruction.here_documents();
                if !here_documents.is_empty() {
                    let ends = line_ends.get_or_insert_with(|| LineEnds::of(layer.scan()));
                    at = ends.after_here_documents(at, &here_documents);
                }
            }
            _ => {}
        }
    }
    image.read(reader)
}

/// Adds the variables of a `RUN` that does nothing but `export` variables, and marks them as having no effect. If there are other commands,
/// the variables may be for them.
fn exports(reader: &mut Reader, command: &Command) {
    const WHY: &str =
        "the shell of RUN exits before the next instruction, and its variables are lost: use ENV";
    let Command::Text(text) = command else { return };
    let mut commands = text.scan().split("&&").flat_map(|commands| commands.split(';')).map(str::trim);
    if !commands.all(|command| command.starts_with("export ")) {
        return;
    }
    let mut exported = Reader { fragments: Vec::new(), commands: reader.commands };
    // Syntax errors of the shell are not reported, because they are unrelated to flags.
    if shell::read(&mut exported, text, Scope::Any).is_err() {
        return;
    }
    for fragment in &mut exported.fragments {
        if let Place::Variable { effect, .. } = &mut fragment.place {
            effect.ignored = Some(WHY);
        }
    }
    reader.fragments.extend(exported.fragments);
}

/// The command that a stage starts.
#[derive(Default)]
struct Image {
    entry_point: Option<Command>,
    command: Option<Command>,
    shell: Option<Command>,
}

/// The form of a command.
enum Command {
    /// A list of words.
    Words(CommandPart),
    /// A text that a shell runs.
    Text(Arc<Layer>),
}

impl Command {
    fn words(&self) -> Option<&CommandPart> {
        match self {
            Command::Words(words) => Some(words),
            Command::Text(_) => None,
        }
    }
}

impl Image {
    fn read(self, reader: &mut Reader) -> Result<(), SourceError> {
        let runs_text = |shell: &Command| {
            let program = shell.words().and_then(|shell| shell.arguments.first());
            program.is_some_and(|program| is_shell(&program.value))
        };
        let is_shell = self.shell.as_ref().is_none_or(runs_text);
        let text = match (&self.entry_point, &self.command) {
            (Some(Command::Words(entry_point)), Some(Command::Text(text))) => {
                // If the entry point is a script, it probably starts this command.
                (!command::read(reader, &[entry_point])?).then_some(text)
            }
            (Some(Command::Text(text)), _) | (None, Some(Command::Text(text))) => Some(text),
            (entry_point, command) => {
                let parts = [entry_point, command].map(|part| part.as_ref().and_then(Command::words));
                command::read_container_command(reader, parts[0], parts[1])?;
                None
            }
        };
        match text.filter(|_| is_shell) {
            Some(text) => shell::read(reader, text, Scope::Any),
            None => Ok(()),
        }
    }
}

/// A build stage.
pub(crate) struct Stage<'t> {
    /// The byte offset of the `FROM` line.
    pub(crate) begin: usize,
    /// The image or stage on which this stage is based.
    pub(crate) from: &'t str,
    /// The name by which other stages refer to this stage.
    pub(crate) name: Option<&'t str>,
}

/// Returns the build stages of a Dockerfile, in order.
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

/// Returns the escape character, which `# escape=` can set. Such directives must precede everything else.
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

/// Returns the instruction that begins on the line at `begin`, joined into one line, and the start of the next instruction.
fn logical_line(layer: &Arc<Layer>, begin: usize, escape: char) -> (Arc<Layer>, usize) {
    let bytes = layer.scan().as_bytes();
    let mut decoder = Decoder::new(layer);
    let mut at = begin;
    let mut goes_on = true;
    while goes_on && at < bytes.len() {
        let end = line_end(bytes, at);
        let line = layer.scan().get(at..end).unwrap_or_default();
        let trimmed = line.trim_start();
        let first = at == begin;
        let dropped = trimmed.starts_with('#') || (trimmed.trim_end().is_empty() && !first);
        if dropped {
            // A comment on the first line is an empty instruction.
            goes_on = !first;
        } else {
            let body = line.trim_end_matches(['\r']);
            let before = body.trim_end_matches([' ', '\t']).strip_suffix(escape);
            // A doubled escape character is a literal character.
            let before = before.filter(|before| !before.ends_with(escape));
            goes_on = before.is_some();
            decoder.copy(at..at + before.unwrap_or(body).len(), Quote::Joined);
        }
        at = (end + 1).min(bytes.len());
    }
    let value = Value { whole: begin..at, inner: (begin, Quote::Joined), syntax: Syntax::Same };
    (decoder.finish(value), at)
}

/// An index of the line ends of a file by the text of the line. Searching the file for each here-document would take quadratic time.
#[derive(Default)]
struct LineEnds<'t> {
    whole: BTreeMap<&'t str, Vec<usize>>,
    /// The same index, by the text without leading tabs.
    without_tabs: BTreeMap<&'t str, Vec<usize>>,
}

impl<'t> LineEnds<'t> {
    fn of(text: &'t str) -> LineEnds<'t> {
        let mut ends = LineEnds::default();
        let mut end = 0;
        for line in text.split_inclusive('\n') {
            end += line.len();
            let line = line.trim_end_matches(['\r', '\n']);
            ends.whole.entry(line).or_default().push(end);
            ends.without_tabs.entry(line.trim_start_matches('\t')).or_default().push(end);
        }
        ends
    }

    /// Returns the end of the first line with this text after `at`, which must be the start of a line.
    fn first_after(&self, at: usize, line: &str, tabs: bool) -> Option<usize> {
        let ends = if tabs { &self.without_tabs } else { &self.whole }.get(line)?;
        ends.get(ends.partition_point(|end| *end <= at)).copied()
    }

    /// Returns the start of the line after the here-documents.
    fn after_here_documents(&self, begin: usize, last_lines: &[(String, bool)]) -> usize {
        let mut at = begin;
        for (last, tabs) in last_lines {
            // Docker rejects a here-document without its last line.
            let Some(end) = self.first_after(at, last, *tabs) else { return begin };
            at = end;
        }
        at
    }
}

struct Instruction<'l> {
    layer: &'l Arc<Layer>,
    escape: char,
    at: usize,
}

impl Instruction<'_> {
    /// Returns the next word in upper case, and skips the white space after it.
    fn keyword(&mut self) -> String {
        let rest = self.layer.scan().get(self.at..).unwrap_or_default();
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let after = &rest[length..];
        self.at += length + (after.len() - after.trim_start().len());
        rest[..length].to_ascii_uppercase()
    }

    /// Reads the variables of `ENV NAME=value NAME=value` or `ENV NAME value`.
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

    /// Splits the rest of the line into words at white space. The words include their quotes.
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
            return Err(SourceError::UnclosedQuote { at, quote, effect: "docker rejects the file" });
        }
        let inner = inner.unwrap_or((range.start, bare));
        let syntax = Syntax::Docker(self.escape);
        let value = decoder.finish(Value { whole: range, inner, syntax });
        reader.variable(name, variable, &value, false)
    }

    /// Adds the character after the escape character at `at`, and returns the end of the character. In double quotes, only special
    /// characters can be escaped.
    fn escaped(&self, decoder: &mut Decoder<'_>, at: usize, quote: Quote) -> usize {
        let end = next(self.layer, at + 1);
        let escaped = self.layer.slice(at + 1..end).chars().next();
        match (escaped, quote) {
            // An escape character at the end of the text has no meaning.
            (None, _) => {}
            (Some(c), Quote::DockerDouble(_)) if c != '"' && c != '$' && c != self.escape => {
                return decoder.copy_one(at, quote);
            }
            (Some(c), _) if self.layer.tag_at(at + 1).is_none() => decoder.put(c, at..end, quote),
            _ => decoder.tag(at + 1..end, quote),
        }
        end
    }

    /// Adds `$NAME` or `${…}`, and returns its end.
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

    /// Parses the command of `CMD`, `ENTRYPOINT`, `SHELL` or `RUN`: a JSON list, or a text.
    fn command(&self) -> Command {
        let end = self.layer.text().len();
        match self.list() {
            Some(arguments) => {
                let split = Split::Command(Style::Flow(Quote::Same));
                let layer = Arc::clone(self.layer);
                Command::Words(CommandPart { layer, split, arguments, conditional: false })
            }
            None => Command::Text(Layer::part(self.layer, self.at..end)),
        }
    }

    /// Parses a JSON list of texts; `None` if there is no such list. Text after the list is ignored, as by BuildKit.
    fn list(&self) -> Option<Vec<Argument>> {
        let bytes = self.layer.scan().as_bytes();
        let blanks = |at: usize| {
            let rest = bytes.get(at..).unwrap_or_default();
            at + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
        };
        let mut arguments = Vec::new();
        let mut at = blanks(self.at);
        if bytes.get(at) != Some(&b'[') {
            return None;
        }
        at = blanks(at + 1);
        if bytes.get(at) == Some(&b']') {
            return Some(arguments);
        }
        loop {
            let argument = self.json_text(at).filter(|_| arguments.len() < command::MAX_WORDS)?;
            at = blanks(argument.at.end);
            arguments.push(argument);
            match bytes.get(at)? {
                b',' => at = blanks(at + 1),
                b']' => return Some(arguments),
                _ => return None,
            }
        }
    }

    fn json_text(&self, begin: usize) -> Option<Argument> {
        // Double quotes of YAML support all escapes of JSON.
        const QUOTE: Quote = Quote::YamlDouble;
        let bytes = self.layer.scan().as_bytes();
        let mut decoder = Decoder::new(self.layer);
        let mut at = begin + 1;
        (bytes.get(begin) == Some(&b'"')).then_some(())?;
        loop {
            match bytes.get(at)? {
                b'"' => break,
                b'\\' => {
                    let (c, length) = json_escape(self.layer.text().get(at + 1..)?)?;
                    decoder.put(c, at..at + 1 + length, QUOTE);
                    at += 1 + length;
                }
                byte if byte.is_ascii_control() => return None,
                _ => at = decoder.copy_one(at, QUOTE),
            }
        }
        let at = begin..at + 1;
        let value = Value { whole: at.clone(), inner: (begin + 1, QUOTE), syntax: Syntax::Yaml };
        Some(Argument { value: decoder.finish(value), at })
    }

    /// Returns the last lines of the here-documents that begin on this line, and whether tabs before each last line are ignored.
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

/// Parses a JSON escape after the backslash into a character and the length of the escape in bytes; `None` if it is invalid. Surrogate
/// pairs are not supported, because flags do not contain them.
fn json_escape(rest: &str) -> Option<(char, usize)> {
    let c = match rest.bytes().next()? {
        byte @ (b'"' | b'\\' | b'/') => char::from(byte),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let digits =
                rest.get(1..5).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            return char::from_u32(u32::from_str_radix(digits, 16).ok()?).map(|c| (c, 5));
        }
        _ => return None,
    };
    Some((c, 1))
}
