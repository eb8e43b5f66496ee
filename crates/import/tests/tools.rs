//! Output of msacc, erlang:memory, scheduler, recon_alloc, instrument and rabbitmq-diagnostics on real VMs, complete and as users paste it.
//!
//! The output in `fixtures/tools` was recorded with `+S 2:2 +SDio 2`. The shells read from a pipe, so the input, and the banners of OTP 23
//! and 25, were added to the text. RabbitMQ's node name and paths were replaced. The tables with extra microstates were printed by msacc,
//! but from invented counts. `recon-mmap-otp27` was written manually, in the format of recon 2.5.6 (src/recon_alloc.erl) and of
//! erts/emulator/sys/common/erl_mmap.c.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod contents;

use beamtune_import::{ImportError, read};
use beamtune_model::{SeriesTable, facts};
use contents::*;
use proptest::prelude::*;

#[test]
fn a_session_of_each_release_is_read() {
    for release in ["23", "25", "27", "29"] {
        let text = fixture(&format!("session-otp{release}"));
        let contents = import(&text);
        assert_eq!(contents.get(facts::OTP_RELEASE).map(String::as_str), Some(release));
        let tools = "msacc, erlang:memory, scheduler:utilization, recon_alloc";
        check(
            &contents,
            &[(facts::IMPORTED_FROM, tools), (facts::SCHEDULERS, "2"), (facts::DIRTY_IO_SCHEDULERS, "2")],
        );
        for of_each in [
            "msacc.gc scheduler/1",
            "msacc.sleep scheduler/2",
            "memory.binary ",
            "scheduler_time.active scheduler/2",
            "mseg.allocations 0",
        ] {
            assert!(contents.contains_key(of_each), "{release}: {of_each}");
        }
        let reasons = reasons(&text);
        assert!(reasons.is_empty(), "{release}: {reasons:#?}");
    }
}

#[test]
fn imported_values_equal_the_printed_ones() {
    let contents = import(&fixture("session-otp29"));
    let text = fixture("session-otp29");
    let number = |before: &str| {
        let rest = &text[text.find(before).expect("the key") + before.len()..];
        rest[..rest.find(|c: char| !c.is_ascii_digit()).expect("an end")].to_owned()
    };
    for kind in
        ["total", "processes", "processes_used", "system", "atom", "atom_used", "binary", "code", "ets"]
    {
        assert_eq!(contents[&format!("memory.{kind} ")], number(&format!("{{{kind},")), "{kind}");
    }
    let first = &text[text.find("{{ll_alloc,0}").expect("the first instance")..];
    let size = |name: &str| {
        let rest = &first[first.find(name).expect("a size") + name.len() + 1..];
        rest[..rest.find('}').expect("an end")].to_owned()
    };
    assert_eq!(contents["allocator.mbcs_carriers_size ll_alloc/0"], size("mbcs_carriers_size"));
    assert_eq!(contents["allocator.mbcs_blocks_size ll_alloc/0"], size("mbcs_block_size"));
}

#[test]
fn percentages_become_times_if_the_real_time_is_printed() {
    let table = "Average thread real-time    : 1000000 us\nAccumulated system run-time :  500000 us\n\
                 Average scheduler run-time  :  250000 us\n\n        Thread      aux emulator       gc    sleep\n\n\
                 Stats per thread:\n scheduler( 1)    1.00%   40.00%    9.00%   50.00%\n scheduler( 2)    0.00%    0.00%    0.00%  100.00%\n\n\
                 Stats per type:\n     scheduler    0.50%   20.00%    4.50%   75.00%\nok\n";
    check(
        &import(table),
        &[
            ("msacc.emulator scheduler/1", "400000"),
            ("msacc.sleep scheduler/2", "1000000"),
            (facts::SCHEDULERS, "2"),
        ],
    );
    let period = period(table);
    assert!((period.seconds() - 1.0).abs() < 1e-9, "{}", period.seconds());
    let shares_alone = &table[table.find("        Thread").expect("the heading")..];
    let contents = import(shares_alone);
    check(&contents, &[("msacc.emulator scheduler/1", "4000")]);
    assert!(contents[facts::IMPORTED_REMARK].contains("the duration is unknown"), "{contents:?}");
    for (whole, broken, why) in [
        ("40.00%", "41.00%", "do not add up to 100"),
        ("40.00%   ", "", "does not fit its heading"),
        (" scheduler( 2)    0.00%    0.00%    0.00%  100.00%\n", "", "some are missing"),
        ("     scheduler    0.50%   20.00%    4.50%   75.00%\n", "", "is truncated"),
        ("emulator", "emula tor", "does not fit its heading"),
        ("( 2)", "( 3)", "threads are missing"),
    ] {
        let reasons = reasons(&table.replacen(whole, broken, 1));
        assert!(reasons.iter().any(|(.., text)| text.contains(why)), "{broken}: {reasons:#?}");
    }
}

