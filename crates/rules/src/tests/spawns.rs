//! Tests of rules on processes that start and end at a high rate.

use beamtune_model::{Level, SpawnRow};

use super::node::{SyntheticNode, SyntheticProcess, SystemMonitorEvent, node};
use super::{Read, assert_healthy, entries, finding, row};

fn storm() -> SyntheticNode {
    node().with(|n| {
        n.spawned = 100_000;
        n.total_reductions = 20_000_000;
        n.busiest = vec![SyntheticProcess {
            reductions: 9_000_000,
            row: row(|r| r.name = Some("mapper".to_owned())),
            ..SyntheticProcess::default()
        }];
    })
}

fn seen(count: i64, of: i64) -> Vec<SpawnRow> {
    vec![SpawnRow {
        what: "process".to_owned(),
        kind: "shop:item/1".to_owned(),
        creator: Some("shop".to_owned()),
        count,
        sample_size: of,
        ..SpawnRow::default()
    }]
}

#[test]
fn a_spawn_storm_is_found() {
    let found = finding(&storm(), "BT039");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["code.fewer_processes"]));
    assert!(
        found.evidence.iter().any(|e| e.text.as_ref().is_some_and(|t| t.starts_with("mapper"))),
        "{found:#?}"
    );
    assert_eq!(found.subject, None, "no new process was sampled");
    let many = storm().with(|n| n.spawned = 270_000);
    assert_eq!(finding(&many, "BT039").level, Level::Warning, "most of the CPU is idle");
    let full = many.with(|n| n.other_cpu = 1.38);
    assert_eq!(finding(&full, "BT039").level, Level::Critical, "other processes use the rest");
    // A few random samples do not represent the other processes.
    let alive = storm().with(|n| n.spawned_alive = 20_000);
    assert_eq!(finding(&alive.clone().with(|n| n.spawns = seen(1, 1)), "BT039").subject, None);
    assert_eq!(finding(&alive.clone().with(|n| n.spawns = seen(15, 40)), "BT039").subject, None);
    assert_eq!(finding(&storm().with(|n| n.spawns = seen(30, 40)), "BT039").subject, None);
    let named = finding(&alive.with(|n| n.spawns = seen(30, 40)), "BT039");
    assert_eq!(named.subject_text().as_deref(), Some("shop:item/1 started by shop"));
    assert!(named.detail.contains("started by shop"), "{}", named.detail);
    // Each process does much other work.
    let large = finding(&storm().with(|n| n.total_reductions = 200_000_000), "BT039");
    assert!(large.against.iter().any(|against| against.contains("do much work")), "{:?}", large.against);
    // The node is nearly idle.
    let idle = storm().with(|n| (n.spawned, n.utilization) = (10_000, 0.02));
    assert_eq!(finding(&idle, "BT039").level, Level::Notice);
    assert_healthy(&storm().with(|n| n.spawned = 5_000), "BT039");
    // Skipped slots of the process table are no processes.
    let full = storm().with(|n| n.processes = (250_000, 0));
    assert_healthy(&full, "BT039");
}

#[test]
fn new_processes_with_large_arguments_are_found_with_their_starter() {
    let given = |bytes: i64, count: i64| SpawnRow {
        what: "given".to_owned(),
        kind: "Elixir.Shop.Mail:send/1".to_owned(),
        creator: Some("Elixir.Shop.Cart".to_owned()),
        count,
        sample_size: 40,
        bytes: Some(bytes * count),
        ..SpawnRow::default()
    };
    let with = |bytes: i64, count: i64| {
        node().with(|n| {
            (n.spawned, n.spawned_alive) = (40, 40);
            n.spawns = seen(40, 40);
            n.spawns.push(given(bytes, count));
        })
    };
    let found = finding(&with(14_000_000, 30), "BT082");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("Elixir.Shop.Cart")));
    assert_eq!(found.title, "Elixir.Shop.Cart copies 14.0 MB to each new process");
    assert_eq!(entries(&found), ["code.small_closures"]);
    // Long time slices of the copying process are a consequence.
    let slow = with(14_000_000, 30).with(|n| {
        n.events = vec![SystemMonitorEvent {
            kind: "long_schedule",
            milliseconds: 300,
            subject: "Elixir.Shop.Cart (<0.9.0>)",
            first_second: 1,
        }];
    });
    assert_eq!(finding(&slow, "BT016").follows.map(|of| of.code.0), Some("BT082"));
    // The arguments are small.
    assert_healthy(&with(40_000, 30), "BT082");
    assert_healthy(&node(), "BT082");
}
