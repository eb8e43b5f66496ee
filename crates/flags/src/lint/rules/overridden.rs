//! BF008: a value that a later value overrides.

use crate::entry::Kind;
use crate::lint::case::{Case, FindingText, releases_text};
use crate::lint::hazards::{RelativePosition, hazards};
use crate::lint::node::Part;
use crate::lint::outcome::{Outcome, Presence};
use crate::lint::rules::refused_value::capital;
use crate::lint::rules::without_effect::is_ignored;
use crate::lint::{Code, Finding, Level, Rule};
use crate::source::{CommandWords, Order, Place};
use crate::takes::Verdict;

pub(in crate::lint) const RULE: Rule = Rule {
    code: Code("BF008"),
    name: "overridden",
    description: "A value that a later one overrides, or one in a source that takes effect later.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known() {
        let Some(other) = judged.overridden else { continue };
        // A rejected value is an error even if it is overridden, and another rule reports it. A fatal value is harmless if overridden.
        let is_taken = |outcome: &Outcome| {
            let there = matches!(outcome.presence, Presence::There | Presence::From(_));
            there && !matches!(outcome.verdict, Verdict::Refused { .. }) && !is_ignored(outcome)
        };
        // If the VM does not start with the overriding value, only that is reported.
        let starts =
            |release: u32| judged.overriding.iter().any(|its| its.release == release && its.starts());
        let releases = judged.releases(|outcome| is_taken(outcome) && starts(outcome.release));
        if releases.is_empty() {
            continue;
        }
        let setting = judged.setting;
        let (mine, its) = (case.node.part_of(setting), case.node.part_of(other));
        let (written, overriding) = (case.quoted(setting), case.quoted(other));
        let same_words = setting.part == other.part;
        let again = setting.flag == other.flag
            && setting.known_value().is_some()
            && setting.known_value() == other.known_value();
        let of_variable = setting.entry.is_some_and(|entry| entry.kind == Kind::Environment);
        let where_ = match same_words {
            true if other.words.start < setting.words.start => "before it".to_owned(),
            true => "after it".to_owned(),
            false => format!("of {}", place(its)),
        };
        let message = if again {
            format!("{written} is given again {where_}")
        } else {
            format!("{written} is overridden by {overriding} {where_}")
        };
        let reason = if of_variable {
            format!("{} is used only if {} is not given, in any order.", setting.id(), other.id())
        } else if setting.flag != other.flag {
            "The letter u means all allocators, and the last value takes effect.".to_owned()
        } else if same_words {
            "If a flag is given several times, the VM silently uses the last value.".to_owned()
        } else if [mine, its].iter().all(|part| is_command_line(part)) {
            format!(
                "{} comes after {}; the last value on the command line wins.",
                capital(&place(its)),
                place(mine)
            )
        } else {
            format!(
                "{} takes effect after {}: the order is ERL_AFLAGS, the command line with its args files, ERL_FLAGS, ERL_ZFLAGS; the last value wins.",
                capital(&place(its)),
                place(mine)
            )
        };
        let texts = FindingText {
            message: format!("{message}, in {}", releases_text(&releases)),
            reason,
            remedy: "Keep the intended value and remove the other one.".to_owned(),
        };
        let level = if again { Level::Note } else { Level::Warning };
        let mut finding = case.about(&RULE, level, setting, releases, texts);
        finding.related.push(case.related(other, "overrides it"));
        // Some flags modify the effect of preceding flags, so even an overridden flag may have an effect.
        let id = setting.id();
        let plain = !hazards().conflicts.iter().any(|conflict| {
            conflict.position == RelativePosition::After && (conflict.flag == id || conflict.other == id)
        });
        let plain = plain && setting.letter.is_none();
        finding.fix = case.node.removal(setting, same_words && plain);
        found.push(finding);
    }
}

/// Returns the name of a place, for output.
pub(in crate::lint) fn place(part: &Part<'_>) -> String {
    match &part.fragment.place {
        Place::ArgsFile { name: Some(name) } => name.clone(),
        Place::ArgsFile { name: None } => "the args file".to_owned(),
        Place::Variable { name, .. } => name.clone(),
        Place::FileNames => "the environment file".to_owned(),
        Place::CommandLine { words: CommandWords::Switches, .. } => "--erl".to_owned(),
        Place::CommandLine { order, .. } if *order > Order::ARGS_FILE => {
            "the rest of the command line".to_owned()
        }
        Place::CommandLine { .. } | Place::RunningNode => "the command line".to_owned(),
    }
}

fn is_command_line(part: &Part<'_>) -> bool {
    matches!(part.fragment.place.order(), Some(Order::CommandLine(_)))
}
