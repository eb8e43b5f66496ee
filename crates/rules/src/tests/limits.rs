//! Rules on what fills up, and on what was made too large or too slow for it.

use beamtune_model::{Level, SpawnRow, facts};

use super::node::node;
use super::{assert_healthy, entries, finding};

fn spawn(what: &str, kind: &str, maker: &str) -> SpawnRow {
    SpawnRow {
        what: what.to_owned(),
        kind: kind.to_owned(),
        maker: Some(maker.to_owned()),
        count: 150,
        of: 200,
        t: 0,
    }
}

#[test]
fn tables_that_fill_up_are_found_and_their_makers_named() {
    let leak = node().with(|n| {
        n.processes = (20_000, 1_000);
        n.spawns = vec![spawn("process", "worker:init/1", "pool")];
    });
    let found = finding(&leak, "BT007");
    assert_eq!(found.level, Level::Critical);
    assert_eq!(found.subject.as_deref(), Some("worker:init/1 made by pool"));
    assert_eq!(entries(&found), ["code.bounded_processes", "+P"]);
    let full = finding(&node().with(|n| n.processes = (230_000, 0)), "BT007");
    assert_eq!((full.level, entries(&full)), (Level::Warning, vec!["+P"]));
    assert_healthy(&node().with(|n| n.processes = (100_000, 0)), "BT007");
}

#[test]
fn ports_and_descriptors_are_each_held_against_their_limit() {
    let files = node().with(|n| {
        n.open_files = 900;
        n.facts.push((facts::NOFILE_SOFT, "1024".to_owned()));
    });
    let found = finding(&files, "BT008");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["host.nofile"]));
    let others = found.evidence.iter().find(|evidence| evidence.what == "open files that are no port's");
    assert_eq!(others.and_then(|evidence| evidence.value), Some(880.0));
    // Files are counted seldom; that ports grow tells where they are going.
    let few = node().with(|n| {
        n.ports = (300, 20);
        n.open_files = 500;
        n.facts.push((facts::NOFILE_SOFT, "1024".to_owned()));
    });
    assert_eq!(entries(&finding(&few, "BT008")), ["code.close_ports", "host.nofile"]);
    let leak = node().with(|n| {
        n.ports = (20_000, 500);
        n.spawns = vec![spawn("port", "tcp_inet", "acceptor")];
    });
    let found = finding(&leak, "BT008");
    assert_eq!(found.subject.as_deref(), Some("tcp_inet made by acceptor"));
    assert_eq!(entries(&found), ["code.close_ports", "+Q"]);
    assert_healthy(&node(), "BT008");
}

#[test]
fn atoms_that_grow_are_found() {
    let found = finding(&node().with(|n| n.atoms = (100_000, 5_000)), "BT009");
    assert_eq!((found.level, entries(&found)), (Level::Critical, vec!["code.no_atoms_from_input", "+t"]));
    let full = finding(&node().with(|n| n.atoms = (900_000, 0)), "BT009");
    assert_eq!(entries(&full), ["+t"]);
    assert_healthy(&node(), "BT009");
}

#[test]
fn ets_tables_that_only_grow_are_a_leak() {
    let leak = node().with(|n| {
        n.tables = (1_000, 50);
        n.spawns = vec![spawn("ets", "session_cache", "session_sup")];
    });
    let found = finding(&leak, "BT010");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(found.subject.as_deref(), Some("session_cache made by session_sup"));
    assert_healthy(&node().with(|n| n.tables = (5_000, 0)), "BT010");
    assert_healthy(&node().with(|n| n.tables = (20, 2)), "BT010");
}

#[test]
fn poll_is_judged_by_how_many_it_has_to_look_through() {
    let check = |descriptors, expect| {
        let node = node().with(|n| {
            n.epoll = false;
            n.descriptors = descriptors;
        });
        let found = finding(&node, "BT013");
        assert_eq!((found.level, entries(&found)), (expect, vec!["build.kernel_poll"]), "{descriptors}");
    };
    check(5, Level::Notice);
    check(500, Level::Warning);
    check(9_000, Level::Critical);
    // One fallback set without kernel poll is normal: the made-up node has one.
    assert_healthy(&node(), "BT013");
}

