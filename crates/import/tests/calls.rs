//! Assigns a list to the call that returned it, according to the statement around the call.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod contents;

use contents::*;

/// Returns a result of `recon_alloc:fragmentation` with one instance and the given carrier size.
fn answer(bytes: u32) -> String {
    format!(
        "[{{{{eheap_alloc,1}},\n  [{{sbcs_usage,1.0}},\n   {{mbcs_usage,0.5}},\n   {{sbcs_block_size,0}},\n   {{sbcs_carriers_size,0}},\n   \
         {{mbcs_block_size,5}},\n   {{mbcs_carriers_size,{bytes}}}]}}]"
    )
}

const CURRENT: &str = "allocator.mbcs_carriers_size eheap_alloc/1";
const MAX: &str = "allocator.mbcs_carriers_size_max eheap_alloc/1";

/// Another result, so that the import does not fail.
const OTHER: &str = "7> erlang:memory().\n[{total,3},{processes,1},{system,2}]\n";

fn check_refused(text: &str, line: usize, why: &str) {
    let text = format!("{text}\n{OTHER}");
    let contents = import(&text);
    assert!(!contents.keys().any(|key| key.starts_with("allocator.")), "{text}: {contents:#?}");
    let reasons = reasons(&text);
    assert!(reasons.iter().any(|(at, _, text)| *at == line && text.contains(why)), "{text}: {reasons:?}");
}

#[test]
fn results_of_several_calls_in_one_expression_are_refused() {
    let (max, current) = (answer(90), answer(80));
    for (calls, answers) in [
        (
            "{recon_alloc:fragmentation(max), recon_alloc:fragmentation(current)}.",
            format!("{{{max},\n {current}}}"),
        ),
        (
            "[recon_alloc:fragmentation(max), recon_alloc:fragmentation(current)].",
            format!("[{max},\n {current}]"),
        ),
        (
            "io:format(\"~p~n~p~n\", [recon_alloc:fragmentation(max), recon_alloc:fragmentation(current)]).",
            format!("{max}\n{current}\nok"),
        ),
        (
            "rp(recon_alloc:fragmentation(max)), rp(recon_alloc:fragmentation(current)).",
            format!("{max}\n{current}\nok"),
        ),
        (
            "{recon_alloc:fragmentation(max), recon_alloc:fragmentation(max), recon_alloc:fragmentation(current)}.",
            format!("{{{max},\n {max},\n {current}}}"),
        ),
    ] {
        for prompt in ["", "1> "] {
            check_refused(&format!("{prompt}{calls}\n{answers}"), 2, "also copy the call");
        }
    }
    let elixirs = "iex(1)> {:recon_alloc.fragmentation(:max), :recon_alloc.fragmentation(:current)}";
    check_refused(&format!("{elixirs}\n{{{max},\n {current}}}"), 2, "also copy the call");
}

#[test]
fn numbers_of_several_calls_in_one_statement_are_refused() {
    let calls = "1> rp(recon_alloc:memory(used)), rp(recon_alloc:memory(allocated)).";
    check_refused(&format!("{calls}\n250\n1000\nok"), 2, "the statement has several calls");
}

#[test]
fn a_result_is_assigned_to_the_last_of_several_calls() {
    for calls in [
        "1> recon_alloc:fragmentation(max), recon_alloc:fragmentation(current).",
        "1> recon_alloc:snapshot(), rp(recon_alloc:fragmentation(current)).",
        "1> {recon_alloc:fragmentation(current), recon_alloc:fragmentation(current)}.",
        "as (see recon_alloc:fragmentation(max)) prints, but\nrecon_alloc:fragmentation(current).",
        "1> {recon_alloc:fragmentation(max)}.\n2> recon_alloc:fragmentation(current).",
        "{recon_alloc:memory(max)}.\nrecon_alloc:fragmentation(current).",
        "1> timer:sleep(10), recon_alloc:fragmentation(current).",
        "application:ensure_all_started(recon).\n{ok,[recon]}\nrecon_alloc:fragmentation(current).",
    ] {
        check(&import(&format!("{calls}\n{}\n", answer(80))), &[(CURRENT, "80")]);
    }
    let each = format!(
        "1> recon_alloc:fragmentation(max).\n{}\n2> recon_alloc:fragmentation(current).\n{}\n",
        answer(90),
        answer(80)
    );
    check(&import(&each), &[(MAX, "90"), (CURRENT, "80")]);
}

