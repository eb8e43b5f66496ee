use beamtune_flags::{INSPECTED_RELEASES, lock_classes};
use beamtune_model::{LockSession, TableRow, facts};

use super::*;

fn row(class: &str, id: Option<&str>, waited_ms: i64) -> LockRow {
    LockRow {
        class: class.to_owned(),
        id: id.map(str::to_owned),
        locks: 1,
        tries: 1_000,
        collisions: 100,
        wait_time: waited_ms * 1_000_000,
        ..LockRow::default()
    }
}

/// A period with ten seconds of lock counting.
fn period(release: u32, rows: Vec<LockRow>) -> Period {
    let mut period = Period::default();
    period.locks = rows;
    period.facts.set(facts::OTP_RELEASE, release.to_string());
    period.facts.set(facts::EMU_ARGS, "[]");
    period.facts.set(facts::SCHEDULERS, "8");
    period.facts.set(facts::SCHEDULERS_ONLINE, "8");
    period.lock_session = Some(LockSession { length: 10_000_000_000, ..LockSession::default() });
    period
}

fn table(name: &str, options: &[&str]) -> TableRow {
    TableRow {
        id: name.to_owned(),
        name: name.to_owned(),
        owner: "<0.5.0>".to_owned(),
        owner_name: Some("shop".to_owned()),
        kind: "set".to_owned(),
        protection: "public".to_owned(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        ..TableRow::default()
    }
}

fn changes(contender: &LockClassWaits) -> Vec<&str> {
    contender.explanation.remedies.iter().map(|remedy| remedy.change.as_str()).collect()
}

#[test]
fn every_class_is_explained_for_every_release() {
    for class in lock_classes() {
        for release in INSPECTED_RELEASES.into_iter().filter(|release| class.seen_in.contains(release)) {
            let period = period(release, Vec::new());
            let answer = explain(&period, &class.name, None);
            assert!(answer.protects.is_some() && answer.cause.is_some(), "{}", class.name);
            let is_none = class.remedy.is_empty() && class.remedy_as.is_none();
            assert_eq!(answer.advice.is_none(), is_none, "{} in {release}: {:?}", class.name, answer.advice);
            let cause = answer.cause.clone().unwrap_or_default();
            assert!(!cause.starts_with("As "), "{}: {cause}", class.name);
            assert_fits(release, &class.name, &answer);
        }
    }
}

/// Asserts that the release has what is advised, and that each remedy is listed once.
fn assert_fits(release: u32, class: &str, answer: &Explanation) {
    let changes = answer.remedies.iter().map(|remedy| &remedy.change);
    for text in answer.advice.iter().chain(changes) {
        assert!(!text.contains("As for"), "{class} in {release}: {text}");
        for (words, since) in
            [("auto", 25), ("+Mdai", 25), ("reuseport_lb", 27), ("iterator", 29), ("async_dist", 27)]
        {
            assert!(!text.contains(words) || release >= since, "{class} in {release}: {text}");
        }
    }
    let mut seen = std::collections::HashSet::new();
    for remedy in &answer.remedies {
        let entry = beamtune_flags::entry(&remedy.entry).expect("an entry");
        assert!(entry.works_in(release), "{class} in {release}: {}", remedy.entry);
        assert!(seen.insert(&remedy.entry), "{class} in {release}: {} twice", remedy.entry);
    }
}

#[test]
fn every_class_is_explained_for_a_single_lock() {
    for class in lock_classes() {
        for (release, id) in [(23, "7"), (25, "carts"), (27, "<0.9.0>"), (29, "#Port<0.5>")] {
            let contender =
                super::lock_classes(&period(release, vec![row(&class.name, Some(id), 5)])).remove(0);
            assert!(contender.owners[0].title.contains(id), "{}: {:?}", class.name, contender.owners[0]);
            assert_fits(release, &class.name, &contender.explanation);
            // An owner with a remedy of its own is named in the remedy.
            let named =
                contender.explanation.remedies.iter().filter(|remedy| remedy.change.contains(id)).count();
            let entry = contender.explanation.remedies.first().map(|remedy| remedy.entry.as_str());
            if matches!(entry, Some("ets.write_concurrency" | "process.message_queue_data")) {
                assert!(named > 0, "{}: {:?}", class.name, changes(&contender));
            }
        }
    }
}

#[test]
fn features_are_advised_from_their_version_on() {
    let check = |version: &str, class: &str, words: &str, expect: bool| {
        let mut period = period(0, vec![row(class, Some("x"), 5)]);
        period.facts.set(facts::OTP_VERSION, version);
        let contender = &super::lock_classes(&period)[0];
        let said = format!("{:?} {:?}", contender.explanation.advice, changes(contender));
        assert_eq!(said.contains(words), expect, "{class} in {version}: {said}");
    };
    for (class, words, before, since) in [
        ("alcu_allocator", "+Mdai", "24.1.7", "24.2"),
        ("db_tab", "auto", "24.3.4", "25.0"),
        ("db_hash_slot", "auto", "24.3.4", "25.0"),
        ("db_hash_slot", "counters", "21.1", "21.2"),
        ("proc_msgq", "counters", "21.1", "21.2"),
        ("proc_msgq", "off_heap", "24.3.4", "25.0"),
        ("port_lock", "backend", "22.3", "23.0"),
        ("dist_entry_out_queue", "async_dist", "25.2.3", "25.3"),
        ("esock.r", "reuseport_lb", "25.3", "26.0"),
        ("process_table", "iterator", "27.3", "28.0"),
    ] {
        check(before, class, words, false);
        check(since, class, words, true);
    }
    check("27.3", "meta_name_tab", "ets:whereis", true);
    check("29.0", "meta_name_tab", "ets:whereis", false);
}

#[test]
fn every_setting_that_the_data_names_is_offered_somewhere() {
    // A better clock source is a matter of the host; +c would make the clock wrong.
    let never = ["+c"];
    let mut ids: Vec<&str> =
        lock_classes().iter().flat_map(|class| class.settings.iter().map(String::as_str)).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids.into_iter().filter(|id| !never.contains(id)) {
        let offered = lock_classes()
            .iter()
            .filter(|class| class.settings.iter().any(|known| known == id))
            .any(|class| {
                [23, 29].into_iter().any(|release| {
                    let mut period = period(release, vec![row(&class.name, Some("t"), 5)]);
                    period.facts.set(facts::EMU_ARGS, r#"["-MMscs","64","-IOs","false"]"#);
                    period.tables.push(table("t", &["read_concurrency"]));
                    let mut bare = period.clone();
                    bare.tables = vec![table("t", &[])];
                    [period, bare].iter().any(|period| {
                        super::lock_classes(period)[0]
                            .explanation
                            .remedies
                            .iter()
                            .any(|remedy| remedy.entry == id)
                    })
                })
            });
        assert!(offered, "{id}");
    }
}

#[test]
fn a_lock_of_a_library_has_no_known_remedy() {
    let contenders = super::lock_classes(&period(25, vec![row("my_lock", None, 5)]));
    assert_eq!(contenders[0].explanation, Explanation::default());
}

#[test]
fn a_table_is_named_with_its_owner_and_its_remedies() {
    let check = |release: u32, class: &str, options: &[&str], expect: &[&str]| {
        let mut period = period(release, vec![row(class, Some("carts"), 5)]);
        period.tables.push(table("carts", options));
        let contender = &super::lock_classes(&period)[0];
        assert_eq!(contender.owners[0].title, "the table carts");
        let known = contender.owners[0].details.clone().unwrap_or_default();
        assert!(known.starts_with("set, public") && known.ends_with("owner shop (<0.5.0>)"), "{known}");
        assert_eq!(changes(contender), expect, "{release} {class} {options:?}");
    };
    let read = "{read_concurrency, true} for the table carts, if it is mostly read";
    check(25, "db_tab", &[], &["{write_concurrency, auto} for the table carts", read]);
    check(23, "db_tab", &[], &["{write_concurrency, true} for the table carts", read]);
    check(25, "db_tab", &["write_concurrency"], &[read]);
    check(25, "db_hash_slot", &["write_concurrency"], &["{write_concurrency, auto} for the table carts"]);
    check(23, "db_hash_slot", &["write_concurrency"], &[]);
    check(27, "db_hash_slot", &["write_concurrency=auto"], &[]);
}

#[test]
fn a_process_that_everything_sends_to_is_named() {
    let check = |release: u32, id: &str, entity: Option<&str>, expect: &str, ways: usize| {
        let row = LockRow { entity: entity.map(str::to_owned), ..row("proc_msgq", Some(id), 5) };
        let contender = &super::lock_classes(&period(release, vec![row]))[0];
        assert_eq!(contender.owners[0].title, expect);
        assert_eq!(contender.explanation.remedies.len(), ways, "{:?}", changes(contender));
        assert!(changes(contender)[0].contains(expect), "{:?}", changes(contender));
    };
    check(25, "router", None, "the process router", 2);
    check(23, "<0.9.0>", Some("shop:init/1"), "the process shop:init/1 (<0.9.0>)", 1);
    check(27, "router", Some("shop:init/1"), "the process router (shop:init/1)", 2);
}

#[test]
fn what_is_set_already_is_not_advised() {
    let mut period = period(27, vec![row("alcu_allocator", Some("eheap_alloc"), 5)]);
    assert_eq!(changes(&super::lock_classes(&period)[0]), ["+Mdai max"]);
    period.facts.set(facts::EMU_ARGS, r#"["-Mdai","2"]"#);
    assert_eq!(changes(&super::lock_classes(&period)[0]), ["+Mdai max"]);
    period.facts.set(facts::EMU_ARGS, r#"["-Mdai","max"]"#);
    let contender = &super::lock_classes(&period)[0];
    assert!(contender.explanation.remedies.is_empty());
    let advice = contender.explanation.advice.as_deref().expect("advice");
    assert!(advice.starts_with("Fewer allocations") && !advice.contains("+Mdai"), "{advice}");
    // Without known flags, several locks of one allocator are its instances.
    period.facts.set(facts::EMU_ARGS, "");
    assert_eq!(changes(&super::lock_classes(&period)[0]), ["+Mdai max"]);
    period.locks = vec![LockRow { locks: 17, ..row("alcu_allocator", Some("eheap_alloc"), 5) }];
    assert!(super::lock_classes(&period)[0].explanation.remedies.is_empty());
    // literal_alloc has one instance in any case.
    period.facts.set(facts::EMU_ARGS, "[]");
    period.locks = vec![row("alcu_allocator", Some("literal_alloc"), 5)];
    assert!(super::lock_classes(&period)[0].explanation.remedies.is_empty());
}

#[test]
fn options_that_the_table_has_are_not_advised() {
    let advice = |class: &str, options: &[&str]| {
        let mut period = period(27, vec![row(class, Some("carts"), 5)]);
        period.tables.push(table("carts", options));
        super::lock_classes(&period)[0].explanation.advice.clone().unwrap_or_default()
    };
    assert!(advice("db_tab", &[]).starts_with("write_concurrency true or auto"));
    let done = advice("db_tab", &["write_concurrency=true", "read_concurrency"]);
    assert!(done.starts_with("Shard the table"), "{done}");
    assert!(advice("db_hash_slot", &["write_concurrency"]).starts_with("write_concurrency auto"));
    assert!(advice("db_hash_slot", &["write_concurrency=auto"]).starts_with("Spread hot keys"));
}

#[test]
fn run_queues_of_dirty_schedulers_come_after_those_of_schedulers() {
    let check = |id: &str, expect: &str| {
        let contenders = super::lock_classes(&period(25, vec![row("run_queue", Some(id), 5)]));
        assert_eq!(contenders[0].owners[0].title, expect);
    };
    check("3", "the run queue of scheduler 3");
    check("9", "the run queue of dirty CPU schedulers");
    check("10", "the run queue of dirty I/O schedulers");
    check("11", "run queue 11");
}

#[test]
fn counts_are_those_of_the_class_and_not_of_its_recorded_locks() {
    let place = |file: &str, waited_ms| LockRow {
        file: Some(file.to_owned()),
        line: Some(7),
        locks: 64,
        ..row("db_hash_slot", None, waited_ms)
    };
    let slot = |waited_ms| row("db_hash_slot", Some("carts"), waited_ms);
    let rows = vec![
        place("a.c", 3_000),
        place("b.c", 1_000),
        slot(2_500),
        slot(400),
        LockRow { locks: 62, ..slot(900) },
    ];
    let contender = &super::lock_classes(&period(25, rows))[0];
    assert_eq!(
        (contender.counts.locks, contender.counts.tries, contender.counts.waited),
        (64, 2_000, 4_000_000_000)
    );
    assert_eq!(contender.share, Some(0.4));
    assert_eq!(contender.place, Some(("a.c".to_owned(), 7, 0.75)));
    let carts = &contender.owners[0];
    assert_eq!((carts.counts.locks, carts.counts.waited, carts.share), (64, 3_800_000_000, Some(0.38)));
    assert!((carts.hottest.unwrap_or(0.0) - 2_500.0 / 3_800.0).abs() < 1e-9);
    assert!(carts.is_one_hot_lock());
    // An imported list of single locks lacks the whole class.
    let contender = &super::lock_classes(&period(25, vec![slot(5)]))[0];
    assert!(!contender.is_whole);
    assert_eq!(contender.counts.waited, 5_000_000);
}

#[test]
fn waits_of_the_next_locks_remain_without_the_first() {
    let rows = vec![
        LockRow { locks: 200, ..row("db_tab", None, 5_000) },
        row("db_tab", Some("carts"), 4_000),
        row("db_tab", Some("users"), 700),
        LockRow { locks: 8, ..row("run_queue", None, 1_000) },
        row("run_queue", Some("1"), 900),
        row("atom_tab", None, 0),
    ];
    let period = period(25, rows);
    let things = contended_locks(&period, &super::lock_classes(&period));
    let names: Vec<_> = things.iter().map(|thing| (thing.name.as_str(), thing.waited / 1_000_000)).collect();
    assert_eq!(
        names,
        [
            ("db_tab of the table carts", 4_000),
            ("run_queue", 1_000),
            ("db_tab of the table users", 700),
            ("other db_tab", 300)
        ]
    );
    let remains = remaining_waits(&period, &things, 2);
    assert_eq!(remains.len(), 2);
    assert_eq!((remains[0].waited, remains[0].share), (2_000_000_000, Some(0.2)));
    assert_eq!(remains[0].next, Some(("run_queue".to_owned(), 1_000_000_000)));
    assert_eq!(remains[1].waited, 1_000_000_000);
    assert!(remaining_waits(&period, &[], 3).is_empty());
}