#[test]
fn percentages_of_run_time_are_refused() {
    // The output of msacc:print(msacc:stats(runtime, msacc:stats())), and the result of msacc:stats.
    let table = "        Thread      aux emulator       gc\n\nStats per thread:\n scheduler( 1)    1.00%   40.00%   59.00%\n\n\
                 Stats per type:\n     scheduler    1.00%   40.00%   59.00%\nok\n";
    let answer = "[#{id => 1,type => scheduler,'$type' => msacc_stats,system => 100.0,\n\
                  counters => #{gc => #{thread => 59.0,system => 59.0},aux => #{thread => 41.0,system => 41.0}}}]";
    let counters = "[#{id => 1,type => scheduler,counters => #{gc => 59,aux => 41}}]";
    for text in [table, answer, counters] {
        let reasons = reasons(&format!("1> msacc.\n{text}"));
        let place = (2, if text == table { 9 } else { 1 });
        let is_named = |(line, column, why): &(usize, usize, String)| {
            (*line, *column) == place && why.contains("without sleep") && why.contains("msacc:print()")
        };
        assert!(reasons.iter().any(is_named), "{text}: {reasons:?}");
    }
}

#[test]
fn touching_extra_states_and_system_percentages_are_read() {
    for release in ["25", "27"] {
        let plain = import(&fixture(&format!("msacc-extra-otp{release}")));
        let system = import(&fixture(&format!("msacc-extra-system-otp{release}")));
        assert_eq!(plain, system);
        let number = |key: &str| plain[key].parse::<f64>().expect("a number");
        let of_thread: Vec<_> = plain.keys().filter(|key| key.ends_with(" scheduler/1")).collect();
        let sum: f64 = of_thread.iter().map(|key| number(key)).sum();
        // The state took 310,000 of 990,145 µs; percentages have two decimals.
        let busy_wait = number("msacc.busy_wait scheduler/1") / sum;
        assert!((busy_wait - 310_000.0 / 990_145.0).abs() < 0.000_2, "{busy_wait}");
        assert_eq!(of_thread.len(), 15);
    }
}

#[test]
fn lists_of_counters_are_read_in_both_languages() {
    let of_types = import(&fixture("msacc-types-otp29"));
    assert!(
        of_types.contains_key("msacc.gc scheduler") && !of_types.contains_key("msacc.gc scheduler/1"),
        "{of_types:#?}"
    );
    for name in ["msacc-list-otp23", "msacc-list-otp29", "elixir-lists-otp25"] {
        let contents = import(&fixture(name));
        assert!(contents.contains_key("msacc.gc scheduler/2"), "{name}: {contents:#?}");
        assert!(!contents.contains_key(facts::IMPORTED_REMARK), "{name}: msacc:stats() returns microseconds");
    }
    let raw = "[#{id => 1,type => scheduler,counters => #{gc => 1000,sleep => 9000}}]";
    let contents = import(raw);
    check(&contents, &[("msacc.gc scheduler/1", "1000")]);
    assert!(contents[facts::IMPORTED_REMARK].contains("the duration is unknown"));
    let reasons = reasons("[%{counters: %{gc: 1, ...}, id: 1, type: :scheduler}, ...]");
    assert!(reasons[0].2.contains("truncated it"), "{reasons:?}");
}

