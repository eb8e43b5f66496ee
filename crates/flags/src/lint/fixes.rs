//! Verifies fixes before they are offered, by parsing the changed file.
//!
//! A fix is correct if the changed file differs from the old one by exactly the intended change of words. Parsing the file once per fix
//! would take quadratic time, so all fixes of a file that do not overlap are tried together; if that fails, each half is tried.
//!
//! There are two limitations. A fix that was verified together with others is assumed to be correct alone, too, because programs may apply
//! only one of them. When the byte budget is used up, the remaining fixes are not offered, and their findings say so.

use std::collections::{HashMap, HashSet};

use super::{File, Finding};
use crate::source::{Change, Changes, Edit, Fragment, WriteMode, reads_as};

/// Maximum number of bytes that are parsed to verify the fixes of all files. Each file may be parsed once in addition, so that one file
/// with a wrong fix does not use up the budget of the following files.
const MAX_BYTES: usize = 16 << 20;

/// Appended to the remedy of a finding whose fix was not tried.
const NOT_TRIED: &str = "(no fix offered: verifying all fixes of this file would take too long)";

/// A fix that is not verified yet.
pub(super) struct DraftFix<'a> {
    pub(super) file: usize,
    pub(super) fragment: &'a Fragment,
    pub(super) changes: Vec<Change>,
    /// The edits of the file; never empty.
    pub(super) edits: Vec<Edit>,
}

impl DraftFix<'_> {
    fn begin(&self) -> usize {
        self.edits.iter().map(|edit| edit.span.start).min().unwrap_or_default()
    }

    fn end(&self) -> usize {
        self.edits.iter().map(|edit| edit.span.end).max().unwrap_or_default()
    }
}

/// Removes the fixes that are wrong or could not be verified.
pub(super) fn verify(files: &[File<'_>], drafts: &[DraftFix<'_>], findings: &mut [Finding]) {
    verify_within(MAX_BYTES, files, drafts, findings);
}

fn verify_within(max_bytes: usize, files: &[File<'_>], drafts: &[DraftFix<'_>], findings: &mut [Finding]) {
    let mut of_files: Vec<Vec<&DraftFix<'_>>> = files.iter().map(|_| Vec::new()).collect();
    for draft in drafts {
        if let Some(of_file) = of_files.get_mut(draft.file) {
            of_file.push(draft);
        }
    }
    let mut left = max_bytes;
    let mut verifications = Vec::with_capacity(files.len());
    for (file, mut drafts) in files.iter().zip(of_files) {
        let (verified, wrong) = (HashMap::new(), HashSet::new());
        let mut verification = Verification { before: file.fragments, verified, wrong, left };
        verification.left += verification.bytes();
        drafts.sort_by_key(|draft| (draft.begin(), draft.end()));
        while !drafts.is_empty() && verification.left > 0 {
            drafts = verification.round(drafts);
        }
        left = left.min(verification.left);
        verifications.push(verification);
    }
    for finding in findings {
        let (Some(verification), Some(fix)) = (verifications.get(finding.file), &mut finding.fix) else {
            continue;
        };
        if let Some(edits) = verification.verified.get(fix.edits.as_slice()) {
            fix.edits.clone_from(edits);
            continue;
        }
        if !verification.wrong.contains(fix.edits.as_slice()) {
            finding.remedy = format!("{} {NOT_TRIED}", finding.remedy).trim_start().to_owned();
        }
        finding.fix = None;
    }
}

/// The state of verifying the fixes of one file.
struct Verification<'p> {
    before: &'p [Fragment],
    /// Verified edits, by the edits of the draft. The two differ if the edits are correct only if they rewrite the whole value.
    verified: HashMap<&'p [Edit], Vec<Edit>>,
    /// Edits that are wrong both in place and rewritten.
    wrong: HashSet<&'p [Edit]>,
    /// The number of bytes that may still be parsed.
    left: usize,
}

impl<'p> Verification<'p> {
    /// Returns the number of bytes to parse for one verification.
    fn bytes(&self) -> usize {
        self.before.first().map_or(0, |fragment| fragment.file_text().len())
    }

