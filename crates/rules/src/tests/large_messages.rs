//! Tests of the rule on large messages: queued ones, arriving ones, and servers that copy their replies.

use beamtune_model::{Level, MessageRow, Outcome};

use super::links::{beside, linked};
use super::node::{SyntheticNode, SyntheticProcess, node, stack_row};
use super::{Read, assert_healthy, diagnose, entries, finding, held, outcome, row};

/// A node with this garbage per second, in MB, and these processes.
fn garbage(megabytes: i64, busiest: Vec<SyntheticProcess>) -> SyntheticNode {
    node().with(|n| (n.reclaimed_words, n.busiest) = (megabytes * 125_000, busiest))
}

/// A process with this many bytes in heap fragments, and this many in other heap blocks.
fn fragments(pid: &'static str, fragments: i64, blocks: i64, queue: i64) -> SyntheticProcess {
    let mut busy = beside(pid, 88 * queue, queue, "on_heap");
    busy.row.memory_bytes = fragments + blocks;
    busy.row.total_bytes = Some(fragments + blocks + 776 + 88 * queue);
    busy.row.fragment_bytes = Some(fragments);
    busy
}

#[test]
fn queued_large_messages_are_found() {
    let found = finding(&garbage(400, vec![fragments("<0.81.0>", 800_000, 2_000, 4)]), "BT055");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("<0.81.0>")));
    assert_eq!(entries(&found), ["code.smaller_messages", "code.shared_terms"]);
    assert_eq!(found.title, "Messages of 200 kB to <0.81.0> cost up to 0.20 cores");
    // The size of off-heap messages is known to the byte, except for possible links.
    let off_heap = garbage(400, vec![beside("<0.81.0>", 4 * 200_088, 4, "off_heap")]);
    let off_heap = finding(
        &linked(1_100, 100).with(|n| *n = SyntheticNode { allocators: n.allocators.clone(), ..off_heap }),
        "BT055",
    );
    assert!(off_heap.title.contains("of 184 kB to"), "{}", off_heap.title);
    // The queued messages take enough memory for a warning.
    let many = finding(&garbage(1, vec![fragments("<0.81.0>", 300_000_000, 2_000_000, 1_000)]), "BT055");
    assert_eq!((many.level, entries(&many).len()), (Level::Warning, 3));
}

/// A node with this garbage per second, in MB, and these arriving messages.
fn seen_to_come(megabytes: i64, rows: &[(Option<&str>, i64, i64)]) -> SyntheticNode {
    let row = |&(pid, messages, bytes): &(Option<&str>, i64, i64)| MessageRow {
        pid: pid.map(str::to_owned),
        messages,
        bytes,
        us: 10_000,
        active: 60,
        sampled: 60,
        ..MessageRow::default()
    };
    let session = || vec![fragments("<0.81.0>", 0, 700_000, 0)];
    garbage(megabytes, session()).with(|n| n.messages = rows.iter().map(row).collect())
}

#[test]
fn replies_of_a_server_that_receivers_wait_for_follow_from_it() {
    let rows = [(None, 6, 2_400_000), (Some("<0.81.0>"), 6, 2_400_000)];
    let cache = |serves: &'static str| {
        seen_to_come(400, &rows).with(|n| {
            n.busiest[0].row.stack = vec!["prim_inet:recv0/3".to_owned(), "shop_conn:serve/1".to_owned()];
            n.busiest.push(SyntheticProcess {
                pid: "<0.99.0>",
                reductions: 900_000,
                queue: (30, 0),
                runnable_of_10: 10,
                row: row(|r| r.name = Some("shop_cache".to_owned())),
                ..SyntheticProcess::default()
            });
            (n.utilization, n.processes) = (0.7, (400, 0));
            n.stacks = vec![
                stack_row(60, &["gen_server:loop/7"], &[]),
                stack_row(30, &["gen:do_call/4", "shop_cache:get/1", serves], &[("<0.99.0>", 30)]),
                held("<0.99.0>", "running", &[]),
            ];
        })
    };
    let told = |serves| {
        let diagnosis = diagnose(&cache(serves).period());
        let found = diagnosis
            .findings()
            .into_iter()
            .find(|finding| finding.code.0 == "BT055")
            .cloned()
            .expect("found");
        (
            found.follows.map(|cause| cause.code.0),
            found.detail.contains("likely replies of shop_cache (<0.99.0>)"),
        )
    };
    assert_eq!(told("shop_conn:serve/1"), (Some("BT005"), true));
    // The waiting processes are of another kind.
    assert_eq!(told("shop_report:run/1"), (None, false));
}

