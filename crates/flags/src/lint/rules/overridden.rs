//! BF008: a value that a later one takes the place of.

use crate::entry::Kind;
use crate::lint::case::{Case, Says, releases_text};
use crate::lint::hazards::{Stands, hazards};
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
    finds: "A value that a later one, or one in a place that counts later, takes the place of.",
    level: Level::Warning,
};

pub(in crate::lint) fn check(case: &Case<'_, '_>, found: &mut Vec<Finding>) {
    for judged in case.known() {
        let Some(other) = judged.overridden else { continue };
        // What is refused is refused even so; what would kill the VM does not, if another one takes its place.
        let is_taken = |outcome: &Outcome| {
            let there = matches!(outcome.presence, Presence::There | Presence::From(_));
            there && !matches!(outcome.verdict, Verdict::Refused { .. }) && !is_ignored(outcome)
        };
        // Where the other one stops the start, neither counts, and that is what has to be told.
        let starts =
            |release: u32| judged.overriding.iter().any(|its| its.release == release && its.starts());
        let releases = judged.releases(|outcome| is_taken(outcome) && starts(outcome.release));
        if releases.is_empty() {
            continue;
        }
        let setting = judged.setting;
        let (mine, its) = (case.node.part_of(setting), case.node.part_of(other));
        let (written, counts) = (case.quoted(setting), case.quoted(other));
        let same_words = setting.part == other.part;
        let again = setting.flag == other.flag
            && setting.known_value().is_some()
            && setting.known_value() == other.known_value();
        let of_variable = setting.entry.is_some_and(|entry| entry.kind == Kind::Environment);
        let where_ = match same_words {
            true if other.words.start < setting.words.start => "before it".to_owned(),
            true => "behind it".to_owned(),
            false => format!("of {}", place(its)),
        };
        let message = if again {
            format!("{written} is given again {where_}")
        } else {
            format!("{written} does not count: the {counts} {where_} does")
        };
        let reason = if of_variable {
            format!("{} counts only where {} is not given, wherever the two stand.", setting.id(), other.id())
        } else if setting.flag != other.flag {
            "The letter u stands for all allocators, and of two values the last one counts.".to_owned()
        } else if same_words {
            "Of a flag that is given twice the last one counts, without a word.".to_owned()
        } else if [mine, its].iter().all(|part| is_command_line(part)) {
            format!(
                "{} stands behind {}; on the command line the last one counts.",
                capital(&place(its)),
                place(mine)
            )
        } else {
            format!(
                "{} is read after {}: ERL_AFLAGS, then the command line with its args files, then ERL_FLAGS, then ERL_ZFLAGS; the last one counts.",
                capital(&place(its)),
                place(mine)
            )
        };
        let says = Says {
            message: format!("{message}, in {}", releases_text(&releases)),
            reason,
            remedy: "Keep the one that is meant, and remove the other.".to_owned(),
        };
        let level = if again { Level::Note } else { Level::Warning };
        let mut finding = case.about(&RULE, level, setting, releases, says);
        finding.related.push(case.related(other, "counts"));
        // Some flags change each other where they stand, so that even one that is overridden leaves something behind.
        let id = setting.id();
        let plain = !hazards()
            .beside
            .iter()
            .any(|beside| beside.stands == Stands::After && (beside.flag == id || beside.other == id));
        let plain = plain && setting.letter.is_none();
        finding.fix = case.node.removal(setting, same_words && plain);
        found.push(finding);
    }
}

/// The name of a place, for a person.
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
        Place::CommandLine { .. } | Place::LiveNode => "the command line".to_owned(),
    }
}

fn is_command_line(part: &Part<'_>) -> bool {
    matches!(part.fragment.place.order(), Some(Order::CommandLine(_)))
}