#[test]
fn a_port_table_sized_by_ulimit_is_told_from_one_that_was_asked_for() {
    let limit = |n: i64| node().with(move |node| node.facts.push((facts::PORT_LIMIT, n.to_string())));
    let found = finding(&limit(134_217_727), "BT014");
    assert_eq!((found.level, entries(&found)), (Level::Critical, vec!["+Q", "host.nofile"]));
    assert!(found.summary.contains("limit of open files"), "{}", found.summary);
    // Files that are no ports need their descriptors, but no place in the table.
    let files = finding(&limit(134_217_727).with(|n| n.open_files = 100_000), "BT014");
    let changes: Vec<_> = files.remedies.iter().map(|remedy| remedy.change.as_str()).collect();
    assert_eq!(changes[0], "+Q 65536");
    assert!(changes[1].contains(" 400000 "), "{changes:?}");
    let by_flag =
        limit(16_777_216).with(|n| n.facts.push((facts::EMU_ARGS, r#"["-Q","16777216"]"#.to_owned())));
    let found = finding(&by_flag, "BT014");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["+Q"]));
    let by_environment = limit(16_777_216)
        .with(|n| n.facts.push((facts::ENVIRONMENT, r#"{"ERL_MAX_PORTS":"16777216"}"#.to_owned())));
    assert!(finding(&by_environment, "BT014").summary.contains("ERL_MAX_PORTS"));
    // A table that is used is not oversized.
    assert_healthy(&limit(16_777_216).with(|n| n.ports = (5_000_000, 0)), "BT014");
    assert_healthy(&node(), "BT014");
}

#[test]
fn an_interpreter_is_found_where_there_is_a_compiler() {
    let with = |known: &[(&'static str, &str)]| {
        node().with(|n| {
            n.cpu = 0.6;
            n.facts.extend(known.iter().map(|(key, value)| (*key, (*value).to_owned())));
        })
    };
    let found = finding(&with(&[(facts::EMU_FLAVOR, "emu")]), "BT034");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["build.jit"]));
    let asked = [(facts::EMU_FLAVOR, "emu"), (facts::INIT_ARGS, r#"["-emu_flavor emu","-noinput"]"#)];
    let asked = finding(&with(&asked), "BT034");
    assert_eq!(entries(&asked), ["-emu_flavor"]);
    // Builds that call the emulator with the JIT otherwise do not start with `jit`.
    assert_eq!(asked.remedies[0].change, "leave out -emu_flavor emu");
    let idle = with(&[(facts::EMU_FLAVOR, "emu")]).with(|n| n.cpu = 0.01);
    assert_eq!(finding(&idle, "BT034").level, Level::Notice);
    for known in [
        [(facts::EMU_FLAVOR, "jit"), (facts::OTP_RELEASE, "27")],
        // ARM64 had to wait for 25.
        [(facts::EMU_FLAVOR, "emu"), (facts::ARCHITECTURE, "riscv64-unknown-linux-gnu")],
    ] {
        assert_healthy(&with(&known), "BT034");
    }
    let arm = |release| {
        with(&[
            (facts::EMU_FLAVOR, "emu"),
            (facts::ARCHITECTURE, "aarch64-unknown-linux-gnu"),
            (facts::OTP_RELEASE, release),
        ])
    };
    assert_healthy(&arm("24"), "BT034");
    assert_eq!(finding(&arm("25"), "BT034").level, Level::Warning);
}

#[test]
fn an_emulator_for_finding_bugs_is_found() {
    let of = |kind: &str| node().with(|n| n.facts.push((facts::EMU_TYPE, kind.to_owned())));
    let found = finding(&of("debug"), "BT034");
    assert_eq!((found.level, found.subject.as_deref()), (Level::Critical, Some("debug")));
    assert_eq!(entries(&found), ["-emu_type"]);
    assert_eq!(finding(&of("lcnt"), "BT034").level, Level::Notice);
    assert_eq!(finding(&of("frmptr"), "BT034").level, Level::Notice);
}
