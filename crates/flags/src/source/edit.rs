//! Converts changes of words to edits of the bytes of a file.
//!
//! A change is made in the innermost text and then converted outwards through all layers of quotes. The result is parsed again before it
//! is returned: if any word differs from the request, an error is returned instead. A reader and its writer therefore cannot disagree.

use std::collections::HashMap;
use std::ops::Range;

use super::erlexec::{Split, quoted};
use super::error::SourceError;
use super::layer::Layer;
use super::lines::{line_begin, line_end};
use super::quote::{Context, Quote, Segment, Style};
use super::{CommandWords, Fragment, Place, Role, read};

/// An edit of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Edit {
    /// The byte range to remove from the file; empty for an insertion.
    pub span: Range<usize>,
    /// The text to insert.
    pub replacement: String,
}

/// A change of words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Changes the text of a word.
    Replace {
        /// The index of the word in the fragment.
        word: usize,
        /// The text that the VM should receive; quotes are added as needed.
        text: String,
    },
    /// Removes words, with the white space or the empty line that would remain.
    Remove {
        /// The indices of the words.
        words: Range<usize>,
    },
    /// Adds words after all others, but before `-extra`, and in a command before `-args_file`. In an args file, the words form a
    /// separate line.
    Append {
        /// The texts that the VM should receive.
        words: Vec<String>,
        /// Comment lines to add above the words, without `#`. Ignored for variables, which cannot contain comments.
        comment: Vec<String>,
    },
}

/// Applies edits to a text. If edits overlap, only the one that starts first is applied. Edits that are not on character boundaries are
/// skipped.
pub fn apply(text: &str, edits: &[Edit]) -> String {
    let mut order: Vec<&Edit> = edits.iter().collect();
    order.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut result = String::with_capacity(text.len());
    let mut done = 0;
    for edit in order {
        let Some(between) = text.get(done..edit.span.start) else { continue };
        if text.get(edit.span.clone()).is_none() {
            continue;
        }
        result.push_str(between);
        result.push_str(&edit.replacement);
        done = edit.span.end;
    }
    result.push_str(text.get(done..).unwrap_or_default());
    result
}

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// A change is written within the existing quotes, if possible.
    InPlace,
    /// Every changed value is rewritten in double quotes.
    Rewrite,
}

impl WriteMode {
    /// All modes; the less invasive one comes first.
    pub(crate) const ALL: [WriteMode; 2] = [WriteMode::InPlace, WriteMode::Rewrite];
}

/// A text that cannot be written, and the reason.
struct CannotWrite {
    text: String,
    reason: &'static str,
}

/// Changes of the words of one fragment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changes<'c> {
    pub(crate) fragment: &'c Fragment,
    pub(crate) changes: &'c [Change],
}

