//! Changes of words, written back as changes of bytes.
//!
//! A change is first made in the innermost text, then carried outwards through every kind of quotes. Whatever comes out is read
//! again before it is handed over: either all words are as they should be, or there is an error and no edit. So a reader
//! and its writer cannot disagree about a file.

use std::collections::HashMap;
use std::ops::Range;

use super::erlexec::{Split, quoted};
use super::error::SourceError;
use super::layer::Layer;
use super::lines::{line_begin, line_end};
use super::quote::{Quote, Segment, Spot, Style};
use super::{CommandWords, Fragment, Place, Role, read};

/// A change of bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Edit {
    /// The bytes of the file that go; empty where something is only put in.
    pub span: Range<usize>,
    /// What comes in their place.
    pub replacement: String,
}

/// A change of words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Gives a word another text.
    Replace {
        /// Its index in the fragment.
        word: usize,
        /// As the VM is to get it; quotes are added where they are needed.
        text: String,
    },
    /// Takes words away, and with them the white space or the line that they leave.
    Remove {
        /// Their indices.
        words: Range<usize>,
    },
    /// Adds words behind all others, but before `-extra`, and before `-args_file` of a command: a line of its own in an
    /// args file.
    Append {
        /// As the VM is to get them.
        words: Vec<String>,
        /// Lines to put above them as a comment, without `#`. Variables have no comments; there they are left out.
        comment: Vec<String>,
    },
}

/// The text with the edits made; all other bytes stay. Of edits that overlap, the one that begins first is made and the others
/// are left out, as are those that do not lie on characters of the text: make them after reading the result again.
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

/// How hard values are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// In the quotes that are there, where that is possible.
    InPlace,
    /// Every value anew, in double quotes.
    Anew,
}

impl Way {
    /// The gentler one first.
    pub(crate) const ALL: [Way; 2] = [Way::InPlace, Way::Anew];
}

/// What cannot be written, and why.
struct Refused {
    text: String,
    reason: &'static str,
}

/// Changes of the words of one fragment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changes<'c> {
    pub(crate) fragment: &'c Fragment,
    pub(crate) changes: &'c [Change],
}

/// Whether a file with these edits holds its words with these changes, and no other ones. Fragments are all those of the file; the changes
/// concern different words.
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
    /// The edits of the file that make these changes, and no others. Indices are those of this fragment as it was read.
    ///
    /// # Errors
    /// [`SourceError::CannotWrite`] where the syntax around the words does not let the new ones stand there; nothing is to
    /// be written then.
    pub fn change(&self, changes: &[Change]) -> Result<Vec<Edit>, SourceError> {
        let inner = self.inner(changes).map_err(|refused| self.cannot_write(refused))?;
        let before = read(self.format, self.layer.file_text()).unwrap_or_default();
        for way in Way::ALL {
            if let Some(edits) = outwards(&self.layer, inner.clone(), way)
                && reads_as(&before, &edits, &[Changes { fragment: self, changes }])
            {
                return Ok(edits);
            }
        }
        let text = self.with(&[changes]).unwrap_or_default().join(" ");
        let reason = "the quotes around it leave no room for it: edit this place by hand";
        Err(self.cannot_write(Refused { text, reason }))
    }

    /// The same edits, before anybody has looked whether the file is read as it should be; `None` where there are none.
    pub(crate) fn unproven(&self, changes: &[Change], way: Way) -> Option<Vec<Edit>> {
        outwards(&self.layer, self.inner(changes).ok()?, way)
    }

    fn cannot_write(&self, Refused { text, reason }: Refused) -> SourceError {
        let at = self.layer.position(self.words.first().map_or(0, |word| word.at.start));
        SourceError::CannotWrite { at, text, reason }
    }

    /// The words with changes made; `None` where these concern no words of this fragment.
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
        let behind = expected.split_off(self.end_of_flags().unwrap_or(expected.len()));
        Some(expected.into_iter().flatten().chain(added).chain(behind.into_iter().flatten()).collect())
    }

    /// The edits of the innermost text.
    fn inner(&self, changes: &[Change]) -> Result<Vec<Edit>, Refused> {
        let refused = |text: &str, reason| Refused { text: text.to_owned(), reason };
        if matches!(self.place, Place::LiveNode | Place::FileNames) {
            return Err(refused("", "it is no place for flags that can be edited"));
        }
        let mut inner = Vec::new();
        for change in changes {
            inner.push(match change {
                Change::Replace { word: index, text } => {
                    let Some(word) = self.words.get(*index) else {
                        return Err(refused(text, "there is no such word"));
                    };
                    let written =
                        quoted(text, self.split).ok_or_else(|| refused(text, no_room(self.split)))?;
                    Edit { span: word.at.clone(), replacement: written }
                }
                Change::Remove { words } => {
                    if self.words.get(words.clone()).is_none_or(<[_]>::is_empty) {
                        return Err(refused("", "there are no such words"));
                    }
                    Edit { span: self.to_remove(words), replacement: String::new() }
                }
                Change::Append { words, comment } => {
                    if !self.is_words() {
                        return Err(refused(
                            &words.join(" "),
                            match self.place {
                                Place::CommandLine { .. } => {
                                    "these are options of elixir, not of erl: write --erl"
                                }
                                _ => "this variable is one value, not a list of flags",
                            },
                        ));
                    }
                    self.to_append(words, comment)
                        .ok_or_else(|| refused(&words.join(" "), no_room(self.split)))?
                }
            });
        }
        inner.sort_by_key(|edit| edit.span.start);
        if inner.windows(2).any(|pair| pair[0].span.end > pair[1].span.start) {
            return Err(refused("", "two changes concern the same words"));
        }
        Ok(inner)
    }

    fn is_words(&self) -> bool {
        match &self.place {
            Place::Variable { effect, .. } => effect.role == Role::Words,
            Place::CommandLine { words, .. } => *words != CommandWords::Options,
            Place::ArgsFile { .. } => true,
            Place::FileNames | Place::LiveNode => false,
        }
    }

    /// The index of the first word that no flag may stand behind, to count where this fragment counts.
    fn end_of_flags(&self) -> Option<usize> {
        let is_command = matches!(self.place, Place::CommandLine { .. });
        let ends = |text: &str| text == "-extra" || is_command && text == "-args_file";
        self.words.iter().position(|word| ends(&word.text))
    }

    /// The bytes of the innermost text that go with words: their white space, or their line.
    fn to_remove(&self, words: &Range<usize>) -> Range<usize> {
        let text = self.layer.text();
        if let Split::Command(style) = self.split {
            let begin = self.words.get(words.start).map_or(0, |word| word.at.start);
            let end = self.words.get(words.end - 1).map_or(begin, |word| word.at.end);
            return of_command(text, begin..end, style);
        }
        let begin = self.words.get(words.start).map_or(0, |word| word.at.start);
        let end = self.words.get(words.end - 1).map_or(begin, |word| word.at.end);
        let blank = |c: char| matches!(c, ' ' | '\t' | '\r');
        let before = text[..begin].trim_end_matches(blank);
        let behind = text[end..].trim_start_matches(blank);
        let starts = before.is_empty() || before.ends_with('\n');
        let ends = behind.is_empty() || behind.starts_with('\n');
        let behind = text.len() - behind.len();
        match (starts, ends) {
            (true, true) if self.split == Split::ArgsFile => before.len()..(behind + 1).min(text.len()),
            (true, false) => begin..behind,
            _ => before.len()..end,
        }
    }

    /// What adds lines to a list of YAML, which begin as the line of a word beside them does.
    fn lines_to_append(&self, written: &[String], before: Option<usize>) -> Option<Edit> {
        let text = self.layer.text();
        let last = self.words.last()?;
        let beside = before.unwrap_or(last.at.start);
        let begin = line_begin(text, beside);
        let lines = written.iter().map(|word| format!("{}{word}", &text[begin..beside]));
        if before.is_some() {
            return Some(Edit { span: begin..begin, replacement: lines.map(|line| line + "\n").collect() });
        }
        let at = line_end(text.as_bytes(), last.at.end);
        Some(Edit { span: at..at, replacement: lines.map(|line| format!("\n{line}")).collect() })
    }

    /// What adds words to the innermost text; `None` if they cannot stand there.
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

