//! What msacc, erlang:memory, scheduler, recon_alloc, instrument and rabbitmq-diagnostics have printed on real VMs (the folder
//! `fixtures/tools`, made by `+S 2:2 +SDio 2`), whole and as people paste it. The shells read from a pipe, so what was typed, and the banner of
//! 23 and 25, were put back into the text; RabbitMQ's node has another name and other paths there. The extra microstates are of made counts, printed by msacc itself.
//! `recon-mmap-otp27` is put together by hand, in the form of recon 2.5.6 (src/recon_alloc.erl) and of erts/emulator/sys/common/erl_mmap.c.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod told;

use beamtune_import::{ImportError, read};
use beamtune_model::{SeriesTable, facts};
use proptest::prelude::*;
use told::*;

#[test]
fn a_session_is_read_on_each_release() {
    for release in ["23", "25", "27", "29"] {
        let text = fixture(&format!("session-otp{release}"));
        let told = told_by(&text);
        assert_eq!(told.get(facts::OTP_RELEASE).map(String::as_str), Some(release));
        let tools = "msacc, erlang:memory, scheduler:utilization, recon_alloc";
        check(
            &told,
            &[(facts::IMPORTED_FROM, tools), (facts::SCHEDULERS, "2"), (facts::DIRTY_IO_SCHEDULERS, "2")],
        );
        for of_each in [
            "msacc.gc scheduler/1",
            "msacc.sleep scheduler/2",
            "memory.binary ",
            "scheduler_time.active scheduler/2",
            "mseg.allocations 0",
        ] {
            assert!(told.contains_key(of_each), "{release}: {of_each}");
        }
        let whys = whys(&text);
        assert!(whys.is_empty(), "{release}: {whys:#?}");
    }
}

#[test]
fn the_values_are_those_that_were_printed() {
    let told = told_by(&fixture("session-otp29"));
    let text = fixture("session-otp29");
    let number = |before: &str| {
        let rest = &text[text.find(before).expect("it is there") + before.len()..];
        rest[..rest.find(|c: char| !c.is_ascii_digit()).expect("an end")].to_owned()
    };
    for kind in
        ["total", "processes", "processes_used", "system", "atom", "atom_used", "binary", "code", "ets"]
    {
        assert_eq!(told[&format!("memory.{kind} ")], number(&format!("{{{kind},")), "{kind}");
    }
    let first = &text[text.find("{{ll_alloc,0}").expect("the first instance")..];
    let size = |name: &str| {
        let rest = &first[first.find(name).expect("a size") + name.len() + 1..];
        rest[..rest.find('}').expect("an end")].to_owned()
    };
    assert_eq!(told["allocator.mbcs_carriers_size ll_alloc/0"], size("mbcs_carriers_size"));
    assert_eq!(told["allocator.mbcs_blocks_size ll_alloc/0"], size("mbcs_block_size"));
}

#[test]
fn shares_of_msacc_become_times_where_the_real_time_is_printed() {
    let table = "Average thread real-time    : 1000000 us\nAccumulated system run-time :  500000 us\n\
                 Average scheduler run-time  :  250000 us\n\n        Thread      aux emulator       gc    sleep\n\n\
                 Stats per thread:\n scheduler( 1)    1.00%   40.00%    9.00%   50.00%\n scheduler( 2)    0.00%    0.00%    0.00%  100.00%\n\n\
                 Stats per type:\n     scheduler    0.50%   20.00%    4.50%   75.00%\nok\n";
    check(
        &told_by(table),
        &[
            ("msacc.emulator scheduler/1", "400000"),
            ("msacc.sleep scheduler/2", "1000000"),
            (facts::SCHEDULERS, "2"),
        ],
    );
    let period = period(table);
    assert!((period.seconds() - 1.0).abs() < 1e-9, "{}", period.seconds());
    let shares_alone = &table[table.find("        Thread").expect("the heading")..];
    let told = told_by(shares_alone);
    check(&told, &[("msacc.emulator scheduler/1", "4000")]);
    assert!(told[facts::IMPORTED_REMARK].contains("is not known"), "{told:?}");
    for (whole, broken, why) in [
        ("40.00%", "41.00%", "shares are not 100 %"),
        ("40.00%   ", "", "does not fit its heading"),
        (" scheduler( 2)    0.00%    0.00%    0.00%  100.00%\n", "", "some are missing"),
        ("     scheduler    0.50%   20.00%    4.50%   75.00%\n", "", "is cut off"),
        ("emulator", "emula tor", "does not fit its heading"),
        ("( 2)", "( 3)", "threads are missing"),
    ] {
        let whys = whys(&table.replacen(whole, broken, 1));
        assert!(whys.iter().any(|(.., text)| text.contains(why)), "{broken}: {whys:#?}");
    }
}

#[test]
fn shares_of_run_time_are_not_taken_for_those_of_real_time() {
    // msacc:print(msacc:stats(runtime, msacc:stats())), and what stats answers itself.
    let table = "        Thread      aux emulator       gc\n\nStats per thread:\n scheduler( 1)    1.00%   40.00%   59.00%\n\n\
                 Stats per type:\n     scheduler    1.00%   40.00%   59.00%\nok\n";
    let answer = "[#{id => 1,type => scheduler,'$type' => msacc_stats,system => 100.0,\n\
                  counters => #{gc => #{thread => 59.0,system => 59.0},aux => #{thread => 41.0,system => 41.0}}}]";
    let counters = "[#{id => 1,type => scheduler,counters => #{gc => 59,aux => 41}}]";
    for text in [table, answer, counters] {
        let whys = whys(&format!("1> msacc.\n{text}"));
        let place = (2, if text == table { 9 } else { 1 });
        let is_named = |(line, column, why): &(usize, usize, String)| {
            (*line, *column) == place && why.contains("without sleep") && why.contains("msacc:print()")
        };
        assert!(whys.iter().any(is_named), "{text}: {whys:?}");
    }
}

