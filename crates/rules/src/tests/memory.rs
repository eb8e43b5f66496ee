//! Tests of rules on carriers, and on memory inside and outside them.

use beamtune_model::rows::BlockSum;
use beamtune_model::{CarrierRow, Cost, Level, Outcome, Period, facts, metrics};

use super::node::{SyntheticAllocator, SyntheticNode, node};
use super::{Read, assert_healthy, entries, finding, outcome, value};

const MB: i64 = 1_000_000;

/// A node with 600 MB resident, of which 400 MB are in carriers of binary_alloc. Blocks use 20 MB of the carriers, which were full once.
fn after_a_peak() -> SyntheticNode {
    node().with(|n| {
        n.resident = 600 * MB;
        n.facts = vec![(facts::OTP_VERSION, "25.2.3".to_owned())];
        n.allocators = vec![
            SyntheticAllocator::default(),
            SyntheticAllocator {
                name: "binary_alloc",
                mbcs: [10, 100 * MB, 50, 10 * MB],
                pool: [30, 300 * MB, 100, 10 * MB],
                peak: (420 * MB, 400 * MB),
                ..SyntheticAllocator::default()
            },
        ];
    })
}

#[test]
fn carriers_left_by_a_peak_are_distinguished_from_those_that_never_fit() {
    let found = finding(&after_a_peak(), "BT024");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("binary_alloc")));
    assert_eq!(found.title, "binary_alloc has 380 MB free in carriers, 5 % used");
    assert!(found.detail.contains("kept by a few blocks that remain"), "{}", found.detail);
    assert_eq!(entries(&found), ["code.binary_copy", "+M<S>lmbcs", "+M<S>acful"]);
    assert!(found.remedies[1].change.contains("+MBlmbcs 256"), "{}", found.remedies[1].change);

    let steady = after_a_peak().with(|n| n.allocators[1].peak = (420 * MB, 30 * MB));
    let found = finding(&steady, "BT024");
    assert!(found.detail.contains("do not fit"), "{}", found.detail);
    assert_eq!(entries(&found), ["+M<S>acful", "+M<S>sbct", "+M<S>acul"]);
    assert_eq!(found.remedies[1].change, "+MBsbct 64 +MBmmsbc 8192");
    // With some allocation strategies, carriers are never shared, whatever acul says.
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
    // Advice of BT045 that was followed is not reverted.
    let raised = finding(&with(r#"["-MBsbct","2048"]"#), "BT024");
    assert_eq!(entries(&raised), ["+M<S>acful", "+M<S>acul"]);
    assert!(raised.against.iter().any(|against| against.starts_with("sbct is above")), "{raised:#?}");
    let raised = after_a_peak().with(|n| n.facts.push((facts::EMU_ARGS, r#"["-MBsbct","2048"]"#.to_owned())));
    assert_eq!(entries(&finding(&raised, "BT024")), ["code.binary_copy", "+M<S>acful"]);
    // A setting that is equal or higher already is not advised.
    assert_eq!(entries(&finding(&with(r#"["-MBacul","90","-Muacful","60"]"#), "BT024")), ["+M<S>sbct"]);

    // The peak recurred in the period: the advice separates short-lived from long-lived blocks.
    let waves = after_a_peak().with(|n| n.binary_waves = 150 * MB);
    let found = finding(&waves, "BT024");
    assert_eq!(entries(&found), ["+M<S>sbct", "code.binary_copy", "+M<S>lmbcs", "+M<S>acful"]);
    assert!(found.against.iter().any(|against| against.contains("another peak")), "{:?}", found.against);

    // If heaps had carriers of their own, they would be mapped and unmapped at each GC.
    let heaps = after_a_peak().with(|n| n.allocators[1].name = "eheap_alloc");
    assert_eq!(entries(&finding(&heaps, "BT024")), ["code.hibernate", "+M<S>acful"]);

    // Limit of the number of mappings of an OS process, over all instances.
    let instances = steady.clone().with(|n| {
        let other = |name| SyntheticAllocator {
            name,
            mbcs: [0; 4],
            peak: (0, 0),
            segments_requested: 0,
            ..SyntheticAllocator::default()
        };
        n.allocators
            .extend(["binary_alloc/1", "binary_alloc/2", "binary_alloc/3", "binary_alloc/4"].map(other));
    });
    assert_eq!(finding(&instances, "BT024").remedies[1].change, "+MBsbct 64 +MBmmsbc 6000");

    let single = node().with(|n| {
        n.resident = 600 * MB;
        n.allocators[0].sbcs = [300, 300 * MB, 300, 170 * MB];
    });
    assert_eq!(entries(&finding(&single, "BT024")), ["+M<S>sbct", "+M<S>rsbcst"]);
    // Huge blocks would still have carriers of their own.
    let huge = single.clone().with(|n| n.allocators[0].sbcs = [30, 300 * MB, 30, 170 * MB]);
    assert_eq!(entries(&finding(&huge, "BT024")), ["+M<S>rsbcst"]);
    assert_healthy(&node(), "BT024");
    // The carrier is twice as large as the huge table in it, and its pages were not read.
    let table = node().with(|n| {
        n.resident = 320 * MB;
        n.allocators[0] = SyntheticAllocator {
            name: "ll_alloc",
            mbcs: [6, 570 * MB, 100, 290 * MB],
            ..SyntheticAllocator::default()
        };
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
    assert!(found.title.contains("242 MB"), "{}", found.title);
    assert_eq!(found.cost(), value(&found, "free in carriers, resident").map(Cost::MemoryBytes));
    assert!(found.against.iter().all(|against| !against.contains("not read")), "{:?}", found.against);
    // The kernel may already reclaim this memory, but has not done so yet.
    let given_back = |bytes: i64| finding(&looked(250 * MB).with(|n| n.lazy_free = bytes), "BT024");
    let [little, most] = [given_back(10 * MB), given_back(200 * MB)];
    assert!(little.against.iter().all(|against| !against.contains("MADV_FREE")), "{little:?}");
    assert!(most.against.iter().any(|against| against.starts_with("200 MB of resident memory")), "{most:?}");
    let level = |bytes: i64| {
        let node = looked(250 * MB).with(|n| (n.lazy_free, n.resident) = (bytes, 300 * MB));
        finding(&node, "BT024").level
    };
    assert_eq!([level(10 * MB), level(200 * MB)], [Level::Critical, Level::Warning]);
    assert!(finding(&after_a_peak(), "BT024").against.iter().any(|against| against.contains("not read")));
}

#[test]
fn half_full_carriers_are_a_notice_unless_they_are_much_of_the_memory() {
    let level = |times: i64, used_pct: i64| {
        let node = node().with(|n| {
            n.resident = times * 500 * MB;
            let mbcs = [40, times * 400 * MB, 100_000, times * 4 * used_pct * MB];
            n.allocators[0] =
                SyntheticAllocator { mbcs, peak: (mbcs[1], mbcs[3]), ..SyntheticAllocator::default() };
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
fn smaller_carriers_are_not_advised_if_all_carriers_contain_blocks() {
    let dense = after_a_peak().with(|n| n.allocators[1].pool[2] = 50_000);
    assert!(!entries(&finding(&dense, "BT024")).contains(&"+M<S>lmbcs"));
}

/// By their sums, 150 blocks in 40 carriers look like four in each.
#[test]
fn a_walk_through_the_carriers_improves_the_estimate() {
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
    // One block in each of 30 carriers, and the other ten are full.
    period.carriers = vec![row(30, 30), row(10, 100_000)];
    let by_walk = saving(&period);
    assert!((290e6..300e6).contains(&by_walk) && by_sums > 350e6, "{by_walk} {by_sums}");
}

#[test]
fn memory_of_native_code_is_distinguished_from_what_malloc_keeps() {
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
fn resident_memory_that_carriers_cannot_explain_is_outside() {
    let found = finding(&node().with(|n| n.resident = 600 * MB), "BT025");
    assert!(found.title.contains("358 MB"), "600 - 157.4 - 64 - twice 10.5 of code: {}", found.title);
    assert!(found.level < Level::Critical);
    // Machine code is resident twice: an application with 100 MB of it has no leak …
    let code = |flavor: &str| {
        let flavor = flavor.to_owned();
        node().with(|n| {
            n.resident = 450 * MB;
            n.kinds = vec![("code", 100 * MB, 0)];
            n.facts = vec![(facts::EMU_FLAVOR, flavor)];
        })
    };
    assert_healthy(&code("jit"), "BT025");
    // … but an interpreter has none.
    assert!(finding(&code("emu"), "BT025").title.contains("229 MB"), "450 - 157.4 - 64");
    // Segments that the VM keeps mapped are memory of the VM.
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
fn a_full_super_carrier_is_reported_with_its_consequence() {
    let full = |args: &'static str| {
        node().with(|n| {
            n.super_carrier = Some((60 << 20, 60 << 20));
            n.facts = vec![(facts::EMU_ARGS, args.to_owned())];
        })
    };
    let found = finding(&full(r#"["-MMscs","64"]"#), "BT028");
    assert!(found.detail.contains("come from malloc"), "{}", found.detail);
    assert_eq!(entries(&found), ["+MMscs", "+MMsco"]);
    let capped = finding(&full(r#"["-MMscs","64","-Musac","false"]"#), "BT028");
    assert_eq!(capped.level, Level::Critical, "{}", capped.title);
    // There is some room left in the super carrier.
    let nearly =
        full(r#"["-MMscs","64","-Musac","false"]"#).with(|n| n.super_carrier = Some((52 << 20, 60 << 20)));
    assert_eq!(finding(&nearly, "BT028").level, Level::Notice);
    // With a super carrier larger than the memory, the VM would not start.
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
fn a_thrashing_segment_cache_names_the_allocator() {
    let thrash = node().with(|n| {
        n.segments = (4_000, 3_000);
        n.system = 0.4;
        n.allocators.push(SyntheticAllocator {
            name: "binary_alloc",
            segments_requested: 3_900,
            ..SyntheticAllocator::default()
        });
    });
    let found = finding(&thrash, "BT029");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("binary_alloc")));
    // Remedies that cache more segments come first, those that move blocks to other carriers come last.
    assert_eq!(entries(&found), ["+MMmcs", "+MMrmcbf", "+MMscs", "+M<S>sbct"]);
    assert!(found.remedies[3].change.starts_with("+MBsbct"), "{}", found.remedies[3].change);
    let known = finding(&thrash.clone().with(|n| n.carriers_peak = 400 << 20), "BT029");
    assert_eq!(known.remedies[2].change, "+MMscs 512 +MMsco false");
    let loose = r#"["-MMmcs","30","-MMrmcbf","40"]"#;
    let loose = thrash.clone().with(|n| n.facts = vec![(facts::EMU_ARGS, loose.to_owned())]);
    assert_eq!(entries(&finding(&loose, "BT029")), ["+MMscs", "+M<S>sbct"]);
    // The VM limits the cache to 30 segments, and a higher threshold is not reverted.
    let raised = r#"["-MMmcs","100","-MBsbct","8192"]"#;
    let raised = thrash.clone().with(|n| n.facts = vec![(facts::EMU_ARGS, raised.to_owned())]);
    assert_eq!(entries(&finding(&raised, "BT029")), ["+MMrmcbf", "+MMscs"]);
    assert_eq!(finding(&thrash.clone().with(|n| n.system = 0.0), "BT029").level, Level::Notice);
    assert_healthy(&thrash.clone().with(|n| n.segments = (40_000, 3_000)), "BT029");
    // In this order: memory grows; a super carrier is full and refuses requests.
    assert_healthy(&thrash.clone().with(|n| n.segments_leaked = 3_000), "BT029");
    let of_one_mapping = thrash.clone().with(|n| {
        n.facts = vec![(facts::EMU_ARGS, r#"["-MMscs","512"]"#.to_owned())];
    });
    assert_eq!(entries(&finding(&of_one_mapping, "BT029")), ["+MMmcs", "+MMrmcbf", "+M<S>sbct"]);
    assert_healthy(&node(), "BT029");
}

#[test]
fn short_lived_memory_between_samples_is_not_judged() {
    let swings = |every: i64| node().with(|n| (n.resident, n.resident_waves) = (600 * MB, every));
    assert_eq!(finding(&swings(100 * MB), "BT025").code.0, "BT025");
    let outcome = outcome(&swings(500 * MB).period(), "BT025");
    assert!(matches!(outcome, Outcome::NotJudged { .. }), "{outcome:?}");
}

#[test]
fn nothing_is_judged_if_allocators_were_not_read() {
    for code in ["BT024", "BT025"] {
        let outcome =
            outcome(&node().with(|n| n.missing_metrics.push(&metrics::MBCS_CARRIERS_SIZE)).period(), code);
        assert!(matches!(outcome, Outcome::NotJudged { .. }), "{code}: {outcome:?}");
    }
}
