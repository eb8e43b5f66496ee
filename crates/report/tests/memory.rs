//! Tests of the page of `beamtune memory`, with known numbers.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

use beamtune_model::memory::{
    Daily, Estimate, LevelChange, MemoryBreakdown, Movement, Reclaimable, allocators, content, mapping,
};
use beamtune_model::window::Point;
use beamtune_model::{
    BinaryHolderRow, CollectedProcessRow, Diagnosis, Facts, Gap, Metric, Period, PeriodBuilder, ProcessRow,
    Rank, RequestedGcRow, Series, TableRow, Tick, TroubleKind, metrics,
};
use beamtune_report::diagnosis::{Verbosity, View};
use beamtune_report::{Style, memory};

const MB: i64 = 1_000_000;

struct Made(PeriodBuilder);

impl Made {
    fn new() -> Made {
        let mut builder = PeriodBuilder::new(None, Facts::default(), 1);
        builder.tick(&Tick { t: 0, incarnation: 0, vm: None, host: None, late: 0 });
        Made(builder)
    }

    fn gauge(&mut self, metric: &Metric, entity: &str, value: i64) {
        let Metric { group, name, unit, kind, .. } = *metric;
        self.named(group, entity, name, unit, kind, value);
    }

    fn named(
        &mut self,
        group: beamtune_model::Group,
        entity: &str,
        name: &str,
        unit: beamtune_model::Unit,
        kind: beamtune_model::Kind,
        value: i64,
    ) {
        let series = Series { group, entity: entity.into(), name: name.into(), unit, kind };
        self.0.column(&series, [Point { t: 0, incarnation: 0, value }]);
    }

    fn mapping(&mut self, kind: &str, size: i64, resident: i64) {
        self.gauge(&metrics::MAPPING_COUNT, kind, 3);
        self.gauge(&metrics::MAPPING_SIZE, kind, size * MB);
        self.gauge(&metrics::MAPPING_RESIDENT, kind, resident * MB);
        self.gauge(&metrics::MAPPING_PSS, kind, resident * MB);
    }

    fn content(&mut self, entity: &str, count: i64, size: i64, resident: i64) {
        self.gauge(&metrics::CONTENT_COUNT, entity, count);
        self.gauge(&metrics::CONTENT_SIZE, entity, size * MB);
        self.gauge(&metrics::CONTENT_RESIDENT, entity, resident * MB);
        self.gauge(&metrics::CONTENT_SWAPPED, entity, 0);
    }

    fn memory(&mut self, name: &str, value: i64) {
        let family = &metrics::MEMORY;
        self.named(family.group, "", name, family.unit, family.kind, value * MB);
    }

    fn finish(self) -> Period {
        self.0.finish()
    }
}

/// A node with 1,000 MB resident: 700 in carriers, 40 in the segment cache, 100 in malloc, 130 in other known contents, 30 unknown.
fn node() -> Made {
    let mut made = Made::new();
    made.mapping(mapping::ANONYMOUS, 1_400, 900);
    made.mapping(mapping::HEAP, 120, 80);
    made.mapping(mapping::EMULATOR, 20, 20);
    made.gauge(&MAPPING_LAZY_FREE, mapping::ANONYMOUS, 12 * MB);
    made.content(&content::carriers("binary_alloc", content::MBCS), 20, 500, 400);
    made.content(&content::carriers("binary_alloc", content::POOL), 10, 250, 200);
    made.content(&content::carriers("eheap_alloc", content::SBCS), 4, 100, 100);
    made.content(content::MSEG_CACHE, 9, 40, 40);
    made.content(content::MALLOC_HEAP, 1, 100, 80);
    made.gauge(&CONTENT_IN_USE, content::MALLOC_HEAP, 20 * MB);
    made.content(content::MALLOC_MAPPED, 2, 20, 20);
    made.content("stacks/dirty_io_scheduler", 10, 40, 6);
    made.content(content::EMULATOR, 1, 20, 20);
    made.content("something_new", 1, 104, 104);
    made.content(content::UNKNOWN, 0, 90, 30);
    made.gauge(&CONTENT_COST, "", 12 * MB);
    let told = |made: &mut Made, entity, metrics: [&Metric; 4], [count, size, blocks, used]: [i64; 4]| {
        let values = [count, size * MB, blocks, used * MB];
        metrics.iter().zip(values).for_each(|(metric, value)| made.gauge(metric, entity, value));
    };
    use metrics::*;
    let mbcs = [&MBCS_CARRIERS, &MBCS_CARRIERS_SIZE, &MBCS_BLOCKS, &MBCS_BLOCKS_SIZE];
    let pool = [&POOL_CARRIERS, &POOL_CARRIERS_SIZE, &POOL_BLOCKS, &POOL_BLOCKS_SIZE];
    let sbcs = [&SBCS_CARRIERS, &SBCS_CARRIERS_SIZE, &SBCS_BLOCKS, &SBCS_BLOCKS_SIZE];
    told(&mut made, "binary_alloc/1", mbcs, [10, 300, 1_000, 150]);
    told(&mut made, "binary_alloc/2", mbcs, [10, 200, 1_000, 150]);
    told(&mut made, "binary_alloc/2", pool, [10, 250, 10, 5]);
    told(&mut made, "eheap_alloc/1", sbcs, [4, 100, 4, 96]);
    for (kind, value) in [
        ("total", 401),
        ("system", 305),
        ("processes", 96),
        ("processes_used", 95),
        ("binary", 300),
        ("atom", 1),
        ("atom_used", 1),
        ("ets", 2),
    ] {
        made.memory(kind, value);
    }
    made
}