#[test]
fn extra_states_that_touch_and_shares_of_the_system_are_read() {
    for release in ["25", "27"] {
        let plain = told_by(&fixture(&format!("msacc-extra-otp{release}")));
        let system = told_by(&fixture(&format!("msacc-extra-system-otp{release}")));
        assert_eq!(plain, system);
        let number = |key: &str| plain[key].parse::<f64>().expect("a number");
        let of_thread: Vec<_> = plain.keys().filter(|key| key.ends_with(" scheduler/1")).collect();
        let sum: f64 = of_thread.iter().map(|key| number(key)).sum();
        // 310,000 of 990,145 µs, of which shares tell two digits.
        let spun = number("msacc.busy_wait scheduler/1") / sum;
        assert!((spun - 310_000.0 / 990_145.0).abs() < 0.000_2, "{spun}");
        assert_eq!(of_thread.len(), 15);
    }
}

#[test]
fn lists_of_counters_are_read_in_both_languages() {
    let of_types = told_by(&fixture("msacc-types-otp29"));
    assert!(
        of_types.contains_key("msacc.gc scheduler") && !of_types.contains_key("msacc.gc scheduler/1"),
        "{of_types:#?}"
    );
    for name in ["msacc-list-otp23", "msacc-list-otp29", "elixir-lists-otp25"] {
        let told = told_by(&fixture(name));
        assert!(told.contains_key("msacc.gc scheduler/2"), "{name}: {told:#?}");
        assert!(!told.contains_key(facts::IMPORTED_REMARK), "{name}: msacc:stats() counts microseconds");
    }
    let raw = "[#{id => 1,type => scheduler,counters => #{gc => 1000,sleep => 9000}}]";
    let told = told_by(raw);
    check(&told, &[("msacc.gc scheduler/1", "1000")]);
    assert!(told[facts::IMPORTED_REMARK].contains("is not known"));
    let whys = whys("[%{counters: %{gc: 1, ...}, id: 1, type: :scheduler}, ...]");
    assert!(whys[0].2.contains("cut it off"), "{whys:?}");
}

#[test]
fn walks_of_instrument_become_the_rows_of_a_walk() {
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
    // 3 × 64, 1 × 192, and 2 of the last place, which begins at 512.
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
    assert!(sample.gaps.is_empty(), "all carriers were asked for: {:?}", sample.gaps);
    let told = told_by(text);
    check(
        &told,
        &[
            ("allocator.mbcs_blocks_size binary_alloc", "262144"),
            ("allocator.sbcs_carriers eheap_alloc", "1"),
        ],
    );
    let without = whys(&text[text.find('\n').expect("a line")..]);
    assert!(without.iter().all(|(.., why)| why.contains("OTP release")) && without.len() == 2, "{without:?}");
    for release in ["23", "25", "27", "29"] {
        let told = told_by(&fixture(&format!("instrument-otp{release}")));
        assert!(told.contains_key("allocation 0") && told.contains_key("carrier 0"), "{release}: {told:#?}");
    }
}

#[test]
fn a_list_that_a_shell_has_cut_off_is_taken_as_far_as_it_goes_and_never_as_all() {
    let text = fixture("session-otp29");
    let reading = read(text.as_bytes()).expect("a reading");
    let mut table = SeriesTable::default();
    let samples = reading.samples("a test", &mut table);
    let gaps: Vec<_> =
        samples.iter().flat_map(|sample| &sample.gaps).map(|gap| gap.source.as_str()).collect();
    assert_eq!(gaps, ["vm.carriers"]);
    let told = told_by(&text);
    let size = |name: &str| told.contains_key(&format!("allocator.mbcs_carriers_size {name}"));
    assert!(size("ll_alloc/0") && !size("fix_alloc/0"), "the last ones are cut in the middle");
}

#[test]
fn rabbitmqs_own_lines_are_read_and_its_sums_are_not_taken_for_the_vms() {
    let told = told_by(&fixture("rabbitmq-status-otp25"));
    check(
        &told,
        &[
            (facts::PRODUCT, "RabbitMQ 3.10.8"),
            (facts::OTP_RELEASE, "25"),
            (facts::SCHEDULERS_ONLINE, "2"),
            (facts::PROCESS_LIMIT, "1048576"),
            ("vm.process_count ", "268"),
            ("host_process.rss ", "127900000"),
            ("memory.code ", "31300000"),
            ("memory.binary ", "200000"),
        ],
    );
    assert!(!told.keys().any(|key| key.contains("other") || key.contains("plugins")), "{told:#?}");
    assert!(told[facts::IMPORTED_REMARK].contains("rounded"));
    let msacc = told_by(&fixture("rabbitmq-runtime_thread_stats-otp25"));
    check(&msacc, &[(facts::DIRTY_IO_SCHEDULERS, "10"), ("msacc.sleep scheduler/1", "1000494")]);
    let breakdown = told_by(&fixture("rabbitmq-memory_breakdown-otp25"));
    check(&breakdown, &[("memory.atom ", "1300000")]);
}

