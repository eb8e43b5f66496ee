//! Tests of the rule on locks: counted, sampled, and neither.

use beamtune_model::locks::wait_kind;
use beamtune_model::units::SECOND_NS;
use beamtune_model::{Confidence, LockRow, LockWaitRow, TableRow};

use super::Read;
use super::node::lock;
use super::*;

const CODE: &str = "BT033";

fn waiting(class: &str, id: Option<&str>, share: f64) -> LockRow {
    LockRow { wait_time: (share * 10.0 * SECOND_NS as f64) as i64, collisions: 800_000, ..lock(class, id) }
}

fn text<'a>(finding: &'a Finding, what: &str) -> &'a str {
    let evidence = finding.evidence.iter().find(|evidence| evidence.what == what);
    evidence.and_then(|evidence| evidence.text.as_deref()).unwrap_or_else(|| panic!("{what}: {finding:#?}"))
}

/// A node with one table that all processes write.
fn hot_table() -> SyntheticNode {
    node().with(|n| {
        n.large_tables = vec![("carts", 1 << 20, 0)];
        n.locks = vec![
            LockRow { locks: 80, ..waiting("db_tab", None, 1.80) },
            waiting("db_tab", Some("carts"), 1.75),
            LockRow { locks: 4, ..waiting("run_queue", None, 0.04) },
        ];
    })
}

#[test]
fn a_table_that_all_processes_write_is_found_with_the_remaining_waits() {
    let finding = finding(&hot_table(), CODE);
    assert_eq!(finding.level, Level::Critical);
    assert_eq!(finding.subject_text().as_deref(), Some("db_tab of the table carts"));
    assert_eq!(finding.title, "Waits for lock db_tab of the table carts: 1.8 cores");
    assert!(
        finding.detail.starts_with("17.50 s waited in 10.00 s, all threads together"),
        "{}",
        finding.detail
    );
    assert_eq!(entries(&finding), ["ets.write_concurrency", "ets.read_concurrency"]);
    assert!(finding.remedies[0].change.contains("auto} for the table carts"), "{:?}", finding.remedies[0]);
    assert!(text(&finding, "options and owner").contains("owner <0.55.0>"));
    assert_eq!(text(&finding, "wait time, share of the duration"), "17.500 s in 10.000 s");
    let judged = finding.evidence.iter().find(|evidence| evidence.what == "of the time of 2 schedulers");
    assert_eq!(judged.map(|evidence| (evidence.value, evidence.threshold)), Some((Some(0.875), Some(0.15))));
    assert_eq!(text(&finding, "collisions, share of tries"), "800000 of 1000000");
    assert!(
        text(&finding, "remaining waits without this lock and those above")
            .starts_with("then other db_tab, 0.5")
    );
}

#[test]
fn libraries_without_a_common_table_are_named_for_a_metrics_table() {
    let of = |name: &'static str| {
        let locks = vec![waiting("db_hash_slot", None, 1.80), waiting("db_hash_slot", Some(name), 1.75)];
        hot_table().with(|n| (n.large_tables, n.locks) = (vec![(name, 1 << 20, 0)], locks))
    };
    assert!(entries(&finding(&of("prometheus_counter_table"), CODE)).contains(&"code.metrics_by_scheduler"));
    assert!(!entries(&finding(&of("carts"), CODE)).contains(&"code.metrics_by_scheduler"));
}

#[test]
fn locks_are_judged_alone_if_only_they_are_requested() {
    let verdicts = crate::diagnose_locks(&Arc::new(hot_table().period())).verdicts;
    assert_eq!(verdicts.iter().map(|verdict| verdict.code.0).collect::<Vec<_>>(), ["BT015", CODE]);
}

#[test]
fn a_healthy_table_has_no_warning() {
    let cured = hot_table().with(|n| n.locks = vec![waiting("db_hash_slot", Some("carts"), 0.22)]);
    assert_eq!(finding(&cured, CODE).level, Level::Notice);
    assert_healthy(&node(), CODE);
    assert_healthy(&node().with(|n| n.locks[0].wait_time = 0), CODE);
}