/// Renders the page without `-v`.
fn page(period: &Period) -> String {
    memory::render(period, &[], None, &Diagnosis::default(), &View::PLAIN)
}

/// Renders the page with `-v` or with `-vv`.
fn verbose_page(period: &Period, verbosity: Verbosity) -> String {
    memory::render(period, &[], None, &Diagnosis::default(), &View { verbosity, ..View::PLAIN })
}

fn line<'a>(page: &'a str, begin: &str) -> &'a str {
    page.lines()
        .find(|line| line.trim_start().starts_with(begin))
        .unwrap_or_else(|| panic!("{begin}: {page}"))
}

#[test]
fn explained_parts_and_the_unexplained_rest_add_up_to_resident_memory() {
    let period = node().finish();
    let bridge = MemoryBreakdown::of(&period);
    assert_eq!(bridge.resident, Some(1_000 * MB));
    assert_eq!(bridge.explained(), Some(970 * MB));
    assert_eq!(bridge.unexplained(), Some(30 * MB));
    assert_eq!(bridge.resident_of(content::CARRIERS), 700 * MB);
    assert_eq!(bridge.resident_of("malloc"), 100 * MB);
    assert_eq!(bridge.resident_of("mall"), 0);
    assert_eq!(bridge.unknown.expect("unknown content").size, 90 * MB);
}

#[test]
fn old_parts_and_old_scans_of_pages_are_ignored() {
    let later = |made: &mut Made, metric: &Metric, entity: &str, value: i64| {
        let Metric { group, name, unit, kind, .. } = *metric;
        let series = Series { group, entity: entity.into(), name: name.into(), unit, kind };
        made.0.column(&series, [Point { t: 9, incarnation: 0, value: value * MB }]);
    };
    let mut made = node();
    later(&mut made, &metrics::MAPPING_RESIDENT, mapping::ANONYMOUS, 400);
    later(&mut made, &metrics::CONTENT_RESIDENT, content::MSEG_CACHE, 390);
    let bridge = MemoryBreakdown::of(&made.finish());
    assert_eq!((bridge.resident, bridge.explained()), (Some(400 * MB), Some(390 * MB)));

    let mut made = node();
    later(&mut made, &metrics::MAPPING_RESIDENT, mapping::ANONYMOUS, 400);
    let bridge = MemoryBreakdown::of(&made.finish());
    assert_eq!((bridge.resident, bridge.explained()), (Some(400 * MB), None));
}

#[test]
fn utilization_of_all_multiblock_carriers_includes_the_pool() {
    let found = allocators(&node().finish());
    let binary = &found[0];
    assert_eq!((binary.name.as_str(), binary.instances), ("binary_alloc", 2));
    assert_eq!(binary.mbcs.used(), Some(0.6));
    assert_eq!(binary.multiblock().size, 750 * MB);
    assert_eq!(binary.multiblock().blocks_size, 305 * MB);
    assert_eq!(binary.all().free(), 445 * MB);
    assert_eq!(found[1].sbcs.mean_block(), Some(24.0 * MB as f64));
    assert_eq!(found[1].mbcs.used(), None);
}

