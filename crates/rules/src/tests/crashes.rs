//! Tests of the rule on processes that crash again and again.

use beamtune_model::{Confidence, ExitRow, Level, Outcome, Signal, Subject, facts};

use super::node::{SyntheticNode, node};
use super::{Read, assert_healthy, entries, finding, outcome, value};

/// Returns a synthetic node that reports these exits in each second.
fn exits(rows: Vec<ExitRow>) -> SyntheticNode {
    node().with(|n| n.exits = Some(rows))
}

fn crash(count: i64) -> ExitRow {
    ExitRow {
        parent: Some("<0.90.0>".to_owned()),
        parent_name: Some("shop_sup".to_owned()),
        parent_call: Some("supervisor:shop_sup/1".to_owned()),
        name: Some("order_server".to_owned()),
        call: Some("order_server:init/1".to_owned()),
        reason: Some("badmatch".to_owned()),
        stack: vec![
            ("maps:get/2".to_owned(), 0),
            ("order_server:handle_info/2".to_owned(), 33),
            ("gen_server:try_dispatch/4".to_owned(), 1_123),
        ],
        count,
        ..ExitRow::default()
    }
}

fn normal(count: i64) -> ExitRow {
    let crash = crash(count);
    ExitRow { name: None, call: None, reason: None, stack: Vec::new(), ..crash }
}

#[test]
fn a_child_that_crashes_each_second_is_named_with_its_supervisor_and_the_reason() {
    let found = finding(&exits(vec![crash(1)]), "BT063");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(found.subject_text().as_deref(), Some("order_server started by shop_sup"));
    assert_eq!(
        found.subject,
        Some(Subject::ProcessKind { name: "order_server".to_owned(), starter: Some("shop_sup".to_owned()) })
    );
    assert!(found.title.starts_with("order_server crashes ≥ "), "{}", found.title);
    assert!(found.title.ends_with(": badmatch"), "{}", found.title);
    assert_eq!(found.detail, "child of supervisor shop_sup; badmatch in order_server:handle_info/2 line 33");
    assert_eq!(entries(&found), ["code.crash_cause"]);
    assert!(found.remedies[0].change.contains("order_server:handle_info/2 line 33"), "{:?}", found.remedies);
    // Ten or more crashes per second are critical.
    assert_eq!(finding(&exits(vec![crash(20)]), "BT063").level, Level::Critical);
}

#[test]
fn exits_with_a_reason_of_the_applications_own_may_be_intended() {
    let gives_up = |reason: &str, name: Option<&str>, count| {
        let crash = crash(count);
        let (reason, name) = (Some(reason.to_owned()), name.map(str::to_owned));
        exits(vec![ExitRow { reason, name, stack: Vec::new(), ..crash }])
    };
    let level = |node: &SyntheticNode| finding(node, "BT063").level;
    assert_eq!(level(&gives_up("tray_empty", None, 1)), Level::Notice);
    // In this order: a named process, which is missing after each exit; a socket error, which is not intended; a rate that is not intended.
    assert_eq!(level(&gives_up("tray_empty", Some("tray"), 1)), Level::Warning);
    assert_eq!(level(&gives_up("econnrefused", None, 1)), Level::Warning);
    assert_eq!(level(&gives_up("tray_empty", None, 5)), Level::Warning);
}

#[test]
fn the_crash_rate_follows_from_restarts_of_siblings() {
    let shut_down = |name: &str, count| ExitRow { name: Some(name.to_owned()), ..normal(count) };
    // The children ran ten times in ten seconds. One failure was sampled in all, and many exits of siblings.
    let mut period = exits(vec![shut_down("cache", 26), shut_down("index", 24)]).period();
    period.exits.push(crash(1));
    let judge = |period: &beamtune_model::Period| match outcome(period, "BT063") {
        Outcome::Found(found) => found.into_iter().next().expect("a finding"),
        other => panic!("{other:?}"),
    };
    let found = judge(&period);
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Critical, Some("order_server started by shop_sup"))
    );
    assert!(found.title.starts_with("order_server crashes ≥ "), "{}", found.title);
    assert!(found.detail.ends_with("; cache and 1 more restarted with it"), "{}", found.detail);
    assert_eq!(value(&found, "restarts with siblings").map(f64::round), Some(29.0));
    assert_eq!(entries(&found), ["code.crash_cause", "code.restart_strategy"]);
    // Siblings that the supervisor kills are not a crash loop themselves.
    let killed = ExitRow {
        reason: Some("killed".to_owned()),
        stack: Vec::new(),
        call: Some("pool:init/1".to_owned()),
        name: Some("pool".to_owned()),
        ..crash(300)
    };
    period.exits.push(killed);
    let found = judge(&period);
    assert!(found.title.starts_with("order_server crashes ≥ "), "{}", found.title);
    assert!(found.detail.ends_with("; pool and 2 more restarted with it"), "{}", found.detail);
    // Children of another supervisor are not siblings.
    let other = |row: ExitRow| ExitRow { parent_name: Some("other_sup".to_owned()), ..row };
    let mut period = exits(vec![other(shut_down("cache", 26))]).period();
    period.exits.push(crash(1));
    let found = judge(&period);
    assert!(found.level == Level::Notice && found.title.contains("crashes once"), "{}", found.title);
}

