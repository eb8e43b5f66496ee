//! Finds flags in YAML: variables and commands of Compose and Kubernetes, and files in a ConfigMap.
//!
//! The parser of the `saphyr` project reports where each scalar begins and how it is quoted. The module [`scalar`] maps the characters of
//! the value to bytes, and must agree with the parser about the value.
//!
//! Variables are found anywhere in a file: as the key of a string, as a mapping with `name` and `value`, or as a list item `NAME=value`. A
//! key may also be the name of a supported file (`vm.args` in a ConfigMap). The commands of containers are `entrypoint` with `command` in
//! Compose files, and `command` with `args` elsewhere, as a list or a string. Compose splits a string like a shell, but does not run a
//! shell. A command under `exec` is a probe and is ignored.
//!
//! Helm charts are templates and not YAML. Tags are hidden from the parser: a line that contains only tags is replaced by an empty line,
//! any other tag by a neutral word. If the result is not valid YAML, the file is reported as "not checked" and not as an error.

mod scalar;

use std::ops::Range;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::command::{self, Argument, CommandPart};
use super::erlexec::Split;
use super::error::SourceError;
use super::layer::{Decoder, Layer, Value};
use super::quote::{Quote, Style, Syntax};
use super::shell;
use super::template::{self, Template};
use super::variables::{Scope, find, is_mentioned};
use super::{Format, Reader, detect};

pub(crate) fn read(reader: &mut Reader, format: Format, layer: &Arc<Layer>) -> Result<(), SourceError> {
    let text = without_lines_of_tags(layer);
    let mut document = Document { reader, format, layer, text: &text, open: Vec::new() };
    let mut offsets = Offsets { text: &text, characters: 0, bytes: 0 };
    for event in Parser::new_from_str(&text) {
        match event {
            Ok((event, span)) => document.event(event, &span, &mut offsets)?,
            Err(error) if is_mentioned(&text, Scope::Any) || names_file(&text) => {
                return Err(not_yaml(layer, &text, &error));
            }
            // Errors in a file without flags are ignored.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Returns the text for the parser, in which tags are replaced by text of the same length. A line with nothing but tags is replaced by
/// empty lines, which have no effect anywhere, not even in a block scalar.
fn without_lines_of_tags(layer: &Layer) -> String {
    let scan = layer.scan();
    let mut tags = layer.tags_in(&(0..scan.len())).iter().peekable();
    let mut text = String::with_capacity(scan.len());
    for line in scan.split_inclusive('\n') {
        let end = text.len() + line.len();
        let is_blank = |part: Range<usize>| scan.get(part).is_some_and(|part| part.trim().is_empty());
        let (mut tagged, mut blank, mut bare) = (false, true, text.len());
        while let Some(tag) = tags.next_if(|tag| tag.range.start < end) {
            blank &= is_blank(bare..tag.range.start);
            bare = tag.range.end;
            tagged = true;
        }
        if tagged && blank && is_blank(bare..end) {
            text.extend(std::iter::repeat_n('\n', line.len()));
        } else {
            text.push_str(line);
        }
    }
    text
}

/// Whether the text may contain a key that is the name of a supported file.
fn names_file(text: &str) -> bool {
    ["vm.args", "rabbitmq-env", "ejabberdctl"].iter().any(|name| text.contains(name))
}

fn not_yaml(layer: &Layer, text: &str, error: &ScanError) -> SourceError {
    let mut offsets = Offsets { text, characters: 0, bytes: 0 };
    let at = offsets.byte(error.marker().index());
    let templates = if layer.tags_in(&(0..text.len())).is_empty() {
        "correct the syntax"
    } else {
        "it is a template: render it first (helm template) and check the result"
    };
    let reason = format!("this is not YAML ({}); {templates}", error.info());
    SourceError::NotJudged { at: layer.position(at), reason }
}

/// Converts character offsets of the parser to byte offsets; efficient for ascending offsets.
struct Offsets<'t> {
    text: &'t str,
    characters: usize,
    bytes: usize,
}

impl Offsets<'_> {
    fn byte(&mut self, character: usize) -> usize {
        if character < self.characters {
            (self.characters, self.bytes) = (0, 0);
        }
        let rest = &self.text[self.bytes..];
        let steps = character - self.characters;
        self.bytes += rest.char_indices().nth(steps).map_or(rest.len(), |(at, _)| at);
        self.characters = character;
        self.bytes
    }
}

/// A YAML scalar.
struct Scalar {
    value: String,
    style: ScalarStyle,
    at: usize,
}

/// The part of a container's command to which a value belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    EntryPoint,
    Arguments,
}

