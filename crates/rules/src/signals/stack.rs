//! What a process does, by its call stack.

use std::collections::BTreeMap;

use beamtune_model::{Evidence, ProcessActivity, ProcessRow};

use crate::signals::counts::largest_first;
use crate::signals::names::NAMES;
use crate::signals::steps::HTTP;

/// A search is among this many innermost functions. Further in are the funs that it calls.
const SEARCH_DEPTH: usize = 4;

/// Returns the table search that a process is in, and the program's own function that called it.
pub(crate) fn of_search(stack: &[String]) -> Option<(&str, Option<&str>)> {
    let at = stack.iter().take(SEARCH_DEPTH).position(|function| begins(function, &NAMES.searches))?;
    let below = stack.get(at..)?;
    Some((innermost(below)?, of_program(below)))
}

/// Whether a table search was interrupted, as one of more than a thousand objects is. A search with a bound key is at most sampled at its
/// call.
pub(crate) fn is_interrupted_search(search: &str) -> bool {
    NAMES.traps.iter().any(|(_, function)| function == search)
}

/// Whether a table search visits all objects by its nature, and not because of its pattern.
pub(crate) fn is_of_all_objects(search: &str) -> bool {
    !begins(search, &["ets:select", "ets:match"])
}

/// Whether a stack is in a search of a Mnesia table.
pub(crate) fn is_in_mnesia(stack: &[String]) -> bool {
    let at = stack.iter().take(SEARCH_DEPTH).position(|function| begins(function, &NAMES.searches));
    let mut called = at.and_then(|at| stack.get(at + 1..)).unwrap_or_default().iter();
    called.next().is_some_and(|caller| begins(caller, &NAMES.mnesia))
}

/// Modules with functions of the VM that can be interrupted.
const INTERRUPTED: [&str; 9] =
    ["erlang:", "erts_internal:", "ets:", "lists:", "binary:", "unicode:", "re:", "maps:", "crypto:"];

/// True for a trap: a function in which the VM continues a function that it interrupted, or waits for its end. No code calls traps.
pub(crate) fn is_trap(function: &str) -> bool {
    let name = function.split_once(':').and_then(|(_, name)| name.split('/').next()).unwrap_or_default();
    let is_named_so = name.ends_with("_trap")
        || name.contains("_trap_")
        || name.ends_with("_continue")
        || ["bif_handle_signals_return", "dirty_nif_finalizer", "dirty_nif_exception"].contains(&name);
    is_named_so && begins(function, &INTERRUPTED)
}

/// Returns the function that a trap stands for, if its name shows it.
fn interrupted(trap: &str) -> Option<&'static str> {
    NAMES
        .traps
        .iter()
        .find(|(begin, _)| trap.starts_with(begin.as_str()))
        .map(|(_, function)| function.as_str())
}

/// Returns the innermost function that code called: the one that the VM interrupted, or the caller of the trap.
pub(crate) fn innermost(stack: &[String]) -> Option<&str> {
    without_traps(stack).next()
}

/// Returns a stack, innermost function first, in which the interrupted functions replace traps.
pub(crate) fn without_traps(stack: &[String]) -> impl DoubleEndedIterator<Item = &str> {
    stack.iter().map(String::as_str).filter_map(|function| match is_trap(function) {
        true => interrupted(function),
        false => Some(function),
    })
}

/// If a process with this stack starts an external program, or waits for one, returns the Erlang program's own function that does so, if
/// any.
pub(crate) fn of_start(stack: &[String]) -> Option<Option<&str>> {
    let at = stack.iter().position(|function| begins(function, &NAMES.starts))?;
    Some(stack.get(at..).and_then(of_program))
}

/// Returns the function in which a process was last sampled; `None` if it was not inspected.
pub(crate) fn current_function_of(process: &ProcessActivity) -> Option<&str> {
    at_last_look(process.row.as_ref()?)
}

fn at_last_look(row: &ProcessRow) -> Option<&str> {
    let current = row.current_function.as_deref()?;
    if is_trap(current) { interrupted(current).or_else(|| innermost(&row.stack)) } else { Some(current) }
}

