//! Data about allocators that recon_alloc and instrument have printed.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod contents;

use beamtune_import::read;
use beamtune_model::{SeriesTable, facts};
use contents::*;

#[test]
fn results_of_instrument_become_rows_of_carriers_and_allocations() {
    let text = "Erlang/OTP 27 [erts-15.0] [smp:2:2]\n1> instrument:allocations().\n\
                {ok,{128,4096,#{system => #{binary => {3,1,0,2}}}}}\n2> instrument:carriers().\n\
                {ok,{512,[{binary_alloc,false,1048576,0,[{binary_alloc,4,262144}],{0,0,3,1}},\n\
                {eheap_alloc,true,524288,0,[{eheap_alloc,1,524288}],{0,0,0,0}}]}}\n";
    let mut table = SeriesTable::default();
    let samples = read(text.as_bytes()).expect("a reading").samples("a test", &mut table);
    let [sample] = samples.as_slice() else { panic!("{samples:?}") };
    let rows: Vec<_> = sample
        .allocations
        .iter()
        .map(|row| (row.kind.as_str(), row.blocks, row.skipped.as_deref(), row.bytes))
        .collect();
    // 3 blocks of 64 bytes, 1 of 192, and 2 in the last bin, which begins at 512 bytes.
    assert_eq!(rows, [("", 0, Some("unscanned"), 4_096), ("binary", 6, None, 3 * 64 + 192 + 2 * 768)]);
    let sizes: Vec<_> = sample.allocations[1].sizes.iter().map(|size| (size.from, size.count)).collect();
    assert_eq!(sizes, [(0, 3), (128, 1), (512, 2)]);
    let carriers: Vec<_> = sample
        .carriers
        .iter()
        .map(|row| (row.allocator.as_str(), row.single, row.in_pool, row.used_tenths, row.bytes))
        .collect();
    assert_eq!(
        carriers,
        [("binary_alloc", false, false, Some(2), 1_048_576), ("eheap_alloc", true, true, Some(10), 524_288)]
    );
    assert!(sample.gaps.is_empty(), "the call asked for all carriers: {:?}", sample.gaps);
    let contents = import(text);
    check(
        &contents,
        &[
            ("allocator.mbcs_blocks_size binary_alloc", "262144"),
            ("allocator.sbcs_carriers eheap_alloc", "1"),
        ],
    );
    let without = reasons(&text[text.find('\n').expect("a line")..]);
    assert!(without.iter().all(|(.., why)| why.contains("OTP release")) && without.len() == 2, "{without:?}");
    for release in ["23", "25", "27", "29"] {
        let contents = import(&fixture(&format!("instrument-otp{release}")));
        assert!(
            contents.contains_key("allocation 0") && contents.contains_key("carrier 0"),
            "{release}: {contents:#?}"
        );
    }
}

const AVERAGES: &str = "recon_alloc:average_block_sizes(current).\n";

#[test]
fn a_selection_of_blocks_leaves_a_gap() {
    let banner = "Erlang/OTP 27 [erts-15.0] [smp:2:2]\n";
    let answer = "{ok,{128,0,#{system => #{binary => {3,1,0,2}}}}}\n";
    let gaps = |call: &str| {
        let mut table = SeriesTable::default();
        let reading = read(format!("{banner}1> {call}.\n{answer}").as_bytes()).expect("a reading");
        let gaps = reading.samples("a test", &mut table).into_iter().flat_map(|sample| sample.gaps);
        gaps.map(|gap| gap.source).collect::<Vec<_>>()
    };
    assert_eq!(gaps("instrument:allocations()"), [""; 0]);
    assert_eq!(gaps("instrument:allocations(#{allocator_types => [binary_alloc]})"), ["vm.allocations"]);
    for (flag, origin) in [("per_process", "<0.80.0>"), ("per_mfa", "{lists,reverse,1}")] {
        let text = format!(
            "{banner}1> instrument:allocations(#{{flags => [{flag}]}}).\n{}",
            answer.replace("system", origin)
        );
        assert!(reasons(&text)[0].2.contains("by process or function"), "{text}: {:?}", reasons(&text));
    }
}

