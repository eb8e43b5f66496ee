//! Crafted text. If the cost of reading it grew with the square of its length, each of these tests would take minutes. No test measures
//! time.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod contents;

use beamtune_import::read;
use beamtune_model::facts;
use contents::*;

/// A list that is read, unless the text before it uses up the budget.
const MEMORY: &str = "\n1> erlang:memory().\n[{total,3},{processes,1},{system,2}]\n";

fn check_memory(before: &str) {
    check(&import(&format!("{before}{MEMORY}")), &[("memory.total ", "3")]);
}

#[test]
fn very_long_words_are_read_in_linear_time() {
    check_memory(&"code:".repeat(60_000));
}

#[test]
fn the_search_for_a_closing_bracket_is_bounded() {
    check_memory(&"code: 1 kb (".repeat(100_000));
    check_memory(&"[<<".repeat(300_000));
}

#[test]
fn long_indentation_is_read_once() {
    check_memory(&(" ".repeat(1_000_000) + &"a ".repeat(200_000)));
    // All words of the line are far from its beginning.
    let table = "lock id #tries #collisions time [us] duration [%]\n";
    check_memory(&(table.to_owned() + &" ".repeat(1_000_000) + &"a ".repeat(200_000)));
}

#[test]
fn text_after_a_deep_term_is_read() {
    check_memory(&format!("{}{}{{a,1}}{}", "[".repeat(8), "{a,1},".repeat(2_000), "]".repeat(8)));
}

#[test]
fn text_after_a_deep_broken_term_is_read() {
    check_memory(&format!("{}{}{{a,1", "[".repeat(31), "{a,1},".repeat(2_000)));
}

#[test]
fn an_exhausted_budget_is_reported() {
    // After each bracket and a colour code, a string begins. It contains all further brackets, and never ends.
    let text = "[\u{1b}[\\\"".repeat(30_000);
    let reasons = reasons(&format!("{MEMORY}{text}{}", MEMORY.replace('3', "4")));
    assert!(
        reasons.iter().any(|(line, _, why)| *line == 6 && why.contains("too many nested brackets")),
        "{reasons:?}"
    );
}

#[test]
fn nodes_with_alarms_are_counted_in_linear_time() {
    let alarms: String = (0..80_000).map(|n| format!("Memory alarm on node r{n}\n")).collect();
    check(&import(&(alarms + "\n")), &[(facts::MEMORY_ALARMS, "80000")]);
}

#[test]
fn allocators_of_a_carrier_are_summed_in_linear_time() {
    let blocks: Vec<_> = (0..100_000).map(|n| format!("{{a{n},1,1}}")).collect();
    let carriers = format!(
        "Erlang/OTP 27 [erts-15.0] [smp:2:2]\n1> instrument:carriers().\n\
         {{ok,{{512,[{{eheap_alloc,false,1048576,0,[{}],{{0,0,3,1}}}}]}}}}\n",
        blocks.join(",")
    );
    assert!(import(&carriers)["carrier 0"].contains("a99999"));
}

#[test]
fn sizes_and_averages_of_many_allocators_are_joined_in_linear_time() {
    let sizes: Vec<_> = (0..20_000)
        .map(|n| {
            format!(
                "{{{{a{n}_alloc,0}},[{{mbcs_usage,1.0}},{{sbcs_block_size,0}},{{sbcs_carriers_size,0}},\
                 {{mbcs_block_size,8}},{{mbcs_carriers_size,9}}]}}"
            )
        })
        .collect();
    let means: Vec<_> = (0..20_000).map(|n| format!("{{a{n}_alloc,[{{mbcs,2.0}},{{sbcs,0}}]}}")).collect();
    let text = format!(
        "1> recon_alloc:fragmentation(current).\n[{}]\n2> recon_alloc:average_block_sizes(current).\n[{}]\n",
        sizes.join(","),
        means.join(",")
    );
    check(&import(&text), &[("allocator.mbcs_blocks a9_alloc", "4")]);
}