/// Formats where a process was last inspected: the function, with the program's own function that called it.
pub(crate) fn current_function(row: &ProcessRow) -> Option<String> {
    Some(with_caller(at_last_look(row)?, &row.stack))
}

/// Returns the function in which a process waits, and its stack. For the busiest processes it comes from many samples, for others from the
/// last inspection.
pub(crate) fn waiting_function(process: &ProcessActivity) -> Option<(&str, &[String])> {
    let looks = process.wait_stacks.iter().fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks));
    let most = process.wait_stacks.iter().max_by_key(|(_, looks)| *looks).filter(|_| looks >= FEWEST_RUNNING);
    match most {
        Some((stack, _)) => Some((innermost(stack)?, stack)),
        None => {
            let row = process.row.as_ref()?;
            Some((at_last_look(row)?, &row.stack))
        }
    }
}

/// Formats a function with the program's own function that called it.
pub(crate) fn with_caller(at: &str, stack: &[String]) -> String {
    match of_program(stack).filter(|own| *own != at) {
        Some(own) => format!("{at}, called by {own}"),
        None => at.to_owned(),
    }
}

/// Formats where a process waits, with the program's own function that called it: `lab:pause/1, called by shop:write/1`. If the innermost
/// function is the program's own, its caller is named, which is more informative.
pub(crate) fn with_next_caller(stack: &[String]) -> Option<String> {
    let at = innermost(stack)?;
    let mut outer = stack.iter().map(String::as_str).skip_while(|function| *function != at).skip(1);
    Some(match outer.find(|function| is_of_program(function) && *function != at) {
        Some(caller) => format!("{at}, called by {caller}"),
        None => at.to_owned(),
    })
}

/// Fewer samples of a running process do not show where it spends its time: even a process that only sleeps is sampled once.
const FEWEST_RUNNING: i64 = 3;

/// Returns where a process ran most of the time, if it was among the busiest ones; otherwise where it was last inspected.
pub(crate) fn evidence(process: &ProcessActivity) -> Option<Evidence> {
    let mut places: BTreeMap<String, i64> = BTreeMap::new();
    for (stack, looks) in &process.run_stacks {
        let Some(at) = innermost(stack) else { continue };
        let sum = places.entry(with_caller(at, stack)).or_default();
        *sum = sum.saturating_add(*looks);
    }
    let of = places.values().fold(0, |sum: i64, looks| sum.saturating_add(*looks));
    match places.into_iter().max_by_key(|(_, looks)| *looks).filter(|_| of >= FEWEST_RUNNING) {
        Some((at, looks)) => {
            Some(Evidence::text("most sampled function", format!("{at}, in {looks} of {of} running samples")))
        }
        None => Some(Evidence::text("current function", current_function(process.row.as_ref()?)?)),
    }
}

/// Formats what a process does when it runs: `mostly in erlang:md5/1, called by shop:digest/1`. `None` if no function has most of the
/// samples, or if that function is the loop of a behaviour.
pub(crate) fn mostly_in(process: &ProcessActivity) -> Option<String> {
    let at = most_at(process).filter(|at| !is_loop(at))?;
    let own = most(process, of_program).filter(|own| *own != at);
    Some(own.map_or_else(|| format!("mostly in {at}"), |own| format!("mostly in {at}, called by {own}")))
}

/// Returns the innermost function in most of its running samples, if any.
pub(crate) fn most_at(process: &ProcessActivity) -> Option<&str> {
    most(process, innermost)
}

/// Returns the program's own innermost function in most of its running samples; otherwise where it was last inspected.
pub(crate) fn most_of_program(process: &ProcessActivity) -> Option<&str> {
    most(process, of_program).or_else(|| of_program(&process.row.as_ref()?.stack))
}

fn most(process: &ProcessActivity, of: fn(&[String]) -> Option<&str>) -> Option<&str> {
    let all = process.run_stacks.iter().fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks));
    let functions = process.run_stacks.iter().filter_map(|(stack, looks)| Some((of(stack)?, *looks)));
    let (function, looks) = largest_first(functions).into_iter().next()?;
    (all >= FEWEST_RUNNING && 2 * looks > all).then_some(function)
}