#[test]
fn page_has_the_largest_use_first_with_its_owners() {
    let mut made = node();
    made.gauge(&metrics::PROCESS_COUNT, "", 1_205);
    let process = |name: &str, rank, memory_bytes, binary_bytes| ProcessRow {
        pid: format!("<0.{memory_bytes}.0>"),
        name: Some(name.to_owned()),
        ranks: vec![rank],
        memory_bytes,
        binary_bytes,
        ..ProcessRow::default()
    };
    made.0.process(process("ws_hub", Rank::Binary, MB, Some(280 * MB)));
    made.0.process(process("order_server", Rank::Memory, 40 * MB, None));
    made.0.table(TableRow {
        name: "sessions".to_owned(),
        owner: "<0.7.0>".to_owned(),
        owner_name: Some("session_store".to_owned()),
        memory_bytes: MB,
        ..TableRow::default()
    });
    let page = page(&made.finish());
    let expect = "\
VM without a name · 0 µs
1.00 GB resident, all but 30.0 MB explained

free, kept by the VM   339 MB  34 %  binary_alloc 295 MB (51 % used), segment cache 40.0 MB
binaries               305 MB  30 %  ws_hub 280 MB
outside allocators     230 MB  23 %  something_new 104 MB, malloc 100 MB, emulator 20.0 MB
process heaps         96.0 MB  10 %  order_server 40.0 MB, 1,204 others 56.0 MB
not explained         30.0 MB   3 %

Nothing found.
";
    assert_eq!(page, expect, "{page}");
}

