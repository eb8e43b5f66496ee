//! `beamtune flags`: shows pages, search results, and the changes of an upgrade.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use common::{Output, beamtune, run};

fn flags(args: &[&str]) -> Output {
    run(beamtune().arg("flags").args(args))
}

/// Returns the standard output of a run that must succeed.
#[track_caller]
fn stdout_of(args: &[&str]) -> String {
    let output = flags(args);
    assert_eq!(output.status, Some(0), "{args:?}: {}", output.stderr);
    assert!(!output.stdout.contains('\x1b'), "colours without a terminal");
    output.stdout
}

#[test]
fn page_of_a_flag_is_found_by_every_spelling() {
    let page = stdout_of(&["+sbwt"]);
    assert!(page.starts_with("+sbwt  emulator flag\n"), "{page}");
    for name in [&["sbwt"][..], &["-sbwt"], &["+sbwt", "none"], &["+sbwtnone"]] {
        assert!(stdout_of(name).starts_with(&page), "{name:?}");
    }
    assert!(stdout_of(&["-heart"]).starts_with("-heart  init flag"));
    assert!(stdout_of(&["-kernel", "net_ticktime"]).contains("net_ticktime"));
    let page = stdout_of(&["MBas"]);
    assert!(page.starts_with("+MBas") && page.contains("binary_alloc"), "{page}");
    assert!(stdout_of(&["db_tab"]).starts_with("db_tab  lock"));
}

#[test]
fn several_flags_are_shown_as_several_pages() {
    let pages = stdout_of(&["+P", "+Q"]);
    assert!(pages.starts_with("+P  emulator flag") && pages.contains("\n+Q  emulator flag"), "{pages}");
}

#[test]
fn search_words_return_a_table_of_matches() {
    let table = stdout_of(&["busy", "wait"]);
    assert!(table.lines().any(|line| line.starts_with("+sbwt ")), "{table}");
    let table = stdout_of(&["fragmentation"]);
    assert!(table.lines().count() > 2, "{table}");
}

#[test]
fn error_for_an_unknown_flag_lists_similar_ones() {
    flags(&["+sbtw"]).assert_refused(&["+sbtw", "similar", "+sbwt"]);
    flags(&["qwertzuiop"]).assert_refused(&["list all entries with: beamtune flags"]);
}

#[test]
fn all_entries_are_listed_without_a_name() {
    let list = stdout_of(&[]);
    for part in ["emulator flags", "environment variables", "+sbwt", "ERL_FLAGS", "db_tab", "binary_alloc"] {
        assert!(list.contains(part), "no {part}");
    }
    assert!(!stdout_of(&["--otp", "23"]).contains("\n+hmaxib "));
    assert!(stdout_of(&["--otp", "27"]).contains("\n+hmaxib "));
}

#[test]
fn changes_of_an_upgrade_are_sorted_by_severity() {
    let text = stdout_of(&["--changed", "23..29"]);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in\n{text}"));
    assert!(at("Removed") < at("New default"), "{text}");
    assert!(text.contains("262144 → 1048576"), "{text}");
    for wrong in ["29..23", "25", "25..99", "x..y"] {
        assert_eq!(flags(&["--changed", wrong]).status, Some(2), "{wrong}");
    }
    assert_eq!(flags(&["+P", "--changed", "25..29"]).status, Some(2));
}

#[test]
fn page_for_a_release_describes_that_release() {
    let page = stdout_of(&["+P", "--otp", "25"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("in OTP 25") && page.contains("default 262144"), "{page}");
    assert_eq!(flags(&["+P", "--otp", "20"]).status, Some(2));
}

#[test]
fn pages_and_lists_are_available_as_json() {
    let page = flags(&["+P", "--json"]).json();
    assert_eq!((&page[0]["name"], &page[0]["kind"]), (&"+P".into(), &"emulator flag".into()));
    assert_eq!(page[0]["rules"][0], "BT007");
    assert!(flags(&["--json"]).json().as_array().is_some_and(|list| list.len() > 200));
    assert!(flags(&["busy", "wait", "--json"]).json().as_array().is_some_and(|list| !list.is_empty()));
    let changes = flags(&["--changed", "26..27", "--json"]).json();
    let change = changes["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|change| change["id"] == "+P")
        .expect("+P");
    assert_eq!((&change["what"], &change["to"]), (&"default".into(), &"1048576".into()));
}
