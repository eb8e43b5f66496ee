//! Tests of rules on RabbitMQ's own counters.

use beamtune_model::{Level, Metric, facts, metrics::*};

use super::{
    Read, SyntheticNode, SyntheticProcess, assert_healthy, diagnose, entries, finding, node, outcome, row,
    value,
};

type Counted = (&'static Metric, &'static str, i64, i64);

const QUEUE: &str = "queue orders";
const CLIENT: &str = "queue orders\u{1f}connection 10.0.0.7:41000 -> 10.0.0.1:5672 - worker\u{1f}app";
const CONNECTION: &str = "connection 10.0.0.7:41000 -> 10.0.0.1:5672 - worker\u{1f}app";

/// A broker that handles a thousand messages per second.
fn rabbit(more: &[Counted]) -> SyntheticNode {
    node().with(|n| {
        n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned()));
        n.series = vec![
            (&BROKER_CONNECTIONS, "", 100, 0),
            (&BROKER_CHANNELS, "", 120, 0),
            (&BROKER_CONNECTIONS_OPENED, "", 1_000, 0),
            (&BROKER_CONNECTIONS_CLOSED, "", 900, 0),
            (&BROKER_CHANNELS_OPENED, "", 1_000, 0),
            (&BROKER_CHANNELS_CLOSED, "", 900, 0),
            (&BROKER_QUEUES_CREATED, "", 50, 0),
            (&BROKER_QUEUES_DELETED, "", 0, 0),
            (&BROKER_LOGINS_FAILED, "", 0, 0),
            (&BROKER_DELIVERED, "", 0, 1_000),
            (&BROKER_REDELIVERED, "", 0, 0),
            (&BROKER_READY, "", 10, 0),
            (&BROKER_UNACKED, "", 10, 0),
            (&BROKER_DISK_ALARM, "", 0, 0),
        ];
        for counted in more {
            n.series.retain(|known| (known.0, known.1) != (counted.0, counted.1));
            n.series.push(*counted);
        }
    })
}

fn queue(ready: (i64, i64), unacked: i64, consumers: i64, acked: i64, again: i64) -> SyntheticNode {
    rabbit(&[
        (&QUEUE_READY, QUEUE, ready.0, ready.1),
        (&QUEUE_UNACKED, QUEUE, unacked, 0),
        (&QUEUE_CONSUMERS, QUEUE, consumers, 0),
        (&QUEUE_PREFETCH, QUEUE, 30 * consumers, 0),
        (&QUEUE_UNLIMITED, QUEUE, 0, 0),
        (&QUEUE_DELIVERED, QUEUE, 0, acked + again),
        (&QUEUE_REDELIVERED, QUEUE, 0, again),
        (&QUEUE_ACKNOWLEDGED, QUEUE, 0, acked),
        (&CLIENT_DELIVERED, CLIENT, 0, acked + again),
        (&CLIENT_REDELIVERED, CLIENT, 0, again),
        (&CLIENT_UNACKED, CLIENT, unacked, 0),
    ])
}

fn subject(node: &SyntheticNode, code: &str) -> String {
    finding(node, code).subject_text().unwrap_or_default()
}