#[test]
fn siblings_of_a_failing_child_that_was_not_sampled_are_found() {
    let shut_down = |name: &str, count| ExitRow { name: Some(name.to_owned()), ..normal(count) };
    let found = finding(&exits(vec![shut_down("cache", 2), shut_down("index", 2)]), "BT063");
    assert_eq!((found.level, found.confidence), (Level::Warning, Confidence::Inferred));
    assert!(found.title.starts_with("shop_sup restarts children ≥ "), "{}", found.title);
    assert!(found.detail.starts_with("it shuts down cache and 1 more"), "{}", found.detail);
    // In this order: a single child exits; many children exit once each. Both are intended.
    assert_healthy(&exits(vec![shut_down("cache", 2)]), "BT063");
    let mut once = exits(Vec::new()).period();
    once.exits = (0..50).map(|tenant| shut_down(&format!("tenant_{tenant}"), 1)).collect();
    assert!(matches!(outcome(&once, "BT063"), Outcome::Healthy(_)));
}

#[test]
fn normal_exits_are_healthy_however_many() {
    assert_healthy(&exits(vec![normal(200)]), "BT063");
    assert_healthy(&exits(Vec::new()), "BT063");
    let old = node().with(|n| n.exits = None);
    assert!(matches!(outcome(&old.period(), "BT063"), Outcome::NotJudged { .. }));
}

#[test]
fn a_few_crashes_among_many_normal_exits_are_a_notice() {
    let job = |count| ExitRow { name: None, call: Some("job:init/1".to_owned()), ..crash(count) };
    let found = finding(&exits(vec![job(1), normal(50)]), "BT063");
    assert_eq!(found.level, Level::Notice);
    assert!(value(&found, "share of exits under this parent").is_some_and(|share| share < 0.02));
    assert_eq!(finding(&exits(vec![job(10), normal(50)]), "BT063").level, Level::Critical);
    // Only one process has a registered name: it crashed, whatever its siblings do.
    assert_eq!(finding(&exits(vec![crash(1), normal(50)]), "BT063").level, Level::Warning);
}

#[test]
fn workers_of_one_supervisor_with_the_same_code_are_one_crash_loop() {
    let worker =
        |number: i64| ExitRow { name: Some(format!("pool_{number}")), stack: Vec::new(), ..crash(1) };
    let early = ExitRow { name: None, call: None, ..worker(0) };
    let found = finding(&exits(vec![worker(1), worker(2), worker(3), early]), "BT063");
    assert!(found.title.starts_with("pool_1 and 2 more crash ≥ "), "{}", found.title);
    assert_eq!(value(&found, "crashes").map(|rate| rate.round()), Some(4.0));
    // An exit without a stack was intended, for example after a refused connection.
    assert_eq!(entries(&found), ["code.crash_cause", "code.backoff"]);
}

#[test]
fn a_heap_limit_is_named_with_the_process_that_it_kills() {
    let killed = |words| ExitRow {
        reason: Some("killed".to_owned()),
        stack: Vec::new(),
        heap_limit_words: words,
        ..crash(1)
    };
    let found = finding(&exits(vec![killed(1_000_000)]), "BT063");
    assert_eq!(found.subject_text().as_deref(), Some("order_server started by shop_sup"));
    assert!(found.title.ends_with(": heap limit"), "{}", found.title);
    assert!(found.detail.ends_with("killed at its heap limit of 1,000,000 words"), "{}", found.detail);
    assert_eq!(entries(&found), ["process.max_heap_size"]);

    let by_flag = exits(vec![killed(1_000_000)])
        .with(|n| n.facts.push((facts::EMU_ARGS, r#"["-hmax","1000000"]"#.to_owned())));
    let found = finding(&by_flag, "BT063");
    assert!(found.detail.ends_with("set by +hmax 1000000"), "{}", found.detail);
    assert_eq!(found.subject, Some(Subject::Flag { name: "+hmax".to_owned() }));
    assert!(found.signals.iter().any(
        |signal| matches!(signal, Signal::Crashes(Subject::ProcessKind { name, .. }) if name == "order_server")
    ));
    assert_eq!(entries(&found), ["+hmax", "process.max_heap_size"]);
    // Its GC is a consequence of that.
    let often = exits(vec![ExitRow { count: 10, ..killed(1_000_000) }]).with(|n| {
        n.facts.push((facts::EMU_ARGS, r#"["-hmax","1000000"]"#.to_owned()));
        (n.utilization, n.cpu, n.gc) = (0.8, 0.8, 0.3);
    });
    assert_eq!(finding(&often, "BT011").follows.map(|of| of.code.0), Some("BT063"));

    // Without a heap limit, the kill may be intended.
    let found = finding(&exits(vec![killed(0)]), "BT063");
    assert_eq!((found.level, found.confidence), (Level::Notice, Confidence::Guess));
    assert!(found.title.starts_with("order_server is killed ≥ "), "{}", found.title);
    assert!(found.title.ends_with("/min, possibly intended"), "{}", found.title);
    assert_eq!(entries(&found), ["code.end_in_order"]);
    // A process that also crashes has another cause.
    let both = exits(vec![killed(0), crash(1)]);
    assert!(entries(&finding(&both, "BT063")).contains(&"code.crash_cause"));
}

#[test]
fn a_call_that_times_out_names_its_callee() {
    let timeout = ExitRow {
        reason: Some("timeout".to_owned()),
        stack: vec![("gen_server:call/3".to_owned(), 0)],
        callee: Some("stock_server".to_owned()),
        ..crash(1)
    };
    let found = finding(&exits(vec![timeout]), "BT063");
    assert!(found.detail.ends_with("timeout in gen_server:call/3 to stock_server"), "{}", found.detail);
    assert!(
        found.remedies[0].change.starts_with("find out why stock_server does not reply in time"),
        "{:?}",
        found.remedies
    );
}
