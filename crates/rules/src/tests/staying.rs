//! Tests of why processes increase: new ones that stay, and their current functions.

use beamtune_model::{Level, SpawnRow, WaitSampleRow};

use super::node::{SyntheticNode, node, stack_row};
use super::{assert_healthy, entries, finding, value};

const KIND: &str = "match:init/1";

/// Returns a sample of new processes of that kind some seconds later: status, call stack and number, of twenty.
fn later(status: &str, stack: &[&str], count: i64, on: &[(&str, i64)]) -> WaitSampleRow {
    WaitSampleRow {
        kind: Some(KIND.to_owned()),
        status: status.to_owned(),
        sample_size: 20,
        ..stack_row(count, stack, on)
    }
}

/// A node that spawns sixty matches per second, of which nine stay and wait for a message.
fn matches() -> SyntheticNode {
    node().with(|n| {
        n.processes = (500, 9);
        (n.spawned, n.spawned_alive) = (60, 10);
        n.spawns = vec![SpawnRow {
            what: "process".to_owned(),
            kind: KIND.to_owned(),
            creator: Some("match_sup".to_owned()),
            count: 100,
            sample_size: 100,
            ..SpawnRow::default()
        }];
        n.stacks = vec![
            stack_row(60, &["gen_server:loop/7"], &[]),
            later("waiting", &["gen_server:loop/7", "proc_lib:init_p_do_apply/3"], 19, &[]),
            later("ended", &[], 1, &[]),
        ];
    })
}

#[test]
fn leaked_processes_are_reported_with_their_current_function() {
    let found = finding(&matches(), "BT007");
    assert_eq!(found.level, Level::Warning);
    assert!(found.title.starts_with("Likely process leak: match +9"), "{}", found.title);
    assert!(found.title.contains("/s, limit in "), "{}", found.title);
    for text in [
        "590 of 262,144 processes, +9",
        "; spawned by match_sup; 60 spawned and 51 exited per second; ",
        " wait in gen_server:loop/7",
    ] {
        assert!(found.detail.contains(text), "no {text:?} in {}", found.detail);
    }
    assert_eq!(entries(&found), ["code.bounded_processes"]);
    assert!(found.remedies[0].change.contains("state_timeout"), "{:?}", found.remedies[0]);
    assert_eq!(value(&found, "exit rate of this kind, estimated").map(f64::round), Some(51.0));
    let monitors = found.evidence.iter().find(|evidence| evidence.what == "monitors");
    assert!(
        monitors.and_then(|evidence| evidence.text.as_deref()).is_some_and(|text| text.starts_with("none"))
    );
    assert!(found.against.iter().any(|but| but.contains("check whether growth continues")), "{found:#?}");
    // The leak is also reported if the limit is too far away to matter.
    let far = matches().with(|n| (n.processes, n.spawned, n.spawned_alive) = ((50, 1), 9, 1));
    assert_eq!(finding(&far, "BT007").level, Level::Warning);
}

#[test]
fn a_node_that_fills_up_is_a_notice() {
    let level = |change: &dyn Fn(&mut SyntheticNode)| {
        let mut node = matches();
        change(&mut node);
        finding(&node, "BT007").level
    };
    // None of the spawned processes ends: they may be sessions, devices or cache entries.
    assert_eq!(level(&|n| n.spawned = 10), Level::Notice);
    // Each process ends after some time, as sessions do: scans found them alive.
    assert_eq!(level(&|n| n.spawned_alive = 60), Level::Notice);
    // The number of ports or files of users grows together with them.
    assert_eq!(level(&|n| n.ports = (100, 9)), Level::Notice);
    assert_eq!(level(&|n| n.open_files = (100, 9)), Level::Notice);
    // In this order: they wait for a reply; some end after a while; they have queued messages.
    let at_work = |n: &mut SyntheticNode| {
        n.stacks[1] = later("waiting", &["gen:do_call/4", "match:score/1"], 19, &[("<0.9.0>", 19)]);
    };
    assert_eq!(level(&at_work), Level::Notice);
    assert_eq!(level(&|n| (n.stacks[1].count, n.stacks[2].count) = (5, 15)), Level::Notice);
    assert_eq!(level(&|n| n.stacks[1].queued = 10), Level::Notice);
    // They were not sampled again, as in an older recording.
    assert_eq!(level(&|n| n.stacks.truncate(1)), Level::Notice);
    assert_healthy(&matches().with(|n| n.processes = (500, 0)), "BT007");
}