/// The bytes that go with words of a command: what stands between them and the word before, or their lines.
fn of_command(text: &str, words: Range<usize>, style: Style) -> Range<usize> {
    let (before, behind) = (&text[..words.start], &text[words.end..]);
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
                let rest = behind.trim_start();
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

fn no_room(split: Split) -> &'static str {
    match split {
        Split::ArgsFile | Split::Variable | Split::Command(_) => "control characters have no place in a flag",
        Split::Fields => "a shell splits this variable at white space, and knows no quotes in it",
        Split::Whole => "it must be one value without white space around it",
    }
}

/// Edits of the file from edits of a layer; `None` if they cannot be written.
fn outwards(layer: &Layer, mut edits: Vec<Edit>, way: Way) -> Option<Vec<Edit>> {
    let mut layer = layer;
    while let Some((parent, value)) = layer.value() {
        let anew = || {
            let text = value.syntax.write(&segments(layer, &edits))?;
            Some(vec![Edit { span: value.whole.clone(), replacement: text }])
        };
        edits = match way {
            Way::InPlace => in_place(layer, &edits).or_else(anew)?,
            Way::Anew => anew().or_else(|| in_place(layer, &edits))?,
        };
        layer = parent;
    }
    Some(edits)
}

fn in_place(layer: &Layer, edits: &[Edit]) -> Option<Vec<Edit>> {
    let written = edits.iter().map(|edit| {
        let (mut span, first, last) = layer.out_one(&edit.span);
        if first != last {
            return None;
        }
        let text = layer.text();
        let spot = Spot {
            before: text.get(..edit.span.start)?,
            old: text.get(edit.span.clone())?,
            after: text.get(edit.span.end..)?,
        };
        let begins_line = spot.before.is_empty() || spot.before.ends_with('\n');
        if let Quote::YamlLiteral(indent) = first
            && begins_line
            && spot.old.ends_with('\n')
            && edit.replacement.is_empty()
        {
            // A line goes with its indentation.
            span.start = span.start.saturating_sub(indent);
        }
        Some(Edit { span, replacement: first.write(&edit.replacement, spot)? })
    });
    written.collect()
}

/// The layer's text with the edits made, its tags apart.
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
