//! `beamtune flags`: pages, searches, and what an upgrade changes.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use common::{Said, beamtune, run};

fn flags(args: &[&str]) -> Said {
    run(beamtune().arg("flags").args(args))
}

/// Standard output of a run that ended well.
#[track_caller]
fn told(args: &[&str]) -> String {
    let said = flags(args);
    assert_eq!(said.status, Some(0), "{args:?}: {}", said.stderr);
    assert!(!said.stdout.contains('\x1b'), "colours without a terminal");
    said.stdout
}

#[test]
fn a_flag_has_a_page_by_each_of_its_names() {
    let page = told(&["+sbwt"]);
    assert!(page.starts_with("+sbwt  emulator flag\n"), "{page}");
    for name in [&["sbwt"][..], &["-sbwt"], &["+sbwt", "none"], &["+sbwtnone"]] {
        assert!(told(name).starts_with(&page), "{name:?}");
    }
    assert!(told(&["-heart"]).starts_with("-heart  flag of init"));
    assert!(told(&["-kernel", "net_ticktime"]).contains("net_ticktime"));
    let page = told(&["MBas"]);
    assert!(page.starts_with("+MBas") && page.contains("binary_alloc"), "{page}");
    assert!(told(&["db_tab"]).starts_with("db_tab  lock"));
}

#[test]
fn several_flags_have_several_pages() {
    let pages = told(&["+P", "+Q"]);
    assert!(pages.starts_with("+P  emulator flag") && pages.contains("\n+Q  emulator flag"), "{pages}");
}

#[test]
fn words_lead_to_a_table() {
    let table = told(&["busy", "wait"]);
    assert!(table.lines().any(|line| line.starts_with("+sbwt ")), "{table}");
    let table = told(&["fragmentation"]);
    assert!(table.lines().count() > 2, "{table}");
}

#[test]
fn what_is_not_known_has_neighbours() {
    flags(&["+sbtw"]).assert_refused(&["+sbtw", "similar", "+sbwt"]);
    flags(&["qwertzuiop"]).assert_refused(&["beamtune flags lists everything"]);
}

#[test]
fn without_a_name_everything_is_listed() {
    let list = told(&[]);
    for part in ["emulator flags", "environment variables", "+sbwt", "ERL_FLAGS", "db_tab", "binary_alloc"] {
        assert!(list.contains(part), "no {part}");
    }
    assert!(!told(&["--otp", "23"]).contains("\n+hmaxib "));
    assert!(told(&["--otp", "27"]).contains("\n+hmaxib "));
}

#[test]
fn an_upgrade_is_told_with_the_worst_first() {
    let text = told(&["--changed", "23..29"]);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in\n{text}"));
    assert!(at("Removed") < at("Another default"), "{text}");
    assert!(text.contains("262144 → 1048576"), "{text}");
    for wrong in ["29..23", "25", "25..99", "x..y"] {
        assert_eq!(flags(&["--changed", wrong]).status, Some(2), "{wrong}");
    }
    assert_eq!(flags(&["+P", "--changed", "25..29"]).status, Some(2));
}

#[test]
fn a_release_tells_what_holds_there() {
    let page = told(&["+P", "--otp", "25"]);
    assert!(page.contains("in OTP 25") && page.contains("default 262144"), "{page}");
    assert_eq!(flags(&["+P", "--otp", "20"]).status, Some(2));
}

#[test]
fn programs_get_the_same_as_json() {
    let page = flags(&["+P", "--json"]).json();
    assert_eq!((&page[0]["name"], &page[0]["kind"]), (&"+P".into(), &"emulator flag".into()));
    assert_eq!(page[0]["rules"][0], "BT007");
    assert!(flags(&["--json"]).json().as_array().is_some_and(|list| list.len() > 200));
    assert!(flags(&["busy", "wait", "--json"]).json().as_array().is_some_and(|list| !list.is_empty()));
    let changes = flags(&["--changed", "26..27", "--json"]).json();
    let of = changes["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|change| change["id"] == "+P")
        .expect("+P");
    assert_eq!((&of["what"], &of["to"]), (&"default".into(), &"1048576".into()));
}
