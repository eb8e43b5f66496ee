//! Groups the cases that can share a VM.
//!
//! A VM takes some tenths of a second to start, so starting every case alone would take most of an hour. Most values are accepted. So a VM
//! gets many flags, none of which affects the observable effect of another.

use std::collections::BTreeSet;

use beamtune_flags::{Verdict, entries};

use super::cases::Case;

/// Maximum number of cases in one start. With more, it would take long to find the ones that differ.
const MAX_CASES: usize = 24;

/// Letters of the allocators that have their own flags.
const ALLOCATORS: &str = "BDEFHILRST";

/// Groups cases that can be started together. A case that should not start is started alone.
pub fn batches(cases: Vec<Case>) -> Vec<Vec<Case>> {
    let mut batches: Vec<(BTreeSet<String>, Vec<Case>)> = Vec::new();
    let mut alone = Vec::new();
    for case in cases {
        if !matches!(case.expected, Verdict::Accepted { .. }) {
            alone.push(vec![case]);
            continue;
        }
        let topics = topics(&case);
        let free =
            batches.iter_mut().find(|(taken, cases)| cases.len() < MAX_CASES && taken.is_disjoint(&topics));
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

/// Returns the aspects of a VM that a case changes or reads. Cases with a common aspect are not started together.
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
        // A disabled allocator does not report its options.
        Some("e") => of_allocators(&options()),
        Some(option) => of_allocators(&[option]),
        None if id == "+Mea" => of_allocators(&options()),
        None => BTreeSet::from([of_flag(case).to_owned()]),
    };
    let also = match id {
        // Several large tables and heaps may exceed the host's memory.
        "+P" | "+Q" | "+e" | "+hms" | "+hmbs" | "+hpds" | "ERL_MAX_PORTS" | "ERL_MAX_ETS_TABLES" => {
            Some("memory")
        }
        // An allocator needs malloc or mseg_alloc to allocate its carriers.
        "+Musac" | "+Mummc" | "+M<S>mmmbc" | "+M<S>mmsbc" => Some("sources of carriers"),
        _ => None,
    };
    topics.extend(also.map(str::to_owned));
    topics
}

/// Returns the options of allocators, as spelled in flags.
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

    fn case(id: &str, letter: Option<char>, is_accepted: bool) -> Case {
        let expected = if is_accepted {
            Verdict::Accepted { effective: None, changes: Vec::new() }
        } else {
            Verdict::Refused { why: "a test".to_owned() }
        };
        let entry = entry(id).expect(id);
        Case { entry, letter, given: Given::default(), expected, effective: None, listed: None }
    }

    /// Returns the number of starts for cases, each of which is an entry, an allocator, and whether the value is accepted.
    fn starts(cases: &[(&str, Option<char>, bool)]) -> usize {
        batches(cases.iter().map(|&(id, letter, is_accepted)| case(id, letter, is_accepted)).collect()).len()
    }

    #[test]
    fn independent_flags_share_a_start() {
        assert_eq!(
            starts(&[("+sbwt", None, true), ("+zdbbl", None, true), ("ERL_MAX_PORTS", None, true)]),
            1
        );
        assert_eq!(starts(&[("+M<S>as", Some('B'), true), ("+M<S>as", Some('E'), true)]), 1);
        assert_eq!(starts(&[("+M<S>as", Some('B'), true), ("+M<S>sbct", Some('B'), true)]), 1);
    }

    #[test]
    fn flags_that_affect_each_other_do_not_share_a_start() {
        assert_eq!(starts(&[("+sbwt", None, true), ("+sbwt", None, true)]), 2);
        assert_eq!(starts(&[("+S", None, true), ("+SP", None, true)]), 2);
        assert_eq!(starts(&[("+A", None, true), ("ERL_THREAD_POOL_SIZE", None, true)]), 2);
        assert_eq!(starts(&[("+M<S>as", Some('B'), true), ("+M<S>acul", Some('B'), true)]), 2);
        assert_eq!(starts(&[("+M<S>as", Some('B'), true), ("+M<S>as", Some('u'), true)]), 2);
        assert_eq!(starts(&[("+M<S>e", Some('B'), true), ("+M<S>sbct", Some('B'), true)]), 2);
        assert_eq!(starts(&[("+Mea", None, true), ("+M<S>ramv", Some('T'), true)]), 2);
    }

    #[test]
    fn a_case_that_should_not_start_is_alone() {
        assert_eq!(starts(&[("+sbwt", None, false), ("+zdbbl", None, false), ("+P", None, true)]), 3);
    }
}