#[test]
fn page_fits_a_screen_of_80_columns() {
    let style = Style { width: 80, ..Style::PLAIN };
    let period = asked().finish();
    let page = memory::render(
        &period,
        &[moved()],
        Some(returned()),
        &Diagnosis::default(),
        &View { style, ..View::PLAIN },
    );
    assert!(page.lines().count() <= 60, "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
}

#[test]
fn uses_of_memory_add_up_to_resident_memory() {
    let page = page(&node().finish());
    let rows = page.lines().skip(3).take_while(|line| !line.is_empty());
    let sizes = rows.map(|line| {
        let words: Vec<_> = line.split("  ").filter(|word| !word.trim().is_empty()).collect();
        words[1].trim().trim_end_matches(" MB").parse::<f64>().expect("a size in MB")
    });
    assert!((sizes.sum::<f64>() - 1_000.0).abs() < 1.0, "{page}");
}

#[test]
fn without_counts_of_the_vm_whole_carriers_are_taken_as_used() {
    let mut made = Made::new();
    made.mapping(mapping::ANONYMOUS, 100, 60);
    made.content(&content::carriers("ets_alloc", content::MBCS), 2, 50, 40);
    made.content(content::MALLOC_HEAP, 1, 30, 20);
    let page = page(&made.finish());
    assert_eq!(words(&page, "ETS tables"), "ETS tables 40.0 MB 67 %", "{page}");
    assert!(page.contains("60.0 MB resident, all explained"), "{page}");
    assert!(!page.contains("free, kept"), "{page}");
}

#[test]
fn parts_have_resident_mapped_and_used_columns() {
    let page = verbose_page(&node().finish(), Verbosity::Checks);
    let expect = [
        ("all carriers", "34 700 MB 70.0 % 850 MB 401 MB 47.2 %"),
        ("binary_alloc  ", "30 600 MB 60.0 % 750 MB 305 MB 40.7 %"),
        ("multiblock, pool", "10 200 MB 20.0 % 250 MB 5.00 MB 2.0 %"),
        ("segment cache", "9 40.0 MB 4.0 % 40.0 MB"),
        ("malloc: main arena", "80.0 MB 8.0 % 100 MB 20.0 MB 20.0 %"),
        ("stacks: dirty io scheduler", "10 6.00 MB 0.6 % 40.0 MB"),
        ("something_new", "104 MB 10.4 % 104 MB"),
        ("not explained   ", "30.0 MB 3.0 % 90.0 MB"),
    ];
    let (_, parts) = page.split_once("part ").expect("a table");
    for (begin, end) in expect {
        assert!(words(parts, begin).ends_with(end), "{begin}: {end}\n{page}");
    }
    assert!(page.contains("The VM reports carriers of 850 MB; 100.0 % of them were found"), "{page}");
    assert!(page.contains("12.0 MB are freed (MADV_FREE)"), "{page}");
    assert!(
        !verbose_page(&node().finish(), Verbosity::Evidence).contains("MADV_FREE"),
        "sources are for -vv"
    );
}

#[test]
fn kinds_of_memory_name_their_owners() {
    let mut made = node();
    made.0.process(ProcessRow {
        pid: "<0.99.0>".to_owned(),
        name: Some("hoarder".to_owned()),
        ranks: vec![Rank::Binary],
        binary_bytes: Some(280 * MB),
        memory_bytes: MB,
        ..ProcessRow::default()
    });
    made.0.table(TableRow {
        name: "sessions".to_owned(),
        owner: "<0.7.0>".to_owned(),
        memory_bytes: MB,
        ..TableRow::default()
    });
    let page = verbose_page(&made.finish(), Verbosity::Evidence);
    assert!(line(&page, "binary ").ends_with("300 MB  hoarder <0.99.0> 280 MB"), "{page}");
    assert!(line(&page, "ets ").ends_with("2.00 MB  sessions <0.7.0> 1.00 MB"), "{page}");
    assert!(line(&page, "other  ").ends_with("2.00 MB"), "305 - 300 - 1 - 2: {page}");
    assert!(line(&page, "processes ").ends_with("96.0 MB"), "the hoarder is large in binaries only: {page}");
}

#[test]
fn missing_measurements_are_reported() {
    let mut made = Made::new();
    made.gauge(&metrics::RSS, "", 500 * MB);
    made.0.gap(Gap {
        begin: 0,
        end: 0,
        source: "host.memory_map".to_owned(),
        kind: TroubleKind::Denied,
        reason: "its memory may be read by root only".to_owned(),
    });
    let period = made.finish();
    assert_eq!(MemoryBreakdown::of(&period).explained(), None);
    let page = page(&period);
    assert!(
        page.contains("500 MB resident\nIts pages were not read: its memory may be read by root only."),
        "{page}"
    );
    assert!(!page.contains("not explained"), "{page}");
    assert!(
        memory::render(&Period::default(), &[], None, &Diagnosis::default(), &View::PLAIN)
            .contains("is unknown")
    );
}

fn moved() -> Movement {
    Movement {
        what: "binary".to_owned(),
        first: 10e6,
        last: 60e6,
        range: (10e6, 60e6),
        per_hour: Some((50e6, 48e6, 52e6)),
        is_significant: true,
        step: Some(LevelChange {
            at: 600_000_000_000,
            before: 11e6,
            after: 58e6,
            with: Some("code_loaded x".to_owned()),
        }),
        daily: Some(Daily { swing: 5e6, peak_hour: 9, share: 0.8 }),
    }
}

#[test]
fn growth_has_its_interval_and_with_v_its_steps_and_daily_cycle() {
    let mut made = node();
    made.0.tick(&Tick { t: 3_600_000_000_000, incarnation: 0, vm: None, host: None, late: 0 });
    let period = made.finish();
    let render = |movements: &[Movement], verbosity| {
        let view = View { verbosity, style: Style { width: 200, ..Style::PLAIN }, ..View::PLAIN };
        memory::render(&period, movements, None, &Diagnosis::default(), &view)
    };
    let brief = render(&[moved()], Verbosity::Brief);
    assert_eq!(
        words(&brief, "binary  "),
        "binary +50.0 MB/h [+48.0 MB, +52.0 MB] 10.0 MB to 60.0 MB in 60 min",
        "{brief}"
    );
    let page = render(&[moved()], Verbosity::Evidence);
    let at = page.lines().position(|line| line.starts_with("over 60 min")).expect("a table");
    let words: Vec<_> = page.lines().nth(at + 1).expect("a row").split_whitespace().collect();
    assert_eq!(
        words.join(" "),
        "binary 10.0 MB 60.0 MB +50.0 MB +48.0 MB to +52.0 MB from 11.0 MB to 58.0 MB after 10 min, with code_loaded x; \
         daily cycle of 5.00 MB, peak at 09:00 UTC"
    );
    assert!(render(&[], Verbosity::Brief).contains("No growth in 60 min."));
    assert!(render(&[], Verbosity::Evidence).contains("No growth or change of level in 60 min."));
}

#[test]
fn json_fits_its_schema() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/memory.schema.json");
    let schema = std::fs::read_to_string(path).expect("the schema");
    let schema = jsonschema::validator_for(&serde_json::from_str(&schema).expect("JSON")).expect("a schema");
    for (period, returns) in
        [(Period::default(), None), (node().finish(), None), (asked().finish(), Some(returned()))]
    {
        let text = memory::json(&period, &[moved()], returns, &Diagnosis::default());
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let errors: Vec<_> =
            schema.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{text}");
    }
    let text = memory::json(&node().finish(), &[], None, &Diagnosis::default());
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["unexplained_bytes"], 30 * MB);
    assert_eq!(value["allocators"][0]["pool"]["carriers_bytes"], 250 * MB);
}