/// Whether parsing a file with these edits returns the old words with exactly these changes. `before` contains all fragments of the file.
/// No two changes may affect the same word.
pub(crate) fn reads_as(before: &[Fragment], edits: &[Edit], changes: &[Changes<'_>]) -> bool {
    let Some(first) = before.first() else { return false };
    let Ok(after) = read(first.format, &apply(first.file_text(), edits)) else { return false };
    let mut of_fragment: HashMap<usize, Vec<&[Change]>> = HashMap::new();
    for Changes { fragment, changes } in changes {
        of_fragment.entry(fragment.index).or_default().push(changes);
    }
    let same = |(index, (old, new)): (usize, (&Fragment, &Fragment))| {
        let words = new.words.iter().map(|word| word.text.as_str());
        old.index == index
            && old.place == new.place
            && match of_fragment.get(&index) {
                Some(changes) => old.with(changes).is_some_and(|expected| words.eq(expected)),
                None => words.eq(old.words.iter().map(|word| word.text.as_str())),
            }
    };
    before.len() == after.len() && before.iter().zip(&after).enumerate().all(same)
}

impl Fragment {
    /// Converts changes of words to edits of the file. Indices refer to this fragment before the change.
    ///
    /// # Errors
    /// [`SourceError::CannotWrite`] if the syntax around the words does not allow the new words.
    pub fn change(&self, changes: &[Change]) -> Result<Vec<Edit>, SourceError> {
        let inner = self.inner(changes).map_err(|refused| self.cannot_write(refused))?;
        let before = read(self.format, self.layer.file_text()).unwrap_or_default();
        for way in WriteMode::ALL {
            if let Some(edits) = edits_of_file(&self.layer, inner.clone(), way)
                && reads_as(&before, &edits, &[Changes { fragment: self, changes }])
            {
                return Ok(edits);
            }
        }
        let text = self.with(&[changes]).unwrap_or_default().join(" ");
        let reason = "the surrounding quotes do not allow it; edit the file manually";
        Err(self.cannot_write(CannotWrite { text, reason }))
    }

    /// Like [`change`](Self::change), but without verification; `None` if no edit is possible.
    pub(crate) fn unverified(&self, changes: &[Change], way: WriteMode) -> Option<Vec<Edit>> {
        edits_of_file(&self.layer, self.inner(changes).ok()?, way)
    }

    fn cannot_write(&self, CannotWrite { text, reason }: CannotWrite) -> SourceError {
        let at = self.layer.position(self.words.first().map_or(0, |word| word.at.start));
        SourceError::CannotWrite { at, text, reason }
    }

    /// Returns the words after all changes; `None` if an index is invalid.
    fn with<'t>(&'t self, all: &[&'t [Change]]) -> Option<Vec<&'t str>> {
        let mut expected: Vec<Option<&str>> =
            self.words.iter().map(|word| Some(word.text.as_str())).collect();
        let mut added = Vec::new();
        for change in all.iter().copied().flatten() {
            match change {
                Change::Replace { word, text } => *expected.get_mut(*word)? = Some(text.as_str()),
                Change::Remove { words } => expected.get_mut(words.clone())?.fill(None),
                Change::Append { words, .. } => added.extend(words.iter().map(String::as_str)),
            }
        }
        let after = expected.split_off(self.end_of_flags().unwrap_or(expected.len()));
        Some(expected.into_iter().flatten().chain(added).chain(after.into_iter().flatten()).collect())
    }

    /// Converts changes to edits of the innermost text.
    fn inner(&self, changes: &[Change]) -> Result<Vec<Edit>, CannotWrite> {
        let refused = |text: &str, reason| CannotWrite { text: text.to_owned(), reason };
        if matches!(self.place, Place::RunningNode | Place::FileNames) {
            return Err(refused("", "flags in this place cannot be edited"));
        }
        let mut inner = Vec::new();
        for change in changes {
            inner.push(match change {
                Change::Replace { word: index, text } => {
                    let Some(word) = self.words.get(*index) else {
                        return Err(refused(text, "no such word"));
                    };
                    let written = quoted(text, self.split)
                        .ok_or_else(|| refused(text, why_not_writable(self.split)))?;
                    Edit { span: word.at.clone(), replacement: written }
                }
                Change::Remove { words } => {
                    if self.words.get(words.clone()).is_none_or(<[_]>::is_empty) {
                        return Err(refused("", "no such words"));
                    }
                    Edit { span: self.to_remove(words), replacement: String::new() }
                }
                Change::Append { words, comment } => {
                    if !self.is_words() {
                        return Err(refused(
                            &words.join(" "),
                            match self.place {
                                Place::CommandLine { .. } => {
                                    "these are options of elixir, not of erl; use --erl"
                                }
                                _ => "this variable is one value, not a list of flags",
                            },
                        ));
                    }
                    self.to_append(words, comment)
                        .ok_or_else(|| refused(&words.join(" "), why_not_writable(self.split)))?
                }
            });
        }
        inner.sort_by_key(|edit| edit.span.start);
        if inner.windows(2).any(|pair| pair[0].span.end > pair[1].span.start) {
            return Err(refused("", "two changes affect the same words"));
        }
        Ok(inner)
    }

    fn is_words(&self) -> bool {
        match &self.place {
            Place::Variable { effect, .. } => effect.role == Role::Words,
            Place::CommandLine { words, .. } => *words != CommandWords::Options,
            Place::ArgsFile { .. } => true,
            Place::FileNames | Place::RunningNode => false,
        }
    }

    /// Returns the index of the first word that new flags must precede to take effect as flags of this fragment.
    fn end_of_flags(&self) -> Option<usize> {
        let is_command = matches!(self.place, Place::CommandLine { .. });
        let ends = |text: &str| text == "-extra" || is_command && text == "-args_file";
        self.words.iter().position(|word| ends(&word.text))
    }

    /// Returns the byte range of the innermost text to remove with the words: including white space or the whole line.
    fn to_remove(&self, words: &Range<usize>) -> Range<usize> {
        let text = self.layer.text();
        if let Split::Command(style) = self.split {
            let begin = self.words.get(words.start).map_or(0, |word| word.at.start);
            let end = self.words.get(words.end - 1).map_or(begin, |word| word.at.end);
            return bytes_to_remove(text, begin..end, style);
        }
        let begin = self.words.get(words.start).map_or(0, |word| word.at.start);
        let end = self.words.get(words.end - 1).map_or(begin, |word| word.at.end);
        let blank = |c: char| matches!(c, ' ' | '\t' | '\r');
        let before = text[..begin].trim_end_matches(blank);
        let after = text[end..].trim_start_matches(blank);
        let starts = before.is_empty() || before.ends_with('\n');
        let ends = after.is_empty() || after.starts_with('\n');
        let after = text.len() - after.len();
        match (starts, ends) {
            (true, true) if self.split == Split::ArgsFile => before.len()..(after + 1).min(text.len()),
            (true, false) => begin..after,
            _ => before.len()..end,
        }
    }

    /// Returns an edit that adds lines to a YAML list, indented like the neighbouring word.
    fn lines_to_append(&self, written: &[String], before: Option<usize>) -> Option<Edit> {
        let text = self.layer.text();
        let last = self.words.last()?;
        let neighbour = before.unwrap_or(last.at.start);
        let begin = line_begin(text, neighbour);
        let lines = written.iter().map(|word| format!("{}{word}", &text[begin..neighbour]));
        if before.is_some() {
            return Some(Edit { span: begin..begin, replacement: lines.map(|line| line + "\n").collect() });
        }
        let at = line_end(text.as_bytes(), last.at.end);
        Some(Edit { span: at..at, replacement: lines.map(|line| format!("\n{line}")).collect() })
    }

    /// Returns an edit that adds words to the innermost text; `None` if the words cannot be written there.
    fn to_append(&self, words: &[String], comment: &[String]) -> Option<Edit> {
        let text = self.layer.text();
        let written: Option<Vec<String>> = words.iter().map(|word| quoted(word, self.split)).collect();
        let written = written?;
        let extra = self.end_of_flags().and_then(|at| self.words.get(at)).map(|word| word.at.start);
        if let Split::Command(Style::Block(_)) = self.split {
            return self.lines_to_append(&written, extra);
        }
        let between = if matches!(self.split, Split::Command(Style::Flow(_))) { ", " } else { " " };
        let written = written.join(between);
        if self.split != Split::ArgsFile {
            return Some(match (extra, self.words.last()) {
                (Some(at), _) => Edit { span: at..at, replacement: format!("{written}{between}") },
                (None, Some(last)) => {
                    Edit { span: last.at.end..last.at.end, replacement: format!("{between}{written}") }
                }
                (None, None) => Edit { span: 0..text.len(), replacement: written },
            });
        }
        if comment.iter().any(|line| line.contains(char::is_control)) {
            return None;
        }
        let eol = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut lines: String = comment.iter().map(|line| format!("# {line}{eol}")).collect();
        lines.push_str(&written);
        lines.push_str(eol);
        let at = match extra {
            None => text.len(),
            Some(extra) => {
                let begin = line_begin(text, extra);
                if !text[begin..extra].trim().is_empty() {
                    return Some(Edit { span: extra..extra, replacement: format!("{written} ") });
                }
                begin
            }
        };
        if !text[..at].is_empty() && !text[..at].ends_with('\n') {
            lines.insert_str(0, eol);
        }
        Some(Edit { span: at..at, replacement: lines })
    }
}

/// Returns the byte range to remove with the words of a command: including the separator before them, or whole lines.
fn bytes_to_remove(text: &str, words: Range<usize>, style: Style) -> Range<usize> {
    let (before, after) = (&text[..words.start], &text[words.end..]);
    match style {
        Style::Shell | Style::Systemd => {
            let mut rest = before.trim_end_matches([' ', '\t']);
            while let Some(line) = rest.strip_suffix("\\\n").or_else(|| rest.strip_suffix("\\\r\n")) {
                rest = line.trim_end_matches([' ', '\t']);
            }
            rest.len()..words.end
        }
        Style::Flow(_) => match before.trim_end().strip_suffix(',') {
            Some(rest) => rest.len()..words.end,
            None => {
                let rest = after.trim_start();
                let rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
                words.start..text.len() - rest.len()
            }
        },
        Style::Block(_) => {
            let end = line_end(text.as_bytes(), words.end);
            line_begin(text, words.start)..(end + 1).min(text.len())
        }
    }
}

fn why_not_writable(split: Split) -> &'static str {
    match split {
        Split::ArgsFile | Split::Variable | Split::Command(_) => "a flag cannot contain control characters",
        Split::Fields => "a shell splits this variable at white space and ignores quotes in it",
        Split::Whole => "it must be one value without white space around it",
    }
}

/// Converts edits of a layer to edits of the file; `None` if an edit cannot be written.
fn edits_of_file(layer: &Layer, mut edits: Vec<Edit>, way: WriteMode) -> Option<Vec<Edit>> {
    let mut layer = layer;
    while let Some((parent, value)) = layer.value() {
        let rewritten = || {
            let text = value.syntax.write(&segments(layer, &edits))?;
            Some(vec![Edit { span: value.whole.clone(), replacement: text }])
        };
        edits = match way {
            WriteMode::InPlace => in_place(layer, &edits).or_else(rewritten)?,
            WriteMode::Rewrite => rewritten().or_else(|| in_place(layer, &edits))?,
        };
        layer = parent;
    }
    Some(edits)
}

fn in_place(layer: &Layer, edits: &[Edit]) -> Option<Vec<Edit>> {
    let written = edits.iter().map(|edit| {
        let (mut span, first, last) = layer.range_in_parent(&edit.span);
        if first != last {
            return None;
        }
        let text = layer.text();
        let context = Context {
            before: text.get(..edit.span.start)?,
            old: text.get(edit.span.clone())?,
            after: text.get(edit.span.end..)?,
        };
        let begins_line = context.before.is_empty() || context.before.ends_with('\n');
        if let Quote::YamlLiteral(indent) = first
            && begins_line
            && context.old.ends_with('\n')
            && edit.replacement.is_empty()
        {
            // The indentation is removed with the line.
            span.start = span.start.saturating_sub(indent);
        }
        Some(Edit { span, replacement: first.write(&edit.replacement, context)? })
    });
    written.collect()
}

/// Splits the text of a layer, with the edits applied, into segments, so that each tag is a separate segment.
fn segments<'t>(layer: &'t Layer, edits: &'t [Edit]) -> Vec<Segment<'t>> {
    let mut segments = Vec::new();
    let mut done = 0;
    for edit in edits {
        kept(layer, done..edit.span.start, &mut segments);
        segments.push(Segment::Text(&edit.replacement));
        done = edit.span.end;
    }
    kept(layer, done..layer.text().len(), &mut segments);
    segments
}

fn kept<'t>(layer: &'t Layer, range: Range<usize>, segments: &mut Vec<Segment<'t>>) {
    let mut done = range.start;
    for tag in layer.tags_in(&range) {
        segments.push(Segment::Text(layer.slice(done..tag.range.start)));
        segments.push(Segment::Tag(layer.slice(tag.range.clone())));
        done = tag.range.end;
    }
    segments.push(Segment::Text(layer.slice(done..range.end.max(done))));
}
