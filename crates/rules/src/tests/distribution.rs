//! Tests of rules on the distribution: connections without progress, busy ports, and attempts to connect.

use beamtune_model::{Level, Outcome, SpawnRow, facts, metrics};

use super::node::{DistSample, SyntheticProcess, node};
use super::processes::happens;
use super::{Read, assert_healthy, entries, finding, outcome, row};

#[test]
fn processes_suspended_by_a_busy_distribution_port_are_found() {
    let many = happens("busy_dist_port", 0, "sender (<0.9.0>)").with(|n| {
        n.events = std::iter::repeat_n(n.events[0].clone(), 10).collect();
        n.facts.push((facts::DIST_BUF_BUSY_LIMIT, "1048576".to_owned()));
    });
    let found = finding(&many, "BT018");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["code.back_pressure", "+zdbbl"]));
    assert!(found.remedies[1].change.starts_with("+zdbbl 8192 (8 MB"), "{}", found.remedies[1].change);
    assert!(found.remedies[0].change.starts_with("send only changes"), "{}", found.remedies[0].change);
    // If several processes send at the same time, each of them need not send too much.
    let several = many.clone().with(|n| {
        for event in n.events.iter_mut().step_by(2) {
            event.subject = "another (<0.10.0>)";
        }
    });
    let found = finding(&several, "BT018");
    assert!(found.remedies[0].change.starts_with("send less"), "{}", found.remedies[0].change);
    // A buffer that is already large is not the cause: that of RabbitMQ, or one of more than half the largest advised size.
    let limit = |kilobytes: i64| {
        let bytes = (kilobytes << 10).to_string();
        finding(&many.clone().with(|n| n.facts.push((facts::DIST_BUF_BUSY_LIMIT, bytes))), "BT018")
    };
    for large in [131_072, 128_000, 65_537] {
        assert_eq!(entries(&limit(large)), ["code.back_pressure"], "{large}");
    }
    assert!(limit(65_536).remedies[1].change.starts_with("+zdbbl 131072 "));
}

/// Samples of a distribution connection whose output the VM counts.
fn counted<const N: usize>(samples: [(i64, i64); N]) -> Vec<DistSample> {
    samples.map(|(queue, output)| DistSample { queue, output }).to_vec()
}

/// The same for a VM that does not count it: the output is that of the handshake only.
fn uncounted<const N: usize>(queues: [i64; N]) -> Vec<DistSample> {
    queues.map(|queue| DistSample { queue, output: 101 }).to_vec()
}

#[test]
fn a_stalled_distribution_connection_is_found_without_events() {
    let stalled = node().with(|n| n.dist_samples = counted([(85_342, 4_470_246), (85_342, 4_470_246)]));
    let found = finding(&stalled, "BT018");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Critical, Some("other@host")));
    assert_eq!(found.title, "Distribution connection to other@host stalled for 10 s");
    assert_eq!(entries(&found), ["kernel.net_ticktime"]);
    // The stall is also found if another system monitor receives the events.
    let unheard = stalled.clone().with(|n| n.missing_metrics.push(&metrics::EVENT_COUNT));
    assert_eq!(finding(&unheard, "BT018").level, Level::Critical);
    // It is also found if other processes are suspended all the time.
    let busy = happens("busy_dist_port", 0, "sender (<0.9.0>)").with(|n| {
        n.events = std::iter::repeat_n(n.events[0].clone(), 10).collect();
        n.dist_samples.clone_from(&stalled.dist_samples);
    });
    assert_eq!(entries(&finding(&busy, "BT018")), ["kernel.net_ticktime"]);
    // A suspended process with messages is named.
    let server = stalled.with(|n| {
        n.busiest = vec![SyntheticProcess {
            queue: (900, 10),
            row: row(|r| {
                r.name = Some("relay".to_owned());
                r.status = Some("suspended".to_owned());
            }),
            ..SyntheticProcess::default()
        }];
    });
    let found = finding(&server, "BT018");
    assert!(
        found.evidence.iter().any(|evidence| evidence.text.as_deref() == Some("relay (<0.77.0>)")),
        "{found:#?}"
    );
    // Only the end of the period matters: the connection moved before.
    let now = node().with(|n| {
        n.seconds = 30;
        n.dist_samples = counted([(85_342, 400_000), (85_342, 500_000), (9, 600_000), (9, 600_000)]);
    });
    assert!(finding(&now, "BT018").title.ends_with("stalled for 10 s"));
}

