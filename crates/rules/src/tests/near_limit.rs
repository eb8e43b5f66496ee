//! Tests of rules on memory that grows, or is close to a limit.

use beamtune_model::{Confidence, Cost, Finding, Level, MemoryKind, Outcome, Rank, Signal, facts};

use super::node::{SyntheticProcess, node};
use super::{Read, assert_healthy, entries, finding, outcome, row};

const MB: i64 = 1_000_000;

#[test]
fn growth_is_reported_with_its_owner_and_the_time_left() {
    let growing = |kind: &'static str| {
        node().with(|n| {
            n.kinds = vec![(kind, 100 * MB, 2 * MB), ("atom", MB, 0)];
            n.resident_growth = 2 * MB;
            n.large_tables = vec![("settled", 90 * MB, 0), ("sessions", 10 * MB, 2 * MB)];
            n.memory_available = 6_000 * MB;
        })
    };
    let found = finding(&growing("ets"), "BT027");
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Critical, Some("sessions of <0.55.0>"))
    );
    assert!(found.title.contains("50 min"), "{}", found.title);
    assert_eq!(entries(&found), ["code.bounded_table", "ets.compressed"]);
    assert_eq!(entries(&finding(&growing("binary"), "BT027")), ["code.binary_copy"]);
    assert_eq!(entries(&finding(&growing("processes"), "BT027")), ["code.back_pressure"]);
    assert_eq!(entries(&finding(&growing("code"), "BT027")), ["code.no_code_at_run_time"]);
    assert_healthy(&node(), "BT027");
    let level = |seconds: i64, available: i64| {
        let node = growing("ets").with(|n| (n.seconds, n.memory_available) = (seconds, available * MB));
        let found = finding(&node, "BT027");
        (found.level, found.confidence)
    };
    assert_eq!(
        level(30, 100_000),
        (Level::Notice, Confidence::Guess),
        "half a minute shows nothing about 14 hours"
    );
    assert_eq!(
        level(30, 2_000),
        (Level::Critical, Confidence::Inferred),
        "a quarter of an hour, if the growth continues"
    );
    assert_eq!(level(30, 400), (Level::Critical, Confidence::Measured), "minutes are left");
    assert_eq!(level(400, 7_000).0, Level::Critical, "an hour, observed for minutes");
}

#[test]
fn blocks_in_resident_carriers_reach_no_limit() {
    let growing = |resident_growth: i64| {
        let node = node().with(|n| {
            n.kinds = vec![("ets", 100 * MB, 2 * MB)];
            n.resident_growth = resident_growth;
            n.memory_available = 2_000 * MB;
        });
        finding(&node, "BT027")
    };
    for rises in [0, MB / 10] {
        let fills = growing(rises);
        assert_eq!((fills.level, fills.cost()), (Level::Notice, None), "{fills:#?}");
        assert!(!fills.detail.contains("used up"), "{}", fills.detail);
        assert!(fills.against.iter().any(|but| but.contains("does not rise with it")), "{fills:#?}");
    }
    let grows = growing(MB);
    assert!(grows.level > Level::Notice && grows.detail.contains("is used up in"), "{grows:#?}");
}

