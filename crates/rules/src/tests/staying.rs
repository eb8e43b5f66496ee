//! Why processes become more: those that stay, and where they stand.

use beamtune_model::{Level, SpawnRow, StandRow};

use super::node::{Node, node, stand};
use super::{assert_healthy, entries, finding, value};

const KIND: &str = "match:init/1";

/// So many new processes of that kind stand so some seconds later, of twenty.
fn later(status: &str, stack: &[&str], count: i64, on: &[(&str, i64)]) -> StandRow {
    StandRow { kind: Some(KIND.to_owned()), status: status.to_owned(), of: 20, ..stand(count, stack, on) }
}

/// Sixty matches start each second, of which nine stay and wait for a message.
fn matches() -> Node {
    node().with(|n| {
        n.processes = (500, 9);
        (n.spawned, n.seen_alive) = (60, 10);
        n.spawns = vec![SpawnRow {
            what: "process".to_owned(),
            kind: KIND.to_owned(),
            maker: Some("match_sup".to_owned()),
            count: 100,
            of: 100,
            ..SpawnRow::default()
        }];
        n.stands = vec![
            stand(60, &["gen_server:loop/7"], &[]),
            later("waiting", &["gen_server:loop/7", "proc_lib:init_p_do_apply/3"], 19, &[]),
            later("ended", &[], 1, &[]),
        ];
    })
}

#[test]
fn those_that_are_left_behind_are_told_with_where_they_stand() {
    let found = finding(&matches(), "BT007");
    assert_eq!(found.level, Level::Warning);
    let all = "9 processes more each second (60 start, 51 end), mostly match:init/1 made by match_sup: ";
    assert!(found.title.starts_with(all), "{}", found.title);
    assert!(
        found
            .title
            .contains(" wait in gen_server:loop/7; 590 processes now, the limit of 262144 is reached in"),
        "{}",
        found.title
    );
    assert_eq!(entries(&found), ["code.bounded_processes"]);
    assert!(found.remedies[0].change.contains("state_timeout"), "{:?}", found.remedies[0]);
    assert_eq!(value(&found, "of these end in a second, about").map(f64::round), Some(51.0));
    let monitors = found.evidence.iter().find(|evidence| evidence.what == "whom they monitor");
    assert!(
        monitors.and_then(|evidence| evidence.text.as_deref()).is_some_and(|text| text.starts_with("nobody"))
    );
    assert!(found.against.iter().any(|but| but.contains("look whether it goes on")), "{found:#?}");
    // So they are where the limit is too far to matter.
    let far = matches().with(|n| (n.processes, n.spawned, n.seen_alive) = ((50, 1), 9, 1));
    assert_eq!(finding(&far, "BT007").level, Level::Warning);
}

#[test]
fn a_node_that_fills_up_is_not_accused() {
    let level = |change: &dyn Fn(&mut Node)| {
        let mut node = matches();
        change(&mut node);
        finding(&node, "BT007").level
    };
    // Each that starts has come to stay: sessions, devices, rows of a cache.
    assert_eq!(level(&|n| n.spawned = 10), Level::Notice);
    // Each ends after its time, as sessions do: those that end were met before.
    assert_eq!(level(&|n| n.seen_alive = 60), Level::Notice);
    // Users come with them.
    assert_eq!(level(&|n| n.ports = (100, 9)), Level::Notice);
    assert_eq!(level(&|n| n.open_files = (100, 9)), Level::Notice);
    // They are at work, end after a while, or wait for somebody's answer.
    let at_work = |n: &mut Node| {
        n.stands[1] = later("waiting", &["gen:do_call/4", "match:score/1"], 19, &[("<0.9.0>", 19)]);
    };
    assert_eq!(level(&at_work), Level::Notice);
    assert_eq!(level(&|n| (n.stands[1].count, n.stands[2].count) = (5, 15)), Level::Notice);
    assert_eq!(level(&|n| n.stands[1].queued = 10), Level::Notice);
    // Nobody has looked at them again: an older recording.
    assert_eq!(level(&|n| n.stands.truncate(1)), Level::Notice);
    assert_healthy(&matches().with(|n| n.processes = (500, 0)), "BT007");
}

#[test]
fn those_that_a_supervisor_starts_anew_are_told_to_be_temporary() {
    // As many end as are left, and all are met: that may be sessions that end after their time, too.
    let found = finding(&matches().with(|n| (n.spawned, n.seen_alive) = (18, 18)), "BT007");
    assert_eq!(found.level, Level::Notice);
    assert_eq!(entries(&found), ["code.temporary_children", "code.bounded_processes"]);
    assert!(found.evidence.iter().any(|evidence| evidence.what == "as many end as are left"), "{found:#?}");
}

#[test]
fn whom_they_wait_for_is_told() {
    let node = matches().with(|n| {
        n.stands[1] = later(
            "waiting",
            &["gen:do_call/4", "gen_server:call/3", "match:score/1"],
            19,
            &[("<0.9.0>", 19)],
        );
    });
    let found = finding(&node, "BT007");
    assert!(
        found.title.contains(" wait for <0.9.0> in gen:do_call/4, called by match:score/1"),
        "{}",
        found.title
    );
    assert!(
        found.remedies[0].change.starts_with("a time-out for the wait in match:score/1"),
        "{:?}",
        found.remedies[0]
    );
    let own = matches().with(|n| n.stands[1] = later("waiting", &["match:wait/1", "match:init/1"], 19, &[]));
    let found = finding(&own, "BT007");
    assert_eq!(found.level, Level::Warning);
    assert!(
        found.remedies[0].change.starts_with("an `after` for the receive in match:wait/1"),
        "{:?}",
        found.remedies[0]
    );
}
