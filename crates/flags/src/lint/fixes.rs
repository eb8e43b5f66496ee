//! Holds fixes against the readers, before anybody is shown one.
//!
//! A fix is right if with it the file is read as it should be, and all else in it as before. To read the file for each of them would take
//! quadratic time. So all fixes of a file that leave each other alone are tried at once, and where that fails, each half of them.
//!
//! What that leaves open: a fix that was found to be right together with others is taken to be right alone, too, which is not tried;
//! programs may make just one of them. And where so much has been read that it takes too long, the rest are not tried and not
//! offered; the findings say so.

use std::collections::{HashMap, HashSet};

use super::{File, Finding};
use crate::source::{Change, Changes, Edit, Fragment, Way, reads_as};

/// How many bytes are read for this, at most, in all files together; and each file once more, so that one with a wrong fix does
/// not leave nothing for those after it.
const MOST_BYTES: usize = 16 << 20;

/// What a finding says whose fix was not tried.
const NOT_TRIED: &str =
    "(No edit is offered: there are too many fixes here to find out in time whether this one is right.)";

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
    prove_within(MOST_BYTES, files, drafts, findings);
}

fn prove_within(most_bytes: usize, files: &[File<'_>], drafts: &[Draft<'_>], findings: &mut [Finding]) {
    let mut of_files: Vec<Vec<&Draft<'_>>> = files.iter().map(|_| Vec::new()).collect();
    for draft in drafts {
        if let Some(of_file) = of_files.get_mut(draft.file) {
            of_file.push(draft);
        }
    }
    let mut left = most_bytes;
    let mut proofs = Vec::with_capacity(files.len());
    for (file, mut drafts) in files.iter().zip(of_files) {
        let (proven, wrong) = (HashMap::new(), HashSet::new());
        let mut proof = Proof { before: file.fragments, proven, wrong, left };
        proof.left += proof.bytes();
        drafts.sort_by_key(|draft| (draft.begin(), draft.end()));
        while !drafts.is_empty() && proof.left > 0 {
            drafts = proof.round(drafts);
        }
        left = left.min(proof.left);
        proofs.push(proof);
    }
    for finding in findings {
        let (Some(proof), Some(fix)) = (proofs.get(finding.file), &mut finding.fix) else { continue };
        if let Some(edits) = proof.proven.get(fix.edits.as_slice()) {
            fix.edits.clone_from(edits);
            continue;
        }
        if !proof.wrong.contains(fix.edits.as_slice()) {
            finding.remedy = format!("{} {NOT_TRIED}", finding.remedy).trim_start().to_owned();
        }
        finding.fix = None;
    }
}

/// What is known of the fixes of a file.
struct Proof<'p> {
    before: &'p [Fragment],
    /// The edits that are right, by those that were tried first.
    proven: HashMap<&'p [Edit], Vec<Edit>>,
    /// Those that are not, whichever way they are made.
    wrong: HashSet<&'p [Edit]>,
    /// How many bytes may still be read.
    left: usize,
}

impl<'p> Proof<'p> {
    /// What reading the file takes.
    fn bytes(&self) -> usize {
        self.before.first().map_or(0, |fragment| fragment.file_text().len())
    }

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
            } else if self.left > 0 {
                self.wrong.insert(&draft.edits);
            }
        } else if self.left > 0 {
            let (first, second) = drafts.split_at(drafts.len() / 2);
            self.try_all(first);
            self.try_all(second);
        }
    }

    fn are_right(&mut self, edits: &[Edit], drafts: &[&Draft<'_>]) -> bool {
        let Some(left) = self.left.checked_sub(self.bytes()) else {
            self.left = 0;
            return false;
        };
        self.left = left;
        let changes =
            drafts.iter().map(|draft| Changes { fragment: draft.fragment, changes: &draft.changes });
        reads_as(self.before, edits, &changes.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Code, Fix, Level};
    use super::*;
    use crate::source::{Format, read};

    /// For each file how many of its fixes are left, and how many say that they were not tried. Each removes a line; `wrong` is a
    /// file and a line, and that fix does not do what it should.
    fn proven(most_bytes: usize, texts: &[String], wrong: Option<(usize, usize)>) -> Vec<(usize, usize)> {
        let read: Vec<_> = texts.iter().map(|text| read(Format::VmArgs, text).unwrap()).collect();
        let files: Vec<_> = read.iter().map(|fragments| File { fragments }).collect();
        let (mut drafts, mut findings) = (Vec::new(), Vec::new());
        for (file, fragments) in read.iter().enumerate() {
            let fragment = &fragments[0];
            for line in 0..fragment.words.len() {
                let remove = |word| vec![Change::Remove { words: word..word + 1 }];
                let edits = fragment.unproven(&remove(line), Way::InPlace).unwrap();
                let changes = remove(if wrong == Some((file, line)) { usize::MAX - 1 } else { line });
                drafts.push(Draft { file, fragment, changes, edits: edits.clone() });
                findings.push(Finding {
                    code: Code("BF001"),
                    level: Level::Note,
                    file,
                    span: 0..0,
                    flag: String::new(),
                    releases: Vec::new(),
                    message: String::new(),
                    reason: String::new(),
                    remedy: "Remove it.".to_owned(),
                    fix: Some(Fix { what: String::new(), safe: true, edits }),
                    related: Vec::new(),
                });
            }
        }
        prove_within(most_bytes, &files, &drafts, &mut findings);
        let count = |file, is_it: fn(&Finding) -> bool| {
            findings.iter().filter(|finding| finding.file == file && is_it(finding)).count()
        };
        let not_tried = |finding: &Finding| finding.remedy == format!("Remove it. {NOT_TRIED}");
        (0..files.len())
            .map(|file| (count(file, |finding| finding.fix.is_some()), count(file, not_tried)))
            .collect()
    }

    #[test]
    fn fixes_for_which_there_was_no_time_say_so() {
        let text: String = (0..8).map(|number| format!("+x{number}\n")).collect();
        let texts = [text.clone(), text.clone(), text];
        assert_eq!(proven(1_000, &texts, None), [(8, 0); 3]);
        assert_eq!(proven(1_000, &texts, Some((0, 3))), [(7, 0), (8, 0), (8, 0)]);
        // Each file is read once, whatever was read before.
        assert_eq!(proven(0, &texts, None), [(8, 0); 3]);
        assert_eq!(proven(0, &texts, Some((0, 3))), [(0, 8), (8, 0), (8, 0)]);
    }
}