#[test]
fn the_same_wait_is_a_smaller_share_of_more_schedulers() {
    let level = |schedulers| finding(&hot_table().with(|n| n.schedulers = schedulers), CODE).level;
    assert_eq!(level(2), Level::Critical);
    assert_eq!(level(6), Level::Warning);
    // A small share of the time of 64 schedulers, but still worth an operator's attention.
    let many = hot_table().with(|n| n.schedulers = 64);
    assert_eq!(level(64), Level::Notice);
    assert_eq!(finding(&many, CODE).subject_text().as_deref(), Some("db_tab of the table carts"));
    let little =
        |class, waited_s| many.clone().with(|n| n.locks = vec![waiting(class, Some("carts"), waited_s)]);
    assert_eq!(finding(&little("db_hash_slot", 0.11), CODE).level, Level::Notice);
    assert_healthy(&little("db_hash_slot", 0.09), CODE);
    // In the healthy variant of the lab dirty-collections, schedulers wait as long for allocators.
    assert_healthy(&little("alcu_allocator", 0.20), CODE);
    // The waits for a hundred such tables add up.
    let tables: Vec<_> = (0..100).map(|at| format!("shard_{at}")).collect();
    let shards = many.with(|n| {
        n.locks = tables.iter().map(|name| waiting("db_tab", Some(name), 0.12)).collect();
    });
    let Outcome::Found(findings) = outcome(&shards.period(), CODE) else { panic!("nothing found") };
    let first = findings
        .iter()
        .max_by(|a, b| a.severity.total_cmp(&b.severity))
        .map(|found| (found.level, found.subject_text()));
    assert_eq!(first, Some((Level::Warning, Some("many locks".to_owned()))));
}

#[test]
fn each_contended_lock_is_a_finding() {
    let node = node().with(|n| {
        n.locks = vec![
            LockRow { locks: 9, ..waiting("alcu_allocator", None, 0.9) },
            waiting("alcu_allocator", Some("eheap_alloc"), 0.88),
            LockRow { locks: 2, ..waiting("run_queue", None, 0.5) },
            waiting("run_queue", Some("1"), 0.4),
            LockRow { locks: 1, ..waiting("on_halt", None, 0.3) },
            LockRow { locks: 1, ..waiting("atom_tab", None, 0.2) },
        ];
    });
    let Outcome::Found(findings) = outcome(&node.period(), CODE) else { panic!("nothing found") };
    let subjects: Vec<_> =
        findings.iter().map(|finding| finding.subject_text().unwrap_or_default()).collect();
    assert_eq!(subjects, ["alcu_allocator of eheap_alloc", "run_queue", "on_halt"]);
    assert_eq!(entries(&findings[0]), ["+Mdai"]);
    // To show the number of a run queue, the number of schedulers must be known. Here it is unknown.
    assert!(findings[1].evidence.iter().any(|evidence| evidence.what == "of those for run queue 1"));
    // OTP 25 does not support the remedy.
    assert_eq!(text(&findings[2], "usual remedy"), "no known remedy");
}

#[test]
fn locks_without_rows_of_their_own_are_a_separate_finding() {
    let node = hot_table().with(|n| {
        n.locks[0].wait_time += 5 * SECOND_NS;
        n.locks[0].tries += 1_000_000;
        n.locks[0].collisions += 100_000;
    });
    let Outcome::Found(findings) = outcome(&node.period(), CODE) else { panic!("nothing found") };
    let rest = &findings[1];
    assert_eq!(rest.subject_text().as_deref(), Some("other db_tab"));
    assert_eq!(text(rest, "collisions, share of tries"), "100000 of 1000000");
    // The owners of these locks are unknown.
    assert!(rest.remedies[0].change.ends_with("for the table"), "{:?}", rest.remedies[0]);
    assert!(rest.against.iter().any(|against| against.contains("may be among these")), "{:?}", rest.against);
}

#[test]
fn counter_evidence_is_reported() {
    let check = |node: SyntheticNode, change: fn(&mut Period), expect: &str| {
        let mut period = node.period();
        change(&mut period);
        let Outcome::Found(findings) = outcome(&period, CODE) else { panic!("{expect}: nothing found") };
        assert!(
            findings[0].against.iter().any(|against| against.contains(expect)),
            "{:?}",
            findings[0].against
        );
    };
    check(hot_table(), |_| (), "contention may move to the next lock");
    check(hot_table(), |period| period.locks.retain(|row| row.id.is_some()), "only single locks");
    check(
        hot_table(),
        |period| {
            period.lock_session.as_mut().expect("a session").categories = vec!["db".to_owned()];
        },
        "locks of processes were not counted",
    );
    let unknown = hot_table().with(|n| {
        n.missing_metrics = vec![&beamtune_model::metrics::SCHEDULERS_ONLINE];
        n.facts = vec![(facts::SCHEDULERS_ONLINE, String::new())];
    });
    check(unknown.clone(), |_| (), "the number of schedulers is unknown");
    assert_eq!(finding(&unknown, CODE).confidence, Confidence::Inferred);
    check(
        hot_table().with(|n| {
            n.lock_counting_ns = Some(SECOND_NS / 2);
        }),
        |_| (),
        "counted for only 0.5 s",
    );
}

