//! Tests of explicit items: the agent's terms become rows.

use beamtune_model::{BinaryHolderRow, CarrierRow, CollectedProcessRow, RequestedGcRow, SizeCount};

use super::*;

/// Builds a row `{Allocator, InPool, Single, Log2, Tenths, Carriers, Bytes, Unscanned, Blocks, Free}`.
fn carrier(of: [i64; 5], blocks: Vec<Value<'static>>, free: &[i64]) -> Value<'static> {
    let [log2, tenths, carriers, bytes, unscanned] = of.map(Value::from);
    let [pool, single] = [true, false].map(Value::from);
    let blocks = Value::List(blocks);
    Value::tuple([
        binary("eheap_alloc"),
        pool,
        single,
        log2,
        tenths,
        carriers,
        bytes,
        unscanned,
        blocks,
        numbers(free),
    ])
}

fn blocks(allocator: &'static str, count: i64, bytes: i64) -> Value<'static> {
    Value::tuple([binary(allocator), Value::from(count), Value::from(bytes)])
}

fn skipped(allocator: &'static str, why: &'static str, carriers: i64, bytes: i64) -> Value<'static> {
    let [instance, carriers, bytes, blocks] = [1, carriers, bytes, 9].map(Value::from);
    Value::tuple([binary(allocator), instance, Value::atom(why), carriers, bytes, blocks])
}

fn walk(
    rows: Vec<Value<'static>>,
    bounds: &[i64],
    left: Vec<Value<'static>>,
    out: [i64; 2],
) -> Value<'static> {
    done(
        "carriers",
        &[
            ("rows", Value::List(rows)),
            ("free_bounds", numbers(bounds)),
            ("skipped", Value::List(left)),
            ("left_out", tuple(&out)),
        ],
    )
}

#[test]
fn carrier_groups_and_skipped_carriers_become_rows() {
    let rows =
        vec![carrier([20, 3, 2, 3_000_000, 7], vec![blocks("eheap_alloc", 5, 900_000)], &[1, 2, 0, 4])];
    let left = vec![
        skipped("ets_alloc", "limit", 2, 100),
        skipped("ets_alloc", "limit", 3, 50),
        skipped("ets_alloc", "pool", 1, 7),
    ];
    let mut recording = Recording::default();
    let sample = recording.add(vec![walk(rows, &[0, 0, 1_024, 2_048], left, [4, 44])]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let t = 1_004_000;
    let row = |allocator: &str, skipped: &str, carriers, bytes| CarrierRow {
        t,
        allocator: allocator.to_owned(),
        skipped: Some(skipped.to_owned()),
        carriers,
        bytes,
        ..CarrierRow::default()
    };
    let walked = CarrierRow {
        skipped: None,
        in_pool: true,
        size_log2: Some(20),
        used_tenths: Some(3),
        unscanned_bytes: 7,
        blocks: vec![beamtune_model::BlockSum {
            allocator: "eheap_alloc".to_owned(),
            count: 5,
            bytes: 900_000,
        }],
        free: vec![SizeCount { from: 0, count: 3 }, SizeCount { from: 2_048, count: 4 }],
        ..row("eheap_alloc", "", 2, 3_000_000)
    };
    let expect =
        [walked, row("", "rows", 4, 44), row("ets_alloc", "limit", 5, 150), row("ets_alloc", "pool", 1, 7)];
    assert_eq!(sample.carriers, expect);
}

#[test]
fn malformed_answer_is_a_gap() {
    let check = |item: Value<'static>| {
        let mut recording = Recording::default();
        let sample = recording.add(vec![item]).unwrap();
        let gaps: Vec<_> = sample.gaps.iter().map(|gap| gap.kind).collect();
        assert_eq!(gaps, [TroubleKind::Garbled], "{:?}", sample.gaps);
    };
    let one = |row| walk(vec![row], &[0], Vec::new(), [0, 0]);
    // Neither a size nor a count may be negative.
    for place in 0..5 {
        let mut of = [20, 3, 1, 4_096, 0];
        of[place] = -1;
        check(one(carrier(of, Vec::new(), &[1])));
    }
    check(one(carrier([20, 3, 1, 4_096, 0], vec![blocks("eheap_alloc", -1, 1)], &[1])));
    check(one(carrier([20, 3, 1, 4_096, 0], vec![blocks("eheap_alloc", 1, i64::MIN)], &[1])));
    check(one(carrier([20, 3, 1, 4_096, 0], Vec::new(), &[-5])));
    check(walk(Vec::new(), &[-1], Vec::new(), [0, 0]));
    check(walk(Vec::new(), &[0], vec![skipped("ets_alloc", "limit", -1, 0)], [0, 0]));
    check(walk(Vec::new(), &[0], Vec::new(), [1, -1]));
    check(one(tuple(&[1, 2, 3])));
    check(done("carriers", &[("rows", Value::atom("many"))]));
}

