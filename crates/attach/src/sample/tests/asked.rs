//! What is asked for by name: from the agent's terms to rows.

use beamtune_model::{CarrierRow, SizeCount};

use super::*;

/// `{Allocator, InPool, Single, Log2, Tenths, Carriers, Bytes, Unscanned, Blocks, Free}`
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
fn carriers_that_are_alike_are_a_row_and_those_left_out_too() {
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
fn an_answer_that_makes_no_sense_is_a_gap() {
    let check = |item: Value<'static>| {
        let mut recording = Recording::default();
        let sample = recording.add(vec![item]).unwrap();
        let gaps: Vec<_> = sample.gaps.iter().map(|gap| gap.kind).collect();
        assert_eq!(gaps, [TroubleKind::Garbled], "{:?}", sample.gaps);
    };
    let one = |row| walk(vec![row], &[0], Vec::new(), [0, 0]);
    // Nothing is negative: neither sizes nor counts, wherever they stand.
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
fn of_endless_lists_only_so_much_is_taken() {
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
fn tagged_blocks_are_rows_and_what_was_not_seen_of_them_too() {
    let mut recording = Recording::default();
    let sample = recording.add(vec![tagged([7, 900], &[0, 5, 2], 400, &[2, 9, 80])]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let told: Vec<_> = sample
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
    assert_eq!(told, expect);
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

#[test]
fn an_estimate_alone_has_no_rows() {
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
fn code_is_told_by_application_and_as_sums() {
    let row = |name: &'static str, numbers: [i64; 3]| {
        let [modules, bytes, old] = numbers.map(Value::from);
        Value::tuple([binary(name), modules, bytes, old])
    };
    let mut recording = Recording::default();
    let sums = [100, 5_000_000, 70, 3, 20, 9_000, 800];
    let mut sample = recording.add(vec![code(row("stdlib", [90, 4_000_000, 70]), sums)]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    sample.code.extend(recording.add(vec![code(row("", [1, 2, 3]), sums)]).unwrap().code);
    let told: Vec<_> = sample
        .code
        .iter()
        .map(|row| (row.application.as_deref(), row.modules, row.bytes, row.old_bytes))
        .collect();
    assert_eq!(told, [(Some("stdlib"), 90, 4_000_000, 70), (None, 1, 2, 3)]);
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
