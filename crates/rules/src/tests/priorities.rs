//! Tests of the rule on process priorities.

use beamtune_model::{Level, Outcome};

use super::node::{SyntheticNode, SyntheticProcess, node};
use super::{Read, assert_healthy, entries, finding, outcome, row};

fn busy(pid: &'static str, name: &str, priority: Option<&str>, runnable_of_10: i64) -> SyntheticProcess {
    SyntheticProcess {
        pid,
        reductions: 300_000,
        runnable_of_10,
        row: row(|r| {
            r.name = Some(name.to_owned());
            r.priority = priority.map(str::to_owned);
        }),
        ..SyntheticProcess::default()
    }
}

/// Two schedulers with this many processes in each run queue.
fn with(processes: Vec<SyntheticProcess>, waiting: i64) -> SyntheticNode {
    node().with(|n| {
        n.busiest = processes;
        n.per_scheduler = vec![(0.95, waiting), (0.95, waiting)];
    })
}

#[test]
fn a_process_at_high_that_is_always_busy_is_named_with_what_waits() {
    let ticker = |priority| busy("<0.99.0>", "ticker", Some(priority), 10);
    let found = finding(&with(vec![ticker("high")], 3), "BT062");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["code.normal_priority"]));
    assert_eq!(found.title, "ticker at priority high is 100 % busy: 6 processes wait");
    assert_eq!(found.detail, "<0.99.0>; 1 process always busy at high or max on 2 schedulers");
    // There are as many such processes as schedulers: nothing else runs.
    let all = vec![ticker("max"), busy("<0.98.0>", "ticker2", Some("high"), 10)];
    assert_eq!(finding(&with(all, 3), "BT062").level, Level::Critical);
    // Nothing waits.
    assert_eq!(finding(&with(vec![ticker("high")], 0), "BT062").level, Level::Notice);
    // In this order: the process mostly waits; it runs at the priority of the others; it belongs to the VM.
    assert_healthy(&with(vec![busy("<0.99.0>", "ticker", Some("high"), 2)], 3), "BT062");
    assert_healthy(&with(vec![busy("<0.99.0>", "worker", Some("normal"), 10)], 3), "BT062");
    assert_healthy(&with(vec![busy("<0.9.0>", "erts_code_purger", Some("high"), 10)], 3), "BT062");
    assert_healthy(&with(vec![busy("<0.9.0>", "net_kernel", Some("max"), 10)], 3), "BT062");
}

#[test]
fn a_process_at_low_that_others_wait_for_explains_its_queue() {
    let writer =
        |queue: i64| SyntheticProcess { queue: (queue, 200), ..busy("<0.99.0>", "writer", Some("low"), 10) };
    let found = finding(&with(vec![writer(5_000)], 3), "BT062");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("writer (<0.99.0>)")));
    assert!(found.title.starts_with("writer starves at priority low: "), "{}", found.title);
    let queue = finding(&with(vec![writer(5_000)], 3), "BT006");
    assert_eq!(queue.follows.map(|follows| follows.code.0), Some("BT062"));
    // In this order: nothing else waits; the schedulers have room; nothing waits for the process.
    assert_healthy(&with(vec![writer(5_000)], 0), "BT062");
    let idle = with(vec![writer(5_000)], 3).with(|n| n.per_scheduler = vec![(0.3, 3), (0.3, 3)]);
    assert_healthy(&idle, "BT062");
    assert_healthy(&with(vec![busy("<0.99.0>", "sweeper", Some("low"), 10)], 3), "BT062");
}

#[test]
fn recordings_without_priorities_are_not_judged() {
    let old = with(vec![busy("<0.99.0>", "ticker", None, 10)], 3).period();
    assert!(matches!(outcome(&old, "BT062"), Outcome::NotJudged { .. }));
}

#[test]
fn processes_at_high_that_do_most_of_the_work_in_bursts_are_named_together() {
    let feed = |pid, name, reductions| SyntheticProcess { reductions, ..busy(pid, name, Some("high"), 4) };
    let feeds = |each: i64| {
        with(vec![feed("<0.99.0>", "feed_a", each + 1), feed("<0.98.0>", "feed_b", each)], 3)
            .with(|n| n.total_reductions = 1_000_000)
    };
    let found = finding(&feeds(400_000), "BT062");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("feed_a (<0.99.0>)")));
    assert_eq!(found.title, "feed_a and 1 more at priority high likely take 84 % of the schedulers");
    assert_eq!(entries(&found), ["code.normal_priority"]);
    // In this order: the processes do little; nothing waits.
    assert_healthy(&feeds(50_000), "BT062");
    assert_healthy(&feeds(400_000).with(|n| n.per_scheduler = vec![(0.95, 0), (0.95, 0)]), "BT062");
}