#[test]
fn transformed_results_are_refused() {
    let printed = answer(80);
    for call in [
        "lists:filter(fun({{A,_},_}) -> A =:= eheap_alloc end, recon_alloc:fragmentation(current)).",
        "tl(recon_alloc:fragmentation(current)).",
        "lists:nthtail(3, recon_alloc:fragmentation(current)).",
        "rp(tl(recon_alloc:fragmentation(current))).",
        "[X || X <- recon_alloc:fragmentation(current)].",
        "Enum.drop(:recon_alloc.fragmentation(:current), true)",
        ":recon_alloc.fragmentation(:current) |> Enum.take(3)",
        "io:format(\"~p~n\", [tl(recon_alloc:fragmentation(current))]).",
        "tl(rpc:call(N, recon_alloc, fragmentation, [current])).",
        ":rpc.call(n, :recon_alloc, :fragmentation, [:current]) |> Enum.take(3)",
    ] {
        for prompt in ["", "1> ", "iex(4)> ", "$ bin/app eval '"] {
            check_refused(&format!("{prompt}{call}\n{printed}"), 2, "the rest of the statement transforms");
        }
    }
    for call in [
        "1> lists:filter(fun({{A,_},_}) -> A =:= eheap_alloc end,\n1> recon_alloc:fragmentation(current)).",
        "iex(1)> tl(\n...(1)> :recon_alloc.fragmentation(:current))",
    ] {
        check_refused(&format!("{call}\n{printed}"), 3, "the rest of the statement transforms");
    }
    for call in
        ["iex(1)> tl :recon_alloc.fragmentation(:current)", "1> Known -- recon_alloc:fragmentation(current)."]
    {
        check_refused(&format!("{call}\n{printed}"), 2, "the rest of the statement transforms");
    }
    let first = "1> lists:sublist(recon_alloc:fragmentation(current), 3).";
    check_refused(&format!("{first}\n{printed}"), 2, "the rest of the statement transforms");
    let allocators = "[{{eheap_alloc,1},[{options,[]},{mbcs,[{blocks,1,1,1},{blocks_size,5,9,9},{carriers,1},{carriers_size,8,8,8}]}]}]";
    for call in [
        "tl(recon_alloc:allocators())",
        "lists:sublist(recon_alloc:allocators(), 3)",
        ":recon_alloc.allocators() |> Enum.take(3)",
    ] {
        check_refused(&format!("1> {call}.\n{allocators}"), 2, "the rest of the statement transforms");
    }
    let number = "1> round(recon_alloc:memory(used)).\n250";
    check_refused(number, 2, "the rest of the statement transforms");
    check(&import(&format!("1> rp(recon_alloc:allocators()).\n{allocators}\n")), &[(CURRENT, "8")]);
}

#[test]
fn numbers_in_arithmetic_or_prose_are_refused() {
    for (text, line) in [
        ("1> recon_alloc:memory(allocated) / 1024 / 1024.\n53.203125", 2),
        ("recon_alloc:memory(allocated)/1024/1024.\n53.203125", 2),
        ("iex(1)> :recon_alloc.memory(:allocated) / 1_048_576\n53.203125", 2),
        ("io:format(\"~p~n\", [recon_alloc:memory(used) / 1024 / 1024]).\n53.203125\nok", 2),
        ("1> recon_alloc:memory(used) div 1024.\n53203", 2),
        ("recon_alloc:memory(allocated) - recon_alloc:memory(used).\n12345678", 2),
        ("1> 2 * recon_alloc:memory(used).\n12345678", 2),
    ] {
        check_refused(text, line, "the rest of the statement transforms");
    }
    for text in ["I ran `recon_alloc:memory(allocated)` 3 times", "recon_alloc:memory(allocated): 4 GB"] {
        check_refused(text, 1, "more text follows on its line");
    }
    for text in
        ["recon_alloc:memory(used) % 3\n", "recon_alloc:memory(used) # 3\n", "recon_alloc:memory(used) = 3\n"]
    {
        let contents = import(&format!("{text}{OTHER}"));
        assert!(!contents.keys().any(|key| key.starts_with("allocator.")), "{text}: {contents:#?}");
    }
    for text in [
        "- recon_alloc:memory(used).\n250\n",
        "* `recon_alloc:memory(used)`: 250\n",
        "recon_alloc:memory(used). 250 ok 2> halt().\n",
        "1>recon_alloc:memory(used).\n250 2>recon_alloc:memory(usage).\n0.25\n",
    ] {
        check(&import(text), &[("allocator.blocks_size ", "250")]);
    }
    let total = "[{total,3},{processes,1},{system,2}]\n";
    for call in
        ["before - erlang:memory():", "erlang:memory() - 5 minutes later:", "erlang:memory(). % later"]
    {
        check(&import(&format!("{call}\n{total}")), &[("memory.total ", "3")]);
    }
}

#[test]
fn results_of_calls_within_printing_functions_are_read() {
    for call in [
        "rpc:call('shop@web1', recon_alloc, fragmentation, [current]).",
        "rpc:call(N, recon_alloc, fragmentation, [current], 5000).",
        "erpc:call(N,recon_alloc,fragmentation,[current]).",
        "apply(recon_alloc, fragmentation, [current]).",
        ":rpc.call(n, :recon_alloc, :fragmentation, [:current]) |> IO.inspect(limit: :infinity)",
        "rp(recon_alloc:fragmentation(current)).",
        "X = recon_alloc:fragmentation(current).",
        "io:format(\"~p~n\", [recon_alloc:fragmentation(current)]).",
        "io:fwrite(\"~p~n\",[recon_alloc:fragmentation(current)]), halt().",
        "IO.inspect(:recon_alloc.fragmentation(:current), limit: :infinity)",
        ":recon_alloc.fragmentation(:current) |> IO.inspect(limit: :infinity)",
        "IO.inspect :recon_alloc.fragmentation(:current), limit: :infinity",
    ] {
        for prompt in ["", "1> ", "iex(s@h)4> ", "$ bin/app eval '", "I got this from ", "7>"] {
            check(&import(&format!("{prompt}{call}\n{}\n", answer(80))), &[(CURRENT, "80")]);
        }
    }
}