#[test]
fn a_truncated_list_leaves_a_gap() {
    let text = fixture("session-otp29");
    let reading = read(text.as_bytes()).expect("a reading");
    let mut table = SeriesTable::default();
    let samples = reading.samples("a test", &mut table);
    let gaps: Vec<_> =
        samples.iter().flat_map(|sample| &sample.gaps).map(|gap| gap.source.as_str()).collect();
    assert_eq!(gaps, ["vm.carriers"]);
    let contents = import(&text);
    let size = |name: &str| contents.contains_key(&format!("allocator.mbcs_carriers_size {name}"));
    assert!(size("ll_alloc/0") && !size("fix_alloc/0"), "the last instances are truncated");
}

#[test]
fn calls_within_commands_or_other_calls_are_found() {
    for name in [
        "rabbitmq-eval-otp25",
        "called-elixir-otp27",
        "called-elixir-otp29",
        "called-erl-otp27",
        "called-erl-otp29",
    ] {
        let text = fixture(name);
        let contents = import(&text);
        assert!(contents.contains_key("allocator.mbcs_carriers_size ll_alloc/1"), "{name}: {contents:#?}");
        let refused: Vec<_> = reasons(&text).into_iter().filter(|(line, ..)| *line > 1).collect();
        assert!(refused.is_empty(), "{name}: {refused:?}");
        let (_, answer) = text.split_once('\n').expect("a call");
        for call in [
            "bin/app rpc \":recon_alloc.fragmentation(:current) |> IO.inspect(limit: :infinity)\"",
            "bin/app eval 'IO.inspect(:recon_alloc.fragmentation(:current), limit: :infinity, pretty: true)'",
            "1> io:format(\"~p~n\", [recon_alloc:fragmentation(current)]).",
        ] {
            assert_eq!(import(&format!("{call}\n{answer}")), contents, "{call}");
        }
        // These words do not belong to the call.
        let other = format!("recon_alloc:fragmentation(current) was better than this:\n{answer}");
        assert!(reasons(&other).iter().any(|(.., why)| why.contains("also copy the call")), "{name}");
    }
}

#[test]
fn unusable_and_contradictory_output_is_reported() {
    let check = |text: &str, place: (usize, usize), why: &str| {
        let reasons = reasons(text);
        assert!(
            reasons.iter().any(|(line, column, text)| (*line, *column) == place && text.contains(why)),
            "{text}: {reasons:#?}"
        );
    };
    check("x\n1> recon_alloc:memory(allocated).\n469360\n64\n", (3, 1), "the number may be incomplete");
    check("recon_alloc:memory(allocated).\n46936064", (2, 1), "the number may be incomplete");
    check("recon_alloc:memory(allocated, max).\n46936064\n", (2, 1), "print the current ones");
    check("recon_alloc:memory(used).\n45836.0\n", (2, 1), "set_unit(byte)");
    check("recon_alloc:memory(usage).\n1.7\n", (2, 1), "ratio between 0 and 1");
    check("[{binary_alloc,1234},{eheap_alloc,5}]", (1, 1), "also copy the call");
    check("recon_alloc:memory(allocated_types).\n[{binary_alloc,0.5}]", (2, 1), "set_unit(byte)");
    check("[{binary_alloc,[{mbcs,624.4},{sbcs,0}]}]", (1, 1), "also copy the call");
    check(&format!("{AVERAGES}[{{binary_alloc,[{{mbcs,624.4}}]}}]"), (2, 1), "an average is missing");
    check(
        &format!("{AVERAGES}[{{binary_alloc,[{{mbcs,624.4}},{{sbcs,0}}]}}]"),
        (2, 1),
        "print recon_alloc:fragmentation(current) too",
    );
    check(
        &AVERAGES.replace("current", "max").replace('\n', "[{binary_alloc,[{mbcs,6},{sbcs,0}]}]"),
        (1, 38),
        "averages of the maximum sizes",
    );
    check("[{{eheap_alloc,1},0.02}]", (1, 1), "contain no sizes");
    check("[{{ets_alloc,1},infinity},{{eheap_alloc,1},0.02}]", (1, 1), "contain no sizes");
    check("[{total,10},{processes,4},{system,7}]", (1, 1), "is not the sum");
    check(
        "[{total,10},{processes,4},{system,6}] [{total,11},{processes,4},{system,7}]",
        (1, 39),
        "contradicts earlier output",
    );
    check("seen:\n [{total,10},{processes,4},{syst", (2, 2), "ends within");
    check("[{total,10},{processes,4},{system,6 000}]", (1, 1), "this is not a valid term");
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
    assert_eq!(read(b"hello [1,2,3]"), Err(ImportError::NothingFound));
}

