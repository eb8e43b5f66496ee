//! Applies safe fixes.
//!
//! Fixes are first applied in memory, and the result is linted again, since one fix may make another possible. Then each file is
//! replaced atomically, unless it has changed since it was read.

use std::collections::BTreeMap;
use std::ops::Range;

use beamtune_flags::lint::Finding;
use beamtune_flags::source::{self, Edit, Lines, apply};
use beamtune_report::lint::Unread;
use beamtune_report::text::{clean_path, clean_words};

use super::{Input, Origin, check};

/// Maximum number of passes. Fixes that make another one possible are rare, so more passes would indicate a cycle.
const MAX_PASSES: usize = 10;

/// Fixes the files, and returns a line for each fix. If a file cannot be written, it is added to `unread`, and its input is restored.
pub fn fix(inputs: &mut [Input], together: bool, unread: &mut Vec<Unread>) -> Vec<String> {
    let mut done: Vec<Vec<String>> = inputs.iter().map(|_| Vec::new()).collect();
    for _ in 0..MAX_PASSES {
        let findings = check(inputs, together);
        let mut changed = false;
        for (index, input) in inputs.iter_mut().enumerate() {
            let (edits, what) = choose(&findings, index, input);
            if let (Some(lines), false) = (done.get_mut(index), edits.is_empty())
                && make(input, &edits)
            {
                lines.extend(what);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let mut written = Vec::new();
    for (input, lines) in inputs.iter_mut().zip(done) {
        match write(input) {
            Ok(()) => written.extend(lines),
            Err(error) => {
                unread.push(error);
                restore(input);
            }
        }
    }
    written
}

/// Returns the edits of all safe fixes of a file that do not touch each other, and their descriptions.
fn choose(findings: &[Finding], index: usize, input: &Input) -> (Vec<Edit>, Vec<String>) {
    let (mut edits, mut what): (Vec<Edit>, _) = (Vec::new(), Vec::new());
    let Origin::Text(_) = &input.origin else { return (edits, what) };
    let begin = findings.partition_point(|finding| finding.file < index);
    let own = findings[begin..].iter().take_while(|finding| finding.file == index);
    let mut safe =
        own.filter_map(|finding| Some((finding, finding.fix.as_ref().filter(|fix| fix.safe)?))).peekable();
    if safe.peek().is_none() {
        return (edits, what);
    }
    let lines = Lines::of(&input.text);
    let mut edited = EditedSpans::default();
    for (finding, fix) in safe {
        let is_free = fix.edits.iter().all(|edit| edited.allows(&edit.span));
        if is_free && !fix.edits.is_empty() {
            fix.edits.iter().for_each(|edit| edited.add(&edit.span));
            edits.extend(fix.edits.iter().cloned());
            what.push(format!(
                "{}:{}: {} {}\n",
                clean_path(&input.name),
                lines.position(finding.span.start).line,
                finding.code,
                clean_words(&fix.what)
            ));
        }
    }
    (edits, what)
}

/// Spans that are already edited: begin and end of each.
#[derive(Default)]
struct EditedSpans(BTreeMap<usize, usize>);

impl EditedSpans {
    /// True if no edited span touches this one.
    fn allows(&self, span: &Range<usize>) -> bool {
        // The span that begins last also ends last: edits of different findings do not touch, and those of one finding do not overlap.
        self.0.range(..=span.end).next_back().is_none_or(|(_, end)| *end < span.start)
    }

    fn add(&mut self, span: &Range<usize>) {
        let end = self.0.entry(span.start).or_default();
        *end = (*end).max(span.end);
    }
}

/// Applies edits, if the result can be parsed.
fn make(input: &mut Input, edits: &[Edit]) -> bool {
    let Origin::Text(text) = &input.origin else { return false };
    let new = apply(&input.text, edits);
    match source::read(text.format, &new) {
        Ok(fragments) if new != input.text => {
            (input.text, input.fragments) = (new, fragments);
            true
        }
        _ => false,
    }
}

fn write(input: &Input) -> Result<(), Unread> {
    let Origin::Text(text) = &input.origin else { return Ok(()) };
    let Some(snapshot) = text.snapshot.as_ref().filter(|_| text.text != input.text) else { return Ok(()) };
    snapshot.replace(input.text.as_bytes()).map_err(|error| Unread {
        name: input.name.clone(),
        at: None,
        message: format!("not fixed: {error:#}"),
    })
}

/// Restores an input to the text that was read.
fn restore(input: &mut Input) {
    let Origin::Text(text) = &input.origin else { return };
    input.text = text.text.clone();
    input.fragments = text.fragments.clone();
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::flag_files;

    fn input(path: &Path) -> Input {
        let text = flag_files::file(path, None, "--as").expect("a file with flags");
        Input {
            name: text.name.clone(),
            text: text.text.clone(),
            fragments: text.fragments.clone(),
            origin: Origin::Text(Box::new(text)),
            releases: vec![25, 27],
        }
    }

    #[test]
    fn an_edit_next_to_another_is_refused() {
        let mut edited = EditedSpans::default();
        for span in [10..20, 20..20, 20..30, 50..50] {
            edited.add(&span);
        }
        let check = |span: Range<usize>, expect: bool| assert_eq!(edited.allows(&span), expect, "{span:?}");
        check(0..9, true);
        check(0..10, false);
        check(0..100, false);
        check(15..16, false);
        check(25..25, false);
        check(30..40, false);
        check(31..49, true);
        check(31..50, false);
        check(50..51, false);
        check(51..60, true);
    }

    #[test]
    fn a_changed_file_is_kept_and_the_others_are_fixed() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["a.args", "b.args"].map(|name| folder.path().join(name));
        for path in &paths {
            fs::write(path, "+K true\n+P 262144\n").expect("write");
        }
        let mut read: Vec<Input> = paths.iter().map(|path| input(path)).collect();
        fs::write(&paths[0], "+K true\n+P 1048576\n").expect("write");
        let mut unread = Vec::new();
        let lines = fix(&mut read, false, &mut unread);
        assert_eq!(fs::read_to_string(&paths[0]).expect("text"), "+K true\n+P 1048576\n");
        assert_eq!(fs::read_to_string(&paths[1]).expect("text"), "+P 262144\n");
        assert!(lines.len() == 1 && lines[0].contains("b.args:1: BF"), "{lines:?}");
        assert!(
            unread.len() == 1 && unread[0].message.contains("has changed since it was read"),
            "{unread:?}"
        );
        assert_eq!(read[0].text, "+K true\n+P 262144\n", "an input that was not fixed is restored");
    }
}