/// A YAML list with the words of a command.
struct List {
    items: Vec<Scalar>,
    /// Whether the list is in brackets.
    is_flow: bool,
}

/// A YAML collection that the parser has entered.
enum Open {
    /// A list, with its items if it may be a command: if all are scalars and the key is one for commands.
    List(Option<List>),
    Mapping {
        /// The key of this mapping in the surrounding mapping.
        under: Option<String>,
        /// The key of the next value; `None` if the key is a collection.
        key: Option<String>,
        expects_value: bool,
        name: Option<String>,
        value: Option<Scalar>,
        /// The parts of the command of a container.
        commands: Vec<(Slot, CommandPart)>,
    },
}

struct Document<'r> {
    reader: &'r mut Reader,
    format: Format,
    layer: &'r Arc<Layer>,
    text: &'r str,
    open: Vec<Open>,
}

impl Document<'_> {
    fn event(&mut self, event: Event<'_>, span: &Span, offsets: &mut Offsets<'_>) -> Result<(), SourceError> {
        match event {
            Event::Scalar(value, style, _, _) => {
                let at = offsets.byte(span.start.index());
                return self.scalar(Scalar { value: value.into_owned(), style, at });
            }
            Event::Alias(_) => {
                self.not_a_command();
                self.done_with_node();
            }
            Event::SequenceStart(..) => {
                self.not_a_command();
                let is_flow = self.text[offsets.byte(span.start.index())..].starts_with('[');
                let list = self.slot().map(|_| List { items: Vec::new(), is_flow });
                self.open.push(Open::List(list));
            }
            Event::MappingStart(..) => {
                self.not_a_command();
                let under = match self.open.last() {
                    Some(Open::Mapping { key, .. }) => key.clone(),
                    _ => None,
                };
                self.open.push(Open::Mapping {
                    under,
                    key: None,
                    expects_value: false,
                    name: None,
                    value: None,
                    commands: Vec::new(),
                });
            }
            Event::SequenceEnd => {
                if let Some(Open::List(Some(list))) = self.open.pop() {
                    let words = self.words(list);
                    self.put_command(words);
                }
                self.done_with_node();
            }
            Event::MappingEnd => {
                if let Some(Open::Mapping { name, value, commands, .. }) = self.open.pop() {
                    if let (Some(name), Some(value)) = (name, value) {
                        self.variable(&name, &value)?;
                    }
                    let words =
                        |slot: Slot| commands.iter().find(|(of, _)| *of == slot).map(|(_, words)| words);
                    command::read_container_command(
                        self.reader,
                        words(Slot::EntryPoint),
                        words(Slot::Arguments),
                    )?;
                }
                self.done_with_node();
            }
            Event::DocumentStart(_) | Event::DocumentEnd => self.open.clear(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd => {}
        }
        Ok(())
    }

    /// Returns the part of a command to which the next value belongs.
    fn slot(&self) -> Option<Slot> {
        let Some(Open::Mapping { under, key: Some(key), .. }) = self.open.last() else { return None };
        let slot = match (self.format, key.as_str()) {
            (Format::Compose, "entrypoint") | (Format::Kubernetes, "command") => Slot::EntryPoint,
            (Format::Compose, "command") | (Format::Kubernetes, "args") => Slot::Arguments,
            _ => return None,
        };
        (under.as_deref() != Some("exec")).then_some(slot)
    }

    fn put_command(&mut self, words: Option<CommandPart>) {
        if let (Some(slot), Some(words)) = (self.slot(), words)
            && let Some(Open::Mapping { commands, .. }) = self.open.last_mut()
        {
            commands.push((slot, words));
        }
    }

    /// Marks the current list as not a command, because the next item is not a scalar.
    fn not_a_command(&mut self) {
        if let Some(Open::List(list)) = self.open.last_mut() {
            *list = None;
        }
    }

    /// Returns the words of a list; `None` if one of them has unsupported syntax.
    fn words(&self, list: List) -> Option<CommandPart> {
        if list.items.len() > command::MAX_WORDS {
            return None;
        }
        let expansion = self.expansion();
        let style = if list.is_flow { Style::Flow(expansion) } else { Style::Block(expansion) };
        let argument = |scalar: &Scalar| {
            let layer = self.decode(scalar).ok()?;
            let at = layer.value()?.1.whole.clone();
            Some(Argument { value: self.with_marked_variables(&layer, 0..layer.text().len()), at })
        };
        let arguments = list.items.iter().map(argument).collect::<Option<_>>()?;
        let split = Split::Command(style);
        Some(CommandPart { layer: Arc::clone(self.layer), split, arguments, conditional: false })
    }

    /// Splits a string into words; `None` for a string of several lines outside Compose files, which is a script and is split differently.
    fn words_of_text(&self, scalar: &Scalar) -> Option<CommandPart> {
        if self.format != Format::Compose && scalar.value.trim_end().contains('\n') {
            return None;
        }
        let layer = self.decode(scalar).ok()?;
        let layer = self.with_marked_variables(&layer, 0..layer.text().len());
        let arguments = shell::words(&layer);
        let split = Split::Command(Style::Shell);
        Some(CommandPart { layer, split, arguments, conditional: false })
    }

    /// Marks a key or a value of the surrounding mapping as complete.
    fn done_with_node(&mut self) {
        if let Some(Open::Mapping { expects_value, key, .. }) = self.open.last_mut() {
            *expects_value = !*expects_value;
            *key = None;
        }
    }

    fn scalar(&mut self, scalar: Scalar) -> Result<(), SourceError> {
        if self.slot().is_some() {
            let words = self.words_of_text(&scalar);
            self.put_command(words);
            self.done_with_node();
            return Ok(());
        }
        match self.open.last_mut() {
            Some(Open::Mapping { expects_value, key, .. }) if !*expects_value => {
                *key = Some(scalar.value);
                *expects_value = true;
            }
            Some(Open::Mapping { expects_value, key, name, value, .. }) => {
                *expects_value = false;
                match key.take().as_deref() {
                    Some("name") => *name = Some(scalar.value),
                    Some("value") => *value = Some(scalar),
                    Some(key) => return self.entry(key, &scalar),
                    None => {}
                }
            }
            Some(Open::List(Some(list))) => list.items.push(scalar),
            Some(Open::List(None)) => return self.item(&scalar),
            None => {}
        }
        Ok(())
    }

    /// Reads the value of a key, if the key is the name of a variable or of a supported file.
    fn entry(&mut self, key: &str, scalar: &Scalar) -> Result<(), SourceError> {
        if find(key, Scope::Any).is_some() {
            return self.variable(key, scalar);
        }
        let format = match detect(key, &scalar.value) {
            // A one-line value of a key such as `image.env` in a chart is not the content of a file.
            Some(Format::EnvFile | Format::Shell) if !scalar.value.contains('\n') => return Ok(()),
            Some(
                format @ (Format::VmArgs
                | Format::VmArgsTemplate(_)
                | Format::RabbitmqEnv
                | Format::EjabberdCtl
                | Format::EnvFile
                | Format::Shell
                | Format::SystemdUnit),
            ) => format,
            _ => return Ok(()),
        };
        let layer = self.decode(scalar)?;
        let layer = match format {
            Format::VmArgsTemplate(kind) => with_tags(&layer, kind),
            _ => layer,
        };
        self.reader.layer(format, &layer, Some(key))
    }

    fn variable(&mut self, name: &str, scalar: &Scalar) -> Result<(), SourceError> {
        let Some(variable) = find(name, Scope::Any) else { return Ok(()) };
        let layer = self.decode(scalar)?;
        let with_marked_variables = self.with_marked_variables(&layer, 0..layer.text().len());
        self.reader.variable(name, variable, &with_marked_variables, false)
    }

    /// Reads a list item `NAME=value`.
    fn item(&mut self, scalar: &Scalar) -> Result<(), SourceError> {
        let Some((name, _)) = scalar.value.split_once('=') else { return Ok(()) };
        let Some(variable) = find(name, Scope::Any) else { return Ok(()) };
        let layer = self.decode(scalar)?;
        let value = self.with_marked_variables(&layer, name.len() + 1..layer.text().len());
        self.reader.variable(name, variable, &value, false)
    }

    fn decode(&self, scalar: &Scalar) -> Result<Arc<Layer>, SourceError> {
        scalar::decode(self.layer, self.text, scalar.at, scalar.style, &scalar.value).ok_or_else(|| {
            let reason = "unsupported syntax of a YAML scalar: write it in double quotes";
            SourceError::NotJudged { at: self.layer.position(scalar.at), reason: reason.to_owned() }
        })
    }

    /// Returns the quote of the program that expands variables.
    fn expansion(&self) -> Quote {
        match self.format {
            Format::Compose => Quote::Compose,
            _ => Quote::Kubernetes,
        }
    }

    /// Marks the variables in a part of a scalar as tags: `$NAME` and `${NAME}` of Compose, `$(NAME)` of Kubernetes. In values of a
    /// chart, `${…}` is also marked, because it may be a template.
    fn with_marked_variables(&self, scalar: &Arc<Layer>, range: Range<usize>) -> Arc<Layer> {
        let (compose, quote) = (self.format == Format::Compose, self.expansion());
        let bytes = scalar.scan().as_bytes();
        let mut decoder = Decoder::new(scalar);
        // After the last closing delimiter, no variable is closed. Searching each time would take quadratic time.
        let last =
            |mark: u8| bytes.get(..range.end).and_then(|all| all.iter().rposition(|byte| *byte == mark));
        let (last_brace, last_parenthesis) = (last(b'}'), last(b')'));
        let mut at = range.start;
        while at < range.end {
            let rest = bytes.get(at + 1..range.end).unwrap_or_default();
            if bytes.get(at) != Some(&b'$') || scalar.tag_at(at).is_some() {
                at = decoder.copy_one(at, quote);
                continue;
            }
            let closing = |mark: u8, last: Option<usize>| {
                last.filter(|last| *last > at)?;
                rest.iter().position(|byte| *byte == mark).map(|length| length + 1)
            };
            let length = match rest.first() {
                Some(b'$') if compose || rest.get(1) == Some(&b'(') => {
                    decoder.put('$', at..at + 2, quote);
                    at += 2;
                    continue;
                }
                Some(b'{') => closing(b'}', last_brace),
                Some(b'(') if !compose => closing(b')', last_parenthesis),
                Some(byte) if compose && (byte.is_ascii_alphabetic() || *byte == b'_') => {
                    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                    Some(rest.iter().position(|byte| !is_name(byte)).unwrap_or(rest.len()))
                }
                _ => None,
            };
            at = match length {
                Some(length) => {
                    decoder.tag(at..at + 1 + length, quote);
                    at + 1 + length
                }
                None => decoder.copy_one(at, quote),
            };
        }
        decoder.finish(Value { whole: range.clone(), inner: (range.start, quote), syntax: Syntax::Same })
    }
}

/// Marks the template tags of an embedded args file, in addition to those of the surrounding file. Marks none if the template is invalid.
fn with_tags(layer: &Arc<Layer>, kind: Template) -> Arc<Layer> {
    let found = template::of_args_file(layer.text(), kind).unwrap_or_default();
    let mut decoder = Decoder::new(layer);
    let mut at = 0;
    for tag in &found.tags {
        decoder.copy(at..tag.range.start, Quote::Same);
        decoder.tag_as(tag.range.clone(), Quote::Same, tag.silent);
        at = tag.range.end;
    }
    let all = 0..layer.text().len();
    decoder.copy(at..all.end, Quote::Same);
    decoder.finish(Value { whole: all, inner: (0, Quote::Same), syntax: Syntax::Same })
}
