//! Nodes whose processes do one thing in a loop: contend for a table, compute, send messages, or sleep.

use super::{Otp, Process, TestNode, unique};

/// The loops are in a module, so that they are compiled.
const LOOPS: &[&str] = &[
    "-module(loops).",
    "-export([count/2, add/2, compute/1, ask/1, play/1, talk/1, answer/0]).",
    "count(T, K) -> ets:update_counter(T, K, 1), count(T, K).",
    "add(C, K) -> counters:add(C, K, 1), add(C, K).",
    "compute(N) -> compute((N * 7 + 1) rem 1000003).",
    "ask(N) -> receive after 1 -> ask(N + 1) end.",
    "play(Pid) -> Pid ! self(), receive ball -> play(Pid) end.",
    "work(0) -> ok; work(N) -> work(N - 1).",
    "talk(Pid) -> Pid ! self(), receive ball -> work(50000), talk(Pid) end.",
    "answer() -> receive From -> From ! ball, answer() end.",
];

/// Processes that compute.
pub const COMPUTE: &str = "[spawn(loops, compute, [N]) || N <- lists:seq(1, 8)]";
/// Processes that sleep 1 ms in a loop.
pub const ASK: &str = "[spawn(loops, ask, [N]) || N <- lists:seq(1, 100)]";
/// Pairs of processes that exchange a message and compute before the next one.
pub const TALK: &str = "[spawn(loops, talk, [spawn(loops, answer, [])]) || _ <- lists:seq(1, 16)]";
/// Pairs of processes that only exchange messages. They contend for the schedulers' run queues for 0 to 30 % of the time (measured with
/// lock counting on OTP 25).
pub const PLAY: &str = "[spawn(loops, play, [spawn(loops, answer, [])]) || _ <- lists:seq(1, 16)]";
/// No processes.
pub const IDLE: &str = "ok";

/// Processes that increment counters in four objects of a table without `write_concurrency`, and so contend for its lock.
pub fn contended(table: &str) -> String {
    counting(table, "loops, count, [T, N rem 4 + 1]")
}

/// The same table, but unused: the processes increment `counters` instead.
pub fn healthy(table: &str) -> String {
    counting(table, "loops, add, [C, N rem 4 + 1]")
}

/// Returns code that creates the table, in a process that keeps it alive, and spawns the loops.
fn counting(table: &str, loops: &str) -> String {
    format!(
        "spawn(fun() -> T = ets:new({table}, [public, named_table]), [ets:insert(T, {{K, 0}}) || K <- [1, 2, 3, 4]], \
         C = counters:new(4, [write_concurrency]), [spawn({loops}) || N <- lists:seq(1, 32)], receive stop -> ok end end)"
    )
}

/// Starts a node that has loaded the loops, and evaluates `eval`. `program` is the path of `erl` below the release's root.
pub fn node(otp: &Otp, program: &str, args: &[&str], eval: &str) -> TestNode {
    let forms: Vec<String> = LOOPS.iter().map(|line| format!("{line:?}")).collect();
    let eval = format!(
        "Form = fun(Line) -> {{ok, Tokens, _}} = erl_scan:string(Line), {{ok, F}} = erl_parse:parse_form(Tokens), F end, \
         {{ok, loops, Code}} = compile:forms([Form(Line) || Line <- [{}]]), \
         {{module, loops}} = code:load_binary(loops, \"loops\", Code), {eval}, io:put_chars(\"ready\\n\").",
        forms.join(", ")
    );
    let name = format!("{}@127.0.0.1", unique("loops"));
    let cookie = unique("cookie");
    let mut command = otp.command(program);
    command.args(args).args(["-name", &name, "-setcookie", &cookie, "-noinput", "-eval", &eval]);
    let mut process = Process::start(&mut command);
    process.expect_line("ready");
    TestNode { process, name, cookie, otp: otp.clone() }
}