#[test]
fn without_counts_or_samples_nothing_is_judged() {
    let not_judged = |node: SyntheticNode, expect: &str| {
        let Outcome::NotJudged { reason, next } = outcome(&node.period(), CODE) else { panic!("{expect}") };
        assert!(reason.contains(expect), "{reason}");
        assert!(next.contains("beamtune locks TARGET"), "{next}");
    };
    not_judged(node().with(|n| n.lock_counting_ns = None), "neither counted nor sampled");
    not_judged(node().with(|n| n.locks.clear()), "counts are missing");
    not_judged(hot_table().with(|n| n.lock_counting_ns = Some(0)), "length of lock counting");
    not_judged(
        node().with(|n| {
            n.lock_counting_ns = None;
            n.waits = vec![LockWaitRow { waited: 5, ..LockWaitRow::default() }];
        }),
        "length of sampling",
    );
}

#[test]
fn sampling_without_waits_is_judged() {
    let mut period = node().with(|n| n.lock_counting_ns = None).period();
    period.locks.clear();
    period.facts.set(facts::LOCK_SAMPLING_LENGTH, "8000000000");
    let Outcome::Healthy(said) = outcome(&period, CODE) else { panic!("not healthy") };
    assert_eq!(said, "no lock wait in 8.0 s of sampling");
}

#[test]
fn many_locks_with_short_waits_are_one_finding() {
    let tables = |count: usize, share: f64| {
        let names: Vec<String> = (1..=count).map(|n| format!("shard{n}")).collect();
        let single = |name: &String| waiting("db_tab", Some(name.as_str()), share);
        let whole = waiting("db_tab", None, share * count as f64);
        node().with(|n| n.locks = std::iter::once(whole).chain(names.iter().map(single)).collect())
    };
    let finding = finding(&tables(12, 0.06), CODE);
    assert_eq!((finding.level, finding.subject_text().as_deref()), (Level::Warning, Some("many locks")));
    assert_eq!(finding.title, "Waits for 12 locks: 0.72 cores, most for db_tab");
    assert!(finding.evidence.iter().any(|evidence| evidence.what == "waits for db_tab of the table shard1"));
    assert!(finding.remedies[0].change.ends_with("for the table"), "{:?}", finding.remedies);
    assert_healthy(&tables(3, 0.02), CODE);
}

#[test]
fn the_source_line_is_that_of_the_lock_itself_if_known() {
    let place =
        |row: LockRow, line| LockRow { file: Some("beam/erl_db.c".to_owned()), line: Some(line), ..row };
    let node = hot_table().with(|n| n.locks[0] = place(n.locks[0].clone(), 400));
    let whats = |node: &SyntheticNode| -> Vec<String> {
        finding(node, CODE).evidence.into_iter().map(|evidence| evidence.what).collect()
    };
    assert!(whats(&node).iter().any(|what| what == "of the class at beam/erl_db.c:400"));
    let node = node.with(|n| n.locks[1] = place(n.locks[1].clone(), 800));
    assert!(whats(&node).iter().any(|what| what == "of those at beam/erl_db.c:800"));
}

fn seen(share: f64) -> SyntheticNode {
    let wait = |stack: &[&str], share: f64| LockWaitRow {
        length: SECOND_NS,
        thread: "scheduler".to_owned(),
        how: wait_kind::YIELD.to_owned(),
        stack: stack.iter().map(|function| (*function).to_owned()).collect(),
        samples: 90,
        waited: (share * SECOND_NS as f64) as i64,
        ..LockWaitRow::default()
    };
    node().with(|n| {
        n.lock_counting_ns = None;
        n.locks.clear();
        n.large_tables = vec![("carts", 1 << 20, 0)];
        n.waits = vec![
            wait(&["ets_update_counter_3", "process_main"], share),
            wait(&["erts_alcu_alloc_ts"], share / 20.0),
            wait(&[], 0.001),
        ];
    })
}

