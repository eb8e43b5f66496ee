//! The rules of the linter, one per file.

mod after_extra;
mod args_file_path;
mod cancelled;
mod changed;
mod comment_differs;
mod comment_in_word;
mod continued_line;
mod cpu_quota;
mod distribution_ports;
mod env_flag;
mod fatal_value;
mod invisible_character;
mod minus_for_plus;
mod missing_companion;
mod misspelled_flag;
mod no_erlang_term;
mod node_name;
mod not_a_comment;
mod not_filled_in;
mod not_in_release;
mod outdated;
mod overridden;
mod port_table;
mod product_variable;
mod refused_together;
mod refused_value;
mod scheduler_binding;
mod several_words;
mod trap;
mod unit;
mod unknown_flag;
mod value_missing;
mod without_effect;
mod words_not_bytes;

use super::case::Case;
use super::fixes;
use super::node::Node;
use super::{File, Finding, Rule, Target};

/// Adds the findings of a rule.
type Check = fn(&Case<'_, '_>, &mut Vec<Finding>);

const CHECKS: &[Check] = &[
    unknown_flag::check,
    not_in_release::check,
    refused_value::check,
    fatal_value::check,
    value_missing::check,
    without_effect::check,
    outdated::check,
    overridden::check,
    cancelled::check,
    refused_together::check,
    changed::check,
    unit::check,
    words_not_bytes::check,
    minus_for_plus::check,
    trap::check,
    comment_in_word::check,
    continued_line::check,
    not_a_comment::check,
    several_words::check,
    invisible_character::check,
    no_erlang_term::check,
    env_flag::check,
    args_file_path::check,
    node_name::check,
    not_filled_in::check,
    missing_companion::check,
    cpu_quota::check,
    scheduler_binding::check,
    port_table::check,
    product_variable::check,
    distribution_ports::check,
    after_extra::check,
    misspelled_flag::check,
    comment_differs::check,
];

const RULES: &[Rule] = &[
    unknown_flag::RULE,
    not_in_release::RULE,
    refused_value::RULE,
    fatal_value::RULE,
    value_missing::RULE,
    without_effect::RULE,
    outdated::RULE,
    overridden::RULE,
    cancelled::RULE,
    refused_together::RULE,
    changed::RULE,
    unit::RULE,
    words_not_bytes::RULE,
    minus_for_plus::RULE,
    trap::RULE,
    comment_in_word::RULE,
    continued_line::RULE,
    not_a_comment::RULE,
    several_words::RULE,
    invisible_character::RULE,
    no_erlang_term::RULE,
    env_flag::RULE,
    args_file_path::RULE,
    node_name::RULE,
    not_filled_in::RULE,
    missing_companion::RULE,
    cpu_quota::RULE,
    scheduler_binding::RULE,
    port_table::RULE,
    product_variable::RULE,
    distribution_ports::RULE,
    after_extra::RULE,
    misspelled_flag::RULE,
    comment_differs::RULE,
];

pub(super) fn run(files: &[File<'_>], target: &Target) -> Vec<Finding> {
    let node = Node::new(files, target);
    let case = Case::new(&node);
    let mut found = Vec::new();
    for check in CHECKS {
        check(&case, &mut found);
    }
    found.retain(|finding| !finding.releases.is_empty());
    fixes::verify(files, &node.take_drafts(), &mut found);
    found.sort_by(|one, other| {
        let key = |finding: &Finding| (finding.file, finding.span.start, finding.span.end, finding.code);
        key(one).cmp(&key(other)).then_with(|| one.releases.cmp(&other.releases))
    });
    found
}

pub(super) fn all() -> &'static [Rule] {
    RULES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_consecutive_and_names_unique() {
        assert_eq!(RULES.len(), CHECKS.len());
        for (index, rule) in RULES.iter().enumerate() {
            assert_eq!(rule.code.as_str(), format!("BF{:03}", index + 1));
            assert!(rule.description.ends_with('.'), "{}", rule.name);
            assert!(RULES[..index].iter().all(|other| other.name != rule.name), "{}", rule.name);
        }
    }
}
