//! Tests of rules on binaries that tables and processes keep alive.

use beamtune_model::{
    BinaryHolderRow, CollectedProcessRow, Confidence, Cost, Level, Outcome, Rank, SpawnRow, TableRow, facts,
    metrics,
};

use super::heaps::MB;
use super::node::{SyntheticNode, SyntheticProcess, node};
use super::{Read, assert_healthy, diagnose, entries, finding, outcome, row, value};

#[test]
fn binaries_that_no_process_refers_to_are_reported_with_candidate_tables() {
    let kept = |referred: i64| {
        node().with(|n| {
            n.resident = 500 * MB;
            n.kinds = vec![("binary", 300 * MB, 0)];
            n.referenced_binary_bytes = Some(referred);
            n.large_tables = vec![("carts", 1 << 20, 0)];
        })
    };
    let found = finding(&kept(20 * MB), "BT026");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Notice, Some("")));
    assert_eq!(found.title, "280 MB of binaries held by no process, holder unknown");
    assert!(
        found.evidence.iter().any(|of| of.text.as_deref().is_some_and(|text| text.contains("carts of"))),
        "{found:#?}"
    );
    // Whether copies would help is unknown, so there is no remedy.
    assert_eq!(entries(&found), Vec::<&str>::new());
    assert!(found.against.iter().any(|line| line == "what tables hold was not recorded"), "{found:#?}");
    // Unsent bytes belong to no table.
    let with_queues = |bytes| {
        kept(20 * MB).with(|n| {
            n.series.push((&metrics::PORTS_READ, "", n.ports.0, 0));
            n.series.push((&metrics::PORT_QUEUES, "", bytes, 0));
        })
    };
    let found = finding(&with_queues(200 * MB), "BT026");
    assert!(found.title.starts_with("200 MB of binaries wait in sockets"), "{}", found.title);
    assert!(found.title.ends_with("possibly for slow peers"), "{}", found.title);
    assert_eq!((found.level, entries(&found)), (Level::Notice, vec!["socket.send_timeout"]));
    let found = finding(&with_queues(30 * MB), "BT026");
    assert!(found.title.ends_with("holder unknown"), "{}", found.title);
    assert!(found.title.starts_with("250 MB"), "{}", found.title);
    // The node has many sockets, but their memory was not measured.
    let sockets = kept(20 * MB).with(|n| {
        let kind = "tcp_inet".to_owned();
        n.spawns.push(SpawnRow {
            what: "port".to_owned(),
            kind,
            count: 300,
            sample_size: 310,
            ..SpawnRow::default()
        });
    });
    let found = finding(&sockets, "BT026");
    assert!(found.against.iter().any(|line| line.contains("sockets with unsent data")), "{found:#?}");
    assert!(found.against.iter().any(|line| line.starts_with("receive buffers")), "{found:#?}");
    // In this order: processes may keep the binaries; or it was not recorded whether they do.
    assert_healthy(&kept(200 * MB), "BT026");
    assert_healthy(&kept(20 * MB).with(|n| n.referenced_binary_bytes = None), "BT026");
}

#[test]
fn the_table_that_grows_with_binaries_of_no_process_is_named() {
    let growing = |tables: &[(&'static str, i64, i64)]| {
        node().with(|n| {
            n.resident = 500 * MB;
            n.resident_growth = 20 * MB;
            n.kinds = vec![("binary", 100 * MB, 20 * MB)];
            n.referenced_binary_bytes = Some(10 * MB);
            n.large_tables = tables.to_vec();
        })
    };
    let grows = growing(&[("prices", 1 << 20, 40_000), ("users", 1 << 20, 0)]);
    let found = finding(&grows, "BT026");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("prices of <0.55.0>")));
    // Whether the table could be smaller is unknown.
    assert_eq!((found.cost(), entries(&found)), (None, vec!["code.bounded_table"]));
    let diagnosis = diagnose(&grows.period());
    let growth =
        diagnosis.findings().into_iter().find(|found| found.code.0 == "BT027").expect("growth").clone();
    assert_eq!(growth.subject_text(), found.subject_text());
    assert_eq!(growth.follows.as_ref().map(|of| of.code.0), Some("BT026"));
    // Operators cannot change the tables of a product.
    let product = grows.with(|n| n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned())));
    assert_eq!(finding(&product, "BT026").level, Level::Notice);
    // If two tables grow equally, neither is named.
    let two = finding(
        &growing(&[("prices", 1 << 20, 40_000), ("users", 1 << 20, 41_000), ("orders", 1 << 20, 39_000)]),
        "BT026",
    );
    assert_eq!((two.level, two.cost()), (Level::Notice, None));
    // The same applies if no table grows: sockets and NIFs keep binaries, too.
    assert_eq!(finding(&growing(&[("prices", 1 << 20, 0)]), "BT026").level, Level::Notice);
}