#[test]
fn unread_parts_beyond_the_limit_are_counted() {
    let more = |text: &str| {
        let unread = read(text.as_bytes()).expect("a reading").unread;
        assert_eq!(unread.len(), 1_001);
        unread.last().expect("the last one").reason.clone()
    };
    // Words that no tool prints, and lists that contradict the first one.
    let words = "word\n1>\n".repeat(1_500);
    let lists = "[{total,4},{processes,1},{system,3}]\n".repeat(1_200);
    let table = "lock id #tries #collisions time [us] duration [%]\ndb_tab 1 9 0 0 0.0000\n1>\n";
    let memory = MEMORY.trim_start();
    for (text, expect) in [
        (format!("{memory}{words}"), 500),
        (format!("{memory}{lists}"), 200),
        (format!("{memory}{lists}{words}"), 1_700),
        (format!("{table}{words}"), 500),
        (format!("{table}{memory}{lists}{words}"), 1_700),
    ] {
        let begin = &text[..80];
        assert_eq!(more(&text), format!("{expect} more parts of the text were not read"), "{begin}");
    }
}

#[test]
fn the_search_for_the_ends_of_calls_is_bounded() {
    let table = "lock id #tries #collisions time [us] duration [%]\ndb_tab 1 9 0 0 0.0000\n";
    for call in ["lcnt:(\n", "lcnt:clear(),lcnt:(\n", "1> lcnt:( lcnt:( lcnt:( lcnt:(\n"] {
        let text = format!("{MEMORY}{}{table}", call.repeat(30_000));
        let reading = read(text.as_bytes()).expect("a reading");
        let is_named = |why: &str| why.contains("too many unterminated calls");
        assert_eq!(reading.unread.iter().filter(|unread| is_named(&unread.reason)).count(), 1, "{call}");
        assert_eq!(reading.locks.map(|(_, rows)| rows.len()), Some(1), "{call}");
    }
    // A text that was copied in parts contains a few unterminated calls.
    let some = format!("{}1> lcnt:conflicts().\n{table}", "1> lcnt:conflicts([\n".repeat(20));
    assert!(!reasons(&some).iter().any(|(.., why)| why.contains("unterminated calls")));
}

#[test]
fn calls_are_not_counted_as_parts_and_too_many_parts_are_reported() {
    check_memory(&"1> erlang:statistics(run_queue).\n0\n".repeat(2_500));
    let lists = "[{total,4},{processes,1},{system,3}]\n".repeat(2_500);
    let reasons = reasons(&format!("{lists}{MEMORY}"));
    assert!(
        reasons.iter().any(|(line, _, why)| *line == 2_001 && why.contains("too many parts")),
        "{reasons:?}"
    );
    let contents = import(&format!("{lists}{MEMORY}"));
    check(&contents, &[("memory.total ", "4")]);
}

#[test]
fn huge_thread_numbers_are_harmless() {
    let heading = "      Thread      aux    sleep\n\nStats per thread:\n";
    for threads in [
        "scheduler(9223372036854775807)  0.00%  100.00%\n scheduler(**)  0.00%  100.00%\n",
        "scheduler(9223372036854775807)  0.00%  100.00%\n scheduler(9223372036854775807)  0.00%  100.00%\n",
        "scheduler( 0)  0.00%  100.00%\n scheduler(9223372036854775807)  0.00%  100.00%\n",
    ] {
        let text = format!("{heading} {threads}\nStats per type:\n  scheduler  0.00%  100.00%\nok\n");
        assert!(reasons(&text).iter().any(|(.., why)| why.contains("threads are missing")), "{text}");
    }
}

#[test]
fn huge_lock_counts_are_harmless() {
    let row = "db_tab a 9223372036854775807 0 0.0000 0 0.0000\n";
    let other = "db_tab b 9223372036854775807 0 0.0000 0 0.0000\n";
    let locks = format!(
        "lcnt:conflicts([{{combine,false}}]).\nlock id #tries #collisions collisions [%] time [us] duration [%]\n{row}{other}"
    );
    assert!(read(locks.as_bytes()).is_ok());
    let many =
        "db_tab 9223372036854775807 9 0 0.0000 0 0.0000\nets 9223372036854775807 9 0 0.0000 0 0.0000\n";
    let inspected = format!(
        "lcnt:inspect({{db_tab, a}}, [{{combine,true}}]).\nlock id #tries #collisions collisions [%] time [us] duration [%]\n{many}"
    );
    assert!(read(inspected.as_bytes()).is_ok());
}
