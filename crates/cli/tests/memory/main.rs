//! `beamtune memory` on real VMs.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

#[path = "../common/mod.rs"]
mod common;

mod agree;
mod asked;
mod collect;
mod trouble;

use common::{Output, TestNode, beamtune, run};
use serde_json::Value;

/// Runs `beamtune memory` on a node, and returns the page as JSON.
#[track_caller]
fn page(node: &TestNode, more: &[&str]) -> Value {
    let output = memory(node, &[more, &["--json"]].concat());
    let page = output.json();
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/schema/memory.schema.json")).expect("a schema");
    let faults: Vec<String> = jsonschema::validator_for(&schema)
        .expect("a schema of JSON")
        .iter_errors(&page)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}\n{page:#}");
    page
}

/// Runs `beamtune memory` on a node, and returns its output.
#[track_caller]
fn memory(node: &TestNode, more: &[&str]) -> Output {
    let output = run(beamtune().args(["memory", &node.name]).args(more).env("BEAMTUNE_COOKIE", &node.cookie));
    assert!(matches!(output.status, Some(0 | 1)), "{}\n{}", output.stdout, output.stderr);
    output
}

/// Returns an allocator of a page; `null` if it is missing.
fn allocator<'p>(page: &'p Value, name: &str) -> &'p Value {
    let all = page["allocators"].as_array().expect("allocators");
    all.iter().find(|allocator| allocator["name"] == name).unwrap_or(&Value::Null)
}

fn bytes(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Keeps a constant amount of memory of all kinds: binaries with holes between them, a table, heaps.
const STEADY: &str = "Hold = fun() ->
        All = [binary:copy(<<1>>, 100 + rand:uniform(4000)) || _ <- lists:seq(1, 60000)],
        Table = ets:new(steady, [public]),
        [ets:insert(Table, {I, lists:duplicate(20, I)}) || I <- lists:seq(1, 40000)],
        Kept = [Binary || {I, Binary} <- lists:zip(lists:seq(1, 60000), All), I rem 5 =:= 0],
        receive {kept, From} -> From ! {Kept, Table} end
    end,
    Holder = spawn(Hold),
    Wait = fun Wait() ->
        case process_info(Holder, current_function) of
            {_, {erl_eval, receive_clauses, _}} -> erlang:garbage_collect(Holder);
            {_, {prim_eval, 'receive', _}} -> erlang:garbage_collect(Holder);
            _ -> receive after 50 -> Wait() end
        end
    end,
    Wait()";

/// Sums up the bytes of one field over the carrier sets of an allocator.
fn all_sets(allocator: &Value, field: &str) -> f64 {
    ["multiblock", "pool", "single_block"].iter().map(|set| bytes(&allocator[set][field])).sum()
}

/// Sums up the bytes of one field over all allocators.
fn sum(page: &Value, field: &str) -> f64 {
    let all = page["allocators"].as_array().expect("allocators");
    all.iter().map(|allocator| all_sets(allocator, field)).sum()
}
