//! BF022: `-env` that sets no variable, or sets it too late.

use crate::entry;
use crate::lint::case::{Case, FindingText, short};
use crate::lint::hazards::hazards;
use crate::lint::{Code, Finding, Level, Rule};
use crate::takes::Form;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF022"),
    name: "env-flag",
    description: "-env for a variable that nothing reads, or that is read before -env is processed, or that is written with an equals sign.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for flag in &case.node.arguments {
        let Some(part) = case.node.parts.get(flag.part) else { continue };
        let words = &part.fragment.words;
        let Some(word) = words.get(flag.at).filter(|word| word.text == "-env") else { continue };
        let [name, value] = flag.values.as_slice() else { continue };
        let (Some(name), Some(value)) = (words.get(*name), words.get(*value)) else { continue };
        if name.dynamic {
            continue;
        }
        let whole = word.span.start..value.span.end;
        if let Some((variable, its)) = name.text.split_once('=') {
            let texts = FindingText {
                message: format!(
                    "`-env {}` does not set {variable}: name and value must be two words",
                    short(&name.text)
                ),
                reason: format!(
                    "-env takes the next two words, so `{}` becomes the value of a variable with an equals sign in its name.",
                    short(&value.text)
                ),
                remedy: format!("Write `-env {}`.", short(&format!("{variable} {its}"))),
            };
            let span = word.span.start..name.span.end;
            found.push(part.finding(&RULE, Level::Warning, span, "-env", texts));
            if value.text.starts_with(['-', '+']) && !value.dynamic {
                let texts = FindingText {
                    message: format!(
                        "`{}` has no effect: the preceding -env takes it as the value",
                        short(&value.text)
                    ),
                    reason: "-env takes the next two words, even if they are flags.".to_owned(),
                    remedy: format!("Write `-env {}` before it.", short(&format!("{variable} {its}"))),
                };
                let mut finding = part.finding(&RULE, Level::Warning, value.span.clone(), &value.text, texts);
                finding.related.push((
                    part.file,
                    word.span.clone(),
                    "takes this word as its value".to_owned(),
                ));
                found.push(finding);
            }
            continue;
        }
        if let Some(unread) = hazards().unread.iter().find(|unread| unread.names.contains(&name.text)) {
            let texts = FindingText {
                message: format!("`-env {}` has no effect: nothing reads the variable here", name.text),
                reason: unread.why.clone(),
                remedy: unread.remedy.clone(),
            };
            found.push(part.finding(&RULE, Level::Warning, whole, "-env", texts));
            continue;
        }
        let id = if is_of_release(&name.text) { "ERL_OTP<NN>_FLAGS" } else { name.text.as_str() };
        let holds_flags =
            entry(id).is_some_and(|entry| entry.accepts.iter().any(|takes| takes.form == Some(Form::Flags)));
        if holds_flags {
            let texts = FindingText {
                message: format!("`-env {}` has no effect here", name.text),
                reason: format!(
                    "The launcher reads {} before it processes -env; only variables that the VM reads later can be set this way (tested on OTP 27).",
                    name.text
                ),
                remedy: "Write the flags directly.".to_owned(),
            };
            found.push(part.finding(&RULE, Level::Warning, whole, "-env", texts));
        }
    }
}

fn is_of_release(name: &str) -> bool {
    name.strip_prefix("ERL_OTP")
        .and_then(|rest| rest.strip_suffix("_FLAGS"))
        .is_some_and(|release| !release.is_empty() && release.bytes().all(|byte| byte.is_ascii_digit()))
}