#[test]
fn a_distribution_connection_that_sends_is_not_stalled_whatever_its_queue_length() {
    for moves in [
        // As many bytes were queued as were sent, so the queue length is constant.
        counted([(85_342, 4_470_246), (85_342, 4_570_246)]),
        counted([(85_342, 4_470_246), (85_342, 4_470_246), (85_342, 4_470_250)]),
        counted([(85_342, 4_470_246), (21_000, 4_470_246)]),
        counted([(0, 4_470_246), (0, 4_470_246)]),
        counted([(85_342, 4_470_246)]),
        uncounted([85_342, 21_000]),
        uncounted([0, 0]),
    ] {
        assert_healthy(&node().with(|n| n.dist_samples = moves), "BT018");
    }
    // Every connection stalls for a moment.
    let moment = counted([(85_342, 4_470_246), (85_342, 4_470_246)]);
    assert_healthy(&node().with(|n| (n.seconds, n.dist_samples) = (4, moment)), "BT018");
}

#[test]
fn a_few_equal_samples_do_not_prove_a_stall_if_the_vm_does_not_count_output() {
    let found = finding(&node().with(|n| n.dist_samples = uncounted([85_342; 2])), "BT018");
    assert_eq!((found.level, found.against.len()), (Level::Warning, 2));
    assert!(found.title.contains("possibly stalled"), "{}", found.title);
    assert_eq!(
        finding(&node().with(|n| n.dist_samples = uncounted([85_342; 3])), "BT018").level,
        Level::Warning
    );
    let long = node().with(|n| (n.seconds, n.dist_samples) = (30, uncounted([85_342; 4])));
    assert_eq!(finding(&long, "BT018").level, Level::Critical);
    // If many processes are suspended all the time, connections move.
    let busy = happens("busy_dist_port", 0, "sender (<0.9.0>)").with(|n| {
        n.events = std::iter::repeat_n(n.events[0].clone(), 10).collect();
        n.dist_samples = uncounted([85_342; 2]);
    });
    assert_eq!(entries(&finding(&busy, "BT018")), ["code.back_pressure"]);
}

#[test]
fn the_length_of_a_stall_comes_from_all_samples_of_a_long_recording() {
    // The thinned trace has no point for the sample in which the connection moved.
    let mut samples = uncounted([85_342; 501]);
    samples[496].queue = 9_000;
    let found = finding(&node().with(|n| (n.seconds, n.dist_samples) = (5_000, samples)), "BT018");
    assert_eq!(found.level, Level::Critical);
    assert!(found.title.contains("for 30 s"), "{}", found.title);
}

#[test]
fn a_distribution_connection_without_back_pressure_is_not_called_healthy() {
    let unbounded = node().with(|n| n.facts.push((facts::ASYNC_DIST, "true".to_owned())));
    assert!(matches!(outcome(&unbounded.period(), "BT018"), Outcome::NotJudged { .. }));
    assert_healthy(&node().with(|n| n.facts.push((facts::ASYNC_DIST, "false".to_owned()))), "BT018");
}

#[test]
fn repeated_connection_attempts_are_estimated_from_new_processes() {
    let tries = |set_up: i64, others: i64, work: i64| {
        node().with(|n| {
            let new = |kind: &str, count| SpawnRow {
                what: "process".to_owned(),
                kind: kind.to_owned(),
                count,
                sample_size: set_up + others,
                ..SpawnRow::default()
            };
            n.spawns = vec![new("inet_tcp_dist:do_setup/7", set_up), new("shop:request/1", others)];
            n.spawned = 120;
            let row = row(|r| r.name = Some("net_kernel".to_owned()));
            n.busiest = vec![SyntheticProcess { reductions: work, row, ..SyntheticProcess::default() }];
        })
    };
    let found = finding(&tries(3, 1, 200_000), "BT086");
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Warning, Some("net_kernel (<0.77.0>)"))
    );
    assert_eq!(found.title, "Likely 45 failing connection attempts/s to other nodes");
    assert_eq!(entries(&found), ["code.around_the_server", "kernel.dist_auto_connect"]);
    for healthy in [tries(3, 9, 200_000), tries(3, 1, 1_000), tries(0, 0, 200_000)] {
        assert_healthy(&healthy, "BT086");
    }
}