#[test]
fn a_redelivery_loop_names_queue_and_consumer_and_explains_their_gc() {
    let sick = queue((100, 10), 30, 1, 10, 9_000).with(|n| {
        n.utilization = 0.5;
        n.gc = 0.3;
        n.total_reductions = 1_000_000;
        let labelled = row(|row| row.label = Some(QUEUE.to_owned()));
        n.busiest = vec![SyntheticProcess {
            pid: "<0.77.0>",
            reductions: 900_000,
            row: labelled,
            ..SyntheticProcess::default()
        }];
    });
    let found = finding(&sick, "BT069");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("orders")));
    assert!(
        found.title.contains("9,000 of 9,010") && found.detail.contains("worker (user app) requeues"),
        "{}: {}",
        found.title,
        found.detail
    );
    assert!(found.claim.is_some_and(|claim| claim.cost.value() > 0.8));
    assert_eq!(entries(&found), ["rabbitmq.dead_letter"]);
    let diagnosis = diagnose(&sick.period());
    let gc = diagnosis.findings().into_iter().find(|found| found.code.0 == "BT011").expect("gc").clone();
    assert_eq!(gc.follows.map(|of| of.code.0), Some("BT069"));
    // In this order: few redeliveries; redeliveries that are a small share of the traffic; no redeliveries.
    assert_eq!(finding(&queue((0, 0), 0, 1, 10, 20), "BT069").level, Level::Notice);
    assert_healthy(&queue((0, 0), 0, 1, 5_000, 200), "BT069");
    assert_healthy(&queue((0, 0), 0, 1, 1_000, 0), "BT069");
    // Channels close without acknowledging.
    let ending = queue((0, 0), 0, 1, 100, 200).with(|n| n.series.push((&BROKER_CHANNELS_CLOSED, "", 0, 30)));
    let ending =
        ending.with(|n| n.series.retain(|known| (known.0.name, known.2) != ("channels_closed", 900)));
    let found = finding(&ending, "BT069");
    assert!(found.level == Level::Notice && !found.detail.contains("requeues"), "{}", found.detail);
    // Without queue statistics, the queue is unknown.
    let total = rabbit(&[(&BROKER_REDELIVERED, "", 0, 900)]);
    assert_eq!(finding(&total, "BT069").subject, None);
}

/// Messages that failed wait in their own queue, and then come back.
fn retrying(rejected: i64, expired: i64, published: i64) -> SyntheticNode {
    const DELAY: &str = "queue orders.later";
    rabbit(&[
        (&BROKER_STATISTICS, "", 1, 0),
        (&BROKER_PUBLISHED, "", 0, published),
        (&BROKER_ACKNOWLEDGED, "", 0, published),
        (&BROKER_DELIVERED, "", 0, published + rejected),
        (&BROKER_DEAD_LETTERED_REJECTED, "", 0, rejected),
        (&BROKER_DEAD_LETTERED_EXPIRED, "", 0, expired),
        (&BROKER_READY, "", 5_000, 0),
        (&QUEUE_READY, QUEUE, 40, 0),
        (&QUEUE_CONSUMERS, QUEUE, 2, 0),
        (&QUEUE_DELIVERED, QUEUE, 0, published + rejected),
        (&QUEUE_ACKNOWLEDGED, QUEUE, 0, published),
        (&CLIENT_DELIVERED, CLIENT, 0, published + rejected),
        (&QUEUE_READY, DELAY, 5_000, 0),
        (&QUEUE_CONSUMERS, DELAY, 0, 0),
        (&QUEUE_TTL, DELAY, 2_500_000_000, 0),
        // A queue with many messages that are dropped after a day.
        (&QUEUE_READY, "queue log", 30_000, 0),
        (&QUEUE_CONSUMERS, "queue log", 0, 0),
        (&QUEUE_TTL, "queue log", 86_400_000_000_000, 0),
    ])
}

fn change(node: &SyntheticNode, metric: &'static Metric, value: (i64, i64)) -> SyntheticNode {
    node.clone().with(|n| {
        n.series.retain(|known| (known.0.group, known.0.name, known.1) != (metric.group, metric.name, ""));
        n.series.push((metric, "", value.0, value.1));
    })
}

