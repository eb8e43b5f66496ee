//! Checks the consistency of the catalogue. `make check-flags` compares the catalogue with VMs.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use beamtune_flags::{
    AboveMax, AcceptedValues, Argument, BelowMin, Entry, Evidence, Kind, OtherValues, OtpVersion,
    SilentChange, ValueQuery, Verdict, entries,
};

/// The releases that the catalogue covers. Each one is tested as its first version.
const RELEASES: std::ops::RangeInclusive<u32> = 21..=29;

fn started(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::EmulatorFlag | Kind::Environment)
}

fn bound_to_releases(entry: &Entry) -> bool {
    !matches!(entry.kind, Kind::HostSetting | Kind::Build | Kind::CodeChange)
}

/// Returns the letters of the allocators for which a flag can be given; only `None` if the flag has no letter.
fn allocators(entry: &Entry) -> Vec<Option<char>> {
    if entry.spelling().contains("<S>") {
        ['u', 'B', 'D', 'E', 'F', 'H', 'I', 'L', 'R', 'S', 'T'].map(Some).into()
    } else {
        vec![None]
    }
}

fn judge(entry: &Entry, value: &str, otp: u32, allocator: Option<char>) -> Verdict {
    let value = (!value.is_empty()).then_some(value);
    entry.judge(&ValueQuery { value, otp: &OtpVersion::from(otp), allocator, host_cpus: None })
}

fn step(entry: &Entry, otp: u32, allocator: Option<char>) -> Option<&AcceptedValues> {
    entry.accepted_for(allocator, &OtpVersion::from(otp))
}

#[test]
fn accepted_values_are_ordered_by_version_and_cover_all_versions() {
    for entry in entries() {
        let mut by_letters: BTreeMap<Option<&String>, Vec<Option<&OtpVersion>>> = BTreeMap::new();
        for step in &entry.accepts {
            by_letters.entry(step.letters.as_ref()).or_default().push(step.from.as_ref());
        }
        for (letters, from) in &by_letters {
            assert!(
                from.first().is_none_or(Option::is_none),
                "{} {letters:?}: the first step must not have `from`",
                entry.id
            );
            assert!(from.windows(2).all(|pair| pair[0] < pair[1]), "{} {letters:?}: out of order", entry.id);
        }
        assert!(
            entry.accepts.is_empty() || by_letters.contains_key(&None),
            "{}: only for some allocators",
            entry.id
        );
        assert!(
            by_letters.len() < 2 || entry.spelling().contains("<S>"),
            "{}: letters, but no allocator",
            entry.id
        );
        assert!(
            entry.effect_changes.windows(2).all(|pair| pair[0].at <= pair[1].at),
            "{}: news out of order",
            entry.id
        );
    }
}

#[test]
fn every_setting_has_values_a_default_and_evidence() {
    for entry in entries() {
        let id = &entry.id;
        assert_eq!(!entry.accepts.is_empty(), bound_to_releases(entry), "{id}: takes");
        assert_eq!(bound_to_releases(entry), !entry.since.is_empty(), "{id}: since");
        assert!(!entry.evidence.is_empty(), "{id}: evidence");
        if bound_to_releases(entry) {
            assert!(!entry.default.is_empty(), "{id}: default");
            for otp in RELEASES.filter(|&otp| entry.exists_in(otp)) {
                assert!(entry.accepted_in(otp).is_some(), "{id}: takes in OTP {otp}");
                assert!(entry.default_in(otp).is_some(), "{id}: default in OTP {otp}");
            }
        }
        for default in &entry.default {
            assert!(
                default.value.is_some() != default.rule.is_some(),
                "{id}: a default is a value or a rule"
            );
        }
        if started(entry) {
            assert!(
                entry.evidence.iter().any(|evidence| *evidence != Evidence::Manual),
                "{id}: a manual is not enough evidence for a flag"
            );
        }
    }
}

#[test]
fn fields_of_accepted_values_are_consistent() {
    for entry in entries() {
        for step in &entry.accepts {
            let id = &entry.id;
            assert!(
                step.form.is_some() || step.integer.is_some() || !step.words.is_empty(),
                "{id}: no accepted values"
            );
            if step.integer.is_none() {
                assert!(step.rounds.is_none(), "{id}: rounds without a number");
                assert_eq!(
                    (step.below, step.above),
                    (BelowMin::Refused, AboveMax::Refused),
                    "{id}: below/above without bounds"
                );
            }
            for word in &step.refuses {
                assert!(!step.words.contains(word), "{id}: {word} is both accepted and rejected");
            }
            for shown in step.shows.keys() {
                let number = step.integer.is_some() && shown.parse::<i64>().is_ok();
                assert!(number || step.words.contains(shown), "{id}: shows {shown}, which is not accepted");
            }
            let depends = step.depends.iter().flat_map(|depends| &depends.words);
            for word in depends {
                assert!(step.words.contains(word), "{id}: {word} is in `depends` but not in `words`");
            }
            assert!(!step.describe().is_empty(), "{id}: no description");
        }
    }
}

