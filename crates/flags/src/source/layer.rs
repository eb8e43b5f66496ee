//! Nested texts with a mapping to the bytes of the file.
//!
//! Flags are in a variable, the variable is in quotes of a shell, Docker or systemd, and those may be in YAML. Each of these texts is a
//! [`Layer`], which contains the decoded text and the origin of each character in the surrounding text. The byte range of a word in the
//! file is therefore known, and a change can be converted outwards through all layers of quotes.

use std::ops::Range;
use std::sync::Arc;

use super::error::Position;
use super::quote::{Quote, Syntax};

/// A template tag or variable in a text. Its value is unknown, and none of its characters has a syntactic meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) range: Range<usize>,
    /// Whether the tag produces no output, as a control statement (`<% if … do %>`) or a comment.
    pub(crate) silent: bool,
}

/// A run of characters that come from one piece of the surrounding text. If the lengths are equal, the two texts are equal byte by byte;
/// otherwise the run is one character, written as an escape sequence (`\"`).
#[derive(Debug, Clone)]
struct Run {
    /// The byte range in the layer.
    at: Range<usize>,
    /// The byte range in the surrounding text.
    from: Range<usize>,
    quote: Quote,
}

/// A decoded text and its origin in the surrounding text.
#[derive(Debug)]
pub(crate) struct Layer {
    text: String,
    /// The text with tags replaced by neutral characters; `None` if there are no tags.
    mask: Option<String>,
    tags: Vec<Tag>,
    runs: Vec<Run>,
    around: Option<Surrounding>,
    /// For the layer of the file: the parts that may be absent or repeated, such as between `<% if … %>` and `<% end %>`.
    conditional: Vec<Range<usize>>,
}

/// The place of a layer in the surrounding text.
#[derive(Debug)]
struct Surrounding {
    parent: Arc<Layer>,
    value: Value,
}

/// A value in a text.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    /// The byte range in the surrounding text, including quotes.
    pub(crate) whole: Range<usize>,
    /// The start of the content and the quotes there; needed if the value is empty.
    pub(crate) inner: (usize, Quote),
    /// How to rewrite the value.
    pub(crate) syntax: Syntax,
}

impl Layer {
    /// Creates the layer of a file.
    pub(crate) fn file(text: &str, tags: Vec<Tag>, conditional: Vec<Range<usize>>) -> Arc<Layer> {
        let text = text.to_owned();
        let mask = masked(&text, &tags);
        Arc::new(Layer { text, mask, tags, runs: Vec::new(), around: None, conditional })
    }