#[test]
fn rabbitmqs_watermark_and_alarms_are_facts() {
    let healthy = told_by(&fixture("rabbitmq-status-otp25"));
    check(&healthy, &[(facts::MEMORY_WATERMARK_BYTES, "10110600000")]);
    assert!(!healthy.contains_key(facts::MEMORY_ALARMS));
    let alarmed = told_by(&fixture("rabbitmq-alarms-otp25"));
    check(&alarmed, &[(facts::MEMORY_WATERMARK_BYTES, "60000000"), (facts::MEMORY_ALARMS, "1")]);
    check(&told_by(&fixture("rabbitmq-check_alarms-otp25")), &[(facts::MEMORY_ALARMS, "1")]);
    let setting = "Memory high watermark setting: 0.6 of available memory, computed to:";
    for (size, bytes) in [
        ("2 tib", "2199023255552"),
        ("0.5 mib", "524288"),
        ("3 kib", "3072"),
        ("1.5 tb", "1500000000000"),
        ("0.5 pib", "562949953421312"),
        ("0.5 pb", "500000000000000"),
        ("3 ki", "3072"),
        ("0.5 Mi", "524288"),
        ("2 ti", "2199023255552"),
        ("3.5 k", "3500"),
        ("0.5 m", "500000"),
        ("1.5 G", "1500000000"),
        ("1.5 t", "1500000000000"),
    ] {
        check(&told_by(&format!("{setting} {size}\n")), &[(facts::MEMORY_WATERMARK_BYTES, bytes)]);
    }
    assert!(whys(&format!("{setting} 1.5 parsecs\n"))[0].2.contains("no size with a unit"));
    assert!(whys("Memory high watermark setting: 0.6 of available\n")[0].2.contains("copy the whole line"));
    let two = "Memory alarm on node a@x\nFree disk space alarm on node a@x\nMemory alarm on node b@x\nMemory alarm on node b@x\n";
    check(&told_by(two), &[(facts::MEMORY_ALARMS, "2")]);
    check(&told_by(&two.replace('\n', "")[..75]), &[(facts::MEMORY_ALARMS, "1")]);
    for other in ["Free disk space", "File descriptor limit"] {
        let alone = format!("RabbitMQ version: 3.10.8\n{other} alarm on node a@x\n");
        assert!(!told_by(&alone).contains_key(facts::MEMORY_ALARMS), "{other}");
        assert!(whys(&alone).is_empty(), "{:?}", whys(&alone));
        let between =
            format!("Memory alarm on node a@x\n{other} alarm on node a@x\nMemory alarm on node b@x\n");
        check(&told_by(&between), &[(facts::MEMORY_ALARMS, "2")]);
    }
    for unit in ["MB", "mb", "Mb", "megabytes", "MEGABYTES"] {
        let text = format!(
            "Total memory used: 127.9 {unit}\nCalculation strategy: rss\ncode: 31.3 {unit} (24.5%)\n"
        );
        check(&told_by(&text), &[("host_process.rss ", "127900000"), ("memory.code ", "31300000")]);
    }
    assert!(whys("Memory alarm on node a@x")[0].2.contains("whether the node's name ends here"));
}

#[test]
fn a_call_within_a_command_or_another_call_is_the_one_before_the_answer() {
    for name in [
        "rabbitmq-eval-otp25",
        "called-elixir-otp27",
        "called-elixir-otp29",
        "called-erl-otp27",
        "called-erl-otp29",
    ] {
        let text = fixture(name);
        let told = told_by(&text);
        assert!(told.contains_key("allocator.mbcs_carriers_size ll_alloc/1"), "{name}: {told:#?}");
        let refused: Vec<_> = whys(&text).into_iter().filter(|(line, ..)| *line > 1).collect();
        assert!(refused.is_empty(), "{name}: {refused:?}");
        let (_, answer) = text.split_once('\n').expect("a call");
        for call in [
            "bin/app rpc \":recon_alloc.fragmentation(:current) |> IO.inspect(limit: :infinity)\"",
            "bin/app eval 'IO.inspect(:recon_alloc.fragmentation(:current), limit: :infinity, pretty: true)'",
            "1> io:format(\"~p~n\", [recon_alloc:fragmentation(current)]).",
        ] {
            assert_eq!(told_by(&format!("{call}\n{answer}")), told, "{call}");
        }
        // Words that belong to no call.
        let other = format!("recon_alloc:fragmentation(current) was better than this:\n{answer}");
        assert!(whys(&other).iter().any(|(.., why)| why.contains("copy the call too")), "{name}");
    }
}

#[test]
fn what_is_known_but_not_judged_or_contradicts_itself_is_named() {
    let check = |text: &str, place: (usize, usize), why: &str| {
        let whys = whys(text);
        assert!(
            whys.iter().any(|(line, column, text)| (*line, *column) == place && text.contains(why)),
            "{text}: {whys:#?}"
        );
    };
    check("x\n1> recon_alloc:memory(allocated).\n469360\n64\n", (3, 1), "whether the number ends here");
    check("recon_alloc:memory(allocated).\n46936064", (2, 1), "whether the number ends here");
    check("recon_alloc:memory(allocated, max).\n46936064\n", (2, 1), "print the current ones");
    check("recon_alloc:memory(used).\n45836.0\n", (2, 1), "set_unit(byte)");
    check("recon_alloc:memory(usage).\n1.7\n", (2, 1), "share between 0 and 1");
    check("[{binary_alloc,1234},{eheap_alloc,5}]", (1, 1), "copy the call too");
    check("recon_alloc:memory(allocated_types).\n[{binary_alloc,0.5}]", (2, 1), "set_unit(byte)");
    check("[{binary_alloc,[{mbcs,624.4},{sbcs,0}]}]", (1, 1), "copy the call too");
    check(&format!("{AVERAGES}[{{binary_alloc,[{{mbcs,624.4}}]}}]"), (2, 1), "an average is missing");
    check(
        &format!("{AVERAGES}[{{binary_alloc,[{{mbcs,624.4}},{{sbcs,0}}]}}]"),
        (2, 1),
        "print recon_alloc:fragmentation(current) too",
    );
    check(
        &AVERAGES.replace("current", "max").replace('\n', "[{binary_alloc,[{mbcs,6},{sbcs,0}]}]"),
        (1, 38),
        "largest sizes",
    );
    check("[{{eheap_alloc,1},0.02}]", (1, 1), "no numbers follow");
    check("[{{ets_alloc,1},infinity},{{eheap_alloc,1},0.02}]", (1, 1), "no numbers follow");
    check("[{total,10},{processes,4},{system,7}]", (1, 1), "is not the sum");
    check(
        "[{total,10},{processes,4},{system,6}] [{total,11},{processes,4},{system,7}]",
        (1, 39),
        "told before",
    );
    check("seen:\n [{total,10},{processes,4},{syst", (2, 2), "ends before");
    check("[{total,10},{processes,4},{system,6 000}]", (1, 1), "stands in none");
    check(
        "[{total,0.1,\"10.0%\"},{normal,2,0.1,\"10.0%\"},{cpu,3,0.1,\"10.0%\"}]",
        (1, 1),
        "schedulers are missing",
    );
    check(
        "[{{eheap_alloc,1},[{mbcs_usage,0.5},{mbcs_block_size,5},{mbcs_carriers_size,10}]}]",
        (1, 1),
        "copy the call",
    );
    for nothing in [
        "hello [1,2,3]",
        "Average thread real-time : many us",
        "Thread",
        "Thread aux",
        "recon_alloc:memory(used).",
        "",
    ] {
        assert!(!read(nothing.as_bytes()).is_ok_and(|reading| !reading.tools.is_empty()), "{nothing}");
    }
    assert_eq!(read(b"hello [1,2,3]"), Err(ImportError::Nothing));
}