#[test]
fn long_lists_are_truncated() {
    let one = || {
        let many = vec![blocks("eheap_alloc", 1, i64::MAX); 200];
        carrier([20, 3, 1, i64::MAX, 0], many, &[i64::MAX; 300])
    };
    let rows = vec![one(); 2_100];
    let left = vec![skipped("ets_alloc", "limit", i64::MAX, i64::MAX); 3];
    let mut recording = Recording::default();
    let bounds: Vec<i64> = (0..300).collect();
    let sample = recording.add(vec![walk(rows, &bounds, left, [0, 0])]).unwrap();
    let (walked, skipped): (Vec<_>, Vec<_>) = sample.carriers.iter().partition(|row| row.skipped.is_none());
    assert_eq!((walked.len(), walked[0].blocks.len(), walked[0].free.len()), (2_000, 64, 64));
    assert_eq!((skipped.len(), skipped[0].carriers, skipped[0].bytes), (1, i64::MAX, i64::MAX));
}

fn tagged(counts: [i64; 2], sizes: &[i64], unscanned: i64, left: &[i64]) -> Value<'static> {
    let [blocks, bytes] = counts.map(Value::from);
    let row = Value::tuple([binary("prim_file"), binary("binary"), blocks, bytes, numbers(sizes)]);
    done(
        "allocations",
        &[
            ("rows", Value::list([row])),
            ("bounds", numbers(&[0, 128, 256])),
            ("unscanned_bytes", Value::from(unscanned)),
            ("skipped", Value::list([skipped("driver_alloc", "pool", 3, 70)])),
            ("left_out", tuple(left)),
        ],
    )
}