#[test]
fn block_counts_are_estimated_from_sizes_and_averages() {
    let sizes = "2> recon_alloc:fragmentation(current).\n\
                 [{{binary_alloc,1},[{sbcs_usage,0.9},{mbcs_usage,0.8},{sbcs_block_size,60000000},\
                 {sbcs_carriers_size,61000000},{mbcs_block_size,800},{mbcs_carriers_size,1000}]},\n\
                 {{binary_alloc,0},[{sbcs_usage,1.0},{mbcs_usage,0.2},{sbcs_block_size,0},\
                 {sbcs_carriers_size,0},{mbcs_block_size,200},{mbcs_carriers_size,1000}]}]\n";
    let means = "1> recon_alloc:average_block_sizes(current).\n\
                 [{binary_alloc,[{mbcs,10.0},{sbcs,600000.0}]},{ets_alloc,[{mbcs,12.5},{sbcs,0}]}]\n";
    for text in [format!("{means}{sizes}"), format!("{sizes}{means}")] {
        let contents = import(&text);
        check(
            &contents,
            &[
                ("allocator.mbcs_blocks binary_alloc", "100"),
                ("allocator.sbcs_blocks binary_alloc", "100"),
                ("allocator.sbcs_carriers binary_alloc", "100"),
            ],
        );
        assert!(
            !contents.keys().any(|key| key.ends_with("ets_alloc")),
            "its sizes are unknown: {contents:#?}"
        );
        assert!(contents[facts::IMPORTED_REMARK].contains("averages"), "{contents:#?}");
        assert!(reasons(&text).is_empty(), "{:?}", reasons(&text));
    }
    let again = format!("{sizes}{means}{}", means.replace("10.0", "11.0"));
    assert!(reasons(&again)[0].2.contains("contradicts earlier output"), "{:?}", reasons(&again));
}

#[test]
fn averages_are_read_for_several_releases_and_both_languages() {
    for name in ["recon-otp25", "recon-otp29", "recon-elixir-otp25"] {
        let text = fixture(name);
        let contents = import(&text);
        // The node has 200 binaries of 600 kB.
        check(
            &contents,
            &[("allocator.sbcs_blocks binary_alloc", "200"), ("allocator.sbcs_carriers binary_alloc", "200")],
        );
        for sum in ["allocator.carriers_size ", "allocator.blocks_size ", "allocator.carriers_size ll_alloc"]
        {
            assert!(contents.contains_key(sum), "{name}: {sum}");
        }
        let of_recon: Vec<_> =
            reasons(&text).into_iter().filter(|(.., why)| !why.contains("no known tool")).collect();
        assert!(of_recon.len() == 1 && of_recon[0].2.contains("contain no sizes"), "{name}: {of_recon:#?}");
    }
}