const AVERAGES: &str = "recon_alloc:average_block_sizes(current).\n";

#[test]
fn what_other_calls_and_options_make_the_tools_print_is_named_with_what_to_print_instead() {
    let check = |text: &str, place: (usize, usize), why: &str| {
        let whys = whys(text);
        let is_it =
            |(line, column, text): &(usize, usize, String)| (*line, *column) == place && text.contains(why);
        assert!(whys.iter().any(is_it), "{text}: {whys:#?}");
    };
    check("1> recon:scheduler_usage(1000).\n[{1,0.02},{2,0.0}]\n", (2, 1), "print scheduler:utilization(1)");
    check("1> erlang:memory([total, binary]).\n[{total,10},{binary,4}]\n", (2, 1), "print erlang:memory()");
    check("1> erlang:memory([code, binary]).\n[{code,10},{binary,4}]\n", (2, 1), "print erlang:memory()");
    let memory = "[{total,10},{connection_readers,0},{queue_procs,4}]";
    check(memory, (1, 1), "status --formatter json");
    check(&format!("[{{pid,12}},\n {{memory,{memory}}},\n {{uptime,5}}]"), (1, 1), "status --formatter json");
    for unit in ["gi", "Gi", "gib", "GiB"] {
        check(&format!("Total memory used: 0.5 {unit}\n"), (1, 1), "print it with --unit bytes");
        check(&format!("code: 0.0313 {unit} (24.5 %)\n"), (1, 1), "print it with --unit bytes");
        let setting = "Memory high watermark setting: 0.6 of available memory, computed to:";
        check(&format!("{setting} 1.5 {unit}\n"), (1, 1), "print it with --unit bytes");
    }
}

#[test]
fn a_breakdown_of_memory_is_read_in_every_unit() {
    check(&told_by(&fixture("rabbitmq-memory_breakdown-kb-otp25")), &[("memory.code ", "31337774")]);
    for (unit, code, binary, shown) in [
        ("bytes", "31250123", "204800", ["31250123", "204800"]),
        ("kb", "31250.123", "204.8", ["31250123", "204800"]),
        ("mb", "31.2501", "0.2048", ["31250100", "204800"]),
        ("gb", "0.0313", "0.0002", ["31300000", "200000"]),
    ] {
        let text = format!(
            "Reporting memory breakdown on node rabbit@broker1...\nreserved_unallocated: 0.5 {unit} (63.33%)\n\
             code: {code} {unit} (24.27%)\nbinary: {binary} {unit} (0.15%)\n"
        );
        assert_eq!(told_by(&text).contains_key(facts::IMPORTED_REMARK), unit != "bytes", "{unit}");
        for how in 0..ALL_WAYS {
            let told = told_by(&mangled(&text, how));
            check(&told, &[("memory.code ", shown[0]), ("memory.binary ", shown[1])]);
            assert!(!told.keys().any(|key| key.contains("unallocated")), "{told:#?}");
        }
    }
}

#[test]
fn a_part_of_the_blocks_is_not_taken_for_all_of_them() {
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
        assert!(whys(&text)[0].2.contains("by process or function"), "{text}: {:?}", whys(&text));
    }
}

#[test]
fn what_two_banners_tell_otherwise_is_not_taken() {
    let banner = |release: &str| {
        format!(
            "Erlang/OTP {release} [erts-{release}.1] [smp:8:4]\n1> erlang:memory().\n[{{total,3}},{{processes,1}},{{system,2}}]\n"
        )
    };
    let text = banner("25") + &banner("27");
    let told = told_by(&text);
    check(&told, &[(facts::SCHEDULERS_ONLINE, "4"), ("memory.total ", "3")]);
    assert!(!told.contains_key(facts::OTP_RELEASE) && !told.contains_key(facts::ERTS_VERSION), "{told:#?}");
    let other = whys(&text);
    assert!(other.len() == 1 && other[0].0 == 4 && other[0].2.contains("another banner"), "{other:?}");
    let twice = banner("25") + &banner("25");
    check(&told_by(&twice), &[(facts::OTP_RELEASE, "25")]);
    assert!(whys(&twice).is_empty(), "{:?}", whys(&twice));
}