#[test]
fn messages_that_dead_lettering_brings_back_are_a_loop() {
    let sick = retrying(2_000, 2_000, 50).with(|n| {
        (n.utilization, n.gc, n.total_reductions) = (0.5, 0.3, 1_000_000);
        let labelled = |label: &str| row(|row| row.label = Some(label.to_owned()));
        let busy = |pid, label| SyntheticProcess {
            pid,
            reductions: 400_000,
            row: labelled(label),
            ..SyntheticProcess::default()
        };
        n.busiest = vec![busy("<0.77.0>", QUEUE), busy("<0.78.0>", "queue orders.later")];
    });
    let found = finding(&sick, "BT069");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("orders.later")));
    assert_eq!(found.title, "Dead-letter loop via orders.later: 2000/s rejected, 50/s published");
    assert!(found.claim.is_some_and(|claim| claim.cost.value() > 0.7), "{:?}", found.claim);
    assert_eq!(value(&found, "rejections per message published"), Some(40.0));
    assert!(value(&found, "rejections per message in the period").is_some_and(|rounds| rounds > 3.0));
    assert!(found.remedies[0].change.contains("x-death"), "{:?}", found.remedies);
    let gc = diagnose(&sick.period()).findings().into_iter().find(|found| found.code.0 == "BT011").cloned();
    assert_eq!(gc.and_then(|gc| gc.follows).map(|of| of.code.0), Some("BT069"));
    // In this order: a retry queue for a part of the traffic; bounded retries; dead letters that do not come back, in two cases; few dead
    // letters.
    for (rejected, expired, published) in
        [(100, 100, 2_000), (200, 200, 50), (2_000, 0, 2_000), (2_000, 100, 500), (8, 8, 0)]
    {
        assert_healthy(&retrying(rejected, expired, published), "BT069");
    }
    // Each of many messages may have been rejected only once.
    let once = finding(&change(&retrying(2_000, 2_000, 50), &BROKER_READY, (90_000, 0)), "BT069");
    assert!(once.against.iter().any(|text| text.contains("for the first time")), "{:?}", once.against);
    // Messages that consumers on other nodes handle are unknown.
    assert_healthy(&change(&retrying(2_000, 2_000, 0), &BROKER_DELIVERED, (0, 100)), "BT069");
    // Messages come back at once.
    let at_once = change(&retrying(2_000, 0, 50), &BROKER_READY, (10, 0));
    let found = finding(&at_once, "BT069");
    assert_eq!((found.subject_text().as_deref(), found.remedies.len()), (Some("orders"), 2));
    assert_healthy(&retrying(2_000, 0, 50).with(|n| n.seconds = 5), "BT069");
    let with_tools =
        at_once.clone().with(|n| n.series.push((&DIST_INPUT, "rabbitmqcli-7-rabbit@here", 0, 0)));
    assert_eq!(finding(&with_tools, "BT069").level, Level::Warning);
    let in_cluster = at_once.with(|n| n.series.push((&DIST_INPUT, "rabbit@other", 0, 0)));
    assert_healthy(&in_cluster, "BT069");
    // RabbitMQ before 3.10 does not count rejections.
    assert_healthy(&queue((0, 0), 0, 1, 1_000, 0), "BT069");
}

#[test]
fn churn_is_reported_with_the_client_that_opens_most() {
    let opening = |rate| {
        rabbit(&[
            (&BROKER_CONNECTIONS_OPENED, "", 0, rate),
            (&BROKER_CONNECTIONS_CLOSED, "", 0, rate),
            (&BROKER_CHANNELS_OPENED, "", 0, rate),
            (&BROKER_CHANNELS_CLOSED, "", 0, rate),
            (&OPENER_CONNECTIONS, "php\u{1f}web", 12, 0),
            (&OPENER_CONNECTIONS, "worker\u{1f}app", 1, 0),
        ])
    };
    let found = finding(&opening(150), "BT070");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("php (user web)")));
    assert_eq!(found.title, "RabbitMQ clients open 150 connections/s, most by php");
    assert_eq!(entries(&found), ["rabbitmq.long_lived"]);
    assert_eq!(finding(&opening(30), "BT070").level, Level::Notice);
    assert_healthy(&opening(10), "BT070");
    // The connections stay open.
    assert_healthy(
        &rabbit(&[(&BROKER_CONNECTIONS_OPENED, "", 0, 150), (&BROKER_CHANNELS_OPENED, "", 0, 150)]),
        "BT070",
    );
    let channels = rabbit(&[(&BROKER_CHANNELS_OPENED, "", 0, 800), (&BROKER_CHANNELS_CLOSED, "", 0, 800)]);
    assert_eq!(finding(&channels, "BT070").title, "RabbitMQ clients open 800 channels/s");
    let queues = rabbit(&[(&BROKER_QUEUES_CREATED, "", 0, 200), (&BROKER_QUEUES_DELETED, "", 0, 200)]);
    assert_eq!(finding(&queues, "BT070").title, "RabbitMQ clients create 200 queues/s");
    let leak = rabbit(&[(&CONNECTION_CHANNELS, CONNECTION, 300, 5)]);
    assert_eq!(
        (finding(&leak, "BT070").level, subject(&leak, "BT070")),
        (Level::Warning, "worker (user app)".to_owned())
    );
    assert_healthy(&rabbit(&[(&CONNECTION_CHANNELS, CONNECTION, 300, 0)]), "BT070");
    let binds = |commits| rabbit(&[(&MNESIA_COMMITS, "", 0, commits), (&BROKER_QUEUES_CREATED, "", 0, 2)]);
    assert!(finding(&binds(700), "BT070").title.starts_with("Binding churn: "));
    assert_eq!(finding(&binds(100), "BT070").level, Level::Notice);
    assert_healthy(&binds(20), "BT070");
    assert_eq!(finding(&rabbit(&[(&BROKER_LOGINS_FAILED, "", 0, 20)]), "BT070").level, Level::Warning);
}