/// A node with 300 MB of binaries, of which processes refer to 20 MB, and a table `carts` with this many objects. The array describes the
/// sample: number of objects, objects with other terms, and binaries; bytes of the binaries, of those that they are parts of, and of those
/// kept alive.
fn measured(rows: i64, [sampled, hidden, count, bytes, referenced, held]: [i64; 6]) -> SyntheticNode {
    node().with(|n| {
        n.resident = 500 * MB;
        n.kinds = vec![("binary", 300 * MB, 0)];
        n.referenced_binary_bytes = Some(20 * MB);
        n.ets = vec![TableRow {
            id: "carts".to_owned(),
            name: "carts".to_owned(),
            owner: "<0.55.0>".to_owned(),
            objects: rows,
            kind: "set".to_owned(),
            ..TableRow::default()
        }];
        for (metric, value) in [
            (&metrics::TABLE_BINARY_OBJECTS, rows),
            (&metrics::TABLE_BINARY_SAMPLED, sampled),
            (&metrics::TABLE_BINARY_HIDDEN, hidden),
            (&metrics::TABLE_BINARIES, count),
            (&metrics::TABLE_BINARY_BYTES, bytes),
            (&metrics::TABLE_BINARY_REFERENCED, referenced),
            (&metrics::TABLE_BINARY_HELD, held),
        ] {
            n.series.push((metric, "carts", value, 0));
        }
    })
}

fn healthy_because(node: &SyntheticNode, code: &str) -> String {
    match outcome(&node.period(), code) {
        Outcome::Healthy(why) => why,
        other => panic!("{code}: {other:?}"),
    }
}

#[test]
fn a_table_with_parts_of_larger_binaries_is_named() {
    // 10,000 objects of 100 bytes, each part of a binary of 20 kB.
    let node = measured(10_000, [100, 0, 100, 10_000, 2 * MB, 2 * MB]);
    let found = finding(&node, "BT026");
    assert_eq!(found.title, "ETS table `carts`: sub-binaries keep 200 MB alive");
    assert_eq!(
        found.detail,
        "each sub-binary of 100 bytes keeps 20 kB alive, 10,000 in 10,000 objects; estimated from 100 of 10,000 objects"
    );
    assert_eq!((found.level, found.confidence), (Level::Warning, Confidence::Measured));
    assert_eq!(found.subject_text().as_deref(), Some("carts of <0.55.0>"));
    assert_eq!(found.cost(), Some(Cost::MemoryBytes((199 * MB) as f64)));
    assert_eq!(entries(&found), ["code.binary_copy"]);
    // If the estimate for all objects is far above all binaries, the sample is not representative.
    let more = measured(60_000, [100, 0, 100, 10_000, 2 * MB, 2 * MB]);
    assert_eq!(finding(&more, "BT026").confidence, Confidence::Inferred);
    // A sample from the end of an ordered set is not representative either.
    let ordered = node.with(|n| n.ets[0].kind = "ordered_set".to_owned());
    assert_eq!(finding(&ordered, "BT026").confidence, Confidence::Inferred);
    // Many parts of a single binary keep it alive once. Most of the other binaries are elsewhere.
    let of_one = measured(10_000, [100, 0, 100, 10_000, 200 * MB, 20_000]);
    assert!(finding(&of_one, "BT026").title.ends_with("holder unknown"));
    // Users cannot change the tables of a product.
    let product = measured(10_000, [100, 0, 100, 10_000, 2 * MB, 2 * MB])
        .with(|n| n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned())));
    let found = finding(&product, "BT026");
    assert_eq!((found.level, entries(&found)), (Level::Notice, Vec::new()));
}

