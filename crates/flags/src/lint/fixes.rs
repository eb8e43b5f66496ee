//! Holds fixes against the readers, before anybody is shown one.
//!
//! A fix is right if with it the file is read as it should be, and all else in it as before. To read the file for each of them would take
//! quadratic time. So all fixes of a file that leave each other alone are tried at once, and where that fails, each half of them.

use std::collections::HashMap;

use super::{File, Finding};
use crate::source::{Change, Changes, Edit, Fragment, Way, reads_as};

/// How many bytes are read for this, at most, in all files together.
const MOST_BYTES: usize = 16 << 20;

/// A fix of which nobody knows yet whether it is right.
pub(super) struct Draft<'a> {
    pub(super) file: usize,
    pub(super) fragment: &'a Fragment,
    pub(super) changes: Vec<Change>,
    /// Never empty.
    pub(super) edits: Vec<Edit>,
}

impl Draft<'_> {
    fn begin(&self) -> usize {
        self.edits.iter().map(|edit| edit.span.start).min().unwrap_or_default()
    }

    fn end(&self) -> usize {
        self.edits.iter().map(|edit| edit.span.end).max().unwrap_or_default()
    }
}

/// Takes those fixes away that are not right, or of which it could not be found out.
pub(super) fn prove(files: &[File<'_>], drafts: &[Draft<'_>], findings: &mut [Finding]) {
    let mut of_files: Vec<Vec<&Draft<'_>>> = files.iter().map(|_| Vec::new()).collect();
    for draft in drafts {
        if let Some(of_file) = of_files.get_mut(draft.file) {
            of_file.push(draft);
        }
    }
    let mut left = MOST_BYTES;
    let mut proven = Vec::with_capacity(files.len());
    for (file, mut drafts) in files.iter().zip(of_files) {
        let mut proof = Proof { before: file.fragments, proven: HashMap::new(), left };
        drafts.sort_by_key(|draft| (draft.begin(), draft.end()));
        while !drafts.is_empty() && proof.left > 0 {
            drafts = proof.round(drafts);
        }
        left = proof.left;
        proven.push(proof.proven);
    }
    for finding in findings {
        let edits = finding.fix.as_ref().and_then(|fix| proven.get(finding.file)?.get(fix.edits.as_slice()));
        match (edits, &mut finding.fix) {
            (Some(edits), Some(fix)) => fix.edits.clone_from(edits),
            (_, fix) => *fix = None,
        }
    }
}

/// What is known of the fixes of a file.
struct Proof<'p> {
    before: &'p [Fragment],
    /// The edits that are right, by those that were tried first.
    proven: HashMap<&'p [Edit], Vec<Edit>>,
    /// How many bytes may still be read.
    left: usize,
}

impl<'p> Proof<'p> {
    /// Tries as many drafts as leave each other alone, which are in the order of their begins; gives the others.
    fn round(&mut self, drafts: Vec<&'p Draft<'p>>) -> Vec<&'p Draft<'p>> {
        let (mut round, mut others): (Vec<&Draft<'_>>, Vec<&Draft<'_>>) = (Vec::new(), Vec::new());
        for draft in drafts {
            match round.last() {
                // Several findings have one fix.
                Some(last) if last.edits == draft.edits => {}
                Some(last) if last.end() > draft.begin() => others.push(draft),
                _ => round.push(draft),
            }
        }
        self.try_all(&round);
        others.retain(|draft| !self.proven.contains_key(draft.edits.as_slice()));
        others
    }

    fn try_all(&mut self, drafts: &[&'p Draft<'p>]) {
        let edits: Vec<Edit> = drafts.iter().flat_map(|draft| &draft.edits).cloned().collect();
        if self.are_right(&edits, drafts) {
            self.proven.extend(drafts.iter().map(|draft| (draft.edits.as_slice(), draft.edits.clone())));
        } else if let [draft] = drafts {
            let anew = draft.fragment.unproven(&draft.changes, Way::Anew);
            if let Some(edits) = anew.filter(|edits| self.are_right(edits, drafts)) {
                self.proven.insert(&draft.edits, edits);
            }
        } else if self.left > 0 {
            let (first, second) = drafts.split_at(drafts.len() / 2);
            self.try_all(first);
            self.try_all(second);
        }
    }

    fn are_right(&mut self, edits: &[Edit], drafts: &[&Draft<'_>]) -> bool {
        let bytes = self.before.first().map_or(0, |fragment| fragment.file_text().len());
        let Some(left) = self.left.checked_sub(bytes) else {
            self.left = 0;
            return false;
        };
        self.left = left;
        let changes =
            drafts.iter().map(|draft| Changes { fragment: draft.fragment, changes: &draft.changes });
        reads_as(self.before, edits, &changes.collect::<Vec<_>>())
    }
}