fn asked() -> Made {
    let mut node = node();
    let holder = BinaryHolderRow {
        pid: "<0.7.0>".to_owned(),
        name: Some("cache".to_owned()),
        heap_bytes: 3_000,
        references: 12,
        binaries: 11,
        bytes: 70 * MB,
        exclusive: 5,
        alone_bytes: 60 * MB,
        ..BinaryHolderRow::default()
    };
    let hangs = BinaryHolderRow {
        pid: "<0.8.0>".to_owned(),
        skipped: Some("no_answer".to_owned()),
        ..BinaryHolderRow::default()
    };
    node.0.holder(holder);
    node.0.holder(hangs);
    node.gauge(&metrics::HELD_BINARIES, "", 11);
    node.gauge(&metrics::HELD_BINARIES_SIZE, "", 70 * MB);
    node.0.collection(RequestedGcRow {
        selection: "sample".to_owned(),
        stopped: "latency".to_owned(),
        processes: 30_000,
        collected: 640,
        large: 2,
        heap_before: 90 * MB,
        heap_after: 20 * MB,
        memory_processes_before: Some(900 * MB),
        memory_processes_after: Some(830 * MB),
        memory_binary_before: Some(80 * MB),
        memory_binary_after: Some(79 * MB),
        took: 40_000_000,
        longest: 3_000_000,
        late: 52_000_000,
        ..RequestedGcRow::default()
    });
    node.0.collected(CollectedProcessRow {
        pid: "<0.9.0>".to_owned(),
        initial_call: Some("worker:init/1".to_owned()),
        heap_before: 8 * MB,
        heap_after: MB,
        ..CollectedProcessRow::default()
    });
    node
}

fn returned() -> Reclaimable {
    Reclaimable {
        heaps: Estimate { bytes: 400e6, low: 300e6, high: 500e6 },
        binaries: Estimate { bytes: 2e6, low: 1e6, high: 60e6 },
    }
}

/// Returns the line that begins with `begin`, with single spaces between words.
fn words(page: &str, begin: &str) -> String {
    line(page, begin).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn holders_have_the_size_of_binaries_that_only_they_refer_to() {
    let page = memory::render(&asked().finish(), &[], None, &Diagnosis::default(), &View::PLAIN);
    assert_eq!(words(&page, "cache"), "cache <0.7.0> 12 11 70.0 MB 60.0 MB 3.00 kB");
    assert_eq!(words(&page, "<0.8.0>"), "<0.8.0> no answer 0 B");
    assert!(page.contains("11 binaries, 70.0 MB in total; each is counted once"), "{page}");
}

#[test]
fn estimate_for_a_gc_has_its_interval_and_the_cost_of_the_sample() {
    let page = memory::render(&asked().finish(), &[], Some(returned()), &Diagnosis::default(), &View::PLAIN);
    assert!(page.contains("a GC of all processes would free"), "{page}");
    assert_eq!(words(&page, "heaps "), "heaps 400 MB 300 MB 500 MB");
    let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in [
        "GC of 640 of 30,000 processes, the largest and a random sample: heaps from 90.0 MB to 20.0 MB",
        "memory of all processes went from 900 MB to 830 MB",
        "the longest batch 3 ms; other processes waited for a scheduler for up to 52 ms.",
        "2 skipped: heap too large",
        "Stopped: other processes waited too long.",
    ] {
        assert!(text.contains(sentence), "{sentence}: {page}");
    }
    assert_eq!(words(&page, "worker:init/1"), "worker:init/1 <0.9.0> 7.00 MB 8.00 MB 1.00 MB 0 B 0 B");
    let without = memory::render(&asked().finish(), &[], None, &Diagnosis::default(), &View::PLAIN);
    let text = without.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("would free: too few were collected"), "{without}");
    let nobody = memory::render(&node().finish(), &[], None, &Diagnosis::default(), &View::PLAIN);
    assert!(!nobody.contains("GC of") && !nobody.contains("collected"), "{nobody}");
}

#[test]
fn process_that_does_not_exist_is_reported() {
    let mut made = node();
    let none = RequestedGcRow { selection: "named".to_owned(), processes: 1, ..RequestedGcRow::default() };
    made.0.collection(none);
    let page = memory::render(&made.finish(), &[], None, &Diagnosis::default(), &View::PLAIN);
    assert!(page.contains("No GC: the node has no such process."), "{page}");
}

#[test]
fn option_without_an_answer_is_reported() {
    let mut made = node();
    for source in ["vm.collect", "vm.ports"] {
        let reason = format!("{source} took too long");
        let gap = Gap { begin: 0, end: 1, source: source.to_owned(), kind: TroubleKind::TimedOut, reason };
        made.0.gap(gap);
    }
    let page = memory::render(&made.finish(), &[], None, &Diagnosis::default(), &View::PLAIN);
    assert!(page.contains("What a GC frees: unknown, because vm.collect took too long."), "{page}");
    assert!(!page.contains("vm.ports"), "{page}");
}