#[test]
fn a_table_of_whole_binaries_is_healthy() {
    let whole = measured(1_000, [100, 0, 100, 25 * MB, 25 * MB, 25 * MB]);
    let why = healthy_because(&whole, "BT026");
    assert!(
        why.ends_with(
            "ETS table carts of <0.55.0> holds 250 MB as whole binaries (1,000 objects, 250 kB each)"
        ),
        "{why}"
    );
    // All fields of a line are parts of it, and together use all its bytes.
    let fields = measured(1_000, [100, 0, 500, 24 * MB, 125 * MB, 25 * MB]);
    assert!(healthy_because(&fields, "BT026").contains("holds 250 MB as whole binaries"));
    // Few binaries are kept alive.
    let few = measured(10_000, [100, 0, 100, 10_000, MB / 4, MB / 4]).with(|n| {
        n.kinds = vec![("binary", 50 * MB, 0)];
        n.referenced_binary_bytes = Some(5 * MB);
    });
    assert!(
        healthy_because(&few, "BT026")
            .ends_with("holds 25 MB through sub-binaries, which hold too little to matter")
    );
    // If a table holds only a few of the binaries, the holder of the others is unknown.
    let little = measured(100, [100, 0, 100, 5 * MB, 5 * MB, 5 * MB]);
    let found = finding(&little, "BT026");
    assert!(found.title.starts_with("280 MB of binaries held by no process"), "{}", found.title);
    assert_eq!((value(&found, "binaries found in ETS tables"), entries(&found)), (Some(5e6), Vec::new()));
    // A table that is known to hold no binaries is not a candidate.
    let named = |node: &SyntheticNode| finding(node, "BT026").subject_text();
    assert_eq!(named(&measured(100_000, [100, 0, 0, 0, 0, 0])).as_deref(), Some(""));
    // Neither binaries in maps are sampled, nor tables that cannot be read, so both remain candidates.
    assert_eq!(named(&measured(100_000, [30, 30, 0, 0, 0, 0])).as_deref(), Some("carts of <0.55.0>"));
    assert_eq!(named(&measured(100_000, [0, 0, 0, 0, 0, 0])).as_deref(), Some("carts of <0.55.0>"));
}

#[test]
fn copies_are_not_advised_for_whole_binaries_in_a_growing_table() {
    let growing = |sample| {
        measured(1_000, sample).with(|n| {
            n.resident_growth = 20 * MB;
            n.kinds = vec![("binary", 100 * MB, 20 * MB)];
            n.referenced_binary_bytes = Some(10 * MB);
            n.ets.clear();
            n.large_tables = vec![("carts", 1 << 20, 40_000)];
            n.series.push((&metrics::TABLE_ROWS, "carts", 1_000, 10));
        })
    };
    let whole = growing([100, 0, 100, 25 * MB, 25 * MB, 25 * MB]);
    assert_healthy(&whole, "BT026");
    let found = finding(&whole, "BT027");
    assert_eq!(
        (found.subject_text().as_deref(), entries(&found)),
        (Some("carts of <0.55.0>"), vec!["code.bounded_table"])
    );
    let parts = growing([100, 0, 100, 10_000, 25 * MB, 25 * MB]);
    assert_eq!(entries(&finding(&parts, "BT026")), ["code.binary_copy"]);
    assert_eq!(entries(&finding(&parts, "BT027")), ["code.binary_copy"]);
    // A table without binaries does not keep them.
    let none = growing([100, 0, 0, 0, 0, 0]);
    assert_eq!(finding(&none, "BT026").subject_text().as_deref(), Some(""));
}

#[test]
fn receive_buffers_are_distinguished_from_binaries_in_tables() {
    let sockets = |resident| {
        measured(10, [10, 0, 0, 0, 0, 0]).with(|n| {
            n.resident = resident;
            (n.ports, n.used) = ((200, 0), 350 * MB);
            for (metric, value) in [
                (&metrics::PORTS_READ, 200),
                (&metrics::SOCKETS_READ, 190),
                (&metrics::SOCKETS_SAMPLED, 95),
                (&metrics::SOCKETS_ENDED, 0),
                (&metrics::SOCKETS_ENDED_QUEUES, 0),
                (&metrics::SOCKETS_PASSIVE, 94),
                (&metrics::SOCKET_BUFFERS, 94 * 3 * MB / 2),
            ] {
                n.series.push((metric, "", value, 0));
            }
        })
    };
    let why = healthy_because(&sockets(90 * MB), "BT026");
    assert!(why.contains("280 MB are receive buffers of 188 passive TCP connections (1.5 MB each)"), "{why}");
    let found = finding(&sockets(360 * MB), "BT026");
    assert_eq!((found.level, entries(&found)), (Level::Notice, vec!["socket.buffer"]));
    assert_eq!(found.title, "280 MB of binaries, possibly receive buffers of 188 connections");
}