#[test]
fn a_growing_rabbitmq_blocks_its_publishers_first() {
    let growing_kind = |kind: &'static str, facts: &[(&'static str, &str)]| {
        let node = node().with(|n| {
            n.kinds = vec![(kind, 100 * MB, 2 * MB)];
            n.large_tables = vec![("rabbit_queue", 90 * MB, 2 * MB)];
            n.resident_growth = 2 * MB;
            n.memory_available = 72_000 * MB;
            n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned()));
            n.facts.push((facts::HOST_MEMORY, (80_000 * MB).to_string()));
            n.facts.extend(facts.iter().map(|&(fact, value)| (fact, value.to_owned())));
        });
        finding(&node, "BT027")
    };
    let growing = |facts: &[(&'static str, &str)]| growing_kind("binary", facts);
    let ends = |found: &Finding, words: &str| assert!(found.detail.contains(words), "{}", found.detail);
    let is_unsure =
        |found: &Finding| found.against.iter().any(|but| but.contains("vm_memory_high_watermark"));
    // By default, the watermark is 40 % of the memory.
    let found = growing(&[]);
    ends(&found, "RabbitMQ blocks its publishers in 4.4 h");
    assert_eq!(entries(&found), ["code.back_pressure"]);
    assert!(is_unsure(&found), "{found:#?}");
    let told = (72_000 * MB).to_string();
    let found = growing(&[(facts::MEMORY_WATERMARK_BYTES, &told)]);
    ends(&found, "RabbitMQ blocks its publishers in 10.0 h");
    assert!(!is_unsure(&found), "{found:#?}");
    // BT037 reports a watermark that is already reached.
    ends(&growing(&[(facts::MEMORY_WATERMARK_SET, "0.000000")]), "the host's memory is used up in 10.0 h");
    // RabbitMQ's own tables are named, without advice to delete from them or to change its code.
    let tables = growing_kind("ets", &[]);
    assert_eq!(
        (tables.subject_text().as_deref(), entries(&tables)),
        (Some("rabbit_queue of <0.55.0>"), vec!["code.back_pressure"])
    );
    assert!(tables.remedies[0].change.contains("list_connections"), "{tables:#?}");
    assert_eq!(entries(&growing_kind("code", &[])), [""; 0]);
}

#[test]
fn memory_that_grows_beyond_what_the_vm_uses_belongs_to_native_code() {
    let leak = node().with(|n| {
        n.resident_growth = 5 * MB;
        // Most of the usage of the group is page cache.
        n.group_memory = Some((690 * MB, 760 * MB));
    });
    let found = finding(&leak, "BT027");
    assert_eq!(found.signals, [Signal::Grows(MemoryKind::Outside)]);
    assert_eq!(entries(&found), ["code.native_memory"]);
    assert_eq!(found.title, "Memory outside the VM grows by 5.00 MB/s, memory limit in 100 s");
    assert!(found.detail.contains("control group is used up in 100 s"), "{}", found.detail);
    // Constant resident memory, while the VM uses less, is no growth.
    assert_healthy(&node().with(|n| n.kinds = vec![("binary", 90 * MB, -5 * MB)]), "BT027");
}

#[test]
fn a_nearly_full_literal_area_is_found() {
    let check = |used: i64, level: Level| {
        let found = finding(&node().with(|n| n.literals = (used * MB, 100 * MB)), "BT030");
        assert_eq!(found.level, level, "{used} of 100");
        assert_eq!(entries(&found), ["+MIscs", "code.less_persistent"]);
    };
    check(55, Level::Notice);
    check(80, Level::Warning);
    check(95, Level::Critical);
    assert_healthy(&node(), "BT030");
    // The advised size is larger than the current one.
    let advised = |used_mib: i64, size_mib: i64| {
        let found = finding(&node().with(|n| n.literals = (used_mib << 20, size_mib << 20)), "BT030");
        found.remedies[0].change.clone()
    };
    assert_eq!(advised(600, 1_024), "+MIscs 2400");
    assert_eq!(advised(520, 1_024), "+MIscs 2080");
    assert_eq!(advised(60, 100), "+MIscs 240");
}

#[test]
fn memory_near_its_limit_is_reported() {
    let limited = |resident: i64, limit: i64| {
        node().with(|n| {
            n.resident = resident * MB;
            n.group_memory = Some(((resident + 20) * MB, limit * MB));
        })
    };
    assert_healthy(&node(), "BT037");
    assert_healthy(&limited(300, 500), "BT037");
    assert_eq!(finding(&limited(370, 500), "BT037").level, Level::Notice);
    let near = finding(&limited(430, 500), "BT037");
    assert_eq!((near.level, near.subject_text().as_deref()), (Level::Warning, Some("control group")));
    assert_eq!(entries(&near), ["host.memory_limit", "code.bounded_table"]);
    assert_eq!(finding(&limited(490, 500), "BT037").level, Level::Critical);
    // The time left is known only if memory grows.
    assert_eq!(near.cost(), None);
    let grows = finding(&limited(430, 500).with(|n| n.resident_growth = MB), "BT037");
    assert!(
        matches!(grows.cost(), Some(Cost::EndSeconds(left)) if left > 0.0 && left < 70.0),
        "{:?}",
        grows.cost()
    );
    // Host memory is nearly used up, half of it by the VM. If the VM uses little of it, that is not reported.
    let host = |resident: i64| {
        node().with(|n| {
            (n.resident, n.memory_available) = (resident * MB, 200 * MB);
            n.facts.push((facts::HOST_MEMORY, (4096 * MB).to_string()));
        })
    };
    let full = finding(&host(2_048), "BT037");
    assert_eq!(full.subject_text().as_deref(), Some("host"));
    assert_eq!(full.title, "Host memory 95 % used (4096 MB)");
    assert!(full.detail.starts_with("2048 MB resident; "), "{}", full.detail);
    assert_healthy(&host(500), "BT037");
    // Host memory cannot be raised, and the limit of a group cannot exceed it.
    assert_eq!(entries(&full), ["code.bounded_table"]);
    let of_host = |megabytes: i64| {
        let fact = (facts::HOST_MEMORY, (megabytes * MB).to_string());
        finding(&limited(430, 500).with(|n| n.facts.push(fact)), "BT037").remedies[0].change.clone()
    };
    assert!(of_host(4_096).starts_with("raise the limit to 645 MB"), "{}", of_host(4_096));
    assert!(of_host(600).starts_with("raise the limit to 600 MB"), "{}", of_host(600));
    assert!(of_host(500).starts_with("run beamtune memory TARGET"), "{}", of_host(500));
}

#[test]
fn a_host_with_room_for_the_largest_heap_is_a_notice() {
    let level = |available: i64, heap: i64| {
        let node = node().with(|n| {
            (n.resident, n.memory_available) = (40_000 * MB, available * MB);
            n.facts.push((facts::HOST_MEMORY, (64_000 * MB).to_string()));
            let row = row(|row| (row.ranks, row.memory_bytes) = (vec![Rank::Memory], heap * MB));
            n.busiest = vec![SyntheticProcess { row, ..SyntheticProcess::default() }];
        });
        finding(&node, "BT037").level
    };
    assert_eq!([level(10_000, 100), level(10_000, 11_000)], [Level::Notice, Level::Warning]);
    assert_eq!(level(3_000, 100), Level::Critical);
}

#[test]
fn a_watermark_that_rabbitmq_reports_replaces_the_default() {
    let rabbit = |resident: i64, facts: &[(&'static str, &str)]| {
        node().with(|n| {
            n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned()));
            n.facts.push((facts::MEMORY_TOTAL_SET, "1000MB".to_owned()));
            n.facts.extend(facts.iter().map(|(key, value)| (*key, (*value).to_owned())));
            (n.resident, n.group_memory) = (resident * MB, Some((resident * MB, 1_000 * MB)));
        })
    };
    let at_200 = [(facts::MEMORY_WATERMARK_BYTES, "200000000")];
    assert_healthy(&rabbit(150, &at_200), "BT037");
    assert_eq!(finding(&rabbit(180, &at_200), "BT037").level, Level::Warning);
    let blocks = finding(&rabbit(210, &at_200), "BT037");
    assert_eq!((blocks.level, entries(&blocks)), (Level::Critical, vec!["rabbitmq.memory_watermark"]));
    assert_eq!(blocks.title, "RabbitMQ blocks all publishers: memory above the watermark");
    assert_eq!(blocks.detail, "210 MB resident, watermark 200 MB");
    assert!(blocks.against.is_empty(), "{:?}", blocks.against);
    // The watermark was raised: memory above the default watermark does not block publishers.
    let at_900 = [(facts::MEMORY_WATERMARK_BYTES, "900000000")];
    assert_healthy(&rabbit(500, &at_900), "BT037");
    // The kernel kills the VM at the group's limit, below the watermark.
    let beyond = [(facts::MEMORY_WATERMARK_BYTES, "9000000000")];
    assert_eq!(finding(&rabbit(980, &beyond), "BT037").subject_text().as_deref(), Some("control group"));
    let alarm = finding(&rabbit(100, &[(facts::MEMORY_ALARMS, "2")]), "BT037");
    assert_eq!(alarm.level, Level::Critical);
    assert!(alarm.title.contains("2 nodes"), "{}", alarm.title);
    // The alarm is also reported if no memory limit is known.
    let alone = rabbit(100, &[(facts::MEMORY_ALARMS, "1"), (facts::HOST_MEMORY, "0")]);
    assert_eq!(finding(&alone.with(|n| n.group_memory = None), "BT037").level, Level::Critical);
}