#[test]
fn sizes_that_rabbitmq_has_rounded_give_way_to_exact_ones() {
    let rounded = "code: 0.0313 gb (24.5 %)\n";
    let exact =
        "1> erlang:memory().\n[{total,40000000},{processes,8750000},{system,31250000},{code,31250000}]\n";
    for text in [format!("{rounded}{exact}"), format!("{exact}{rounded}")] {
        check(&told_by(&text), &[("memory.code ", "31250000"), ("memory.total ", "40000000")]);
        assert!(whys(&text).is_empty(), "{text}: {:?}", whys(&text));
    }
    let again = format!("{rounded}{}", rounded.replace('3', "4"));
    assert!(whys(&again)[0].2.contains("told before"), "{:?}", whys(&again));
}

#[test]
fn a_crash_dump_within_text_is_named_as_such() {
    let head = "=erl_crash_dump:0.5\nMon Nov 23 05:28:30 2026\nSlogan: no more\n";
    assert_eq!(read(format!("It died:\n\n{head}").as_bytes()), Err(ImportError::DumpWithin));
    let text = format!("1> erlang:memory().\n[{{total,3}},{{processes,1}},{{system,2}}]\nthen\n{head}");
    let named = whys(&text);
    assert!(named.iter().any(|(line, _, why)| *line == 4 && why.contains("a file of its own")), "{named:?}");
    assert_eq!(read(b"a file that begins with =erl_crash_dump: is one"), Err(ImportError::Nothing));
}

#[test]
fn averages_become_numbers_of_blocks_where_their_sizes_are_told() {
    let sizes = "2> recon_alloc:fragmentation(current).\n\
                 [{{binary_alloc,1},[{sbcs_usage,0.9},{mbcs_usage,0.8},{sbcs_block_size,60000000},\
                 {sbcs_carriers_size,61000000},{mbcs_block_size,800},{mbcs_carriers_size,1000}]},\n\
                 {{binary_alloc,0},[{sbcs_usage,1.0},{mbcs_usage,0.2},{sbcs_block_size,0},\
                 {sbcs_carriers_size,0},{mbcs_block_size,200},{mbcs_carriers_size,1000}]}]\n";
    let means = "1> recon_alloc:average_block_sizes(current).\n\
                 [{binary_alloc,[{mbcs,10.0},{sbcs,600000.0}]},{ets_alloc,[{mbcs,12.5},{sbcs,0}]}]\n";
    for text in [format!("{means}{sizes}"), format!("{sizes}{means}")] {
        let told = told_by(&text);
        check(
            &told,
            &[
                ("allocator.mbcs_blocks binary_alloc", "100"),
                ("allocator.sbcs_blocks binary_alloc", "100"),
                ("allocator.sbcs_carriers binary_alloc", "100"),
            ],
        );
        assert!(!told.keys().any(|key| key.ends_with("ets_alloc")), "its sizes are not told: {told:#?}");
        assert!(told[facts::IMPORTED_REMARK].contains("averages"), "{told:#?}");
        assert!(whys(&text).is_empty(), "{:?}", whys(&text));
    }
    let again = format!("{sizes}{means}{}", means.replace("10.0", "11.0"));
    assert!(whys(&again)[0].2.contains("told before"), "{:?}", whys(&again));
}

#[test]
fn recons_averages_are_read_on_several_releases_and_in_both_languages() {
    for name in ["recon-otp25", "recon-otp29", "recon-elixir-otp25"] {
        let text = fixture(name);
        let told = told_by(&text);
        // 200 binaries of 600 kB were made.
        check(
            &told,
            &[("allocator.sbcs_blocks binary_alloc", "200"), ("allocator.sbcs_carriers binary_alloc", "200")],
        );
        for sum in ["allocator.carriers_size ", "allocator.blocks_size ", "allocator.carriers_size ll_alloc"]
        {
            assert!(told.contains_key(sum), "{name}: {sum}");
        }
        let of_recon: Vec<_> = whys(&text).into_iter().filter(|(.., why)| !why.contains("no tool")).collect();
        assert!(of_recon.len() == 1 && of_recon[0].2.contains("no numbers follow"), "{name}: {of_recon:#?}");
    }
}