#[test]
fn on_a_stock_emulator_the_operation_and_a_way_to_find_the_table_are_named() {
    let mut period = seen(1.2).period();
    period.tables[0].protection = "public".to_owned();
    let Outcome::Found(findings) = outcome(&period, CODE) else { panic!("nothing found") };
    let finding = &findings[0];
    assert_eq!(finding.subject_text().as_deref(), Some("ets:update_counter/3"));
    assert_eq!(finding.title, "Lock waits take 100 % of busy time, most in ets:update_counter/3");
    assert_eq!(text(finding, "call stack"), "ets_update_counter_3 ← process_main");
    assert_eq!(text(finding, "largest public tables without write_concurrency"), "carts");
    assert!(text(finding, "candidate tables").contains("several processes write"));
    assert_eq!(entries(finding), ["ets.write_concurrency", "ets.read_concurrency", "build.lock_counting"]);
    assert_healthy(&seen(0.01), CODE);

    // A metrics table of a library is recognized by its name, and has its own remedy.
    period.tables[0].name = "prometheus_counter_table".to_owned();
    period.tables[0].owner_name = Some("prometheus_sup".to_owned());
    let Outcome::Found(findings) = outcome(&period, CODE) else { panic!("nothing found") };
    let named = text(&findings[0], "largest public tables without write_concurrency");
    assert_eq!(named, "prometheus_counter_table of prometheus_sup");
    assert!(entries(&findings[0]).contains(&"code.metrics_by_scheduler"), "{:?}", entries(&findings[0]));

    // The table has the options that the library sets. Objects that all processes update are contended anyway.
    period.tables[0].options = vec!["write_concurrency".to_owned()];
    let Outcome::Found(findings) = outcome(&period, CODE) else { panic!("nothing found") };
    assert_eq!(text(&findings[0], "public metrics tables"), "prometheus_counter_table");
    assert!(entries(&findings[0]).contains(&"code.metrics_by_scheduler"), "{:?}", entries(&findings[0]));
}

#[test]
fn waits_that_beamtune_locks_does_not_call_contention_are_no_finding() {
    // Lock holders have lost their CPU: there are few and long sleeps.
    let starved = seen(0.3).with(|n| {
        (n.utilization, n.cpu, n.run_queue_delay, n.voluntary_switches) = (1.0, 0.2, 0.75, 10);
        n.waits.iter_mut().for_each(|row| row.how = wait_kind::SLEEP.to_owned());
    });
    assert_healthy(&starved, CODE);
    let fighting = starved.with(|n| n.voluntary_switches = 5_000);
    assert_eq!(finding(&fighting, CODE).level, Level::Warning);
}

#[test]
fn candidate_tables_with_the_same_name_are_named_once() {
    let node = seen(1.2).with(|n| n.large_tables = vec![("carts", 3 << 20, 0), ("shard", 2 << 20, 0)]);
    let mut period = node.period();
    let other = TableRow { id: "#Ref<0.1.2.3>".to_owned(), ..period.tables[1].clone() };
    let done = TableRow { options: vec!["write_concurrency=auto".to_owned()], ..other.clone() };
    period.tables.extend([other, done]);
    period.tables.iter_mut().for_each(|table| table.protection = "public".to_owned());
    let Outcome::Found(findings) = outcome(&period, CODE) else { panic!("nothing found") };
    let named = text(&findings[0], "largest public tables without write_concurrency");
    assert_eq!(named, "carts, shard (2 tables)");
}

#[test]
fn a_wait_for_memory_in_a_table_operation_names_no_table() {
    let mut period = seen(1.2).period();
    period.tables[0].protection = "public".to_owned();
    period.lock_waits[0].stack.insert(0, "erts_alcu_alloc_ts".to_owned());
    let Outcome::Found(findings) = outcome(&period, CODE) else { panic!("nothing found") };
    let finding = &findings[0];
    assert_eq!(finding.subject_text().as_deref(), Some("ets:update_counter/3"));
    assert!(finding.evidence.iter().all(|evidence| !evidence.what.contains("table")), "{finding:#?}");
    assert_eq!(entries(finding), ["+Mdai", "build.lock_counting"]);
}