/// Returns the share of its running samples in which a process iterates over a whole collection; `None` if there are too few.
pub(crate) fn iteration_share(process: &ProcessActivity) -> Option<f64> {
    let does = |stack: &[String]| {
        stack.iter().take(SEARCH_DEPTH).any(|function| begins(function, &NAMES.through_all))
    };
    ran_where(process, does).map(|(through, of)| through as f64 / of as f64)
}

/// Returns the number of its running samples whose stack matches, and of all of them; `None` if there are too few.
fn ran_where(process: &ProcessActivity, is_meant: impl Fn(&[String]) -> bool) -> Option<(i64, i64)> {
    let (mut of, mut meant) = (0_i64, 0_i64);
    for (stack, looks) in &process.run_stacks {
        of = of.saturating_add(*looks);
        meant = meant.saturating_add(if is_meant(stack) { *looks } else { 0 });
    }
    (of >= FEWEST_RUNNING).then_some((meant, of))
}

/// Returns the number of its running samples in which a process sends a reply, and of all of them; `None` if there are too few. A message
/// that takes long to copy is sent in pieces: the process is then in a trap that the sending function called.
pub(crate) fn sends_answers(process: &ProcessActivity) -> Option<(i64, i64)> {
    let does = |stack: &[String]| {
        let mut at = without_traps(stack).skip_while(|function| function.starts_with("erlang:send/"));
        at.next().is_some_and(is_answer)
    };
    ran_where(process, does)
}

/// Returns the number of its running samples in which a process copies whole objects into or out of an ETS table, and of all of them.
/// `None` if there are too few.
pub(crate) fn copies_objects(process: &ProcessActivity) -> Option<(i64, i64)> {
    const COPIES: [&str; 5] = ["ets:lookup/", "ets:insert/", "ets:insert_new/", "ets:take/", "ets:tab2list/"];
    ran_where(process, |stack| innermost(stack).is_some_and(|function| begins(function, &COPIES)))
}

/// True for a function in which a process waits for information that another process supplies about itself.
pub(crate) fn asks_a_process(function: &str) -> bool {
    begins(function, &["erts_internal:await_result/1", "erlang:process_info/2"])
}

/// True for a function that collects the garbage of another process, or waits until that is done. A process collects its own garbage in
/// `erlang:garbage_collect/0`.
pub(crate) fn collects_others(function: &str) -> bool {
    begins(
        function,
        &[
            "erlang:garbage_collect/1",
            "erlang:garbage_collect/2",
            "erts_internal:request_gc_action",
            "erts_internal:request_system_task",
        ],
    )
}

/// True for a function in which a process waits for one specific reply.
pub(crate) fn is_call(place: &str) -> bool {
    begins(place, &NAMES.calls)
}

/// True for a function with which a server sends a reply.
pub(crate) fn is_answer(function: &str) -> bool {
    begins(function, &NAMES.answers)
}

/// True for a function of [`is_call`] that only waits in a receive: built-in functions, and those of files, may be working.
pub(crate) fn is_receive_of_call(place: &str) -> bool {
    is_call(place) && !begins(place, &["erlang:", "erts_internal:", "prim_file:", "file:", "io:"])
}

/// True for a function in which a process waits for a message, or receives one.
pub(crate) fn is_wait(place: &str) -> bool {
    is_receive_of_call(place) || is_loop(place) || is_flush(place)
}

/// True for a function inside OTP's behaviours, which belongs to no callback module.
pub(crate) fn is_machinery(function: &str) -> bool {
    is_loop(function) || begins(function, &NAMES.machinery)
}

/// True for a function of supervisors, which start processes of any kind.
pub(crate) fn is_supervisor(function: &str) -> bool {
    begins(function, &NAMES.supervisors)
}

/// True for the end of a call, in which a process removes its monitor.
pub(crate) fn is_flush(place: &str) -> bool {
    place.starts_with("erts_internal:flush_monitor_messages/")
}

/// True for the loop of a behaviour.
pub(crate) fn is_loop(place: &str) -> bool {
    begins(place, &NAMES.loops)
}

pub(crate) fn begins(function: &str, starts: &[impl AsRef<str>]) -> bool {
    starts.iter().any(|start| function.starts_with(start.as_ref()))
}

