//! The rules about memory.

use beamtune_model::rows::BlockSum;
use beamtune_model::{
    CarrierRow, CollectRow, Cost, Finding, HolderRow, Level, Outcome, Period, Rank, facts, metrics,
};

use super::node::{Allocates, Busy, Happens, Node, node};
use super::{assert_healthy, entries, finding, outcome, row, value};

const MB: i64 = 1_000_000;

/// 600 MB resident, 400 of them in carriers of binary_alloc, of which blocks take 20; they were full once.
fn after_a_peak() -> Node {
    node().with(|n| {
        n.resident = 600 * MB;
        n.facts = vec![(facts::OTP_VERSION, "25.2.3".to_owned())];
        n.allocators = vec![
            Allocates::default(),
            Allocates {
                name: "binary_alloc",
                mbcs: [10, 100 * MB, 50, 10 * MB],
                pool: [30, 300 * MB, 100, 10 * MB],
                peak: (420 * MB, 400 * MB),
                ..Allocates::default()
            },
        ];
    })
}

#[test]
fn carriers_that_a_peak_has_left_are_told_from_those_that_never_fit() {
    let found = finding(&after_a_peak(), "BT024");
    assert_eq!((found.level, found.subject.as_deref()), (Level::Warning, Some("binary_alloc")));
    assert!(found.summary.contains("380 MB"), "{}", found.summary);
    assert!(found.summary.contains("outlived it"), "{}", found.summary);
    assert_eq!(entries(&found), ["code.binary_copy", "+M<S>lmbcs", "+M<S>acful"]);
    assert!(found.remedies[1].change.contains("+MBlmbcs 256"), "{}", found.remedies[1].change);

    let steady = after_a_peak().with(|n| n.allocators[1].peak = (420 * MB, 30 * MB));
    let found = finding(&steady, "BT024");
    assert!(found.summary.contains("do not fit"), "{}", found.summary);
    assert_eq!(entries(&found), ["+M<S>acful", "+M<S>sbct", "+M<S>acul"]);
    assert_eq!(found.remedies[1].change, "+MBsbct 64 +MBmmsbc 8192");
    // With some strategies carriers are never shared, whatever acul says before.
    let with = |args: &str| steady.clone().with(|n| n.facts.push((facts::EMU_ARGS, args.to_owned())));
    for args in [r#"["-MBas","bf"]"#, r#"["-MBacul","80","-Muas","gf"]"#] {
        let found = finding(&with(args), "BT024");
        assert_eq!(entries(&found), ["+M<S>acful", "+M<S>sbct", "+M<S>as"]);
        assert_eq!(found.remedies[2].change, "+MBas aoffcbf");
        assert!(found.remedies[2].why.starts_with("with +M"), "{found:#?}");
    }
    for args in [r#"["-MBas","bf","-MBacul","70"]"#, r#"["-MBas","aoff"]"#, r#"["-MHas","bf"]"#] {
        assert_eq!(entries(&finding(&with(args), "BT024"))[2], "+M<S>acul");
    }
    // What BT045 has advised is not taken back.
    let raised = finding(&with(r#"["-MBsbct","2048"]"#), "BT024");
    assert_eq!(entries(&raised), ["+M<S>acful", "+M<S>acul"]);
    assert!(raised.against.iter().any(|against| against.starts_with("sbct is above")), "{raised:#?}");
    let raised = after_a_peak().with(|n| n.facts.push((facts::EMU_ARGS, r#"["-MBsbct","2048"]"#.to_owned())));
    assert_eq!(entries(&finding(&raised, "BT024")), ["code.binary_copy", "+M<S>acful"]);
    // Nor is what is so already, or higher.
    assert_eq!(entries(&finding(&with(r#"["-MBacul","90","-Muacful","60"]"#), "BT024")), ["+M<S>sbct"]);

    // A peak that has come again while it was looked at: what comes and goes is kept apart from what stays.
    let waves = after_a_peak().with(|n| n.binary_waves = 150 * MB);
    let found = finding(&waves, "BT024");
    assert_eq!(entries(&found), ["+M<S>sbct", "code.binary_copy", "+M<S>lmbcs", "+M<S>acful"]);
    assert!(found.against.iter().any(|against| against.contains("has come again")), "{:?}", found.against);

    // Heaps would be mapped and unmapped with each collection, if they had carriers of their own.
    let heaps = after_a_peak().with(|n| n.allocators[1].name = "eheap_alloc");
    assert_eq!(entries(&finding(&heaps, "BT024")), ["code.hibernate", "+M<S>acful"]);

    // A process has so many mappings, of all instances together.
    let instances = steady.clone().with(|n| {
        let other =
            |name| Allocates { name, mbcs: [0; 4], peak: (0, 0), segments_asked: 0, ..Allocates::default() };
        n.allocators
            .extend(["binary_alloc/1", "binary_alloc/2", "binary_alloc/3", "binary_alloc/4"].map(other));
    });
    assert_eq!(finding(&instances, "BT024").remedies[1].change, "+MBsbct 64 +MBmmsbc 6000");

    let single = node().with(|n| {
        n.resident = 600 * MB;
        n.allocators[0].sbcs = [300, 300 * MB, 300, 170 * MB];
    });
    assert_eq!(entries(&finding(&single, "BT024")), ["+M<S>sbct", "+M<S>rsbcst"]);
    // Huge ones would still have carriers of their own.
    let huge = single.clone().with(|n| n.allocators[0].sbcs = [30, 300 * MB, 30, 170 * MB]);
    assert_eq!(entries(&finding(&huge, "BT024")), ["+M<S>rsbcst"]);
    assert_healthy(&node(), "BT024");
    // A carrier twice as large as the huge table in it, of which nobody has looked at the pages.
    let table = node().with(|n| {
        n.resident = 320 * MB;
        n.allocators[0] =
            Allocates { name: "ll_alloc", mbcs: [6, 570 * MB, 100, 290 * MB], ..Allocates::default() };
    });
    assert_healthy(&table, "BT024");
}

#[test]
fn carriers_whose_pages_are_not_resident_cost_nothing() {
    let looked = |pool: i64| {
        after_a_peak().with(|n| {
            n.contents = vec![
                ("carriers/binary_alloc/mbcs", 12 * MB, None),
                ("carriers/binary_alloc/pool", pool, None),
                ("unknown", 0, None),
            ];
        })
    };
    assert_healthy(&looked(20 * MB), "BT024");
    let found = finding(&looked(250 * MB), "BT024");
    assert!(found.summary.contains("242 MB"), "{}", found.summary);
    assert_eq!(found.cost, value(&found, "resident and used by no block").map(Cost::MemoryBytes));
    assert!(found.against.iter().all(|against| !against.contains("not looked at")), "{:?}", found.against);
    // The kernel has it already, and only has not taken it.
    let given_back = |bytes: i64| finding(&looked(250 * MB).with(|n| n.given_back = bytes), "BT024");
    let [little, most] = [given_back(10 * MB), given_back(200 * MB)];
    assert!(little.against.iter().all(|against| !against.contains("given back already")), "{little:?}");
    assert!(most.against.iter().any(|against| against.starts_with("200 MB of what")), "{most:?}");
    let level = |bytes: i64| {
        let node = looked(250 * MB).with(|n| (n.given_back, n.resident) = (bytes, 300 * MB));
        finding(&node, "BT024").level
    };
    assert_eq!([level(10 * MB), level(200 * MB)], [Level::Critical, Level::Warning]);
    assert!(
        finding(&after_a_peak(), "BT024").against.iter().any(|against| against.contains("not looked at"))
    );
}

#[test]
fn carriers_that_are_half_full_are_a_notice_unless_much_lies_in_them() {
    let level = |times: i64, used_pct: i64| {
        let node = node().with(|n| {
            n.resident = times * 500 * MB;
            let mbcs = [40, times * 400 * MB, 100_000, times * 4 * used_pct * MB];
            n.allocators[0] = Allocates { mbcs, peak: (mbcs[1], mbcs[3]), ..Allocates::default() };
        });
        finding(&node, "BT024").level
    };
    assert_eq!([level(1, 55), level(1, 45)], [Level::Notice, Level::Warning]);
    assert_eq!(level(10, 55), Level::Warning);
}

#[test]
fn scratch_memory_is_not_called_fragmented() {
    assert_healthy(&after_a_peak().with(|n| n.allocators[1].name = "temp_alloc"), "BT024");
}

#[test]
fn small_carriers_are_not_advised_where_blocks_lie_in_all_of_them() {
    let dense = after_a_peak().with(|n| n.allocators[1].pool[2] = 50_000);
    assert!(!entries(&finding(&dense, "BT024")).contains(&"+M<S>lmbcs"));
}

/// By sums, 150 blocks in 40 carriers look as if four lay in each.
#[test]
fn a_walk_through_the_carriers_makes_the_estimate_better() {
    let saving = |period: &Period| {
        let outcome = outcome(period, "BT024");
        let Outcome::Found(found) = outcome else { panic!("{outcome:?}") };
        let small = found[0].remedies.iter().find(|remedy| remedy.entry == "+M<S>lmbcs");
        small.and_then(|remedy| remedy.saves_bytes).unwrap_or(0.0)
    };
    let mut period = after_a_peak().period();
    let by_sums = saving(&period);
    let row = |carriers: i64, blocks: i64| CarrierRow {
        allocator: "binary_alloc".to_owned(),
        carriers,
        bytes: carriers * 10 * MB,
        blocks: vec![BlockSum { allocator: "binary_alloc".to_owned(), count: blocks, bytes: blocks * 1_000 }],
        ..CarrierRow::default()
    };
    // One block in each of 30 carriers, and the other ten are crowded.
    period.carriers = vec![row(30, 30), row(10, 100_000)];
    let by_walk = saving(&period);
    assert!((290e6..300e6).contains(&by_walk) && by_sums > 350e6, "{by_walk} {by_sums}");
}

#[test]
fn memory_of_native_code_is_told_from_what_malloc_keeps() {
    let native = |in_use: i64| {
        node().with(|n| {
            n.resident = 500 * MB;
            n.facts = vec![(facts::NATIVE_LIBRARIES, r#"["/app/priv/leaky.so"]"#.to_owned())];
            n.contents = vec![
                ("malloc/arenas", 200 * MB, Some(in_use - 10 * MB)),
                ("malloc/mapped", 100 * MB, Some(10 * MB)),
                ("unknown", 2 * MB, None),
            ];
        })
    };
    let found = finding(&native(290 * MB), "BT025");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(entries(&found), ["code.native_memory"]);
    let libraries = found
        .evidence
        .iter()
        .find_map(|evidence| evidence.text.as_deref().filter(|text| text.contains("leaky")));
    assert_eq!(libraries, Some("/app/priv/leaky.so"));
    assert_eq!(entries(&finding(&native(60 * MB), "BT025")), ["host.malloc_arenas"]);
    assert_healthy(&node(), "BT025");
}

#[test]
fn what_carriers_cannot_hold_is_outside_of_them() {
    let found = finding(&node().with(|n| n.resident = 600 * MB), "BT025");
    assert!(found.summary.contains("358 MB"), "600 - 157.4 - 64 - twice 10.5 of code: {}", found.summary);
    assert!(found.level < Level::Critical);
    // Machine code is mapped twice, and resident twice: an application of 100 MB of it is no leak …
    let code = |flavor: &str| {
        let flavor = flavor.to_owned();
        node().with(|n| {
            n.resident = 450 * MB;
            n.kinds = vec![("code", 100 * MB, 0)];
            n.facts = vec![(facts::EMU_FLAVOR, flavor)];
        })
    };
    assert_healthy(&code("jit"), "BT025");
    // … which an interpreter does not have.
    assert!(finding(&code("emu"), "BT025").summary.contains("229 MB"), "450 - 157.4 - 64");
    // Segments that the VM has mapped and keeps are its own.
    assert_healthy(&node().with(|n| (n.resident, n.mapped) = (600 * MB, 500 * MB)), "BT025");
}

#[test]
fn memory_of_disabled_allocators_is_no_leak() {
    let disabled = node().with(|n| {
        n.resident = 500 * MB;
        n.facts = vec![(facts::ALLOCATORS, r#"["eheap_alloc","binary_alloc=false"]"#.to_owned())];
    });
    assert_eq!(entries(&finding(&disabled, "BT025")), ["+M<S>e"]);
}

#[test]
fn binaries_that_no_process_refers_to_are_told_with_the_tables_that_may_keep_them() {
    let kept = |referred: i64| {
        node().with(|n| {
            n.resident = 500 * MB;
            n.kinds = vec![("binary", 300 * MB, 0)];
            n.referred = Some(referred);
            n.large_tables = vec![("carts", 1 << 20, 0)];
        })
    };
    let found = finding(&kept(20 * MB), "BT026");
    assert_eq!((found.level, found.subject.as_deref()), (Level::Notice, Some("tables")));
    assert!(found.summary.starts_with("280 MB of binaries are kept by no process"), "{}", found.summary);
    assert!(
        found.evidence.iter().any(|of| of.text.as_deref().is_some_and(|text| text.contains("carts of"))),
        "{found:#?}"
    );
    assert_eq!(entries(&found), ["code.binary_copy"]);
    // Processes may keep them; or it was not told, of a node with many.
    assert_healthy(&kept(200 * MB), "BT026");
    assert_healthy(&kept(20 * MB).with(|n| n.referred = None), "BT026");
}

#[test]
fn a_small_heap_that_keeps_large_binaries_is_named() {
    let holder = |change: fn(&mut Busy)| {
        let mut busy = Busy {
            pid: "<0.88.0>",
            row: row(|row| {
                row.name = Some("parser".to_owned());
                row.ranks = vec![Rank::Binary];
                row.memory_bytes = 300_000;
                row.binary_bytes = Some(280 * MB);
                row.minor_gcs = Some(4);
                row.fullsweep_after = Some(65_535);
            }),
            ..Busy::default()
        };
        change(&mut busy);
        node().with(|n| {
            n.resident = 500 * MB;
            n.kinds = vec![("binary", 300 * MB, 0)];
            n.busiest = vec![busy];
        })
    };
    let found = finding(&holder(|_| ()), "BT026");
    assert_eq!((found.level, found.subject.as_deref()), (Level::Warning, Some("parser (<0.88.0>)")));
    assert_eq!(entries(&found), ["code.binary_copy", "code.hibernate"]);
    let works = |minor_gcs: i64| {
        let mut node = holder(|busy| busy.reductions = 5);
        node.busiest[0].row.minor_gcs = Some(minor_gcs);
        finding(&node, "BT026")
    };
    assert_eq!(entries(&works(40)), ["code.binary_copy", "process.fullsweep_after"]);
    // Who is hardly ever collected would not be collected as a whole more often.
    assert_eq!(entries(&works(4)), ["code.binary_copy", "code.hibernate"]);
    let idle = finding(&holder(|busy| busy.row.minor_gcs = Some(40)), "BT026");
    assert_eq!(entries(&idle), ["code.binary_copy", "code.hibernate"]);
    let swept = finding(&holder(|busy| busy.row.minor_gcs = Some(0)), "BT026");
    assert_eq!(entries(&swept), ["code.binary_copy"]);
    let hibernates = holder(|busy| busy.row.current_function = Some("erlang:hibernate/3".to_owned()));
    assert_eq!(entries(&finding(&hibernates, "BT026")), ["code.binary_copy"]);
    // More than there is cannot be held: it is counted for each reference.
    let again = finding(&holder(|busy| busy.row.binary_bytes = Some(900 * MB)), "BT026");
    assert_eq!(again.level, Level::Notice);
    assert!(again.against.iter().any(|but| but.contains("counts each time")), "{again:#?}");
    let nearly = finding(&holder(|busy| busy.row.binary_bytes = Some(310 * MB)), "BT026");
    assert_eq!(nearly.level, Level::Warning, "read at another instant");
    // What it refers to is known better once it was asked.
    let asked = |bytes: i64, alone_bytes: i64, freed: i64| {
        let mut period = holder(|_| ()).period();
        let pid = "<0.88.0>".to_owned();
        let row =
            HolderRow { pid: pid.clone(), binaries: 7, bytes, alone: 3, alone_bytes, ..HolderRow::default() };
        period.holders.push(row);
        period.collected.push(CollectRow { pid, binary_before: freed, ..CollectRow::default() });
        outcome(&period, "BT026")
    };
    let Outcome::Found(found) = asked(190 * MB, 60 * MB, 50 * MB) else { panic!("nothing found") };
    let found = &found[0];
    assert_eq!(found.level, Level::Warning);
    let number = |what: &str| found.evidence.iter().find(|one| one.what == what).and_then(|one| one.value);
    assert_eq!(number("thereof held by nobody else"), Some((60 * MB) as f64));
    assert_eq!(number("what a collection of it has given back"), Some((50 * MB) as f64));
    assert_eq!(found.remedies[0].saves_bytes, Some((60 * MB) as f64));
    assert!(!found.remedies[0].prove.contains("--holders"), "{}", found.remedies[0].prove);
    assert!(matches!(asked(3 * MB, MB, 0), Outcome::Healthy(_)));
    assert_healthy(&holder(|busy| busy.row.memory_bytes = 100 * MB), "BT026");
    assert_healthy(&holder(|busy| busy.row.binary_bytes = Some(3 * MB)), "BT026");
}

#[test]
fn growth_is_told_with_its_owner_and_the_time_that_is_left() {
    let growing = |kind: &'static str| {
        node().with(|n| {
            n.kinds = vec![(kind, 100 * MB, 2 * MB), ("atom", MB, 0)];
            n.resident_growth = 2 * MB;
            n.large_tables = vec![("settled", 90 * MB, 0), ("sessions", 10 * MB, 2 * MB)];
            n.memory_available = 6_000 * MB;
        })
    };
    let found = finding(&growing("ets"), "BT027");
    assert_eq!((found.level, found.subject.as_deref()), (Level::Warning, Some("sessions")));
    assert!(found.summary.contains("50 min"), "{}", found.summary);
    assert_eq!(entries(&found), ["code.bounded_table", "ets.compressed"]);
    assert_eq!(entries(&finding(&growing("binary"), "BT027")), ["code.binary_copy"]);
    assert_eq!(entries(&finding(&growing("processes"), "BT027")), ["code.back_pressure"]);
    assert_eq!(entries(&finding(&growing("code"), "BT027")), ["code.no_code_at_run_time"]);
    assert_healthy(&node(), "BT027");
    // An end far away is told behind what is known, unless it was seen for long.
    let score = |seconds: i64, available: i64| {
        let node = growing("ets").with(|n| (n.seconds, n.memory_available) = (seconds, available * MB));
        finding(&node, "BT027").score
    };
    // … and of days ten seconds tell nothing.
    assert_eq!([score(30, 100_000), score(30, 7_200), score(30, 2_000)], [20.0, 40.0, 74.0]);
    assert!(score(400, 7_200) >= 75.0);
}

#[test]
fn what_fills_carriers_that_are_resident_comes_to_no_limit() {
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
        assert_eq!((fills.level, fills.cost), (Level::Notice, None), "{fills:#?}");
        assert!(!fills.summary.contains("used up"), "{}", fills.summary);
        assert!(fills.against.iter().any(|but| but.contains("does not rise with it")), "{fills:#?}");
    }
    let grows = growing(MB);
    assert!(grows.level > Level::Notice && grows.summary.contains("is used up in"), "{grows:#?}");
}

#[test]
fn a_rabbitmq_that_grows_blocks_its_publishers_first() {
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
    let ends = |found: &Finding, words: &str| assert!(found.summary.contains(words), "{}", found.summary);
    let is_unsure =
        |found: &Finding| found.against.iter().any(|but| but.contains("vm_memory_high_watermark"));
    // 40 % of what there is.
    let found = growing(&[]);
    ends(&found, "RabbitMQ blocks its publishers in 4.4 h");
    assert_eq!(entries(&found), ["code.back_pressure"]);
    assert!(is_unsure(&found), "{found:#?}");
    let told = (72_000 * MB).to_string();
    let found = growing(&[(facts::MEMORY_WATERMARK_BYTES, &told)]);
    ends(&found, "RabbitMQ blocks its publishers in 10.0 h");
    assert!(!is_unsure(&found), "{found:#?}");
    // What it has come to already is BT037's.
    ends(&growing(&[(facts::MEMORY_WATERMARK_SET, "0.000000")]), "the host's memory is used up in 10.0 h");
    // Its own tables are named, and nobody is told to delete from them, or to change its code.
    let tables = growing_kind("ets", &[]);
    assert_eq!(
        (tables.subject.as_deref(), entries(&tables)),
        (Some("rabbit_queue"), vec!["code.back_pressure"])
    );
    assert!(tables.remedies[0].change.contains("list_connections"), "{tables:#?}");
    assert_eq!(entries(&growing_kind("code", &[])), [""; 0]);
}

#[test]
fn memory_that_grows_beyond_what_the_vm_uses_is_nobodys_but_native_codes() {
    let leak = node().with(|n| {
        n.resident_growth = 5 * MB;
        // Most of the group is full with what the kernel caches.
        n.group_memory = Some((690 * MB, 760 * MB));
    });
    let found = finding(&leak, "BT027");
    assert_eq!(found.subject.as_deref(), Some("outside"));
    assert_eq!(entries(&found), ["code.native_memory"]);
    assert!(found.summary.contains("control group is used up in 100 s"), "{}", found.summary);
    // Resident memory that stays while the VM uses less is no growth.
    assert_healthy(&node().with(|n| n.kinds = vec![("binary", 90 * MB, -5 * MB)]), "BT027");
}

#[test]
fn a_full_super_carrier_says_what_comes_next() {
    let full = |args: &'static str| {
        node().with(|n| {
            n.super_carrier = Some((60 << 20, 60 << 20));
            n.facts = vec![(facts::EMU_ARGS, args.to_owned())];
        })
    };
    let found = finding(&full(r#"["-MMscs","64"]"#), "BT028");
    assert!(found.summary.contains("come from malloc"), "{}", found.summary);
    assert_eq!(entries(&found), ["+MMscs", "+MMsco"]);
    let capped = finding(&full(r#"["-MMscs","64","-Musac","false"]"#), "BT028");
    assert_eq!(capped.level, Level::Critical, "{}", capped.summary);
    // There is some room left.
    let nearly =
        full(r#"["-MMscs","64","-Musac","false"]"#).with(|n| n.super_carrier = Some((52 << 20, 60 << 20)));
    assert_eq!(finding(&nearly, "BT028").level, Level::Notice);
    // One larger than the memory there is would keep the VM from starting.
    let host = |megabytes: i64| {
        full(r#"["-MMscs","64"]"#).with(|n| {
            n.resident = 40 << 20;
            n.facts.push((facts::HOST_MEMORY, (megabytes << 20).to_string()));
        })
    };
    assert_eq!(finding(&host(100), "BT028").remedies[0].change, "+MMscs 90");
    let none = finding(&host(70), "BT028");
    assert_eq!(entries(&none), ["+MMsco"]);
    assert!(none.against.iter().any(|but| but.contains("no room for a larger one")), "{none:#?}");
    let limited = host(1_000).with(|n| n.group_memory = Some((50 << 20, 80 << 20)));
    assert_eq!(finding(&limited, "BT028").remedies[0].change, "+MMscs 80");
    assert_eq!(entries(&finding(&full(r#"["-MMscs","64","-MMsco","false"]"#), "BT028")), ["+MMscs"]);
    assert_healthy(&node().with(|n| n.super_carrier = Some((30 << 20, 60 << 20))), "BT028");
    assert_healthy(&node(), "BT028");
}

#[test]
fn a_cache_of_segments_that_serves_nobody_names_who_asks() {
    let thrash = node().with(|n| {
        n.segments = (4_000, 3_000);
        n.system = 0.4;
        n.allocators.push(Allocates { name: "binary_alloc", segments_asked: 3_900, ..Allocates::default() });
    });
    let found = finding(&thrash, "BT029");
    assert_eq!((found.level, found.subject.as_deref()), (Level::Warning, Some("binary_alloc")));
    // What keeps more of the same comes first, what changes where blocks lie comes last.
    assert_eq!(entries(&found), ["+MMmcs", "+MMrmcbf", "+MMscs", "+M<S>sbct"]);
    assert!(found.remedies[3].change.starts_with("+MBsbct"), "{}", found.remedies[3].change);
    let known = finding(&thrash.clone().with(|n| n.carriers_peak = 400 << 20), "BT029");
    assert_eq!(known.remedies[2].change, "+MMscs 512 +MMsco false");
    let loose = r#"["-MMmcs","30","-MMrmcbf","40"]"#;
    let loose = thrash.clone().with(|n| n.facts = vec![(facts::EMU_ARGS, loose.to_owned())]);
    assert_eq!(entries(&finding(&loose, "BT029")), ["+MMscs", "+M<S>sbct"]);
    // Larger caches are cut to 30 by the VM, and a higher threshold is not taken back.
    let raised = r#"["-MMmcs","100","-MBsbct","8192"]"#;
    let raised = thrash.clone().with(|n| n.facts = vec![(facts::EMU_ARGS, raised.to_owned())]);
    assert_eq!(entries(&finding(&raised, "BT029")), ["+MMrmcbf", "+MMscs"]);
    assert_eq!(finding(&thrash.clone().with(|n| n.system = 0.0), "BT029").level, Level::Notice);
    assert_healthy(&thrash.clone().with(|n| n.segments = (40_000, 3_000)), "BT029");
    // Memory that grows, or a super carrier that is full and refuses.
    assert_healthy(&thrash.clone().with(|n| n.segments_kept = 3_000), "BT029");
    let of_one_mapping = thrash.clone().with(|n| {
        n.facts = vec![(facts::EMU_ARGS, r#"["-MMscs","512"]"#.to_owned())];
    });
    assert_eq!(entries(&finding(&of_one_mapping, "BT029")), ["+MMmcs", "+MMrmcbf", "+M<S>sbct"]);
    assert_healthy(&node(), "BT029");
}

#[test]
fn a_literal_area_that_fills_is_found_in_time() {
    let check = |used: i64, level: Level| {
        let found = finding(&node().with(|n| n.literals = (used * MB, 100 * MB)), "BT030");
        assert_eq!(found.level, level, "{used} of 100");
        assert_eq!(entries(&found), ["+MIscs", "code.less_persistent"]);
    };
    check(55, Level::Notice);
    check(80, Level::Warning);
    check(95, Level::Critical);
    assert_healthy(&node(), "BT030");
    // What is advised is more than there is.
    let advised = |used_mib: i64, size_mib: i64| {
        let found = finding(&node().with(|n| n.literals = (used_mib << 20, size_mib << 20)), "BT030");
        found.remedies[0].change.clone()
    };
    assert_eq!(advised(600, 1_024), "+MIscs 2400");
    assert_eq!(advised(520, 1_024), "+MIscs 2080");
    assert_eq!(advised(60, 100), "+MIscs 240");
}

#[test]
fn heaps_of_processes_that_do_nothing_are_added_up() {
    let idle = |reductions: i64| {
        node().with(|n| {
            n.resident = 500 * MB;
            n.busiest = ["<0.81.0>", "<0.82.0>", "<0.83.0>"]
                .map(|pid| Busy {
                    pid,
                    reductions,
                    row: row(|row| {
                        row.ranks = vec![Rank::Memory];
                        row.memory_bytes = 60 * MB;
                        row.initial_call = Some("worker:init/1".to_owned());
                    }),
                    ..Busy::default()
                })
                .to_vec();
        })
    };
    let found = finding(&idle(0), "BT031");
    assert_eq!(found.level, Level::Warning);
    assert!(found.summary.starts_with("3 large processes that do nothing hold 180 MB"), "{}", found.summary);
    assert_eq!(entries(&found), ["code.hibernate", "code.worker_per_job"]);
    assert_eq!(found.remedies[0].saves_bytes, Some((180 * MB) as f64));
    // Those that are not among the largest may be like them, or not.
    let many = |resident: i64| {
        let node = idle(0).with(|n| (n.resident, n.kinds) = (resident, vec![("processes", 400 * MB, 0)]));
        finding(&node, "BT031")
    };
    let of_many = many(500 * MB);
    assert_eq!((of_many.score, of_many.cost), (found.score, found.cost), "what was seen counts");
    let all = value(&of_many, "heaps of all idle processes, if the others are like these");
    assert_eq!(all, Some((400 * MB) as f64));
    // 9 % were seen, and it may be 20 %, or 8 and 18.
    assert_eq!([many(2_000 * MB).level, many(2_200 * MB).level], [Level::Notice; 2]);
    assert_eq!(many(1_500 * MB).level, Level::Notice, "12 %, and perhaps 27");
    let with = |change: fn(&mut Busy)| idle(0).with(|n| n.busiest.iter_mut().for_each(change));
    // Who hibernates was collected for it, whatever its count of collections says.
    for at in ["erlang:hibernate/3", "gen_server:loop_hibernate/4"] {
        let mut hibernating = with(|busy| busy.row.minor_gcs = Some(7));
        hibernating.busiest.iter_mut().for_each(|busy| busy.row.current_function = Some(at.to_owned()));
        assert_healthy(&hibernating, "BT031");
    }
    // A full collection may have come in the middle of the last work: what has been made since is not seen.
    let swept = finding(&with(|busy| busy.row.minor_gcs = Some(0)).with(|n| n.resident = 200 * MB), "BT031");
    assert_eq!((swept.score, swept.remedies[0].saves_bytes), (40.0, None));
    // To be looked at takes one or two.
    assert_eq!(finding(&idle(1), "BT031").level, Level::Warning);
    assert_healthy(&idle(1_000), "BT031");
    // One that collects whenever it is looked at is not idle.
    let collects = idle(0).with(|n| {
        n.busiest.truncate(1);
        n.busiest[0].row.memory_bytes = 180 * MB;
    });
    assert_eq!(finding(&collects, "BT031").level, Level::Warning);
    let event = Happens { kind: "long_gc", milliseconds: 900, subject: "sessions (<0.81.0>)", from: 1 };
    assert_healthy(&collects.with(|n| n.events = vec![event]), "BT031");
    assert_healthy(&node(), "BT031");
}

#[test]
fn a_job_that_collects_everything_is_told_from_a_load_in_waves() {
    let job = |every_ms: i64, size: i64| {
        node().with(|n| {
            n.seconds = 130;
            n.processes = (2_000, 0);
            n.collections = (50, Some((every_ms, size)));
        })
    };
    let found = finding(&job(30_000, 2_100), "BT032");
    assert!(found.summary.contains("every 30 s"), "{}", found.summary);
    // Of twenty minutes each tenth second or so is kept.
    let long = finding(&job(96_000, 2_100).with(|n| (n.seconds, n.collections.0) = (1_300, 20)), "BT032");
    let step = long.evidence[1]
        .what
        .strip_prefix("in ")
        .and_then(|rest| rest.strip_suffix(" s without one, usually"));
    let step: f64 = step.and_then(|step| step.parse().ok()).unwrap_or_else(|| panic!("{long:#?}"));
    assert!(step > 5.0 && long.summary.contains(&format!("within {step:.1} s")), "{}", long.summary);
    assert_eq!(entries(&found), ["code.no_forced_collections"]);
    assert_healthy(&job(30_000, 500), "BT032");
    // A log that is written in pulses makes many collections of few processes.
    assert_healthy(&job(30_000, 9_000), "BT032");
    assert_healthy(&job(100_000, 2_100), "BT032");
    let busy = job(30_000, 2_100).with(|n| n.collections.0 = 1_500);
    assert_healthy(&busy, "BT032");
    // Seen once a second, its rounds are two or three, or three or four seconds apart.
    for every_ms in [2_500, 3_500] {
        let found = finding(&job(every_ms, 2_100).with(|n| n.seconds = 20), "BT032");
        assert_eq!(found.level, Level::Warning, "{}", found.summary);
        assert!(found.summary.contains("collections within a second"), "{}", found.summary);
    }
    // Each third second has one, and many a round falls into two.
    for every_ms in [2_700, 3_100] {
        let slow = job(every_ms, 2_100).with(|n| (n.seconds, n.wave_ms) = (13, 600));
        let found = finding(&slow, "BT032");
        assert!(found.summary.contains("about every 3"), "{every_ms}: {}", found.summary);
    }
}

#[test]
fn heaps_that_fill_in_step_are_no_job_that_collects() {
    let broadcast = |minor: i64| {
        node().with(|n| {
            (n.seconds, n.processes, n.collections) = (130, (2_000, 0), (50, Some((30_000, 2_100))));
            let row = row(|r| r.minor_gcs = Some(minor));
            n.busiest = vec![Busy { reductions: 900, row, ..Busy::default() }];
        })
    };
    assert_healthy(&broadcast(3), "BT032");
    assert_eq!(finding(&broadcast(0), "BT032").level, Level::Notice);
}

#[test]
fn a_job_that_collects_without_a_pause_is_told_by_who_was_seen_at_it() {
    let guard = |at: &str, rate: i64| {
        node().with(|n| {
            (n.seconds, n.processes, n.collections) = (10, (2_000, 0), (rate, None));
            n.busiest = vec![Busy {
                reductions: 900,
                row: row(|r| {
                    r.name = Some("shop_guard".to_owned());
                    r.current_function = Some(at.to_owned());
                    r.stack = vec![at.to_owned(), "shop_guard:check/1".to_owned()];
                }),
                ..Busy::default()
            }];
        })
    };
    let found = finding(&guard("erlang:garbage_collect/2", 9_000), "BT032");
    assert_eq!((found.level, found.subject.as_deref()), (Level::Warning, Some("shop_guard (<0.77.0>)")));
    assert!(found.summary.contains("9000 collections a second, 4.5 of each of 2000"), "{}", found.summary);
    assert_eq!(entries(&found), ["code.no_forced_collections"]);
    // So many are the load's; and who collects itself, or does something else, collects nobody.
    assert_healthy(&guard("erlang:garbage_collect/2", 1_500), "BT032");
    assert_healthy(&guard("erlang:garbage_collect/0", 9_000), "BT032");
    assert_healthy(&guard("shop_guard:count/1", 9_000), "BT032");
    // What is collected so is a consequence.
    let share = guard("erlang:garbage_collect/2", 9_000).with(|n| n.gc = 0.6);
    assert_eq!(finding(&share, "BT011").follows.map(|cause| cause.code.0), Some("BT032"));
}

#[test]
fn what_comes_and_goes_between_two_looks_is_not_taken_for_somebody_elses() {
    let swings = |every: i64| node().with(|n| (n.resident, n.resident_swings) = (600 * MB, every));
    assert_eq!(finding(&swings(100 * MB), "BT025").code.0, "BT025");
    let outcome = outcome(&swings(500 * MB).period(), "BT025");
    assert!(matches!(outcome, Outcome::NotJudged { .. }), "{outcome:?}");
}

#[test]
fn nothing_is_judged_where_allocators_were_not_read() {
    for code in ["BT024", "BT025"] {
        let outcome = outcome(&node().with(|n| n.without.push(&metrics::MBCS_CARRIERS_SIZE)).period(), code);
        assert!(matches!(outcome, Outcome::NotJudged { .. }), "{code}: {outcome:?}");
    }
}

#[test]
fn memory_that_comes_near_its_limit_is_told() {
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
    assert_eq!((near.level, near.subject.as_deref()), (Level::Warning, Some("control group")));
    assert_eq!(entries(&near), ["host.memory_limit", "code.bounded_table"]);
    assert_eq!(finding(&limited(490, 500), "BT037").level, Level::Critical);
    // The host's is full, and half of it is the VM's; if it is not, it is no concern of the VM's.
    let host = |resident: i64| {
        node().with(|n| {
            (n.resident, n.memory_available) = (resident * MB, 200 * MB);
            n.facts.push((facts::HOST_MEMORY, (4096 * MB).to_string()));
        })
    };
    let full = finding(&host(2_048), "BT037");
    assert_eq!(full.subject.as_deref(), Some("host"));
    let said = "95 % of the host's memory (4096 MB) are taken, 2048 MB of it by the VM";
    assert!(full.summary.starts_with(said), "{}", full.summary);
    assert_healthy(&host(500), "BT037");
    // It has what it has; a group has no more than that.
    assert_eq!(entries(&full), ["code.bounded_table"]);
    let of_host = |megabytes: i64| {
        let fact = (facts::HOST_MEMORY, (megabytes * MB).to_string());
        finding(&limited(430, 500).with(|n| n.facts.push(fact)), "BT037").remedies[0].change.clone()
    };
    assert!(of_host(4_096).starts_with("a limit of 645 MB"), "{}", of_host(4_096));
    assert!(of_host(600).starts_with("a limit of 600 MB"), "{}", of_host(600));
    assert_eq!(of_host(500), "beamtune memory says where the memory is, and what gives it back");
}

#[test]
fn a_host_with_room_for_the_largest_heap_is_not_about_to_kill_anybody() {
    let level = |available: i64, heap: i64| {
        let node = node().with(|n| {
            (n.resident, n.memory_available) = (40_000 * MB, available * MB);
            n.facts.push((facts::HOST_MEMORY, (64_000 * MB).to_string()));
            let row = row(|row| (row.ranks, row.memory_bytes) = (vec![Rank::Memory], heap * MB));
            n.busiest = vec![Busy { row, ..Busy::default() }];
        });
        finding(&node, "BT037").level
    };
    assert_eq!([level(10_000, 100), level(10_000, 11_000)], [Level::Notice, Level::Warning]);
    assert_eq!(level(3_000, 100), Level::Critical);
}

#[test]
fn a_watermark_that_rabbitmq_told_counts_in_place_of_its_default() {
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
    assert!(!blocks.summary.contains("unless"), "{}", blocks.summary);
    assert!(blocks.against.is_empty(), "{:?}", blocks.against);
    // It was raised: what would block by the default does not.
    let at_900 = [(facts::MEMORY_WATERMARK_BYTES, "900000000")];
    assert_healthy(&rabbit(500, &at_900), "BT037");
    // The group ends the VM before a watermark beyond its limit.
    let beyond = [(facts::MEMORY_WATERMARK_BYTES, "9000000000")];
    assert_eq!(finding(&rabbit(980, &beyond), "BT037").subject.as_deref(), Some("control group"));
    let alarm = finding(&rabbit(100, &[(facts::MEMORY_ALARMS, "2")]), "BT037");
    assert_eq!(alarm.level, Level::Critical);
    assert!(alarm.summary.contains("2 nodes"), "{}", alarm.summary);
    // Also where nothing is known of what memory there is.
    let alone = rabbit(100, &[(facts::MEMORY_ALARMS, "1"), (facts::HOST_MEMORY, "0")]);
    assert_eq!(finding(&alone.with(|n| n.group_memory = None), "BT037").level, Level::Critical);
}

#[test]
fn rabbitmq_that_comes_to_its_watermark_is_told() {
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
    // Where the watermark is no VM tells.
    assert_eq!((blocks.level, entries(&blocks)), (Level::Warning, vec!["rabbitmq.memory_watermark"]));

    // That publishers wait does not hide that the kernel is about to kill it.
    let Outcome::Found(both) = outcome(&rabbit(980).period(), "BT037") else { panic!("found") };
    let subjects: Vec<_> = both.iter().map(|found| (found.level, found.subject.as_deref())).collect();
    assert_eq!(
        subjects,
        [(Level::Critical, Some("control group")), (Level::Warning, Some("memory watermark"))]
    );
    assert!(!entries(&both[0]).contains(&"rabbitmq.memory_watermark"));
    // It takes the host's memory for its own, and is killed before it blocks anybody.
    let untold = rabbit(980).with(|n| {
        n.facts.retain(|fact| fact.0 != facts::MEMORY_TOTAL_SET);
        n.facts.push((facts::HOST_MEMORY, (16_384 * MB).to_string()));
    });
    let Outcome::Found(kills) = outcome(&untold.period(), "BT037") else { panic!("found") };
    assert!(entries(&kills[0]).contains(&"rabbitmq.memory_watermark"), "{kills:#?}");
}
