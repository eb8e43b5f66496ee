//! Tests of chains of processes that wait for each other, and of the process at their end.

use beamtune_model::{Finding, Level, Outcome, Period, Subject, WaitSampleRow};

use super::node::{SyntheticNode, SyntheticProcess, node, stack_row};
use super::{Read, entries, held, outcome, row};

const FIRST: &str = "<0.77.0>";
const LAST: &str = "<0.78.0>";

/// Thirty of a hundred sampled processes wait for a ledger, which calls the process that writes its journal.
fn ledger() -> SyntheticNode {
    let busy = |pid, name: &str, call: &str| SyntheticProcess {
        pid,
        reductions: 1_000,
        row: row(|r| {
            r.name = Some(name.to_owned());
            r.initial_call = Some(call.to_owned());
        }),
        ..SyntheticProcess::default()
    };
    node().with(|n| {
        n.processes = (400, 0);
        n.busiest = vec![busy(FIRST, "ledger", "ledger:init/1"), busy(LAST, "journal", "journal:init/1")];
        n.stacks = vec![
            stack_row(60, &["gen_server:loop/7"], &[]),
            stack_row(30, &["gen:do_call/4", "gen_server:call/2", "shop:pay/1"], &[(FIRST, 30)]),
            WaitSampleRow {
                targets: vec![(LAST.to_owned(), 1)],
                ..held(
                    FIRST,
                    "waiting",
                    &["gen:do_call/4", "gen_server:call/3", "ledger:book/2", "gen_server:try_handle_call/4"],
                )
            },
            held(LAST, "running", &[]),
        ];
    })
}

/// Returns the period in which the journal was sampled running (`ran`) or waiting (`stood`) in these stacks, with their counts.
fn with(node: &SyntheticNode, ran: &[(&str, i64)], stood: &[(&str, i64)]) -> Period {
    let mut period = node.period();
    let process = period.processes.iter_mut().find(|process| process.pid == LAST).expect("the process");
    let stacks = |of: &[(&str, i64)]| {
        of.iter().map(|(at, looks)| (at.split_whitespace().map(str::to_owned).collect(), *looks)).collect()
    };
    (process.run_stacks, process.wait_stacks) = (stacks(ran), stacks(stood));
    period
}

fn found(period: &Period, code: &str) -> Finding {
    match outcome(period, code) {
        Outcome::Found(findings) => findings.into_iter().next().expect("a finding"),
        other => panic!("{code}: {other:?}"),
    }
}

#[test]
fn the_end_of_a_chain_is_named_with_its_own_advice() {
    let told = |ran: &[(&str, i64)], stood: &[(&str, i64)]| {
        let found = found(&with(&ledger(), ran, stood), "BT053");
        assert_eq!(found.subject_text().as_deref(), Some("ledger (<0.77.0>)"));
        assert_eq!(found.title, "120 callers wait for ledger, blocked by journal");
        let last =
            found.detail.split("for journal (<0.78.0>); journal ").nth(1).unwrap_or(&found.detail).to_owned();
        (last, entries(&found).first().copied().unwrap_or_default().to_owned())
    };
    let check = |ran: &[(&str, i64)], stood: &[(&str, i64)], last: &str, entry: &str| {
        assert_eq!(told(ran, stood), (last.to_owned(), entry.to_owned()));
    };
    // The VM reports a sync on a dirty I/O scheduler as running; other file operations take less time.
    check(
        &[
            (
                "prim_file:datasync_nif/1 prim_file:datasync/1 journal:append/2 gen_server:try_handle_call/4",
                3,
            ),
            ("erts_internal:dirty_nif_finalizer/1 prim_file:datasync/1 journal:append/2", 1),
            ("prim_file:write_nif/2 prim_file:write/2 journal:append/2", 4),
        ],
        &[],
        "waits for data to be synced to disk (prim_file:datasync_nif/1, called by journal:append/2, in 4 of 8 samples)",
        "code.more_in_flight",
    );
    check(
        &[("prim_file:pread_nif/3 prim_file:pread/3 journal:find/2", 9), ("journal:find/2", 1)],
        &[],
        "is in file operations (prim_file:pread_nif/3, called by journal:find/2, in 9 of 10 samples)",
        "code.fewer_file_operations",
    );
    check(
        &[],
        &[("timer:sleep/1 journal:retry/1 gen_server:try_handle_call/4", 8)],
        "sleeps (timer:sleep/1, called by journal:retry/1, in 8 of 8 samples)",
        "code.no_sleep",
    );
    check(
        &[],
        &[("inet_gethost_native:getit/2 inet:gethostbyname_tm/4 gen_tcp:connect/4 journal:open/1", 8)],
        "waits for name resolution (DNS) (inet_gethost_native:getit/2, called by journal:open/1, in 8 of 8 samples)",
        "code.more_in_flight",
    );
    check(
        &[],
        &[("os:get_data/4 os:cmd/2 journal:sign/1", 8)],
        "waits for an external program (os:get_data/4, called by journal:sign/1, in 8 of 8 samples)",
        "code.faster_program",
    );
    check(
        &[],
        &[("prim_inet:recv0/3 gen_tcp:recv/3 journal:ask/1", 8)],
        "waits for its peer's reply (prim_inet:recv0/3, called by journal:ask/1, in 8 of 8 samples)",
        "code.more_in_flight",
    );
}