#[test]
fn a_growing_queue_is_reported_with_its_reason() {
    let found = finding(&queue((20_000, 100), 0, 0, 0, 0), "BT071");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("orders")));
    assert_eq!(found.title, "Queue orders grows by 100/s without consumer");
    assert_eq!(entries(&found), ["rabbitmq.queue_limits"]);
    assert_eq!(finding(&queue((200, 100), 0, 0, 0, 0), "BT071").level, Level::Notice);
    let stuck = finding(&queue((200, 100), 60, 2, 0, 0), "BT071");
    assert_eq!(stuck.title, "Queue orders: none of 60 messages acknowledged");
    assert_eq!(stuck.detail, "held mostly by worker (user app)");
    assert_eq!((stuck.level, entries(&stuck)), (Level::Warning, vec!["rabbitmq.prefetch"]));
    // The consumers may run long jobs.
    assert_eq!(finding(&queue((200, 0), 60, 2, 0, 0), "BT071").level, Level::Notice);
    assert_eq!(finding(&queue((20_000, 100), 60, 2, 200, 0), "BT071").level, Level::Warning);
    // In this order: a long queue of constant length, a wave, slow growth, a shrinking queue.
    for (ready, acked) in [((50_000, 0), 100), ((100, 50), 100), ((5_000, 10), 1_000), ((5_000, -100), 1_000)]
    {
        assert_healthy(&queue(ready, 30, 2, acked, 0), "BT071");
    }
}

#[test]
fn a_queue_without_consumer_that_settles_is_healthy() {
    let waiting = |bounds: &[(&'static Metric, i64)]| {
        queue((200, 100), 0, 0, 0, 0)
            .with(|n| n.series.extend(bounds.iter().map(|&(metric, value)| (metric, QUEUE, value, 0))))
    };
    assert_healthy(&waiting(&[(&QUEUE_TTL, 30_000_000_000)]), "BT071");
    assert_healthy(&waiting(&[(&QUEUE_MAX_LENGTH, 500)]), "BT071");
    // A TTL of days or a maximum length of millions is no useful limit.
    finding(&waiting(&[(&QUEUE_TTL, 604_800_000_000_000), (&QUEUE_MAX_LENGTH, 5_000_000)]), "BT071");
}

#[test]
fn a_disk_alarm_is_critical_and_a_memory_alarm_is_recognized() {
    assert_eq!(finding(&rabbit(&[(&BROKER_DISK_ALARM, "", 1, 0)]), "BT072").level, Level::Critical);
    assert_healthy(&rabbit(&[]), "BT072");
    let memory = rabbit(&[(&BROKER_MEMORY_ALARM, "", 1, 0), (&BROKER_BLOCKED, "", 7, 0)]);
    assert_eq!(finding(&memory, "BT037").level, Level::Critical);
}

#[test]
fn unrecorded_counters_are_not_judged_and_other_nodes_are_not_brokers() {
    let old = node().with(|n| n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned())));
    for code in ["BT069", "BT070", "BT071", "BT072"] {
        assert!(matches!(outcome(&old.period(), code), beamtune_model::Outcome::NotJudged { .. }), "{code}");
        assert_healthy(&node(), code);
    }
}