#[test]
fn rabbitmq_near_its_assumed_watermark_is_reported() {
    let rabbit = |resident: i64| {
        node().with(|n| {
            n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned()));
            n.facts.push((facts::MEMORY_TOTAL_SET, "1000MB".to_owned()));
            (n.resident, n.group_memory) = (resident * MB, Some((resident * MB, 1_000 * MB)));
        })
    };
    assert_healthy(&rabbit(300), "BT037");
    assert_eq!(finding(&rabbit(360), "BT037").level, Level::Warning);
    let blocks = finding(&rabbit(410), "BT037");
    // The watermark is inferred.
    assert_eq!((blocks.level, entries(&blocks)), (Level::Warning, vec!["rabbitmq.memory_watermark"]));

    // Blocked publishers do not hide that the kernel is about to kill the VM.
    let Outcome::Found(both) = outcome(&rabbit(980).period(), "BT037") else { panic!("nothing found") };
    let subjects: Vec<_> = both.iter().map(|found| (found.level, found.subject_text())).collect();
    assert_eq!(
        subjects,
        [
            (Level::Critical, Some("control group".to_owned())),
            (Level::Warning, Some("memory watermark".to_owned()))
        ]
    );
    assert!(!entries(&both[0]).contains(&"rabbitmq.memory_watermark"));
    // RabbitMQ assumes that it may use all memory of the host, and is killed before it blocks publishers.
    let unset = rabbit(980).with(|n| {
        n.facts.retain(|fact| fact.0 != facts::MEMORY_TOTAL_SET);
        n.facts.push((facts::HOST_MEMORY, (16_384 * MB).to_string()));
    });
    let Outcome::Found(kills) = outcome(&unset.period(), "BT037") else { panic!("nothing found") };
    assert!(entries(&kills[0]).contains(&"rabbitmq.memory_watermark"), "{kills:#?}");
}
