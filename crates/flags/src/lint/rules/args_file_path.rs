//! BF023: an args file that includes another args file by a relative path.

use crate::lint::case::{Case, FindingText, short};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF023"),
    name: "args-file-path",
    description: "-args_file with a path that is not absolute, or that leads back to the same file.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let words = &part.fragment.words;
        let Some(word) = words.get(flag.at).filter(|word| word.text == "-args_file") else { continue };
        let Some(path) = flag.values.first().and_then(|at| words.get(*at)) else { continue };
        // In a command, a relative path is normal.
        let of_command = matches!(part.fragment.place, Place::RunningNode | Place::CommandLine { .. });
        if path.dynamic || path.text.starts_with('/') || of_command {
            continue;
        }
        let texts = FindingText {
            message: format!("`-args_file {}` is relative to the working directory of the VM, not to this file", short(&path.text)),
            reason: "If the file is not found, the VM does not start. If the path leads back to this file, the launcher never ends and allocates memory without limit (about 75 MB/s, tested on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: "Use an absolute path.".to_owned(),
        };
        let span = word.span.start..path.span.end;
        found.push(part.finding(&RULE, Level::Warning, span, &word.text, texts));
    }
}