#[test]
fn a_busy_process_at_the_end_is_reported_as_busy() {
    let node = ledger().with(|n| (n.busiest[1].runnable_of_10, n.busiest[1].reductions) = (10, 900_000));
    let period = with(&node, &[("lists:keysort/2 journal:sort/1", 6), ("journal:merge/2", 2)], &[]);
    let waits = found(&period, "BT053");
    assert!(
        waits.detail.ends_with(
            "for journal (<0.78.0>); journal is busy (lists:keysort/2, called by journal:sort/1, in 6 of 8 samples)"
        ),
        "{}",
        waits.detail
    );
    assert_eq!(entries(&waits)[0], "code.cheaper_callback");
    // Its innermost functions differ, but the function of the program is always the same.
    let spread = with(
        &node,
        &[("lists:merge/2 journal:sort/1", 2), ("lists:split/2 journal:sort/1", 2), ("journal:sort/1", 1)],
        &[],
    );
    let detail = found(&spread, "BT053").detail;
    assert!(detail.ends_with("; journal is busy (journal:sort/1)"), "{detail}");
    // The callers wait because it is busy: that is one problem.
    let serial = found(&period, "BT005");
    assert_eq!(serial.follows.as_ref().map(|cause| cause.code.0), Some("BT053"), "{serial:#?}");
}

#[test]
fn an_unknown_end_of_a_chain_is_not_named() {
    // It does several things, and none most of the time.
    let mixed = [("prim_file:pread_nif/3 journal:find/2", 2), ("journal:find/2", 4), ("journal:sum/2", 4)];
    let found = |period: &Period| found(period, "BT053");
    let detail = found(&with(&ledger(), &mixed, &[])).detail;
    assert!(detail.ends_with("called by ledger:book/2; journal is at work"), "{detail}");
    // A process that waits for different processes has no known end either.
    let node = ledger().with(|n| {
        let other = WaitSampleRow { targets: vec![("<0.9.0>".to_owned(), 1)], ..n.stacks[2].clone() };
        n.stacks.push(other);
    });
    let sync = [("prim_file:sync_nif/2 prim_file:sync/1 journal:append/2", 8)];
    let detail = found(&with(&node, &sync, &[])).detail;
    assert!(!detail.contains("synced"), "{detail}");
}

#[test]
fn an_otp_process_at_the_end_has_its_own_advice() {
    // For the sync of a disk_log, the advice is an alternative, and not to split the process.
    let node = ledger().with(|n| {
        n.busiest[1].row.name = None;
        n.busiest[1].row.initial_call = Some("disk_log:init/2".to_owned());
        (n.busiest[1].runnable_of_10, n.busiest[1].reductions) = (10, 900_000);
    });
    let period = with(&node, &[("prim_file:sync_nif/2 prim_file:sync/1 disk_log_1:sync/2", 8)], &[]);
    let waits = found(&period, "BT053");
    assert!(
        waits.detail.contains("for disk_log:init/2 (<0.78.0>); disk_log:init/2 waits for data to be synced"),
        "{}",
        waits.detail
    );
    assert_eq!(entries(&waits)[..2], ["code.around_the_server", "code.more_in_flight"]);
    let serial = found(&period, "BT005");
    assert!(serial.detail.contains("waits for data to be synced to disk"), "{}", serial.detail);
    assert!(!entries(&serial).contains(&"code.split_process"), "{serial:#?}");
    let Outcome::Healthy(text) = outcome(&period, "BT074") else { panic!("BT074") };
    let waits = "; but disk_log:init/2 (<0.78.0>) waits for data to be synced to disk in 8 of 8 samples";
    assert!(text.contains(waits), "{text}");
}

#[test]
fn a_server_that_waits_for_the_disk_is_reported_so() {
    let node = ledger().with(|n| {
        n.stacks[1].targets = vec![(LAST.to_owned(), 30)];
        n.stacks.remove(2);
        (n.busiest[1].runnable_of_10, n.busiest[1].reductions) = (10, 900_000);
    });
    let period = with(&node, &[("prim_file:sync_nif/2 prim_file:sync/1 journal:append/2", 8)], &[]);
    let serial = found(&period, "BT005");
    assert!(serial.level >= Level::Warning, "{serial:#?}");
    assert!(
        serial.detail.ends_with("waits for data to be synced to disk (prim_file:sync_nif/2, called by journal:append/2, in 8 of 8 samples)"),
        "{}",
        serial.detail
    );
    assert_eq!(entries(&serial), ["code.more_in_flight", "code.split_process"]);
    assert!(matches!(serial.subject, Some(Subject::Process { .. })));
}