const AVERAGES: &str = "recon_alloc:average_block_sizes(current).\n";

#[test]
fn output_of_other_calls_is_reported_with_a_call_to_use_instead() {
    let check = |text: &str, place: (usize, usize), why: &str| {
        let reasons = reasons(text);
        let is_it =
            |(line, column, text): &(usize, usize, String)| (*line, *column) == place && text.contains(why);
        assert!(reasons.iter().any(is_it), "{text}: {reasons:#?}");
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
fn a_crash_dump_within_text_is_reported() {
    let head = "=erl_crash_dump:0.5\nMon Nov 23 05:28:30 2026\nSlogan: no more\n";
    assert_eq!(read(format!("It died:\n\n{head}").as_bytes()), Err(ImportError::EmbeddedCrashDump));
    let text = format!("1> erlang:memory().\n[{{total,3}},{{processes,1}},{{system,2}}]\nthen\n{head}");
    let named = reasons(&text);
    assert!(named.iter().any(|(line, _, why)| *line == 4 && why.contains("in a separate file")), "{named:?}");
    assert_eq!(read(b"a file that begins with =erl_crash_dump: is one"), Err(ImportError::NothingFound));
}

#[test]
fn sessions_of_newer_elixir_are_read() {
    for release in ["27", "29"] {
        let text = fixture(&format!("elixir-session-otp{release}"));
        let contents = import(&text);
        for series in ["memory.ets ", "msacc.gc scheduler/2", "scheduler_time.active scheduler/2"] {
            assert!(contents.contains_key(series), "{release}: {series}");
        }
        let refused: Vec<_> =
            reasons(&text).into_iter().filter(|(.., why)| !why.contains("no known tool")).collect();
        assert!(refused.is_empty(), "{release}: {refused:?}");
    }
}

#[test]
fn copying_changes_no_value() {
    for (name, text) in fixtures() {
        let expect = import(&text);
        assert!(expect.len() >= 3, "{name}: {expect:#?}");
        for how in 0..WAYS {
            let contents = import(&mangled(&text, how));
            let differ = |key: &&String| contents.get(*key) != expect.get(*key);
            let others: Vec<_> = expect.keys().chain(contents.keys()).filter(differ).collect();
            assert!(others.is_empty(), "{name}, {how}: {others:?}");
        }
    }
}

#[test]
fn lost_line_breaks_change_no_value() {
    for (name, text) in fixtures() {
        let expect = import(&text);
        for how in WAYS..ALL_WAYS {
            let contents = import(&mangled(&text, how));
            let others: Vec<_> =
                contents.iter().filter(|(key, value)| expect.get(*key) != Some(value)).collect();
            assert!(others.is_empty(), "{name}, {how}: {others:?}");
            // The number touches the next prompt, as in `46936062>` for `4693606` and `2>`.
            let is_ambiguous = text.contains("> recon_alloc:memory(used).\n");
            let missing: Vec<_> = expect.keys().filter(|key| !contents.contains_key(*key)).collect();
            let refused = reasons(&mangled(&text, how));
            let is_named = refused.iter().any(|(.., why)| why.contains("the number may be incomplete"));
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
    let contents = import(&text);
    check(
        &contents,
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
    fn an_excerpt_never_yields_other_values(pick in 0..1_000_usize, begin in 0.0..1.0_f64, end in 0.0..1.0_f64, how in 0..ALL_WAYS) {
        let all = fixtures();
        let (name, text) = &all[pick % all.len()];
        let expect = import(text);
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
            for (key, value) in contents(reading) {
                // The list of tools and the remarks depend on the excerpt.
                let is_derived = [facts::IMPORTED_FROM, facts::IMPORTED_REMARK].contains(&key.as_str());
                let is_native = key.starts_with("scheduler_time.") || key.starts_with("msacc.");
                if !is_derived && !is_native {
                    prop_assert_eq!(expect.get(&key), Some(&value), "{} of {}", key, name);
                }
            }
        }
    }
}