#[test]
fn arriving_large_messages_are_found_although_none_is_queued() {
    let rows = [
        (None, 12, 1_200),
        (None, 6, 2_400_000),
        (Some("<0.81.0>"), 4, 1_600_000),
        (Some("<0.99.0>"), 2, 800_000),
    ];
    let found = finding(&seen_to_come(400, &rows), "BT055");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("<0.81.0>")));
    assert_eq!(found.title, "Messages of 400 kB to 2 processes cost up to 0.20 cores");
    assert!(
        found.detail.starts_with("received by <0.81.0> and 1 more; the sender is not"),
        "{}",
        found.detail
    );
    let sent = found.evidence.iter().find(|evidence| evidence.what.contains("at least"));
    assert!(sent.and_then(|sent| sent.value).is_some_and(|bytes| bytes > 200e6), "{:?}", found.evidence);
    // Most likely, nearly all of this garbage is something else.
    assert_eq!(finding(&seen_to_come(20_000, &rows), "BT055").level, Level::Notice);
    assert_healthy(&seen_to_come(10, &rows), "BT055");
    // A single message was handed over.
    assert_healthy(&seen_to_come(400, &[(None, 1, 400_000), (Some("<0.81.0>"), 1, 400_000)]), "BT055");
    // Many small messages take more.
    let mixed = [(None, 400_000, 40_000_000), (None, 6, 2_400_000), (Some("<0.81.0>"), 6, 2_400_000)];
    assert_eq!(finding(&seen_to_come(800, &mixed), "BT055").level, Level::Notice);
    assert_healthy(&seen_to_come(400, &[(None, 12, 1_200), (Some("<0.81.0>"), 12, 1_200)]), "BT055");
}

#[test]
fn the_only_busy_process_with_room_for_such_messages_is_the_likely_sender() {
    let rows = [(None, 6, 2_400_000), (Some("<0.81.0>"), 6, 2_400_000)];
    let beside = |pid: &'static str, name: &str, reductions, heap_words| SyntheticProcess {
        pid,
        reductions,
        row: row(|row| {
            (row.name, row.total_heap_words) = (Some(name.to_owned()), Some(heap_words));
            row.reductions = reductions;
            row.stack = vec!["weather:publish/2".to_owned()];
        }),
        ..SyntheticProcess::default()
    };
    let detail = |others: Vec<SyntheticProcess>| {
        finding(&seen_to_come(400, &rows).with(|n| n.busiest.extend(others)), "BT055").detail
    };
    let station = || beside("<0.70.0>", "station", 90_000, 200_000);
    let says = "; likely sent by station (<0.70.0>), in weather:publish/2; ";
    let found = detail(vec![station(), beside("<0.71.0>", "small", 900_000, 2_000)]);
    assert!(format!("; {found}").contains(says), "{found}");
    // Another process with an equally large heap works as much.
    let found = detail(vec![station(), beside("<0.71.0>", "other", 90_000, 200_000)]);
    assert!(found.contains("the sender is not recorded"), "{found}");
}

#[test]
fn a_server_that_copies_its_replies_is_named_and_explains_its_queue() {
    let replies = "erlang:bif_return_trap/2 gen:reply/2 gen_server:handle_msg/6";
    let server = |stack: &str| SyntheticProcess {
        pid: "<0.70.0>",
        reductions: 500_000,
        queue: (20, 0),
        runnable_of_10: 10,
        row: row(|row| {
            row.name = Some("catalogue".to_owned());
            row.stack = stack.split_whitespace().map(str::to_owned).collect();
            row.fragment_bytes = Some(0);
        }),
        ..SyntheticProcess::default()
    };
    let rows = [(None, 6, 2_400_000), (Some("<0.81.0>"), 6, 2_400_000)];
    let sick = seen_to_come(40, &rows).with(|n| {
        n.total_reductions = 1_000_000;
        n.busiest.push(server(replies));
    });
    let copies = finding(&sick, "BT055");
    assert_eq!(copies.subject_text().as_deref(), Some("catalogue (<0.70.0>)"));
    assert!(copies.title.contains("100 % of its time copying its replies"), "{}", copies.title);
    assert_eq!(finding(&sick, "BT005").follows.map(|of| of.code.0), Some("BT055"));
    // The size of its replies was not measured.
    let alone = node().with(|n| n.busiest = vec![server(replies)]);
    let found = finding(&alone, "BT055");
    assert_eq!(found.subject_text().as_deref(), Some("catalogue (<0.70.0>)"));
    // The server does other work.
    assert_healthy(
        &node().with(|n| n.busiest = vec![server("shop:price/2 gen_server:handle_msg/6")]),
        "BT055",
    );
}

#[test]
fn uncertain_large_messages_are_not_reported() {
    // Messages to other processes are small.
    let small = |pid| fragments(pid, 2_000, 1_000, 4);
    let large = || fragments("<0.81.0>", 800_000, 2_000, 4);
    let mut mixed = vec![large(), small("<0.82.0>"), small("<0.83.0>"), small("<0.84.0>")];
    assert_eq!(finding(&garbage(400, mixed.clone()), "BT055").level, Level::Warning);
    assert_eq!(finding(&garbage(200, mixed.clone()), "BT055").level, Level::Notice);
    assert_healthy(&garbage(400, mixed.split_off(1)), "BT055");
    // Copying such messages is cheap: not worth a change.
    assert_healthy(&garbage(10, vec![large()]), "BT055");
    // In this order: messages that were received already, in the fragments of a large heap; monitors of a server with an off-heap queue.
    assert_healthy(&garbage(400, vec![fragments("<0.81.0>", 800_000, 900_000, 1)]), "BT055");
    let server = linked(500_000, 200).with(|n| {
        (n.reclaimed_words, n.busiest) = (50_000_000, vec![beside("<0.81.0>", 400_000 * 64, 3, "off_heap")]);
    });
    assert_healthy(&server, "BT055");
    // The size of queued messages was not measured.
    let mut untold = large();
    (untold.row.fragment_bytes, untold.row.total_bytes) = (None, None);
    let outcome = outcome(&garbage(400, vec![untold]).period(), "BT055");
    assert!(matches!(outcome, Outcome::NotJudged { .. }), "{outcome:?}");
}