#[test]
fn tagged_and_skipped_blocks_become_rows() {
    let mut recording = Recording::default();
    let sample = recording.add(vec![tagged([7, 900], &[0, 5, 2], 400, &[2, 9, 80])]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let found: Vec<_> = sample
        .allocations
        .iter()
        .map(|row| (row.origin.as_str(), row.kind.as_str(), row.skipped.as_deref(), row.blocks, row.bytes))
        .collect();
    let expect = [
        ("prim_file", "binary", None, 7, 900),
        ("driver_alloc", "", Some("pool"), 0, 70),
        ("", "", Some("unscanned"), 0, 400),
        ("", "", Some("rows"), 9, 80),
    ];
    assert_eq!(found, expect);
    let sizes = [SizeCount { from: 128, count: 5 }, SizeCount { from: 256, count: 2 }];
    assert_eq!(sample.allocations[0].sizes, sizes);
    for garbled in [
        tagged([-1, 900], &[], 0, &[0, 0, 0]),
        tagged([1, -900], &[], 0, &[0, 0, 0]),
        tagged([1, 900], &[-1], 0, &[0, 0, 0]),
        tagged([1, 900], &[], -1, &[0, 0, 0]),
        tagged([1, 900], &[], 0, &[1, -1, 0]),
        tagged([1, 900], &[], 0, &[1, 1]),
        done("allocations", &[]),
    ] {
        let gaps = recording.add(vec![garbled]).unwrap().gaps;
        assert!(matches!(&gaps[..], [gap] if gap.kind == TroubleKind::Garbled), "{gaps:?}");
    }
}

/// Before ERTS 15.1, each pause of a carrier walk makes the VM's count of pooled carriers one too low.
#[test]
fn negative_carrier_count_is_dropped() {
    let set = |carriers: i64| tuple(&[5, 6, carriers, 8, 0, 0, 0, 0, 0]);
    let instance =
        Value::tuple([binary("eheap_alloc"), Value::from(1i64), set(3), set(-2), set(0), tuple(&[1; 9])]);
    let mut pairs = vec![("instances", Value::list([instance]))];
    pairs.extend(["disabled", "foreign", "fixed", "mseg", "mmap"].map(|key| (key, Value::list([]))));
    let mut recording = Recording::default();
    let sample = recording.add(vec![done("allocators", &pairs)]).unwrap();
    let found = recording.readings(&sample);
    let has =
        |name: &str| found.iter().any(|text| text.starts_with(&format!("allocator/eheap_alloc/1/{name}=")));
    assert!(
        has("mbcs_carriers") && has("sbcs_carriers") && has("pool_carriers_size") && has("pool_blocks"),
        "{found:?}"
    );
    assert!(!has("pool_carriers"), "{found:?}");
}

#[test]
fn estimate_has_no_rows() {
    let mut recording = Recording::default();
    let sample = recording.add(vec![done("carriers", &[("estimate", map(&[]))])]).unwrap();
    assert!(sample.carriers.is_empty() && sample.gaps.is_empty(), "{:?}", sample.gaps);
}

fn code(row: Value<'static>, sums: [i64; 7]) -> Value<'static> {
    let keys = [
        "modules",
        "bytes",
        "old_bytes",
        "applications",
        "persistent_terms",
        "persistent_term_bytes",
        "stopped_us",
    ];
    let mut pairs: Vec<_> = keys.into_iter().zip(sums.map(Value::from)).collect();
    pairs.push(("rows", Value::list([row])));
    done("code_memory", &pairs)
}

#[test]
fn code_becomes_rows_by_application_and_sums() {
    let row = |name: &'static str, numbers: [i64; 3]| {
        let [modules, bytes, old] = numbers.map(Value::from);
        Value::tuple([binary(name), modules, bytes, old])
    };
    let mut recording = Recording::default();
    let sums = [100, 5_000_000, 70, 3, 20, 9_000, 800];
    let mut sample = recording.add(vec![code(row("stdlib", [90, 4_000_000, 70]), sums)]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    sample.code.extend(recording.add(vec![code(row("", [1, 2, 3]), sums)]).unwrap().code);
    let found: Vec<_> = sample
        .code
        .iter()
        .map(|row| (row.application.as_deref(), row.modules, row.bytes, row.old_bytes))
        .collect();
    assert_eq!(found, [(Some("stdlib"), 90, 4_000_000, 70), (None, 1, 2, 3)]);
    let expect = [
        "modules=100",
        "size=5000000",
        "old_size=70",
        "applications=3",
        "persistent_terms=20",
        "persistent_terms_size=9000",
        "stopped=800000",
    ];
    assert_eq!(recording.readings(&sample), expect.map(|reading| format!("code//{reading}")));
    let mut garbled =
        vec![code(row("stdlib", [-1, 0, 0]), sums), code(row("stdlib", [0, i64::MIN, 0]), sums)];
    garbled.extend((0..7).map(|place| {
        let mut sums = sums;
        sums[place] = -1;
        code(row("stdlib", [1, 1, 1]), sums)
    }));
    garbled.push(code(tuple(&[1, 2]), sums));
    for item in garbled {
        let gaps = recording.add(vec![item]).unwrap().gaps;
        assert!(matches!(&gaps[..], [gap] if gap.kind == TroubleKind::Garbled), "{gaps:?}");
    }
}

fn numbered(pairs: &[(&'static str, i64)]) -> Vec<(&'static str, Value<'static>)> {
    pairs.iter().map(|&(key, number)| (key, Value::from(number))).collect()
}

const HELD: [(&str, i64); 7] = [
    ("heap_bytes", 2_000),
    ("binary_vheap_bytes", 90_000),
    ("references", 5),
    ("binaries", 4),
    ("bytes", 70_000),
    ("alone", 1),
    ("alone_bytes", 9_000),
];

fn holder(outcome: &'static str, held: &[(&'static str, i64)]) -> Value<'static> {
    let mut pairs = numbered(held);
    pairs.extend([
        ("pid", binary("<0.9.0>")),
        ("told", Value::atom(outcome)),
        ("name", binary("cache")),
        ("initial_call", call("cache", "init", 1)),
    ]);
    map(&pairs)
}

fn held(rows: Vec<Value<'static>>, complete: bool, sums: [i64; 2]) -> Value<'static> {
    let [binaries, bytes] = sums.map(Value::from);
    done(
        "holders",
        &[
            ("rows", Value::List(rows)),
            ("complete", Value::from(complete)),
            ("binaries", binaries),
            ("bytes", bytes),
        ],
    )
}

#[test]
fn binary_holders_become_rows_and_sums() {
    let mut recording = Recording::default();
    let rows = vec![holder("ok", &HELD), holder("no_answer", &HELD[..2])];
    let sample = recording.add(vec![held(rows.clone(), true, [6, 80_000])]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let asked = BinaryHolderRow {
        t: 1_004_000,
        pid: "<0.9.0>".to_owned(),
        name: Some("cache".to_owned()),
        label: None,
        initial_call: Some("cache:init/1".to_owned()),
        skipped: None,
        heap_bytes: 2_000,
        binary_vheap_bytes: 90_000,
        references: 5,
        binaries: 4,
        bytes: 70_000,
        exclusive: 1,
        alone_bytes: 9_000,
    };
    let not_asked = BinaryHolderRow {
        skipped: Some("no_answer".to_owned()),
        references: 0,
        binaries: 0,
        bytes: 0,
        exclusive: 0,
        alone_bytes: 0,
        ..asked.clone()
    };
    assert_eq!(sample.holders, [asked, not_asked]);
    let sums = ["processes//held_binaries=6", "processes//held_binaries_size=80000"];
    assert_eq!(recording.readings(&sample), sums);
    // An incomplete sum is dropped.
    let sample = recording.add(vec![held(rows, false, [6, 80_000])]).unwrap();
    assert_eq!((sample.holders.len(), recording.readings(&sample).len()), (2, 0));
    for place in 0..HELD.len() {
        let mut garbled = HELD;
        garbled[place].1 = -1;
        let gaps = recording.add(vec![held(vec![holder("ok", &garbled)], true, [0, 0])]).unwrap().gaps;
        assert!(matches!(&gaps[..], [gap] if gap.kind == TroubleKind::Garbled), "{gaps:?}");
    }
    for garbled in
        [held(Vec::new(), true, [-1, 0]), held(vec![tuple(&[1])], true, [0, 0]), done("holders", &[])]
    {
        let gaps = recording.add(vec![garbled]).unwrap().gaps;
        assert!(matches!(&gaps[..], [gap] if gap.kind == TroubleKind::Garbled), "{gaps:?}");
    }
    let many = vec![holder("ok", &HELD); 1_500];
    assert_eq!(recording.add(vec![held(many, true, [0, 0])]).unwrap().holders.len(), MAX_ROWS);
}

const COLLECTED: [(&str, i64); 16] = [
    ("processes", 100),
    ("chosen", 50),
    ("largest", 12),
    ("rest_bytes", 3_000),
    ("collected", 40),
    ("gone", 3),
    ("no_answer", 2),
    ("large", 1),
    ("heap_before", 9_000),
    ("heap_after", 4_000),
    ("binary_before", 800),
    ("binary_after", 700),
    ("us", 3),
    ("longest_us", 1),
    ("late_ms", 2),
    ("queue", 7),
];

const BY_CHANCE: [(&str, i64); 5] = [
    ("collected", 30),
    ("heap_kib", 5),
    ("heap_kib_squares", 25),
    ("binary_kib", 4),
    ("binary_kib_squares", 16),
];

fn collection(
    numbers: &[(&'static str, i64)],
    by_chance: &[(&'static str, i64)],
    row: &[(&'static str, i64)],
) -> Value<'static> {
    let mut pairs = numbered(numbers);
    pairs.push(("by_chance", map(&numbered(by_chance))));
    let mut row = numbered(row);
    row.push(("pid", binary("<0.9.0>")));
    pairs.extend([
        ("how", Value::atom("sample")),
        ("stopped", Value::atom("latency")),
        ("memory_before", map(&numbered(&[("processes", 90_000), ("binary", 80_000), ("total", 1)]))),
        // An allocator is disabled.
        ("memory_after", map(&[])),
        ("rows", Value::list([map(&row)])),
    ]);
    done("collect", &pairs)
}

#[test]
fn garbage_collection_becomes_rows() {
    let row =
        [("heap_before", 500), ("heap_after", 100), ("binary_before", 60), ("binary_after", 10), ("us", 4)];
    let mut recording = Recording::default();
    let sample = recording.add(vec![collection(&COLLECTED, &BY_CHANCE, &row)]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let t = 1_004_000;
    let expect = RequestedGcRow {
        t,
        selection: "sample".to_owned(),
        processes: 100,
        chosen: 50,
        largest: 12,
        rest_bytes: 3_000,
        collected: 40,
        gone: 3,
        no_answer: 2,
        large: 1,
        stopped: "latency".to_owned(),
        heap_before: 9_000,
        heap_after: 4_000,
        binary_before: 800,
        binary_after: 700,
        random: 30,
        chance_heap_kib: 5,
        chance_heap_kib_squares: 25,
        chance_binary_kib: 4,
        chance_binary_kib_squares: 16,
        memory_processes_before: Some(90_000),
        memory_processes_after: None,
        memory_binary_before: Some(80_000),
        memory_binary_after: None,
        took: 3_000,
        longest: 1_000,
        late: 2_000_000,
        queue: 7,
    };
    assert_eq!(sample.collections, [expect]);
    let process = CollectedProcessRow {
        t,
        pid: "<0.9.0>".to_owned(),
        heap_before: 500,
        heap_after: 100,
        binary_before: 60,
        binary_after: 10,
        took: 4_000,
        ..CollectedProcessRow::default()
    };
    assert_eq!((process.freed(), &sample.collected), (450, &vec![process.clone()]));
    let largest = CollectedProcessRow {
        heap_before: i64::MAX,
        binary_before: i64::MAX,
        ..CollectedProcessRow::default()
    };
    assert_eq!(largest.freed(), i64::MAX);
    let mut garbled = Vec::new();
    for place in 0..COLLECTED.len() {
        let mut numbers = COLLECTED;
        numbers[place].1 = -1;
        garbled.push(collection(&numbers, &BY_CHANCE, &row));
    }
    for place in 0..BY_CHANCE.len() {
        let mut by_chance = BY_CHANCE;
        by_chance[place].1 = -1;
        garbled.push(collection(&COLLECTED, &by_chance, &row));
    }
    for place in 0..row.len() {
        let mut row = row;
        row[place].1 = i64::MIN;
        garbled.push(collection(&COLLECTED, &BY_CHANCE, &row));
    }
    garbled.push(collection(&COLLECTED, &BY_CHANCE, &row[1..]));
    garbled.push(collection(&COLLECTED, &BY_CHANCE[1..], &row));
    garbled.push(collection(&COLLECTED[1..], &BY_CHANCE, &row));
    for item in garbled {
        let gaps = recording.add(vec![item]).unwrap().gaps;
        assert!(matches!(&gaps[..], [gap] if gap.kind == TroubleKind::Garbled), "{gaps:?}");
    }
}

#[test]
fn fixtures_of_real_agents_are_decoded() {
    for release in [23, 25, 27, 29] {
        let sample = Recording::default().add_fixture(&format!("r{release}-sample-asked"));
        // The emulators of these fixtures do not count locks.
        let [gap] = &sample.gaps[..] else { panic!("{release}: {:?}", sample.gaps) };
        assert_eq!((gap.source.as_str(), gap.kind), ("vm.locks", TroubleKind::Unsupported), "{release}");
        assert!(sample.carriers.iter().any(|row| row.skipped.is_none() && !row.blocks.is_empty()));
        assert!(sample.allocations.iter().any(|row| row.skipped.is_none() && !row.sizes.is_empty()));
        assert!(sample.code.iter().any(|row| row.application.as_deref() == Some("stdlib")));
        assert!(
            sample.holders.iter().any(|row| row.skipped.is_none() && row.binaries > 0),
            "{:?}",
            sample.holders
        );
        let [collection] = &sample.collections[..] else { panic!("{release}: {:?}", sample.collections) };
        assert!(collection.collected > 0 && collection.memory_binary_before.is_some(), "{collection:?}");
        assert!(!sample.collected.is_empty(), "{release}");
    }
}