#[test]
fn children_that_a_supervisor_restarts_should_be_temporary() {
    // The exit rate equals the growth, and scans find all of them: they may be sessions, too.
    let found = finding(&matches().with(|n| (n.spawned, n.spawned_alive) = (18, 18)), "BT007");
    assert_eq!(found.level, Level::Notice);
    assert_eq!(entries(&found), ["code.temporary_children", "code.bounded_processes"]);
    assert!(found.evidence.iter().any(|evidence| evidence.what == "exit rate equal to growth"), "{found:#?}");
}

#[test]
fn the_process_that_they_wait_for_is_named() {
    let node = matches().with(|n| {
        n.stacks[1] = later(
            "waiting",
            &["gen:do_call/4", "gen_server:call/3", "match:score/1"],
            19,
            &[("<0.9.0>", 19)],
        );
    });
    let found = finding(&node, "BT007");
    assert!(
        found.detail.contains(" wait for <0.9.0> in gen:do_call/4, called by match:score/1"),
        "{}",
        found.detail
    );
    assert!(
        found.remedies[0].change.starts_with("set a timeout for the wait in match:score/1"),
        "{:?}",
        found.remedies[0]
    );
    let own = matches().with(|n| n.stacks[1] = later("waiting", &["match:wait/1", "match:init/1"], 19, &[]));
    let found = finding(&own, "BT007");
    assert_eq!(found.level, Level::Warning);
    assert!(
        found.remedies[0].change.starts_with("add an `after` to the receive in match:wait/1"),
        "{:?}",
        found.remedies[0]
    );
}

/// A node on which `round:init/1` processes start the matches. Each of twenty sampled ones has ended seconds later, but its match has not.
/// Both kinds are equally frequent.
fn orphans() -> SyntheticNode {
    let spawn = |kind: &str, maker: &str| SpawnRow {
        what: "process".to_owned(),
        kind: kind.to_owned(),
        creator: Some(maker.to_owned()),
        count: 50,
        sample_size: 100,
        ..SpawnRow::default()
    };
    matches().with(|n| {
        (n.spawned, n.spawned_alive) = (18, 18);
        n.spawns = vec![spawn("round:init/1", "round_sup"), spawn(KIND, "round:init/1")];
        n.stacks[2] = WaitSampleRow { kind: Some("round:init/1".to_owned()), ..later("ended", &[], 20, &[]) };
        n.stacks[1].count = 20;
    })
}

#[test]
fn the_growing_kind_is_the_one_that_outlives_its_creators() {
    let found = finding(&orphans(), "BT007");
    assert_eq!(found.level, Level::Warning);
    assert!(found.title.starts_with("Likely process leak: match +9"), "{}", found.title);
    let ended = "spawned by round:init/1, of which 40 of 40 ended within seconds";
    assert!(found.detail.contains(ended), "{}", found.detail);
    // Their creators live as long as they do.
    let together = orphans()
        .with(|n| n.stacks[2] = WaitSampleRow { status: "waiting".to_owned(), ..n.stacks[2].clone() });
    assert_eq!(finding(&together, "BT007").level, Level::Notice);
}

#[test]
fn processes_that_stay_explain_growing_process_memory() {
    let follows = |each: i64| {
        let node = orphans().with(|n| n.kinds = vec![("processes", 500 * 100_000, 9 * each)]);
        let found = super::diagnose(&node.with(|n| n.memory_available = 2_000_000_000).period());
        let growth =
            found.findings().into_iter().find(|found| found.code.0 == "BT027").expect("growth").clone();
        growth.follows.map(|cause| cause.code.0)
    };
    // In this order: they have the mean size; growth is a hundred times as large, so something else grows.
    assert_eq!(follows(200_000), Some("BT007"));
    assert_eq!(follows(10_000_000), None);
}