#[test]
fn a_snapshot_tells_the_same_as_the_sums_that_recon_makes_of_it() {
    // Where the two differ, the second one is refused.
    let text = fixture("recon-snapshot-otp25");
    let refused: Vec<_> = whys(&text).into_iter().filter(|(.., why)| !why.contains("no tool")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let told = told_by(&text);
    for series in
        ["mbcs_carriers", "mbcs_blocks", "pool_carriers_size", "mbcs_blocks_size", "sbcs_carriers_size"]
    {
        assert!(told.contains_key(&format!("allocator.{series} eheap_alloc/1")), "{series}: {told:#?}");
    }
    assert!(told.contains_key("memory.ets "), "{told:#?}");
    let allocators = told_by(&fixture("recon-allocators-otp29"));
    assert!(allocators.contains_key("allocator.mbcs_carriers_size std_alloc/1"), "{allocators:#?}");
    assert!(!allocators.keys().any(|key| key.contains("eheap_alloc")), "the shell has cut it off");
    let of_one = "[{instance,0,[{versions,\"0.9\",\"3.0\"}]}]";
    assert!(whys(of_one)[0].2.contains("does not stand in it"), "{:?}", whys(of_one));
    let cut = "[{{erts_mmap,0},[{default_mmap,[{...}|...]}]},{...}|...]";
    assert!(whys(cut)[0].2.contains("cut it off"), "{:?}", whys(cut));
    let odd = "[{{ets_alloc,1},[{options,[]},{mbcs,[{blocks,1,1,1},{blocks_size,9,9,9},{carriers,1},{carriers_size,8,8,8}]}]}]";
    assert!(whys(odd)[0].2.contains("blocks are larger"), "{:?}", whys(odd));
}

#[test]
fn what_the_vm_maps_itself_stands_before_the_allocators_and_nothing_is_read_of_it() {
    let text = fixture("recon-mmap-otp27");
    let told = told_by(&text);
    check(
        &told,
        &[
            ("memory.total ", "13617624"),
            ("allocator.mbcs_carriers_size eheap_alloc/1", "1048576"),
            ("allocator.mbcs_blocks eheap_alloc/1", "7"),
            ("allocator.pool_carriers_size eheap_alloc/1", "262144"),
        ],
    );
    assert!(!told.keys().any(|key| key.contains("mmap")), "{told:#?}");
    let refused: Vec<_> = whys(&text).into_iter().filter(|(.., why)| !why.contains("no tool")).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let begin = text.find("[{default_mmap").expect("its numbers");
    let end = text.find("{{sys_alloc").expect("what follows");
    let without = format!("{}false}},\n  {}", &text[..begin], &text[end..]);
    assert_eq!(told_by(&without), told);
}

/// Carriers and blocks of an allocator, as recon adds them up: `{blocks,…}` has the largest numbers behind the current ones, but in the pool.
fn by_type(allocator: &str, instances: &str, carriers: u32) -> String {
    format!(
        "{{{{{allocator},{instances}}},\n  [{{calls,[{{{allocator}_alloc,0,11}}]}},\n   {{mbcs,[{{blocks,7,9,9}},{{blocks_size,400,500,500}},\
         {{foreign_blocks,[]}},{{raw_blocks,[]}},\n    {{carriers,2,2,2}},{{carriers_size,{carriers},1000,1000}}]}},\n   {{mbcs_pool,[{{blocks,1}},\
         {{blocks_size,10}},{{foreign_blocks,[]}},{{raw_blocks,[]}},{{carriers,1}},{{carriers_size,50}}]}},\n   {{options,[{{e,true}}]}},\n   \
         {{sbcs,[{{blocks,3,4,4}},{{blocks_size,600,700,700}},{{carriers,3,4,4}},{{carriers_size,800,900,900}}]}}]}}"
    )
}

#[test]
fn what_recon_adds_up_by_allocator_is_told_of_each_allocator() {
    let types = format!(
        "1> recon_alloc:allocators(types).\n[{},\n {},\n {{{{mseg_alloc,[1,0]}},[{{memkind,[]}}]}},\n {{{{erts_mmap,[0]}},[{{default_mmap,[]}}]}}]\n",
        by_type("binary_alloc", "[2,1,0]", 1_000),
        by_type("eheap_alloc", "[2,1,0]", 2_000)
    );
    let told = told_by(&types);
    check(
        &told,
        &[
            ("allocator.mbcs_carriers_size binary_alloc", "1000"),
            ("allocator.mbcs_carriers_size eheap_alloc", "2000"),
            ("allocator.mbcs_blocks eheap_alloc", "7"),
            ("allocator.pool_carriers_size eheap_alloc", "50"),
            ("allocator.sbcs_blocks_size eheap_alloc", "600"),
            (facts::IMPORTED_FROM, "recon_alloc"),
        ],
    );
    assert!(!told.keys().any(|key| key.contains("mseg") || key.contains("mmap")), "{told:#?}");
    // Averages add nothing to it.
    let means = format!("2> {AVERAGES}[{{binary_alloc,[{{mbcs,100.0}},{{sbcs,200.0}}]}}]\n");
    let both = format!("{types}{means}");
    check(&told_by(&both), &[("allocator.mbcs_blocks binary_alloc", "7")]);
    assert!(whys(&both).is_empty(), "{:?}", whys(&both));
    // Instances say more, and both together would count twice.
    let instances = "2> recon_alloc:fragmentation(current).\n[{{binary_alloc,1},[{sbcs_usage,1.0},{mbcs_usage,0.5},{sbcs_block_size,0},\
                     {sbcs_carriers_size,0},{mbcs_block_size,5},{mbcs_carriers_size,10}]}]\n";
    let told = told_by(&format!("{types}{instances}"));
    check(&told, &[("allocator.mbcs_carriers_size binary_alloc/1", "10")]);
    assert!(!told.keys().any(|key| key.starts_with("allocator.") && !key.contains('/')), "{told:#?}");
    for (whole, odd, why) in [
        ("{blocks_size,400,", "{blocks_size,40000,", "blocks are larger"),
        ("{carriers,2,2,2},", "", "a size is missing"),
        ("{{mseg_alloc,[1,0]},[{memkind,[]}]}", "{...}", "cut it off"),
        ("{{mseg_alloc,[1,0]},[{memkind,[]}]}", "{{mseg_alloc,[1|...]},...}", "cut it off"),
    ] {
        let whys = whys(&types.replacen(whole, odd, 1));
        assert!(whys.len() == 1 && whys[0].0 == 2 && whys[0].2.contains(why), "{odd}: {whys:?}");
    }
}

#[test]
fn recons_sums_by_allocator_are_those_of_its_instances() {
    for release in ["25", "29"] {
        // Both are of one snapshot.
        let text = fixture(&format!("recon-types-otp{release}"));
        let instances = told_by(&fixture(&format!("recon-types-instances-otp{release}")));
        let types = told_by(&text);
        let number =
            |told: &Told, key: &str| told.get(key).map_or(0, |value| value.parse::<i64>().expect("a number"));
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
        let whys = whys(&text);
        assert!(whys.iter().all(|(.., why)| why.contains("no tool")), "{release}: {whys:?}");
    }
}

/// As `rabbitmq-diagnostics status --formatter json` prints it: exact sizes, in one line.
const STATUS: &str = "{\"alarms\":[{\"node\":\"rabbit@broker1\",\"resource\":\"memory\",\"type\":\"resource_limit\"},{\"node\":\"rabbit@broker1\",\
    \"resource\":\"disk\",\"type\":\"resource_limit\"}],\"config_files\":[],\"erlang_version\":\"Erlang/OTP 25 [erts-13.1.5] [source] [64-bit] \
    [smp:2:2] [ds:2:2:10] [async-threads:1] [jit:ns]\",\"is_under_maintenance\":false,\"memory\":{\"allocated_unused\":18000000,\"atom\":1310720,\
    \"binary\":204800,\"code\":31250123,\"other_proc\":18800000,\"strategy\":\"rss\",\"total\":{\"erlang\":70000001,\"rss\":127900004,\
    \"allocated\":88000002}},\"processes\":{\"limit\":1048576,\"used\":268},\"rabbitmq_version\":\"3.10.8\",\"run_queue\":1,\"totals\":[],\
    \"uptime\":140,\"vm_memory_calculation_strategy\":\"rss\",\"vm_memory_high_watermark_limit\":10110582784,\
    \"vm_memory_high_watermark_setting\":{\"relative\":0.4}}";

#[test]
fn rabbitmqs_json_is_read_and_its_sizes_are_exact() {
    let of_vm = told_by(&fixture("rabbitmq-status-json-otp25"));
    check(
        &of_vm,
        &[
            (facts::PRODUCT, "RabbitMQ 3.10.8"),
            (facts::OTP_RELEASE, "25"),
            (facts::SCHEDULERS_ONLINE, "2"),
            (facts::PROCESS_LIMIT, "1048576"),
            (facts::MEMORY_WATERMARK_BYTES, "60000000"),
            (facts::MEMORY_ALARMS, "1"),
            ("vm.process_count ", "267"),
            ("host_process.rss ", "149344256"),
            ("allocator.carriers_size ", "50307072"),
            ("memory.total ", "68335936"),
            ("memory.code ", "31311718"),
        ],
    );
    let told = told_by(&format!("$ rabbitmq-diagnostics status --formatter json\n{STATUS}\n"));
    check(
        &told,
        &[
            (facts::PRODUCT, "RabbitMQ 3.10.8"),
            (facts::OTP_RELEASE, "25"),
            (facts::EMU_FLAVOR, "jit"),
            (facts::PROCESS_LIMIT, "1048576"),
            (facts::MEMORY_WATERMARK_BYTES, "10110582784"),
            (facts::MEMORY_ALARMS, "1"),
            ("vm.process_count ", "268"),
            ("host_process.rss ", "127900004"),
            ("allocator.carriers_size ", "88000002"),
            ("memory.total ", "70000001"),
            ("memory.code ", "31250123"),
            ("memory.atom ", "1310720"),
            ("memory.binary ", "204800"),
        ],
    );
    assert!(!told.contains_key(facts::IMPORTED_REMARK), "{told:#?}");
    assert!(!told.keys().any(|key| key.contains("other") || key.contains("unused")), "{told:#?}");
    let check_whys = |text: &str, why: &str| {
        let whys = whys(text);
        assert!(
            whys.iter().any(|(line, column, text)| (*line, *column) == (1, 1) && text.contains(why)),
            "{text}: {whys:?}"
        );
    };
    check_whys(&STATUS.replace("\"rss\":127900004,", ""), "a size or a number is missing");
    check_whys(&STATUS.replace("\"used\":268", "\"used\":2000000"), "a size or a number is missing");
    check_whys(&STATUS.replace("3.10.8", "unknown"), "a size or a number is missing");
    // Where nobody told of resident memory, the carriers stand in its place.
    let windows = told_by(&STATUS.replace("127900004", "88000002"));
    assert!(!windows.contains_key("host_process.rss "), "{windows:#?}");
    check(&windows, &[("allocator.carriers_size ", "88000002")]);
    let healthy = told_by(&STATUS.replace("\"resource\":\"memory\"", "\"resource\":\"disk\""));
    assert!(!healthy.contains_key(facts::MEMORY_ALARMS));
    // Exact sizes say nothing against rounded ones.
    let rounded = "code: 0.0313 gb (24.5 %)\n";
    for text in [format!("{rounded}{STATUS}\n"), format!("{STATUS}\n{rounded}")] {
        check(&told_by(&text), &[("memory.code ", "31250123")]);
        assert!(whys(&text).is_empty(), "{:?}", whys(&text));
    }
    let pretty = STATUS.replace("\":", "\": ").replace(',', ",\n  ").replace('{', "{\n  ");
    assert_eq!(told_by(&pretty), told_by(STATUS));
}

#[test]
fn a_breakdown_and_alarms_are_read_as_json() {
    let breakdown = "{\"reserved_unallocated\":{\"bytes\":80500123,\"percentage\":63.0},\"code\":{\"bytes\":31250123,\"percentage\":24.49},\
                     \"atom\":{\"bytes\":1310720,\"percentage\":1.04},\"binary\":{\"bytes\":204800,\"percentage\":0.15}}";
    let told = told_by(breakdown);
    check(&told, &[("memory.code ", "31250123"), ("memory.atom ", "1310720"), ("memory.binary ", "204800")]);
    assert!(!told.contains_key(facts::IMPORTED_REMARK), "{told:#?}");
    assert!(!told.keys().any(|key| key.contains("unallocated")), "{told:#?}");
    check(&told_by(&fixture("rabbitmq-memory_breakdown-json-otp25")), &[("memory.binary ", "166600")]);
    check(&told_by(&fixture("rabbitmq-alarms-json-otp25")), &[(facts::MEMORY_ALARMS, "1")]);
    let odd = whys(&breakdown.replace("{\"bytes\":80500123,", "{"));
    assert!(odd.len() == 1 && odd[0].2.contains("a size is missing"), "{odd:?}");
    let status = STATUS.replacen("{\"alarms\":[", "{\"log_files\":[", 1);
    for cut in [&breakdown[..120], &status[..400]] {
        let whys = whys(&format!("1> erlang:memory().\n[{{total,3}},{{processes,1}},{{system,2}}]\n{cut}"));
        let is_named = |(line, column, why): &(usize, usize, String)| {
            (*line, *column) == (3, 1) && why.contains("ends before")
        };
        assert!(whys.iter().any(is_named), "{cut}: {whys:?}");
    }
    let alarms = "{\"global\":[\"Memory alarm on node rabbit@b\"],\"local\":[\"Free disk space alarm on node rabbit@a\",\
                  \"Memory alarm on node rabbit@a\"],\"message\":\"Node rabbit@a reported alarms\",\"result\":\"ok\"}\n";
    check(&told_by(alarms), &[(facts::MEMORY_ALARMS, "2")]);
    let twice = alarms.replace("rabbit@b", "rabbit@a");
    check(&told_by(&twice), &[(facts::MEMORY_ALARMS, "1")]);
}

#[test]
fn sessions_of_newer_elixir_are_read() {
    for release in ["27", "29"] {
        let text = fixture(&format!("elixir-session-otp{release}"));
        let told = told_by(&text);
        for series in ["memory.ets ", "msacc.gc scheduler/2", "scheduler_time.active scheduler/2"] {
            assert!(told.contains_key(series), "{release}: {series}");
        }
        let refused: Vec<_> = whys(&text).into_iter().filter(|(.., why)| !why.contains("no tool")).collect();
        assert!(refused.is_empty(), "{release}: {refused:?}");
    }
}

#[test]
fn two_sums_of_all_allocators_tell_the_others() {
    let sums = |text: &str| {
        let told = told_by(text);
        ["carriers_size", "blocks_size"].map(|name| told.get(&format!("allocator.{name} ")).cloned())
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
    check(&told_by(elixir), &[("allocator.carriers_size eheap_alloc", "600")]);
    assert!(!read(answer("usage", "0.25").as_bytes()).is_ok_and(|reading| reading.tools.is_empty()));
    let twice = answer("used", "250") + &answer("used", "260");
    assert!(whys(&twice)[0].2.contains("told before"), "{:?}", whys(&twice));
}

#[test]
fn what_copying_does_to_a_text_changes_nothing_that_is_read() {
    for (name, text) in fixtures() {
        let expect = told_by(&text);
        assert!(expect.len() >= 3, "{name}: {expect:#?}");
        for how in 0..WAYS {
            let told = told_by(&mangled(&text, how));
            let differ = |key: &&String| told.get(*key) != expect.get(*key);
            let others: Vec<_> = expect.keys().chain(told.keys()).filter(differ).collect();
            assert!(others.is_empty(), "{name}, {how}: {others:?}");
        }
    }
}

#[test]
fn where_lines_touch_each_other_nothing_is_read_otherwise() {
    for (name, text) in fixtures() {
        let expect = told_by(&text);
        for how in WAYS..ALL_WAYS {
            let told = told_by(&mangled(&text, how));
            let others: Vec<_> = told.iter().filter(|(key, value)| expect.get(*key) != Some(value)).collect();
            assert!(others.is_empty(), "{name}, {how}: {others:?}");
            // A number touches the one of the prompt behind it: `4693606` and `2>`.
            let is_ambiguous = text.contains("> recon_alloc:memory(used).\n");
            let missing: Vec<_> = expect.keys().filter(|key| !told.contains_key(*key)).collect();
            let refused = whys(&mangled(&text, how));
            let is_named = refused.iter().any(|(.., why)| why.contains("whether the number ends here"));
            assert_eq!(
                (missing.is_empty(), is_named),
                (!is_ambiguous, is_ambiguous),
                "{name}, {how}: {missing:?}"
            );
        }
    }
}

#[test]
fn several_texts_are_one_recording() {
    let text = fixture("rabbitmq-status-otp25") + &fixture("rabbitmq-runtime_thread_stats-otp25");
    let told = told_by(&text);
    check(
        &told,
        &[
            (facts::IMPORTED_FROM, "rabbitmq-diagnostics, msacc"),
            ("vm.process_count ", "268"),
            ("msacc.sleep scheduler/1", "1000494"),
        ],
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_cut_out_of_a_text_is_missing_and_never_another_value(pick in 0..1_000_usize, begin in 0.0..1.0_f64, end in 0.0..1.0_f64, how in 0..ALL_WAYS) {
        let all = fixtures();
        let (name, text) = &all[pick % all.len()];
        let expect = told_by(text);
        let text = mangled(text, how);
        let at = |share: f64| {
            let mut at = (text.len() as f64 * share) as usize;
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (begin, end) = (at(begin.min(end)), at(begin.max(end)));
        if let Ok(reading) = read(&text.as_bytes()[begin..end]) {
            for (key, value) in told(reading) {
                // Which tools were seen, and what is known of the whole, follows from what is left.
                let is_derived = [facts::IMPORTED_FROM, facts::IMPORTED_REMARK].contains(&key.as_str());
                let is_native = key.starts_with("scheduler_time.") || key.starts_with("msacc.");
                if !is_derived && !is_native {
                    prop_assert_eq!(expect.get(&key), Some(&value), "{} of {}", key, name);
                }
            }
        }
    }
}
