//! Tests of the rule on links, monitors and timers.

use beamtune_model::{Level, facts, metrics};

use super::node::{SyntheticAllocator, SyntheticNode, SyntheticProcess, node};
use super::{Read, assert_healthy, entries, finding, row};

/// A node with this many blocks of links, monitors and timers, and this many processes.
pub(super) fn linked(blocks: i64, processes: i64) -> SyntheticNode {
    node().with(|n| {
        let blocks = [100, 128 * blocks, blocks, 120 * blocks];
        n.allocators[1] = SyntheticAllocator {
            name: "fix_alloc",
            mbcs: blocks,
            peak: (blocks[1], blocks[3]),
            ..SyntheticAllocator::small()
        };
        n.processes = (processes, 0);
    })
}

#[test]
fn more_links_and_monitors_than_processes_need_are_found() {
    let found = finding(&linked(500_000, 200), "BT043");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["code.demonitor"]));
    assert_eq!(found.subject, None, "the memory of no process was read");
    assert!(found.against[0].starts_with("above 300,000 the agent does not look"), "{:?}", found.against);
    assert!(found.against[1].starts_with("their number is nearly constant"), "{:?}", found.against);
    let few = finding(&linked(90_000, 200), "BT043");
    assert_eq!(few.level, Level::Notice);
    assert!(few.against[0].starts_with("no sampled process is known"), "{:?}", few.against);
    // Many processes have many links.
    assert_healthy(&linked(500_000, 100_000), "BT043");
    assert_healthy(&linked(10_000, 200), "BT043");
    // Blocks of queued messages, one for each, are not counted.
    let queued = linked(500_000, 200).with(|n| n.queued_messages = 495_000);
    assert_healthy(&queued, "BT043");
    let grows = finding(&linked(90_000, 200).with(|n| n.block_growth = 2_000), "BT043");
    assert_eq!((grows.level, grows.against.len()), (Level::Warning, 1));
    assert!(grows.detail.starts_with("+2,000/s; "), "{}", grows.detail);
    // There are few, but their number increases while the number of processes is constant.
    let leak = linked(10_000, 200).with(|n| n.block_growth = 200);
    let found = finding(&leak, "BT043");
    assert_eq!(found.level, Level::Notice);
    assert_eq!(found.title, "Links, monitors and timers grow by 200/s");
    assert_healthy(&leak.clone().with(|n| n.processes = (200, 20)), "BT043");
    assert_healthy(&leak.with(|n| n.block_growth = 20), "BT043");
}

#[test]
fn the_most_frequent_blocks_are_named_if_recorded() {
    let with = |monitors: i64, links: i64, timers: i64| {
        let server = beside("<0.81.0>", 500_000 * 64, 0, "on_heap");
        linked(500_000, 200).with(|n| {
            n.busiest = vec![server];
            n.fix_alloc_kinds =
                vec![("monitor", monitors), ("link", links), ("bif_timer", timers), ("proc", 1 << 30)];
        })
    };
    let check = |node: &SyntheticNode, title: &str, subject: Option<&str>, change: &str| {
        let found = finding(node, "BT043");
        assert_eq!(found.title, title);
        assert_eq!(found.subject_text().as_deref(), subject, "{title}");
        assert!(found.remedies[0].change.starts_with(change), "{}", found.remedies[0].change);
    };
    check(&with(60_000_000, 0, 1_000_000), "<0.81.0> has 500,000 monitors", Some("<0.81.0>"), "demonitor");
    check(&with(1_000_000, 48_000_000, 0), "<0.81.0> has 500,000 links", Some("<0.81.0>"), "unlink");
    check(
        &with(30_000_000, 0, 30_000_000),
        "<0.81.0> has 500,000 links and monitors",
        Some("<0.81.0>"),
        "demonitor",
    );
    // The memory of timers is not charged to a process.
    let timers = with(1_000_000, 0, 75_000_000);
    check(&timers, "501,234 timers for 200 processes", None, "erlang:cancel_timer");
    assert!(finding(&timers, "BT043").against[0].starts_with("timers are not charged to a process"));
    // The process that does most of the work most likely starts them.
    let works = |reductions| timers.clone().with(|n| n.busiest[0].reductions = reductions);
    let total = timers.period().stat(&metrics::SCAN_REDUCTIONS, "").expect("reductions").delta;
    let per_s = total / timers.period().seconds() as i64;
    assert_eq!(finding(&works(2 * per_s / 3), "BT043").subject_text().as_deref(), Some("<0.81.0>"));
    assert_eq!(finding(&works(per_s / 3), "BT043").subject, None);
    assert_healthy(&with(1_000_000, 0, 1_000_000), "BT043");
    // There are few enough monitors to read the memory of single processes.
    let asked = with(20_000_000, 0, 20_000_000).with(|n| n.busiest.clear());
    assert!(finding(&asked, "BT043").against[0].starts_with("no sampled process is known"));
    let many = with(60_000_000, 0, 1_000_000).with(|n| n.busiest.clear());
    assert!(finding(&many, "BT043").against[0].starts_with("above 300,000 the agent does not look"));
}

/// A process with this many bytes outside its heap, and messages in its queue.
pub(super) fn beside(pid: &'static str, bytes: i64, queue: i64, data: &str) -> SyntheticProcess {
    let row = row(|row| {
        (row.memory_bytes, row.total_bytes) = (20_000, Some(20_000 + 776 + bytes));
        (row.fragment_bytes, row.queue) = (Some(0), queue);
        row.message_queue_data = Some(data.to_owned());
    });
    SyntheticProcess { pid, queue: (queue, 0), row, ..SyntheticProcess::default() }
}

#[test]
fn the_process_with_most_of_the_monitors_is_named() {
    let of = |all: Vec<SyntheticProcess>| linked(500_000, 200).with(|n| n.busiest = all);
    let server = || beside("<0.81.0>", 500_000 * 64, 0, "on_heap");
    let client = || beside("<0.82.0>", 10_000 * 64, 0, "on_heap");
    let named = finding(&of(vec![client(), server()]), "BT043");
    assert_eq!((named.subject_text().as_deref(), named.against.len()), (Some("<0.81.0>"), 1));
    assert!(named.title.contains("<0.81.0> has 500,000 links and monitors"), "{}", named.title);
    assert!(!format!("{:?}", named.evidence).contains("<0.82.0>"), "each client has a few");
    // Monitors of OTP 27 are larger.
    let later = of(vec![server()]).with(|n| n.facts = vec![(facts::OTP_RELEASE, "27".to_owned())]);
    assert!(finding(&later, "BT043").title.contains("has 444,444 links"));
    // On-heap messages have only their headers outside the heap. Off-heap messages cannot be distinguished from monitors.
    let waiting = |data| of(vec![beside("<0.81.0>", 500_000 * 64, 100_000, data)]);
    let less = finding(&waiting("on_heap"), "BT043");
    assert!(less.title.contains("has 362,500 links"), "{}", less.title);
    assert_eq!(finding(&waiting("off_heap"), "BT043").subject, None);
    // A recording of an older beamtune lacks this memory.
    let mut untold = server();
    untold.row.total_bytes = None;
    assert_eq!(finding(&of(vec![untold]), "BT043").subject, None);
}