#[test]
fn verdicts_about_keywords_agree_with_the_data() {
    for entry in entries() {
        for otp in RELEASES.filter(|&otp| entry.exists_in(otp)) {
            for allocator in allocators(entry) {
                let Some(step) = step(entry, otp, allocator) else { continue };
                for word in &step.words {
                    let verdict = judge(entry, word, otp, allocator);
                    let unsure = step.depends.as_ref().is_some_and(|depends| depends.words.contains(word));
                    assert_eq!(
                        matches!(verdict, Verdict::Unknown { .. }),
                        unsure,
                        "{} {word} in OTP {otp}: {verdict:?}",
                        entry.id
                    );
                    let fatal = entry.fatal.iter().any(|fatal| fatal.words.contains(word));
                    if !unsure {
                        assert!(
                            matches!(verdict, Verdict::Accepted { .. }) && !fatal
                                || matches!(verdict, Verdict::Fatal { .. }) && fatal,
                            "{} {word} in OTP {otp}: {verdict:?}",
                            entry.id
                        );
                    }
                }
                for word in step.refuses.iter().map(String::as_str).chain(["beamtune-no-such-word"]) {
                    let verdict = judge(entry, word, otp, allocator);
                    let free = step.form.is_some()
                        || step.integer.is_some()
                        || step.otherwise == OtherValues::Ignored;
                    assert!(
                        matches!(verdict, Verdict::Refused { .. }) || free,
                        "{} {word} in OTP {otp}: {verdict:?}",
                        entry.id
                    );
                }
            }
        }
    }
}

#[test]
fn verdicts_about_bounds_agree_with_the_data() {
    for entry in entries() {
        for otp in RELEASES.filter(|&otp| entry.exists_in(otp)) {
            for allocator in allocators(entry) {
                let Some(step) = step(entry, otp, allocator) else { continue };
                let Some(integer) = &step.integer else { continue };
                let verdict = |value: i64| judge(entry, &value.to_string(), otp, allocator);
                for bound in [integer.min, integer.max].into_iter().flatten() {
                    assert!(
                        !matches!(verdict(bound), Verdict::Refused { .. }),
                        "{} {bound} in OTP {otp} is within its bounds",
                        entry.id
                    );
                }
                if let Some(below) = integer.min.and_then(|min| min.checked_sub(1)) {
                    let refused = matches!(verdict(below), Verdict::Refused { .. });
                    let expect = step.below == BelowMin::Refused && step.otherwise == OtherValues::Refused;
                    assert_eq!(refused, expect, "{} {below} in OTP {otp}", entry.id);
                }
                // Values beyond the range of an `int` wrap around before they are compared with the bound.
                if let Some(above) = integer.max.filter(|&max| max < i64::from(i32::MAX)).map(|max| max + 1) {
                    let refused = matches!(verdict(above), Verdict::Refused { .. });
                    let expect = step.above == AboveMax::Refused && step.otherwise == OtherValues::Refused;
                    assert_eq!(refused, expect, "{} {above} in OTP {otp}", entry.id);
                }
            }
        }
    }
}

#[test]
fn examples_are_accepted_in_every_release_with_the_flag() {
    for entry in entries() {
        let Some(example) = &entry.example else { continue };
        for otp in RELEASES.filter(|&otp| entry.exists_in(otp)) {
            let verdict = entry.check(Some(example), otp);
            let judged = entry.accepted_in(otp).is_some_and(|takes| {
                use beamtune_flags::Form::{Installed, Path};
                !matches!(takes.form, Some(Installed | Path))
            });
            match verdict {
                Verdict::Accepted { changes: altered, .. } => {
                    let changed: Vec<_> = altered
                        .iter()
                        .filter(|altered| !matches!(altered, SilentChange::Rounded | SilentChange::Ignored))
                        .collect();
                    assert!(changed.is_empty(), "{} {example} in OTP {otp}: {changed:?}", entry.id);
                }
                Verdict::Unknown { .. } if !judged => {}
                other => panic!("{} {example} in OTP {otp}: {other:?}", entry.id),
            }
        }
    }
}

#[test]
fn defaults_that_are_values_are_accepted() {
    let mut values = 0;
    for entry in entries() {
        for otp in RELEASES.filter(|&otp| entry.exists_in(otp)) {
            let Some(default) = entry.default_value_in(otp) else { continue };
            values += 1;
            let verdict = entry.check(Some(default), otp);
            let installed = entry.accepted_in(otp).is_some_and(|takes| {
                use beamtune_flags::Form::{Installed, Path};
                matches!(takes.form, Some(Installed | Path))
            });
            assert!(
                matches!(verdict, Verdict::Accepted { .. }) || installed,
                "{}: the default {default} in OTP {otp} is {verdict:?}",
                entry.id
            );
        }
    }
    assert!(values > 600, "only {values} defaults are values");
}

