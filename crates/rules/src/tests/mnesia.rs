//! Tests of rules on Mnesia.

use beamtune_model::{Confidence, Level, Outcome, facts, metrics};

use super::node::{SyntheticNode, node};
use super::{Read, assert_healthy, entries, finding, outcome};

/// A node with Mnesia. For each other node, whether Mnesia runs together with that node.
fn with(others: &[(&'static str, i64)]) -> SyntheticNode {
    node().with(|n| {
        n.facts.push((facts::APPLICATIONS, r#"{"kernel":"8.5","mnesia":"4.21"}"#.to_owned()));
        n.series = vec![(&metrics::MNESIA_COMMITS, "", 5, 0), (&metrics::MNESIA_LOG_WRITES, "", 5, 0)];
        n.series.extend(others.iter().map(|(name, runs)| (&metrics::MNESIA_RUNS, *name, *runs, 0)));
    })
}

#[test]
fn mnesia_that_is_partitioned_from_a_connected_node_is_found() {
    let sick = with(&[("b@web2", 0), ("c@web3", 1)]);
    let found = finding(&sick, "BT077");
    assert_eq!((found.level, found.confidence), (Level::Warning, Confidence::Inferred));
    assert_eq!(found.subject_text().as_deref(), Some("b@web2"));
    assert_eq!(entries(&found), ["code.mnesia_heal", "code.mnesia_majority"]);
    let rabbit = sick.with(|n| n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned())));
    assert!(finding(&rabbit, "BT077").remedies[0].change.contains("rabbitmqctl"));
    assert_healthy(&with(&[("b@web2", 1)]), "BT077");
    assert_healthy(&with(&[]), "BT077");
    // In this order: a node without Mnesia; an old recording, which has no other nodes.
    let without = node().with(|n| n.facts.push((facts::APPLICATIONS, r#"{"kernel":"8.5"}"#.to_owned())));
    assert_healthy(&without, "BT077");
    let old = with(&[]).with(|n| n.series = Vec::new());
    assert!(matches!(outcome(&old.period(), "BT077"), Outcome::NotJudged { .. }));
}

#[test]
fn a_log_that_is_dumped_too_often_is_found_with_the_threshold_to_set() {
    let with = |writes_per_s: i64, threshold: i64| {
        node().with(|n| {
            n.series = vec![
                (&metrics::MNESIA_LOG_THRESHOLD, "", threshold, 0),
                (&metrics::MNESIA_COMMITS, "", 0, writes_per_s),
                (&metrics::MNESIA_LOG_WRITES, "", 0, writes_per_s),
            ];
        })
    };
    let found = finding(&with(200, 3), "BT081");
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Warning, Some("dump_log_write_threshold"))
    );
    assert_eq!(entries(&found), ["mnesia.dump_log_write_threshold"]);
    assert!(
        found.remedies[0].change.starts_with("-mnesia dump_log_write_threshold 2000"),
        "{:?}",
        found.remedies
    );
    // The default is too low for 8,000 writes a second.
    let many = finding(&with(8_000, 1_000), "BT081");
    assert_eq!((many.level, many.against.len()), (Level::Warning, 1));
    assert!(many.remedies[0].change.contains(" 80000"), "{:?}", many.remedies);
    assert_healthy(&with(200, 1_000), "BT081");
    assert_healthy(&node(), "BT081");
}