#[test]
fn nodes_with_failing_connection_attempts_are_named() {
    let tries = |attempts: i64, out: i64, incoming: i64, up: i64, steps: &[(&str, i64)]| {
        node().with(|n| {
            let readings = [
                (&metrics::CONNECT_ATTEMPTS, attempts),
                (&metrics::CONNECT_PENDING, 1),
                (&metrics::CONNECT_OUTGOING, out),
                (&metrics::CONNECT_INCOMING, incoming),
                (&metrics::CONNECT_CALLERS, 1),
                (&metrics::CONNECT_UP, up),
            ];
            n.series = vec![(&metrics::CONNECT_SAMPLES, "", 1, 0)];
            n.series.extend(readings.map(|(metric, value)| (metric, "shop@web2", value, 0)));
            let row = |what: &str, maker: &str, count| SpawnRow {
                what: what.to_owned(),
                kind: "shop@web2".to_owned(),
                creator: Some(maker.to_owned()),
                count,
                sample_size: 100,
                ..SpawnRow::default()
            };
            n.spawns = vec![row(SpawnRow::ATTEMPT, "cluster_strategy", 9)];
            n.spawns.extend(steps.iter().map(|(step, count)| row(SpawnRow::ATTEMPT_STEP, step, *count)));
        })
    };
    let gone = finding(&tries(20, 2, 0, 0, &[("epmd", 11)]), "BT086");
    assert_eq!((gone.level, gone.subject_text().as_deref()), (Level::Warning, Some("shop@web2")));
    assert!(gone.title.contains("connection attempts/s to shop@web2 fail"), "{}", gone.title);
    assert_eq!(gone.detail, "gone, or its port is closed; requested by cluster_strategy");
    assert!(gone.evidence.iter().any(|evidence| evidence.what == "connection requested by"));
    let refuses = finding(&tries(20, 2, 0, 0, &[("epmd", 11), ("handshake", 2)]), "BT086");
    assert!(refuses.detail.contains("refused in the handshake"), "{}", refuses.detail);
    let incoming = finding(&tries(20, 0, 2, 0, &[]), "BT086");
    assert!(incoming.title.contains("connection attempts/s from shop@web2 fail"), "{}", incoming.title);
    // In this order: the last attempt connects; there were few attempts.
    for healthy in [tries(20, 2, 0, 1, &[]), tries(0, 1, 0, 0, &[])] {
        assert_healthy(&healthy, "BT086");
    }
}

#[test]
fn nodes_that_reconnect_are_named() {
    let again = |nodes: &[(&'static str, i64)], samples: i64| {
        node().with(|n| {
            n.series = vec![(&metrics::CONNECT_SAMPLES, "", 1, 0), (&metrics::CONNECT_AGAIN, "", samples, 0)];
            n.series.extend(nodes.iter().map(|(node, count)| (&metrics::CONNECT_AGAIN, *node, *count, 0)));
        })
    };
    // The series of a synthetic node have a reading in each second.
    let found = finding(&again(&[("shop@web2", 2), ("shop@web3", 1)], 1), "BT086");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("shop@web2")));
    assert!(found.title.starts_with("shop@web2 and 1 more lost and reconnected "), "{}", found.title);
    assert_healthy(&again(&[("shop@web2", 0)], 0), "BT086");
    // All reconnected at once: the network was down for a moment.
    assert_healthy(&again(&[("shop@web2", 1), ("shop@web3", 1)], 0), "BT086");
}
