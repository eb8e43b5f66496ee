//! Which cases may share a VM.
//!
//! A VM that starts takes some tenths of a second, and most values are taken: one by one, they would take most of an
//! hour. So a VM is given many flags at once, of which none changes what another shows.

use std::collections::BTreeSet;

use beamtune_flags::{Verdict, entries};

use super::cases::Case;

/// More in one start, and the few that do not agree take long to find.
const MOST: usize = 24;

/// Letters of the allocators that can be set one by one.
const ALLOCATORS: &str = "BDEFHILRST";

/// Cases that are started together. What should not start is alone.
pub fn batches(cases: Vec<Case>) -> Vec<Vec<Case>> {
    let mut batches: Vec<(BTreeSet<String>, Vec<Case>)> = Vec::new();
    let mut alone = Vec::new();
    for case in cases {
        if !matches!(case.expected, Verdict::Accepted { .. }) {
            alone.push(vec![case]);
            continue;
        }
        let topics = topics(&case);
        let free = batches.iter_mut().find(|(taken, cases)| cases.len() < MOST && taken.is_disjoint(&topics));
        match free {
            Some((taken, cases)) => {
                taken.extend(topics);
                cases.push(case);
            }
            None => batches.push((topics, vec![case])),
        }
    }
    batches.into_iter().map(|(_, cases)| cases).chain(alone).collect()
}

/// What of a VM a case changes or looks at. Cases with a topic in common are not started together.
fn topics(case: &Case) -> BTreeSet<String> {
    let id = case.entry.id.as_str();
    let letters = match case.letter {
        Some(letter) if letter != 'u' => letter.to_string(),
        _ => ALLOCATORS.to_owned(),
    };
    let of_allocators = |options: &[&str]| -> BTreeSet<String> {
        letters
            .chars()
            .flat_map(|letter| options.iter().map(move |option| format!("{letter} {}", of_option(option))))
            .collect()
    };
    let mut topics = match id.strip_prefix("+M<S>") {
        // A disabled allocator shows none of its options.
        Some("e") => of_allocators(&options()),
        Some(option) => of_allocators(&[option]),
        None if id == "+Mea" => of_allocators(&options()),
        None => BTreeSet::from([of_flag(case).to_owned()]),
    };
    let also = match id {
        // Tables and heaps that are large together may be more than the machine has.
        "+P" | "+Q" | "+e" | "+hms" | "+hmbs" | "+hpds" | "ERL_MAX_PORTS" | "ERL_MAX_ETS_TABLES" => {
            Some("memory")
        }
        // An allocator that may take carriers neither from malloc nor from mseg_alloc has none.
        "+Musac" | "+Mummc" | "+M<S>mmmbc" | "+M<S>mmsbc" => Some("sources of carriers"),
        _ => None,
    };
    topics.extend(also.map(str::to_owned));
    topics
}

/// The options of allocators, as they stand in flags.
fn options() -> Vec<&'static str> {
    entries().iter().filter_map(|entry| entry.id.strip_prefix("+M<S>")).collect()
}

fn of_option(option: &str) -> &str {
    match option {
        "t" | "as" | "acul" | "acnl" | "acfml" | "acful" | "cp" => "pool",
        "lmbcs" | "smbcs" => "size",
        other => other,
    }
}

fn of_flag(case: &Case) -> &'static str {
    match case.entry.id.as_str() {
        "+S" | "+SP" | "+SDcpu" | "+SDPcpu" | "+Mdai" => "schedulers",
        "+sbt" | "+stbt" | "+sct" | "+ssrct" => "topology",
        "+scl" | "+sub" => "balancing",
        "+hmax" | "+hmaxib" => "largest heap",
        "+IOt" | "+IOp" | "+IOPt" | "+IOPp" | "+IOs" => "polling",
        "+fnl" | "+fnu" | "+fna" => "file names",
        id => case.entry.fallback.as_deref().unwrap_or(id),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "tests")]

    use beamtune_flags::entry;

    use super::*;
    use crate::check_flags::cases::Given;

    fn case(id: &str, letter: Option<char>, is_taken: bool) -> Case {
        let expected = if is_taken {
            Verdict::Accepted { effective: None, altered: Vec::new() }
        } else {
            Verdict::Refused { why: "a test".to_owned() }
        };
        let entry = entry(id).expect(id);
        Case { entry, letter, given: Given::default(), expected, effective: None, listed: None }
    }

    /// How many starts it takes.
    fn starts(cases: &[(&str, Option<char>, bool)]) -> usize {
        batches(cases.iter().map(|&(id, letter, is_taken)| case(id, letter, is_taken)).collect()).len()
    }

    #[test]
    fn flags_that_do_not_touch_each_other_share_a_start() {
        assert_eq!(
            starts(&[("+sbwt", None, true), ("+zdbbl", None, true), ("ERL_MAX_PORTS", None, true)]),
            1
        );
        assert_eq!(starts(&[("+M<S>as", Some('B'), true), ("+M<S>as", Some('E'), true)]), 1);
        assert_eq!(starts(&[("+M<S>as", Some('B'), true), ("+M<S>sbct", Some('B'), true)]), 1);
    }

    #[test]
    fn flags_of_which_one_changes_what_another_shows_do_not() {
        assert_eq!(starts(&[("+sbwt", None, true), ("+sbwt", None, true)]), 2);
        assert_eq!(starts(&[("+S", None, true), ("+SP", None, true)]), 2);
        assert_eq!(starts(&[("+A", None, true), ("ERL_THREAD_POOL_SIZE", None, true)]), 2);
        assert_eq!(starts(&[("+M<S>as", Some('B'), true), ("+M<S>acul", Some('B'), true)]), 2);
        assert_eq!(starts(&[("+M<S>as", Some('B'), true), ("+M<S>as", Some('u'), true)]), 2);
        assert_eq!(starts(&[("+M<S>e", Some('B'), true), ("+M<S>sbct", Some('B'), true)]), 2);
        assert_eq!(starts(&[("+Mea", None, true), ("+M<S>ramv", Some('T'), true)]), 2);
    }

    #[test]
    fn what_should_not_start_is_alone() {
        assert_eq!(starts(&[("+sbwt", None, false), ("+zdbbl", None, false), ("+P", None, true)]), 3);
    }
}
