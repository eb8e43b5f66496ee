//! Finds flags in YAML: Compose's and Kubernetes' variables, and files in a ConfigMap.
//!
//! The parser of the `saphyr` project tells where every scalar begins and how it is quoted; what its bytes stand for is worked out
//! here ([`scalar`]) and must be what the parser says. Taken are, wherever they stand: a key with the name of a variable and a text;
//! a mapping with `name` and `value`; an item `NAME=value` of a list; and a key with the name of a file that we read (`vm.args`
//! in a ConfigMap).
//!
//! Helm's charts are templates, not YAML. Their tags are hidden from the parser: a line of tags becomes an empty one, any
//! other tag a neutral word. What is no YAML even so is "not judged", not wrong.

mod scalar;

use std::ops::Range;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::error::SourceError;
use super::layer::{Decoder, Layer, Value};
use super::quote::{Quote, Syntax};
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
            // Whatever is wrong with it is none of ours.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// What the parser gets to see: the text without its tags, byte for byte as long. Where a line holds nothing but tags, empty lines
/// take its place: those mean nothing anywhere, not even in a block of text.
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

/// Whether a key with the name of a file that we read may be in it.
fn names_file(text: &str) -> bool {
    ["vm.args", "rabbitmq-env", "ejabberdctl"].iter().any(|name| text.contains(name))
}

fn not_yaml(layer: &Layer, text: &str, error: &ScanError) -> SourceError {
    let mut offsets = Offsets { text, characters: 0, bytes: 0 };
    let at = offsets.byte(error.marker().index());
    let templates = if layer.tags_in(&(0..text.len())).is_empty() {
        "correct it"
    } else {
        "it is a template: render it first (helm template) and read what comes out"
    };
    let reason = format!("this is not YAML ({}); {templates}", error.info());
    SourceError::NotJudged { at: layer.position(at), reason }
}

/// From the parser's characters to bytes; asked in ascending order.
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

/// A text in YAML.
struct Scalar {
    value: String,
    style: ScalarStyle,
    at: usize,
}

/// A collection whose end has not come.
enum Open {
    List,
    Mapping {
        /// The key whose value comes next; a collection as a key has none.
        key: Option<String>,
        expects_value: bool,
        name: Option<String>,
        value: Option<Scalar>,
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
            Event::Alias(_) => self.done_with_node(),
            Event::SequenceStart(..) => self.open.push(Open::List),
            Event::MappingStart(..) => {
                self.open.push(Open::Mapping { key: None, expects_value: false, name: None, value: None });
            }
            Event::SequenceEnd => {
                self.open.pop();
                self.done_with_node();
            }
            Event::MappingEnd => {
                if let Some(Open::Mapping { name: Some(name), value: Some(value), .. }) = self.open.pop() {
                    self.variable(&name, &value)?;
                }
                self.done_with_node();
            }
            Event::DocumentStart(_) | Event::DocumentEnd => self.open.clear(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd => {}
        }
        Ok(())
    }

    /// A key or a value of the mapping around is complete.
    fn done_with_node(&mut self) {
        if let Some(Open::Mapping { expects_value, key, .. }) = self.open.last_mut() {
            *expects_value = !*expects_value;
            *key = None;
        }
    }

    fn scalar(&mut self, scalar: Scalar) -> Result<(), SourceError> {
        match self.open.last_mut() {
            Some(Open::Mapping { expects_value, key, .. }) if !*expects_value => {
                *key = Some(scalar.value);
                *expects_value = true;
            }
            Some(Open::Mapping { expects_value, key, name, value }) => {
                *expects_value = false;
                match key.take().as_deref() {
                    Some("name") => *name = Some(scalar.value),
                    Some("value") => *value = Some(scalar),
                    Some(key) => return self.entry(key, &scalar),
                    None => {}
                }
            }
            Some(Open::List) => return self.item(&scalar),
            None => {}
        }
        Ok(())
    }

    /// A key with a text.
    fn entry(&mut self, key: &str, scalar: &Scalar) -> Result<(), SourceError> {
        if find(key, Scope::Any).is_some() {
            return self.variable(key, scalar);
        }
        let format = match detect(key, &scalar.value) {
            // A key such as `image.env` in the values of a chart has no lines.
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
        let filled_in = self.filled_in(&layer, 0..layer.text().len());
        self.reader.variable(name, variable, &filled_in, false)
    }

    /// `NAME=value`.
    fn item(&mut self, scalar: &Scalar) -> Result<(), SourceError> {
        let Some((name, _)) = scalar.value.split_once('=') else { return Ok(()) };
        let Some(variable) = find(name, Scope::Any) else { return Ok(()) };
        let layer = self.decode(scalar)?;
        let value = self.filled_in(&layer, name.len() + 1..layer.text().len());
        self.reader.variable(name, variable, &value, false)
    }

    fn decode(&self, scalar: &Scalar) -> Result<Arc<Layer>, SourceError> {
        scalar::decode(self.layer, self.text, scalar.at, scalar.style, &scalar.value).ok_or_else(|| {
            let reason =
                "this YAML scalar is written in a way that we do not follow: write it in double quotes";
            SourceError::NotJudged { at: self.layer.position(scalar.at), reason: reason.to_owned() }
        })
    }

    /// A part of a scalar with its variables marked: `$NAME` and `${NAME}` of Compose, `$(NAME)` of Kubernetes. In values of a chart
    /// a `${…}` is somebody's template, too.
    fn filled_in(&self, scalar: &Arc<Layer>, range: Range<usize>) -> Arc<Layer> {
        let compose = self.format == Format::Compose;
        let quote = if compose { Quote::Compose } else { Quote::Kubernetes };
        let bytes = scalar.scan().as_bytes();
        let mut decoder = Decoder::new(scalar);
        let mut at = range.start;
        while at < range.end {
            let rest = bytes.get(at + 1..range.end).unwrap_or_default();
            if bytes.get(at) != Some(&b'$') || scalar.tag_at(at).is_some() {
                at = decoder.copy_one(at, quote);
                continue;
            }
            let closing = |mark: u8| rest.iter().position(|byte| *byte == mark).map(|length| length + 1);
            let length = match rest.first() {
                Some(b'$') if compose || rest.get(1) == Some(&b'(') => {
                    decoder.put('$', at..at + 2, quote);
                    at += 2;
                    continue;
                }
                Some(b'{') => closing(b'}'),
                Some(b'(') if !compose => closing(b')'),
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

/// The text of an args file with the tags of its template, besides those that the file around has. A faulty one has none.
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