    /// Tries drafts that do not overlap, in the order of their starts, and returns the drafts that are left.
    fn round(&mut self, drafts: Vec<&'p DraftFix<'p>>) -> Vec<&'p DraftFix<'p>> {
        let (mut round, mut others): (Vec<&DraftFix<'_>>, Vec<&DraftFix<'_>>) = (Vec::new(), Vec::new());
        for draft in drafts {
            match round.last() {
                // Several findings may have the same fix.
                Some(last) if last.edits == draft.edits => {}
                Some(last) if last.end() > draft.begin() => others.push(draft),
                _ => round.push(draft),
            }
        }
        self.try_all(&round);
        others.retain(|draft| !self.verified.contains_key(draft.edits.as_slice()));
        others
    }

    fn try_all(&mut self, drafts: &[&'p DraftFix<'p>]) {
        let edits: Vec<Edit> = drafts.iter().flat_map(|draft| &draft.edits).cloned().collect();
        if self.are_right(&edits, drafts) {
            self.verified.extend(drafts.iter().map(|draft| (draft.edits.as_slice(), draft.edits.clone())));
        } else if let [draft] = drafts {
            let rewritten = draft.fragment.unverified(&draft.changes, WriteMode::Rewrite);
            if let Some(edits) = rewritten.filter(|edits| self.are_right(edits, drafts)) {
                self.verified.insert(&draft.edits, edits);
            } else if self.left > 0 {
                self.wrong.insert(&draft.edits);
            }
        } else if self.left > 0 {
            let (first, second) = drafts.split_at(drafts.len() / 2);
            self.try_all(first);
            self.try_all(second);
        }
    }

    fn are_right(&mut self, edits: &[Edit], drafts: &[&DraftFix<'_>]) -> bool {
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

    /// Returns for each file the numbers of fixes that are offered and that were not tried. Each fix removes a line; the fix for the file
    /// and line in `wrong` is incorrect.
    fn verified(max_bytes: usize, texts: &[String], wrong: Option<(usize, usize)>) -> Vec<(usize, usize)> {
        let read: Vec<_> = texts.iter().map(|text| read(Format::VmArgs, text).unwrap()).collect();
        let files: Vec<_> = read.iter().map(|fragments| File { fragments }).collect();
        let (mut drafts, mut findings) = (Vec::new(), Vec::new());
        for (file, fragments) in read.iter().enumerate() {
            let fragment = &fragments[0];
            for line in 0..fragment.words.len() {
                let remove = |word| vec![Change::Remove { words: word..word + 1 }];
                let edits = fragment.unverified(&remove(line), WriteMode::InPlace).unwrap();
                let changes = remove(if wrong == Some((file, line)) { usize::MAX - 1 } else { line });
                drafts.push(DraftFix { file, fragment, changes, edits: edits.clone() });
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
        verify_within(max_bytes, &files, &drafts, &mut findings);
        let count = |file, is_it: fn(&Finding) -> bool| {
            findings.iter().filter(|finding| finding.file == file && is_it(finding)).count()
        };
        let not_tried = |finding: &Finding| finding.remedy == format!("Remove it. {NOT_TRIED}");
        (0..files.len())
            .map(|file| (count(file, |finding| finding.fix.is_some()), count(file, not_tried)))
            .collect()
    }

    #[test]
    fn fixes_beyond_the_budget_are_reported_as_not_tried() {
        let text: String = (0..8).map(|number| format!("+x{number}\n")).collect();
        let texts = [text.clone(), text.clone(), text];
        assert_eq!(verified(1_000, &texts, None), [(8, 0); 3]);
        assert_eq!(verified(1_000, &texts, Some((0, 3))), [(7, 0), (8, 0), (8, 0)]);
        // Each file is parsed at least once, even if the budget is used up.
        assert_eq!(verified(0, &texts, None), [(8, 0); 3]);
        assert_eq!(verified(0, &texts, Some((0, 3))), [(0, 8), (8, 0), (8, 0)]);
    }
}