/// Returns the innermost function of a stack that belongs to the program: not an OTP function that waits, nor one that leads to it.
pub(crate) fn of_program(stack: &[String]) -> Option<&str> {
    stack.iter().map(String::as_str).find(|function| is_of_program(function))
}

/// Returns the program's own function that called one of the functions `within`.
pub(crate) fn caller_of<'a>(stack: &'a [String], within: &[&str]) -> Option<&'a str> {
    let outermost = stack.iter().rposition(|function| begins(function, within))?;
    stack.get(outermost + 1..).and_then(of_program)
}

/// Returns the module of the program's own outermost function, which shows the kind of the process.
pub(crate) fn kind_module(stack: &[String]) -> Option<&str> {
    module(
        stack
            .iter()
            .map(String::as_str)
            .rfind(|function| is_of_program(function) && !begins(function, &NAMES.machinery))?,
    )
}

/// Returns the module of a function: `shop` of `shop:buy/2`.
pub(crate) fn module(function: &str) -> Option<&str> {
    function.rsplit_once(':').map(|(module, _)| module).filter(|module| !module.contains(' '))
}

/// True for a function of the program: neither an OTP function that waits, nor one that leads to it.
pub(crate) fn is_of_program(function: &str) -> bool {
    !is_call(function) && !is_loop(function) && !begins(function, &NAMES.ways) && !is_trap(function)
}

/// Returns the function that created a fun or a comprehension: `shop:sum/1` of `shop:-sum/1-fun-0-/2`.
pub(crate) fn without_fun(function: &str) -> String {
    let made_in = || {
        let (module, made) = function.split_once(":-")?;
        let (name, arity) = made.split_once('/')?;
        let digits =
            arity.split('-').next().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some(format!("{module}:{name}/{digits}"))
    };
    made_in().unwrap_or_else(|| function.to_owned())
}

/// True if a process waits for the logger to take the report of an exit, and not a message that the program logs.
pub(crate) fn reports_an_end(stack: &[String]) -> bool {
    let mut below = stack.iter().skip_while(|function| !begins(function, &NAMES.logger));
    below
        .find(|function| !begins(function, &NAMES.logger))
        .is_some_and(|function| begins(function, &NAMES.ends))
}

/// True for a function in which a process waits for a socket, an HTTP reply, a file or a timer, whichever processes it monitors.
pub(crate) fn is_for_no_process(function: &str) -> bool {
    begins(function, &NAMES.sockets)
        || begins(function, HTTP)
        || function.starts_with("prim_file:")
        || is_sleep(function)
}

/// True for a server that is within a callback, and handles no other message until the callback returns.
pub(crate) fn is_in_callback(stack: &[String]) -> bool {
    stack.iter().skip(1).any(|function| begins(function, &NAMES.callbacks))
}

/// True for a function in which a process goes into hibernation, or has just come out of it. These are `erlang:hibernate/3`,
/// `proc_lib:wake_up/3`, and those of OTP's behaviours (their `loop_hibernate` since OTP 28).
pub(crate) fn is_hibernation(function: &str) -> bool {
    let name = function.split_once(':').map_or("", |(_, name)| name);
    begins(name, &["hibernate/", "loop_hibernate/", "wake_hib/", "wakeup_from_hibernate/"])
        || function == "proc_lib:wake_up/3"
}

/// True for a function in which a process sleeps.
pub(crate) fn is_sleep(function: &str) -> bool {
    ["timer:sleep/1", "Elixir.Process:sleep/1"].contains(&function)
}

/// True for a function in which a process waits for the reply of another node.
pub(crate) fn is_for_a_node(function: &str) -> bool {
    begins(function, &["erpc:call/", "erpc:receive_response/", "erpc:wait_response/"])
}

/// True for a function in which a process waits for the other end of a connection.
pub(crate) fn is_for_peer(function: &str) -> bool {
    begins(function, &NAMES.sockets) && !is_accept(function)
}

/// Functions in which a process waits for its port to accept its data. Found on OTP 23 and 25 (`prim_inet:send_recv_reply/2`), on 27 and 29
/// (`prim_inet:send/4`), and on all of them (`erts_internal:port_command/3`).
const SENDS: [&str; 2] = ["prim_inet:send", "erts_internal:port_command"];

