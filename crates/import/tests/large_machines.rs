//! Output of large hosts: numbers that do not fit into their column, and lists that a shell truncates.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod contents;

use beamtune_import::read;
use beamtune_model::{SeriesTable, facts};
use contents::*;

#[test]
fn threads_beyond_the_99th_are_numbered_by_their_order() {
    for name in ["msacc-many-otp25", "msacc-many-otp29"] {
        let text = fixture(name);
        let contents = import(&text);
        check(&contents, &[(facts::SCHEDULERS, "128"), (facts::DIRTY_CPU_SCHEDULERS, "128")]);
        assert!(contents.contains_key("msacc.sleep scheduler/128"), "{name}");
        assert!(!contents.contains_key("msacc.sleep scheduler/129"), "{name}");
        assert!(contents[facts::IMPORTED_REMARK].contains("by their order"), "{name}");
        // In the output of msacc, the 100th follows the 99th.
        let wrong = text.replacen("dirty_cpu_(99)", "dirty_cpu_(**)", 1);
        assert!(reasons(&wrong).iter().any(|(.., why)| why.contains("threads are missing")), "{name}");
        let fewer = text.replacen(" scheduler(**)", "", 1);
        assert!(reasons(&fewer).iter().any(|(.., why)| why.contains("does not fit its heading")), "{name}");
    }
}

/// Returns the gaps of a text, each with its reason.
fn gaps(text: &str) -> Vec<(String, String)> {
    let mut table = SeriesTable::default();
    let samples = read(text.as_bytes()).expect("a reading").samples("a test", &mut table);
    samples.into_iter().flat_map(|sample| sample.gaps).map(|gap| (gap.source, gap.reason)).collect()
}

#[test]
fn complete_entries_of_a_truncated_list_are_read_and_the_rest_is_a_gap() {
    for release in ["25", "29"] {
        let text = fixture(&format!("shell-16-otp{release}"));
        let contents = import(&text);
        assert!(contents.contains_key("scheduler_time.active scheduler/16"), "{release}: {contents:#?}");
        assert!(
            !contents.keys().any(|key| key.starts_with("scheduler_time.active dirty")),
            "their number is unknown"
        );
        assert!(contents.contains_key("mseg.cache_hits 16") && contents.contains_key("mseg.cache_hits 0"));
        let line = 1 + text.lines().take_while(|line| !line.starts_with("2>")).count() + 1;
        let gaps = gaps(&text);
        let sources: Vec<_> = gaps.iter().map(|(source, _)| source.as_str()).collect();
        assert_eq!(sources, ["vm.scheduler_wall_time", "vm.carriers"], "{release}");
        assert!(gaps[0].1.starts_with(&format!("line {line}: ")), "{gaps:?}");
        // The list of msacc is refused: it ends with the schedulers, which are truncated.
        assert!(!contents.keys().any(|key| key.starts_with("msacc.")));
        let cut = reasons(&text);
        assert!(cut.len() == 2 && cut.iter().all(|(.., why)| why.contains("truncated it")), "{cut:#?}");
    }
}

#[test]
fn a_list_truncated_within_the_normal_schedulers_is_refused() {
    let list =
        |tail: &str| format!("[{{total,0.1,\"10.0%\"}},{{normal,1,0.5,\"50.0%\"}},{{normal,2,0.5,{tail}]");
    let truncated = import(&list("\"50.0%\"},{cpu,3,...},{...}|..."));
    assert!(truncated.contains_key("scheduler_time.active scheduler/2"), "{truncated:#?}");
    for cut in ["\"50.0%\"},{...}|...", "\"50.0%\"}|...", "...},{cpu,...}|...", "[...]},{cpu,...}|..."] {
        let reasons = reasons(&list(cut));
        assert!(reasons.len() == 1 && reasons[0].2.contains("truncated it"), "{cut}: {reasons:?}");
    }
}

#[test]
fn printed_instances_of_the_segment_cache_are_read() {
    let text = "[{{instance,0},[{hit_rate,0.5},{hits,1},{calls,2}]},{{instance,1},[{hit_rate,...},{...}|...]},{...}|...]";
    let contents = import(text);
    check(&contents, &[("mseg.allocations 0", "2")]);
    assert!(!contents.contains_key("mseg.allocations 1"));
    let gaps = gaps(text);
    assert!(gaps.len() == 1 && gaps[0].0 == "vm.mseg" && gaps[0].1.starts_with("line 1: "), "{gaps:?}");
}