#[test]
fn defaults_and_examples_are_never_fatal() {
    let mut fatal = 0;
    for entry in entries() {
        for case in &entry.fatal {
            fatal += 1;
            assert!(!case.why.is_empty() && case.why.ends_with('.'), "{}: why", entry.id);
            let of = [case.integer.is_some(), !case.words.is_empty(), case.always];
            assert_eq!(
                of.iter().filter(|&&of| of).count(),
                1,
                "{}: exactly one of words, integer and always",
                entry.id
            );
            assert!(case.until.is_none() || case.from < case.until, "{}: until is not after from", entry.id);
        }
        for otp in RELEASES.filter(|&otp| entry.exists_in(otp)) {
            for value in entry.default_value_in(otp).into_iter().chain(entry.example.as_deref()) {
                let verdict = entry.check(Some(value), otp);
                assert!(!matches!(verdict, Verdict::Fatal { .. }), "{} {value} in OTP {otp}", entry.id);
            }
        }
    }
    assert!(fatal > 5, "{fatal}");
}

#[test]
fn only_flags_with_a_value_may_require_a_separate_word() {
    for entry in entries().iter().filter(|entry| !entry.glued) {
        let takes_value = matches!(entry.argument, Some(Argument::Required | Argument::Optional));
        assert!(takes_value, "{}", entry.id);
    }
}

#[test]
fn expressions_for_effective_values_are_balanced_and_safe() {
    for entry in entries() {
        let Some(expression) = &entry.effective else { continue };
        for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
            let count = |wanted: char| expression.chars().filter(|&c| c == wanted).count();
            assert_eq!(count(open), count(close), "{}: {expression}", entry.id);
        }
        assert!(entry.read.is_some(), "{}: read", entry.id);
        assert_eq!(
            expression.contains("<A>"),
            entry.spelling().contains("<S>"),
            "{}: {expression}",
            entry.id
        );
        // Reading these keys can crash VMs.
        for unsafe_key in ["halt_flush_timeout", "reader_groups_map", "decentralized_counter_groups_map"] {
            assert!(!expression.contains(unsafe_key), "{}: {expression}", entry.id);
        }
    }
}

#[test]
fn probes_set_a_value_and_are_tested_in_a_vm() {
    let mut probes = 0;
    for entry in entries() {
        let Some(probe) = &entry.probe else { continue };
        probes += 1;
        let id = &entry.id;
        let started_with = matches!(entry.kind, Kind::EmulatorFlag | Kind::InitFlag | Kind::Environment);
        assert!(!started_with, "{id}: a running VM cannot change this setting");
        let (set, default) = (probe.expression(Some("beamtune_value")), probe.expression(None));
        let without_value = entry.accepts.iter().all(|step| step.words == [""]);
        assert_eq!(set.contains("beamtune_value"), !without_value, "{id}: {set}");
        assert_ne!(set, default, "{id}: the probe sets nothing");
        for expression in [set, default] {
            assert!(!expression.contains("<V>") && !expression.contains("<set>"), "{id}: {expression}");
            for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
                let count = |wanted: char| expression.chars().filter(|&c| c == wanted).count();
                assert_eq!(count(open), count(close), "{id}: {expression}");
            }
        }
        assert!(entry.evidence.contains(&Evidence::Run), "{id}: make check-flags runs the probe");
    }
    assert!(probes > 50, "{probes}");
}

/// Returns the codes of the diagnosis rules that have a page.
fn rules_with_a_page() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules");
    let pages = std::fs::read_dir(folder).expect("docs/rules");
    let titles = pages.map(|page| {
        let text = std::fs::read_to_string(page.expect("a page").path()).expect("its text");
        text.lines().next().unwrap_or_default().to_owned()
    });
    // A title is `# BT001 busy-waiting`.
    titles
        .filter_map(|title| title.split(' ').nth(1).map(str::to_owned))
        .filter(|word| is_code(word))
        .collect()
}

fn is_code(word: &str) -> bool {
    word.strip_prefix("BT")
        .is_some_and(|number| number.len() == 3 && number.bytes().all(|c| c.is_ascii_digit()))
}

#[test]
fn every_rule_has_settings_and_every_code_of_a_setting_has_a_page() {
    let pages = rules_with_a_page();
    assert!(pages.len() >= 15, "{pages:?}");
    let mut named = BTreeSet::new();
    for entry in entries() {
        assert!(entry.rules.windows(2).all(|pair| pair[0] < pair[1]), "{}: rules out of order", entry.id);
        for code in &entry.rules {
            assert!(is_code(code), "{}: {code} is not the code of a rule", entry.id);
            assert!(pages.contains(code), "{}: {code} has no page in docs/rules", entry.id);
            named.insert(code.clone());
        }
    }
    assert_eq!(named, pages, "rules without a setting");
}

#[test]
fn catalogue_has_the_expected_number_of_settings() {
    let count = |kind: Kind| entries().iter().filter(|entry| entry.kind == kind).count();
    for (kind, min) in [
        (Kind::EmulatorFlag, 130),
        (Kind::Environment, 19),
        (Kind::KernelParameter, 35),
        (Kind::EtsOption, 5),
        (Kind::ProcessOption, 7),
        (Kind::SocketOption, 21),
        (Kind::RuntimeSetting, 12),
        (Kind::InitFlag, 6),
    ] {
        assert!(count(kind) >= min, "{kind:?}: {}", count(kind));
    }
}