#[test]
fn a_snapshot_agrees_with_the_sums_that_recon_calculates_from_it() {
    // If it did not, the sums would be refused.
    let text = fixture("recon-snapshot-otp25");
    let refused: Vec<_> =
        reasons(&text).into_iter().filter(|(.., why)| !why.contains("no known tool")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let contents = import(&text);
    for series in
        ["mbcs_carriers", "mbcs_blocks", "pool_carriers_size", "mbcs_blocks_size", "sbcs_carriers_size"]
    {
        assert!(
            contents.contains_key(&format!("allocator.{series} eheap_alloc/1")),
            "{series}: {contents:#?}"
        );
    }
    assert!(contents.contains_key("memory.ets "), "{contents:#?}");
    let allocators = import(&fixture("recon-allocators-otp29"));
    assert!(allocators.contains_key("allocator.mbcs_carriers_size std_alloc/1"), "{allocators:#?}");
    assert!(!allocators.keys().any(|key| key.contains("eheap_alloc")), "the shell has truncated it");
    let of_one = "[{instance,0,[{versions,\"0.9\",\"3.0\"}]}]";
    assert!(reasons(of_one)[0].2.contains("allocator's name is missing"), "{:?}", reasons(of_one));
    let cut = "[{{erts_mmap,0},[{default_mmap,[{...}|...]}]},{...}|...]";
    assert!(reasons(cut)[0].2.contains("truncated it"), "{:?}", reasons(cut));
    let odd = "[{{ets_alloc,1},[{options,[]},{mbcs,[{blocks,1,1,1},{blocks_size,9,9,9},{carriers,1},{carriers_size,8,8,8}]}]}]";
    assert!(reasons(odd)[0].2.contains("blocks are larger"), "{:?}", reasons(odd));
}

#[test]
fn erts_mmap_before_the_allocators_is_ignored() {
    let text = fixture("recon-mmap-otp27");
    let contents = import(&text);
    check(
        &contents,
        &[
            ("memory.total ", "13617624"),
            ("allocator.mbcs_carriers_size eheap_alloc/1", "1048576"),
            ("allocator.mbcs_blocks eheap_alloc/1", "7"),
            ("allocator.pool_carriers_size eheap_alloc/1", "262144"),
        ],
    );
    assert!(!contents.keys().any(|key| key.contains("mmap")), "{contents:#?}");
    let refused: Vec<_> =
        reasons(&text).into_iter().filter(|(.., why)| !why.contains("no known tool")).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let begin = text.find("[{default_mmap").expect("its numbers");
    let end = text.find("{{sys_alloc").expect("what follows");
    let without = format!("{}false}},\n  {}", &text[..begin], &text[end..]);
    assert_eq!(import(&without), contents);
}

/// Returns carriers and blocks of an allocator in the format of recon's sums. In `{blocks,…}`, maximum values follow the current one,
/// except in the pool.
fn by_type(allocator: &str, instances: &str, carriers: u32) -> String {
    format!(
        "{{{{{allocator},{instances}}},\n  [{{calls,[{{{allocator}_alloc,0,11}}]}},\n   {{mbcs,[{{blocks,7,9,9}},{{blocks_size,400,500,500}},\
         {{foreign_blocks,[]}},{{raw_blocks,[]}},\n    {{carriers,2,2,2}},{{carriers_size,{carriers},1000,1000}}]}},\n   {{mbcs_pool,[{{blocks,1}},\
         {{blocks_size,10}},{{foreign_blocks,[]}},{{raw_blocks,[]}},{{carriers,1}},{{carriers_size,50}}]}},\n   {{options,[{{e,true}}]}},\n   \
         {{sbcs,[{{blocks,3,4,4}},{{blocks_size,600,700,700}},{{carriers,3,4,4}},{{carriers_size,800,900,900}}]}}]}}"
    )
}

#[test]
fn sums_by_allocator_are_read() {
    let types = format!(
        "1> recon_alloc:allocators(types).\n[{},\n {},\n {{{{mseg_alloc,[1,0]}},[{{memkind,[]}}]}},\n {{{{erts_mmap,[0]}},[{{default_mmap,[]}}]}}]\n",
        by_type("binary_alloc", "[2,1,0]", 1_000),
        by_type("eheap_alloc", "[2,1,0]", 2_000)
    );
    let contents = import(&types);
    check(
        &contents,
        &[
            ("allocator.mbcs_carriers_size binary_alloc", "1000"),
            ("allocator.mbcs_carriers_size eheap_alloc", "2000"),
            ("allocator.mbcs_blocks eheap_alloc", "7"),
            ("allocator.pool_carriers_size eheap_alloc", "50"),
            ("allocator.sbcs_blocks_size eheap_alloc", "600"),
            (facts::IMPORTED_FROM, "recon_alloc"),
        ],
    );
    assert!(!contents.keys().any(|key| key.contains("mseg") || key.contains("mmap")), "{contents:#?}");
    // Averages contain no new information.
    let means = format!("2> {AVERAGES}[{{binary_alloc,[{{mbcs,100.0}},{{sbcs,200.0}}]}}]\n");
    let both = format!("{types}{means}");
    check(&import(&both), &[("allocator.mbcs_blocks binary_alloc", "7")]);
    assert!(reasons(&both).is_empty(), "{:?}", reasons(&both));
    // The values of instances are more detailed, so the sums are dropped. Otherwise, everything would be counted twice.
    let instances = "2> recon_alloc:fragmentation(current).\n[{{binary_alloc,1},[{sbcs_usage,1.0},{mbcs_usage,0.5},{sbcs_block_size,0},\
                     {sbcs_carriers_size,0},{mbcs_block_size,5},{mbcs_carriers_size,10}]}]\n";
    let contents = import(&format!("{types}{instances}"));
    check(&contents, &[("allocator.mbcs_carriers_size binary_alloc/1", "10")]);
    assert!(!contents.keys().any(|key| key.starts_with("allocator.") && !key.contains('/')), "{contents:#?}");
    for (whole, odd, why) in [
        ("{blocks_size,400,", "{blocks_size,40000,", "blocks are larger"),
        ("{carriers,2,2,2},", "", "a size is missing"),
        ("{{mseg_alloc,[1,0]},[{memkind,[]}]}", "{...}", "truncated it"),
        ("{{mseg_alloc,[1,0]},[{memkind,[]}]}", "{{mseg_alloc,[1|...]},...}", "truncated it"),
    ] {
        let reasons = reasons(&types.replacen(whole, odd, 1));
        assert!(reasons.len() == 1 && reasons[0].0 == 2 && reasons[0].2.contains(why), "{odd}: {reasons:?}");
    }
}

#[test]
fn sums_by_allocator_equal_the_sums_over_its_instances() {
    for release in ["25", "29"] {
        // Both are calculated from the same snapshot.
        let text = fixture(&format!("recon-types-otp{release}"));
        let instances = import(&fixture(&format!("recon-types-instances-otp{release}")));
        let types = import(&text);
        let number = |contents: &Contents, key: &str| {
            contents.get(key).map_or(0, |value| value.parse::<i64>().expect("a number"))
        };
        let mut compared = 0;
        for allocator in
            ["eheap_alloc", "binary_alloc", "ets_alloc", "driver_alloc", "ll_alloc", "std_alloc", "fix_alloc"]
        {
            for (sum, pool) in [
                ("mbcs_carriers_size", "pool_carriers_size"),
                ("mbcs_blocks_size", "pool_blocks_size"),
                ("sbcs_carriers_size", ""),
                ("sbcs_blocks_size", ""),
            ] {
                let of = |set: &str| number(&types, &format!("allocator.{set} {allocator}"));
                let of_instances: i64 =
                    (0..3).map(|n| number(&instances, &format!("allocator.{sum} {allocator}/{n}"))).sum();
                assert_eq!(of(sum) + of(pool), of_instances, "{release}: {allocator} {sum}");
                compared += i64::from(of_instances > 0);
            }
        }
        assert!(compared > 12, "{release}: {compared}");
        assert!(!types.keys().any(|key| key.contains('/') && key.starts_with("allocator.")), "{types:#?}");
        let reasons = reasons(&text);
        assert!(reasons.iter().all(|(.., why)| why.contains("no known tool")), "{release}: {reasons:?}");
    }
}

#[test]
fn two_totals_determine_the_others() {
    let sums = |text: &str| {
        let contents = import(text);
        ["carriers_size", "blocks_size"].map(|name| contents.get(&format!("allocator.{name} ")).cloned())
    };
    let both = [Some("1000".to_owned()), Some("250".to_owned())];
    let answer = |of: &str, number: &str| format!("1> recon_alloc:memory({of}).\n{number}\n");
    for pair in [
        [("allocated", "1000"), ("used", "250")],
        [("used", "250"), ("unused", "750")],
        [("allocated, current", "1000"), ("unused", "750")],
        [("usage", "0.25"), ("allocated", "1000")],
        [("used", "250"), ("usage", "0.25")],
        [("unused", "750"), ("usage", "0.25")],
        [("used", "250"), ("allocated_types", "[{binary_alloc,400},\n {eheap_alloc,600}]")],
        [("used", "250"), ("allocated_instances", "[{0,400},{1,600}]")],
    ] {
        let text: String = pair.iter().map(|(of, number)| answer(of, number)).collect();
        assert_eq!(sums(&text), both, "{text}");
    }
    assert_eq!(sums(&answer("allocated", "1_000")), [Some("1000".to_owned()), None]);
    let elixir = "iex(1)> :recon_alloc.memory(:used)\n250\niex(2)> :recon_alloc.memory(:allocated_types)\n\
                  [binary_alloc: 400, eheap_alloc: 600]\n";
    assert_eq!(sums(elixir), both);
    check(&import(elixir), &[("allocator.carriers_size eheap_alloc", "600")]);
    assert!(!read(answer("usage", "0.25").as_bytes()).is_ok_and(|reading| reading.tools.is_empty()));
    let twice = answer("used", "250") + &answer("used", "260");
    assert!(reasons(&twice)[0].2.contains("contradicts earlier output"), "{:?}", reasons(&twice));
}