    /// Creates a layer from a part of a text, without decoding.
    pub(crate) fn part(parent: &Arc<Layer>, range: Range<usize>) -> Arc<Layer> {
        let mut decoder = Decoder::new(parent);
        decoder.copy(range.clone(), Quote::Same);
        decoder.finish(Value {
            whole: range.clone(),
            inner: (range.start, Quote::Same),
            syntax: Syntax::Same,
        })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text with every tag replaced by neutral characters of the same length, so that tags do not affect parsing.
    pub(crate) fn scan(&self) -> &str {
        self.mask.as_deref().unwrap_or(&self.text)
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    /// Returns the tags that overlap a range.
    pub(crate) fn tags_in(&self, range: &Range<usize>) -> &[Tag] {
        let begin = self.tags.partition_point(|tag| tag.range.end <= range.start);
        let end = self.tags.partition_point(|tag| tag.range.start < range.end);
        self.tags.get(begin..end).unwrap_or_default()
    }

    /// Returns the tag that contains this byte.
    pub(crate) fn tag_at(&self, at: usize) -> Option<&Tag> {
        if self.tags.is_empty() {
            return None;
        }
        self.tags_in(&(at..at + 1)).first()
    }

    pub(crate) fn value(&self) -> Option<(&Arc<Layer>, &Value)> {
        self.around.as_ref().map(|around| (&around.parent, &around.value))
    }

    /// Returns the corresponding range in the surrounding text, and the quotes at its start and end. An empty range is an insertion
    /// point.
    pub(crate) fn range_in_parent(&self, range: &Range<usize>) -> (Range<usize>, Quote, Quote) {
        let Some(Surrounding { value, .. }) = &self.around else {
            return (range.clone(), Quote::Same, Quote::Same);
        };
        let Some(last) = self.runs.last() else {
            let (inner, quote) = value.inner;
            return (inner..inner, quote, quote);
        };
        if range.start >= self.text.len() {
            return (last.from.end..last.from.end, last.quote, last.quote);
        }
        let (begin, first_quote) = self.start_in_parent(range.start);
        if range.is_empty() {
            return (begin..begin, first_quote, first_quote);
        }
        let (end, last_quote) = self.end_in_parent(range.end);
        (begin..end, first_quote, last_quote)
    }

    fn start_in_parent(&self, at: usize) -> (usize, Quote) {
        let index = self.runs.partition_point(|run| run.at.end <= at);
        match self.runs.get(index) {
            Some(run) if run.is_verbatim() => (run.from.start + (at - run.at.start), run.quote),
            Some(run) => (run.from.start, run.quote),
            None => (0, Quote::Same),
        }
    }

    fn end_in_parent(&self, at: usize) -> (usize, Quote) {
        let index = self.runs.partition_point(|run| run.at.end < at);
        match self.runs.get(index) {
            Some(run) if run.is_verbatim() => (run.from.start + (at - run.at.start), run.quote),
            Some(run) => (run.from.end, run.quote),
            None => (0, Quote::Same),
        }
    }

    /// Returns the corresponding range in the file.
    pub(crate) fn range_in_file(&self, range: Range<usize>) -> Range<usize> {
        match &self.around {
            Some(around) => around.parent.range_in_file(self.range_in_parent(&range).0),
            None => range,
        }
    }

    /// Returns the text of the file.
    pub(crate) fn file_text(&self) -> &str {
        &self.root().text
    }

    fn root(&self) -> &Layer {
        let mut layer = self;
        while let Some(around) = &layer.around {
            layer = &around.parent;
        }
        layer
    }

    /// Returns the line and column in the file.
    pub(crate) fn position(&self, at: usize) -> Position {
        let offset = self.range_in_file(at..at).start;
        Position::of(&self.root().text, offset)
    }

    /// Whether a range of the file is in a part that may be absent.
    pub(crate) fn is_conditional(&self, of_file: &Range<usize>) -> bool {
        let parts = &self.root().conditional;
        let index = parts.partition_point(|part| part.end <= of_file.start);
        parts.get(index).is_some_and(|part| part.start <= of_file.start)
    }
}

impl Run {
    fn is_verbatim(&self) -> bool {
        self.at.len() == self.from.len()
    }
}

/// Returns `text` with every byte of a tag replaced by `x`; `None` if there are no tags.
fn masked(text: &str, tags: &[Tag]) -> Option<String> {
    if tags.is_empty() {
        return None;
    }
    let mut mask = String::with_capacity(text.len());
    let mut done = 0;
    for tag in tags {
        mask.push_str(text.get(done..tag.range.start).unwrap_or_default());
        mask.extend(std::iter::repeat_n('x', tag.range.len()));
        done = tag.range.end;
    }
    mask.push_str(text.get(done..).unwrap_or_default());
    Some(mask)
}

/// Builds a layer from the surrounding text.
#[derive(Debug)]
pub(crate) struct Decoder<'p> {
    parent: &'p Arc<Layer>,
    text: String,
    tags: Vec<Tag>,
    runs: Vec<Run>,
}

impl<'p> Decoder<'p> {
    pub(crate) fn new(parent: &'p Arc<Layer>) -> Decoder<'p> {
        Decoder { parent, text: String::new(), tags: Vec::new(), runs: Vec::new() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Copies a piece of the surrounding text, with its tags.
    pub(crate) fn copy(&mut self, range: Range<usize>, quote: Quote) {
        let shift = self.text.len();
        for tag in self.parent.tags_in(&range) {
            let start = tag.range.start.max(range.start) - range.start + shift;
            let end = tag.range.end.min(range.end) - range.start + shift;
            self.tags.push(Tag { range: start..end, silent: tag.silent });
        }
        let piece = self.parent.text.get(range.clone()).unwrap_or_default();
        self.text.push_str(piece);
        self.run(range.start..range.start + piece.len(), shift, quote);
    }

    /// Copies the character or tag at `at`, and returns its end.
    pub(crate) fn copy_one(&mut self, at: usize, quote: Quote) -> usize {
        let end = next(self.parent, at);
        self.copy(at..end, quote);
        end
    }

    /// Adds a character that the surrounding text contains as an escape sequence.
    pub(crate) fn put(&mut self, c: char, from: Range<usize>, quote: Quote) {
        let shift = self.text.len();
        self.text.push(c);
        self.run(from, shift, quote);
    }

    /// Adds a piece of the surrounding text as a tag.
    pub(crate) fn tag(&mut self, range: Range<usize>, quote: Quote) {
        self.tag_as(range, quote, false);
    }

    pub(crate) fn tag_as(&mut self, range: Range<usize>, quote: Quote, silent: bool) {
        let shift = self.text.len();
        let piece = self.parent.text.get(range.clone()).unwrap_or_default();
        self.text.push_str(piece);
        self.run(range.start..range.start + piece.len(), shift, quote);
        let end = self.text.len();
        if end > shift {
            self.tags.push(Tag { range: shift..end, silent });
        }
    }

    fn run(&mut self, from: Range<usize>, shift: usize, quote: Quote) {
        let at = shift..self.text.len();
        if at.is_empty() {
            return;
        }
        let even = at.len() == from.len();
        match self.runs.last_mut() {
            Some(last)
                if even && last.is_verbatim() && last.quote == quote && last.from.end == from.start =>
            {
                last.at.end = at.end;
                last.from.end = from.end;
            }
            _ => self.runs.push(Run { at, from, quote }),
        }
    }

    pub(crate) fn finish(self, value: Value) -> Arc<Layer> {
        let mask = masked(&self.text, &self.tags);
        Arc::new(Layer {
            text: self.text,
            mask,
            tags: self.tags,
            runs: self.runs,
            around: Some(Surrounding { parent: Arc::clone(self.parent), value }),
            conditional: Vec::new(),
        })
    }
}

/// Returns the end of the character or tag at `at`.
pub(crate) fn next(layer: &Layer, at: usize) -> usize {
    match layer.tag_at(at) {
        Some(tag) => tag.range.end,
        None => {
            let length = layer.text.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
            (at + length).min(layer.text.len()).max(at)
        }
    }
}