/// True for a function in which a process waits for a port to accept its data.
pub(crate) fn is_send(function: &str) -> bool {
    begins(function, &SENDS)
}

/// True for a function in which a process waits for the next connection.
pub(crate) fn is_accept(function: &str) -> bool {
    begins(function, &["prim_inet:accept", "gen_tcp_socket:accept", "socket:accept"])
}

/// True for a stack whose process waits inside a call, and not for its next message.
pub(crate) fn is_in_midst(stack: &[String]) -> bool {
    let is_machinery = |function: &String| is_loop(function) || begins(function, &NAMES.machinery);
    // The outermost function shows whether it is a system process. A process that calls a system process has such a function in the middle
    // of its stack.
    let outermost = stack.iter().rev().find(|function| !is_machinery(function));
    let is_system = outermost.is_some_and(|function| begins(function, &NAMES.system));
    // Programs name their loops like that: ws_loop, main_loop.
    let waits_for_all = |function: &String| is_loop(function) || function.contains("loop");
    stack.first().is_some_and(|function| !waits_for_all(function)) && !is_system
}

/// Returns the share of a process's samples in which it ran or was runnable; `None` with fewer than five, which are too few.
pub(crate) fn runnable_share(process: &ProcessActivity) -> Option<f64> {
    (process.status_samples >= 5).then(|| f64::from(process.runnable) / f64::from(process.status_samples))
}

#[cfg(test)]
mod tests {
    use beamtune_model::{PeriodBuilder, RunSampleRow};

    use super::*;

    #[test]
    fn a_search_is_reported_with_its_caller() {
        let check = |stack: &str, expect: Option<(&str, Option<&str>)>| {
            let stack: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
            assert_eq!(of_search(&stack), expect, "{stack:?}");
        };
        check(
            "ets:select_trap/1 shop:find/1 shop:loop/0",
            Some(("ets:select or ets:match", Some("shop:find/1"))),
        );
        check(
            "shop:-sum/1-fun-0-/2 ets:do_foldl/4 ets:foldl/3 shop:sum/1",
            Some(("ets:do_foldl/4", Some("shop:sum/1"))),
        );
        check("ets:match_object/2 mnesia_lib:db_match/2", Some(("ets:match_object/2", None)));
        check("ets:lookup/2 shop:find/1", None);
        check("a:b/0 a:c/0 a:d/0 a:e/0 ets:select_trap/1", None);
    }

    #[test]
    fn traps_are_not_reported_as_the_current_function() {
        let check = |stack: &str, expect: Option<&str>| {
            let stack: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
            assert_eq!(innermost(&stack), expect, "{stack:?}");
        };
        check("erlang:bif_return_trap/2 gen:reply/2 gen_server:handle_msg/6", Some("gen:reply/2"));
        check("erlang:re_run_trap/3 shop:find/1", Some("re:run/3"));
        check("erlang:bif_handle_signals_return/2 erlang:port_command/3", Some("erlang:port_command/3"));
        check("lists:member/2 shop:find/1", Some("lists:member/2"));
        // A program may give such names to its own functions.
        check("shop:honey_trap/1 shop:loop/0", Some("shop:honey_trap/1"));
        check("erts_internal:dirty_nif_finalizer/1", None);
    }

    #[test]
    fn a_traversal_is_recognized_by_running_samples() {
        let share = |ran: &[(&str, i64)]| {
            let mut builder = PeriodBuilder::default();
            builder.process(ProcessRow { pid: "<0.7.0>".to_owned(), ..ProcessRow::default() });
            for &(at, looks) in ran {
                let stack = at.split_whitespace().map(str::to_owned).collect();
                builder.run_sample(RunSampleRow {
                    pid: "<0.7.0>".to_owned(),
                    stack,
                    samples: looks,
                    ..RunSampleRow::default()
                });
            }
            builder.finish().process("<0.7.0>").and_then(iteration_share)
        };
        let folds = "shop:-tell/2-fun-0-/3 maps:fold_1/4 shop:tell/2 gen_server:try_dispatch/4";
        assert_eq!(share(&[(folds, 6), ("gen_server:loop/7", 2)]), Some(0.75));
        assert_eq!(share(&[("shop:price/1 shop:sell/2", 8)]), Some(0.0));
        assert_eq!(share(&[(folds, 2)]), None, "too few samples");
    }

