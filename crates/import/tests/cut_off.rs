//! What large machines make the tools print: numbers that do not fit, and lists that a shell cuts off.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod told;

use beamtune_import::read;
use beamtune_model::{SeriesTable, facts};
use told::*;

#[test]
fn threads_beyond_the_99th_are_numbered_by_their_order() {
    for name in ["msacc-many-otp25", "msacc-many-otp29"] {
        let text = fixture(name);
        let told = told_by(&text);
        check(&told, &[(facts::SCHEDULERS, "128"), (facts::DIRTY_CPU_SCHEDULERS, "128")]);
        assert!(told.contains_key("msacc.sleep scheduler/128"), "{name}");
        assert!(!told.contains_key("msacc.sleep scheduler/129"), "{name}");
        assert!(told[facts::IMPORTED_REMARK].contains("by their order"), "{name}");
        // As msacc prints them, the 100th follows the 99th.
        let wrong = text.replacen("dirty_cpu_(99)", "dirty_cpu_(**)", 1);
        assert!(whys(&wrong).iter().any(|(.., why)| why.contains("threads are missing")), "{name}");
        let fewer = text.replacen(" scheduler(**)", "", 1);
        assert!(whys(&fewer).iter().any(|(.., why)| why.contains("does not fit its heading")), "{name}");
    }
}

/// The gaps of a reading, each with its reason.
fn gaps(text: &str) -> Vec<(String, String)> {
    let mut table = SeriesTable::default();
    let samples = read(text.as_bytes()).expect("a reading").samples("a test", &mut table);
    samples.into_iter().flat_map(|sample| sample.gaps).map(|gap| (gap.source, gap.reason)).collect()
}

#[test]
fn of_a_list_that_the_shell_has_cut_off_what_is_complete_is_taken_and_the_rest_is_a_gap() {
    for release in ["25", "29"] {
        let text = fixture(&format!("shell-16-otp{release}"));
        let told = told_by(&text);
        assert!(told.contains_key("scheduler_time.active scheduler/16"), "{release}: {told:#?}");
        assert!(
            !told.keys().any(|key| key.starts_with("scheduler_time.active dirty")),
            "how many there are is not told"
        );
        assert!(told.contains_key("mseg.cache_hits 16") && told.contains_key("mseg.cache_hits 0"));
        let line = 1 + text.lines().take_while(|line| !line.starts_with("2>")).count() + 1;
        let gaps = gaps(&text);
        let sources: Vec<_> = gaps.iter().map(|(source, _)| source.as_str()).collect();
        assert_eq!(sources, ["vm.scheduler_wall_time", "vm.carriers"], "{release}");
        assert!(gaps[0].1.starts_with(&format!("line {line}: ")), "{gaps:?}");
        // Counters of threads end with the schedulers, which are cut off.
        assert!(!told.keys().any(|key| key.starts_with("msacc.")));
        let cut = whys(&text);
        assert!(cut.len() == 2 && cut.iter().all(|(.., why)| why.contains("cut it off")), "{cut:#?}");
    }
}

#[test]
fn where_the_cut_is_within_the_normal_schedulers_nothing_is_taken() {
    let list =
        |tail: &str| format!("[{{total,0.1,\"10.0%\"}},{{normal,1,0.5,\"50.0%\"}},{{normal,2,0.5,{tail}]");
    let taken = told_by(&list("\"50.0%\"},{cpu,3,...},{...}|..."));
    assert!(taken.contains_key("scheduler_time.active scheduler/2"), "{taken:#?}");
    for cut in ["\"50.0%\"},{...}|...", "\"50.0%\"}|...", "...},{cpu,...}|...", "[...]},{cpu,...}|..."] {
        let whys = whys(&list(cut));
        assert!(whys.len() == 1 && whys[0].2.contains("cut it off"), "{cut}: {whys:?}");
    }
}

#[test]
fn instances_of_the_cache_are_taken_as_far_as_they_are_printed() {
    let text = "[{{instance,0},[{hit_rate,0.5},{hits,1},{calls,2}]},{{instance,1},[{hit_rate,...},{...}|...]},{...}|...]";
    let told = told_by(text);
    check(&told, &[("mseg.allocations 0", "2")]);
    assert!(!told.contains_key("mseg.allocations 1"));
    let gaps = gaps(text);
    assert!(gaps.len() == 1 && gaps[0].0 == "vm.mseg" && gaps[0].1.starts_with("line 1: "), "{gaps:?}");
}