#[test]
fn a_small_heap_that_keeps_large_binaries_is_named() {
    let holder = |change: fn(&mut SyntheticProcess)| {
        let mut busy = SyntheticProcess {
            pid: "<0.88.0>",
            row: row(|row| {
                row.name = Some("parser".to_owned());
                row.ranks = vec![Rank::Binary];
                row.memory_bytes = 300_000;
                row.binary_bytes = Some(280 * MB);
                row.minor_gcs = Some(4);
                row.fullsweep_after = Some(65_535);
            }),
            ..SyntheticProcess::default()
        };
        change(&mut busy);
        node().with(|n| {
            n.resident = 500 * MB;
            n.kinds = vec![("binary", 300 * MB, 0)];
            n.busiest = vec![busy];
        })
    };
    let found = finding(&holder(|_| ()), "BT026");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("parser (<0.88.0>)")));
    assert_eq!(entries(&found), ["code.binary_copy", "code.hibernate"]);
    let works = |minor_gcs: i64| {
        let mut node = holder(|busy| busy.reductions = 5);
        node.busiest[0].row.minor_gcs = Some(minor_gcs);
        finding(&node, "BT026")
    };
    assert_eq!(entries(&works(40)), ["code.binary_copy", "process.fullsweep_after"]);
    // For a process that is hardly ever collected, a lower fullsweep_after changes nothing.
    assert_eq!(entries(&works(4)), ["code.binary_copy", "code.hibernate"]);
    let idle = finding(&holder(|busy| busy.row.minor_gcs = Some(40)), "BT026");
    assert_eq!(entries(&idle), ["code.binary_copy", "code.hibernate"]);
    let swept = finding(&holder(|busy| busy.row.minor_gcs = Some(0)), "BT026");
    assert_eq!(entries(&swept), ["code.binary_copy"]);
    let hibernates = holder(|busy| busy.row.current_function = Some("erlang:hibernate/3".to_owned()));
    assert_eq!(entries(&finding(&hibernates, "BT026")), ["code.binary_copy"]);
    // A binary counts once per reference, so the sum may exceed all existing binaries.
    let again = finding(&holder(|busy| busy.row.binary_bytes = Some(900 * MB)), "BT026");
    assert_eq!(again.level, Level::Notice);
    assert!(again.against.iter().any(|but| but.starts_with("a binary counts each time")), "{again:#?}");
    let nearly = finding(&holder(|busy| busy.row.binary_bytes = Some(310 * MB)), "BT026");
    assert_eq!(nearly.level, Level::Warning, "both numbers are read at different instants");
    // After an inspection, the references of the process are known better.
    let asked = |bytes: i64, alone_bytes: i64, freed: i64| {
        let mut period = holder(|_| ()).period();
        let pid = "<0.88.0>".to_owned();
        let row = BinaryHolderRow {
            pid: pid.clone(),
            binaries: 7,
            bytes,
            exclusive: 3,
            alone_bytes,
            ..BinaryHolderRow::default()
        };
        period.holders.push(row);
        period.collected.push(CollectedProcessRow {
            pid,
            binary_before: freed,
            ..CollectedProcessRow::default()
        });
        outcome(&period, "BT026")
    };
    let Outcome::Found(found) = asked(190 * MB, 60 * MB, 50 * MB) else { panic!("nothing found") };
    let found = &found[0];
    assert_eq!(found.level, Level::Warning);
    let number = |what: &str| found.evidence.iter().find(|one| one.what == what).and_then(|one| one.value);
    assert_eq!(number("referenced by it alone"), Some((60 * MB) as f64));
    assert_eq!(number("freed by a GC of the process"), Some((50 * MB) as f64));
    assert_eq!(found.remedies[0].saves_bytes, Some((60 * MB) as f64));
    assert!(!found.remedies[0].prove.contains("--holders"), "{}", found.remedies[0].prove);
    assert!(matches!(asked(3 * MB, MB, 0), Outcome::Healthy(_)));
    assert_healthy(&holder(|busy| busy.row.memory_bytes = 100 * MB), "BT026");
    assert_healthy(&holder(|busy| busy.row.binary_bytes = Some(3 * MB)), "BT026");
}