    #[test]
    fn reports_of_exits_are_distinguished_from_what_a_program_logs() {
        let check = |stack: &str, expect: bool| {
            let stack: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
            assert_eq!(reports_an_end(&stack), expect, "{stack:?}");
        };
        let through = "gen:do_call/4 gen_server:call/2 logger_olp:call/2 logger_olp:load/2 logger_backend:call_handlers/3";
        check(
            &format!(
                "{through} logger_backend:log_allowed/2 gen_server:error_info/8 gen_server:terminate/10"
            ),
            true,
        );
        check(&format!("{through} proc_lib:exit_p/4"), true);
        check(&format!("{through} supervisor:do_restart/3 supervisor:handle_info/2"), true);
        check(&format!("{through} shop:buy/2 gen_server:try_handle_call/4"), false);
        check(&format!("{through} gen_server:try_handle_call/4"), false);
        check(through, false);
        check("gen:do_call/4 shop_pool:ask/1 gen_server:terminate/10", false);
    }

    #[test]
    fn the_function_in_which_a_process_ran_most_is_reported_with_its_caller() {
        let stack = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let told = |ran: &[(&str, i64)]| {
            let mut builder = PeriodBuilder::default();
            builder.process(ProcessRow {
                pid: "<0.7.0>".to_owned(),
                current_function: Some("gen_server:loop/7".to_owned()),
                ..ProcessRow::default()
            });
            for &(at, looks) in ran {
                builder.run_sample(RunSampleRow {
                    pid: "<0.7.0>".to_owned(),
                    stack: stack(at),
                    samples: looks,
                    ..RunSampleRow::default()
                });
            }
            let period = builder.finish();
            let evidence = period.process("<0.7.0>").and_then(evidence).expect("evidence");
            format!("{}: {}", evidence.what, evidence.text.unwrap_or_default())
        };
        // The same function and caller, although the stacks below them differ.
        let ran = [
            ("ets:lookup/2 lists:foldl/3 shop:total/1 shop:buy/2", 3),
            ("shop:price/1", 4),
            ("ets:lookup/2 lists:foldl/3 shop:total/1 shop:show/2", 2),
        ];
        assert_eq!(
            told(&ran),
            "most sampled function: ets:lookup/2, called by shop:total/1, in 5 of 9 running samples"
        );
        assert_eq!(told(&[]), "current function: gen_server:loop/7");
    }

    #[test]
    fn a_caller_of_a_system_process_waits_in_a_call_and_a_system_process_does_not() {
        let check = |stack: &str, expect: bool| {
            let stack: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
            assert_eq!(is_in_midst(&stack), expect, "{stack:?}");
        };
        check("gen:do_call/4 gen_server:call/3 net_kernel:request/1 shop:connect/1", true);
        check("gen:do_call/4 gen_server:call/3 net_kernel:request/1 shop:connect/1 proc_lib:init_p/5", true);
        check("prim_inet:accept0/3 inet6_tcp_dist:accept_loop/2", false);
        check("gen:do_call/4 gen_server:call/3 net_kernel:spawn_func/6", false);
        check("group:get_line/5 group:server/4 proc_lib:init_p_do_apply/3", false);
        check("proc_lib:sync_start_link/2 supervisor:do_start_child/2 gen_server:loop/7", true);
        check("gen_server:loop/7 proc_lib:init_p_do_apply/3", false);
    }

    #[test]
    fn calls_and_loops_are_distinguished_from_the_programs_own_work() {
        let check = |place: &str, call: bool, takes_all: bool| {
            assert_eq!((is_call(place), is_loop(place)), (call, takes_all), "{place}");
        };
        check("gen:do_call/4", true, false);
        check("prim_inet:send_recv_reply/2", true, false);
        check("gen_server:loop/7", false, true);
        check("gen_statem:loop_receive/3", false, true);
        check("generator:run/1", false, false);
        check("shop_db:wait/2", false, false);
    }
}
