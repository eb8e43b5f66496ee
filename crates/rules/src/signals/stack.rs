//! Where a process is, by its call stack.

use std::collections::BTreeMap;

use beamtune_model::{Evidence, ProcessRow, ProcessUse};

use crate::signals::counts::largest_first;
use crate::signals::names::NAMES;
use crate::signals::steps::HTTP;

/// A search may be this deep in a stack: above it are the functions that it is given.
const SEARCH_DEPTH: usize = 4;

/// The search of a table that a process is in, and the program's own function that called it.
pub(crate) fn of_search(stack: &[String]) -> Option<(&str, Option<&str>)> {
    let at = stack.iter().take(SEARCH_DEPTH).position(|function| begins(function, &NAMES.searches))?;
    let below = stack.get(at..)?;
    Some((innermost(below)?, of_program(below)))
}

/// Whether a search of a table was interrupted, as one of more than a thousand objects is. One whose key is bound is at most sampled at its
/// call.
pub(crate) fn is_interrupted_search(search: &str) -> bool {
    NAMES.traps.iter().any(|(_, function)| function == search)
}

/// Whether a search of a table visits all objects by its nature, and not by its pattern.
pub(crate) fn is_of_all_objects(search: &str) -> bool {
    !begins(search, &["ets:select", "ets:match"])
}

/// Whether a stack is in a search of one of Mnesia's tables.
pub(crate) fn is_in_mnesia(stack: &[String]) -> bool {
    let at = stack.iter().take(SEARCH_DEPTH).position(|function| begins(function, &NAMES.searches));
    let mut called = at.and_then(|at| stack.get(at + 1..)).unwrap_or_default().iter();
    called.next().is_some_and(|caller| begins(caller, &NAMES.mnesia))
}

/// Modules of the VM's own functions that can be interrupted.
const INTERRUPTED: [&str; 9] =
    ["erlang:", "erts_internal:", "ets:", "lists:", "binary:", "unicode:", "re:", "maps:", "crypto:"];

/// True for a function in which the VM continues one of its functions that it has interrupted, or waits for it to end: nothing has called
/// that.
pub(crate) fn is_trap(function: &str) -> bool {
    let name = function.split_once(':').and_then(|(_, name)| name.split('/').next()).unwrap_or_default();
    let is_named_so = name.ends_with("_trap")
        || name.contains("_trap_")
        || name.ends_with("_continue")
        || ["bif_handle_signals_return", "dirty_nif_finalizer", "dirty_nif_exception"].contains(&name);
    is_named_so && begins(function, &INTERRUPTED)
}

/// The function that a trap stands for, if its name shows it.
fn interrupted(trap: &str) -> Option<&'static str> {
    NAMES
        .traps
        .iter()
        .find(|(begin, _)| trap.starts_with(begin.as_str()))
        .map(|(_, function)| function.as_str())
}

/// The innermost function that was called: the one that the VM has interrupted, or the caller of the trap.
pub(crate) fn innermost(stack: &[String]) -> Option<&str> {
    without_traps(stack).next()
}

/// A stack, innermost function first, with the interrupted functions in place of traps.
pub(crate) fn without_traps(stack: &[String]) -> impl DoubleEndedIterator<Item = &str> {
    stack.iter().map(String::as_str).filter_map(|function| match is_trap(function) {
        true => interrupted(function),
        false => Some(function),
    })
}

/// If a stack starts a program or waits for one, the program's own function that does.
pub(crate) fn of_start(stack: &[String]) -> Option<Option<&str>> {
    let at = stack.iter().position(|function| begins(function, &NAMES.starts))?;
    Some(stack.get(at..).and_then(of_program))
}

/// The function in which a process was last sampled; `None` if it was not inspected.
pub(crate) fn of(process: &ProcessUse) -> Option<&str> {
    at_last_look(process.row.as_ref()?)
}

fn at_last_look(row: &ProcessRow) -> Option<&str> {
    let current = row.current_function.as_deref()?;
    if is_trap(current) { interrupted(current).or_else(|| innermost(&row.stack)) } else { Some(current) }
}

/// Where a process was last inspected, in words: the function, and the program's own one that led there.
pub(crate) fn told(row: &ProcessRow) -> Option<String> {
    Some(with_caller(at_last_look(row)?, &row.stack))
}

/// Where a process waits: the function, and the stack that led there. For the busiest processes it is known from many samples, for others
/// from the last inspection.
pub(crate) fn stands(process: &ProcessUse) -> Option<(&str, &[String])> {
    let looks = process.stood.iter().fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks));
    let most = process.stood.iter().max_by_key(|(_, looks)| *looks).filter(|_| looks >= FEWEST_RUNNING);
    match most {
        Some((stack, _)) => Some((innermost(stack)?, stack)),
        None => {
            let row = process.row.as_ref()?;
            Some((at_last_look(row)?, &row.stack))
        }
    }
}

pub(crate) fn with_caller(at: &str, stack: &[String]) -> String {
    match of_program(stack).filter(|own| *own != at) {
        Some(own) => format!("{at}, called by {own}"),
        None => at.to_owned(),
    }
}

/// Where a process waits, with the program's own function that called that: `lab:pause/1, called by shop:write/1`. If the innermost
/// function is the program's own, its caller says more than it does.
pub(crate) fn with_next_caller(stack: &[String]) -> Option<String> {
    let at = innermost(stack)?;
    let mut outer = stack.iter().map(String::as_str).skip_while(|function| *function != at).skip(1);
    Some(match outer.find(|function| is_of_program(function) && *function != at) {
        Some(caller) => format!("{at}, called by {caller}"),
        None => at.to_owned(),
    })
}

/// Fewer samples of a running process do not show where it spends its time: one that only sleeps is sampled once, too.
const FEWEST_RUNNING: i64 = 3;

/// Where a process ran most of the time, if it was among the busiest ones; otherwise where it was last inspected.
pub(crate) fn evidence(process: &ProcessUse) -> Option<Evidence> {
    let mut places: BTreeMap<String, i64> = BTreeMap::new();
    for (stack, looks) in &process.ran {
        let Some(at) = innermost(stack) else { continue };
        let sum = places.entry(with_caller(at, stack)).or_default();
        *sum = sum.saturating_add(*looks);
    }
    let of = places.values().fold(0, |sum: i64, looks| sum.saturating_add(*looks));
    match places.into_iter().max_by_key(|(_, looks)| *looks).filter(|_| of >= FEWEST_RUNNING) {
        Some((at, looks)) => {
            Some(Evidence::text("where it ran", format!("{at}, in {looks} of {of} looks at it running")))
        }
        None => Some(Evidence::text("where it was", told(process.row.as_ref()?)?)),
    }
}

/// What a process does when it runs, for a detail: `mostly in erlang:md5/1, called by shop:digest/1`. `None` if no function has most of the
/// samples, or that is the loop of a behaviour.
pub(crate) fn mostly_in(process: &ProcessUse) -> Option<String> {
    let at = most_at(process).filter(|at| !is_loop(at))?;
    let own = most(process, of_program).filter(|own| *own != at);
    Some(own.map_or_else(|| format!("mostly in {at}"), |own| format!("mostly in {at}, called by {own}")))
}

/// The innermost function in most of its running samples, if any.
pub(crate) fn most_at(process: &ProcessUse) -> Option<&str> {
    most(process, innermost)
}

/// The program's own innermost function in most of them; otherwise where it was last inspected.
pub(crate) fn most_of_program(process: &ProcessUse) -> Option<&str> {
    most(process, of_program).or_else(|| of_program(&process.row.as_ref()?.stack))
}

fn most(process: &ProcessUse, of: fn(&[String]) -> Option<&str>) -> Option<&str> {
    let all = process.ran.iter().fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks));
    let functions = process.ran.iter().filter_map(|(stack, looks)| Some((of(stack)?, *looks)));
    let (function, looks) = largest_first(functions).into_iter().next()?;
    (all >= FEWEST_RUNNING && 2 * looks > all).then_some(function)
}

/// The share of its running samples in which it went through all elements of something; `None` if there are too few.
pub(crate) fn goes_through_all(process: &ProcessUse) -> Option<f64> {
    let does = |stack: &[String]| {
        stack.iter().take(SEARCH_DEPTH).any(|function| begins(function, &NAMES.through_all))
    };
    ran_where(process, does).map(|(through, of)| through as f64 / of as f64)
}

/// The number of its running samples with such a stack; `None` if there are too few.
fn ran_where(process: &ProcessUse, is_meant: impl Fn(&[String]) -> bool) -> Option<(i64, i64)> {
    let (mut of, mut meant) = (0_i64, 0_i64);
    for (stack, looks) in &process.ran {
        of = of.saturating_add(*looks);
        meant = meant.saturating_add(if is_meant(stack) { *looks } else { 0 });
    }
    (of >= FEWEST_RUNNING).then_some((meant, of))
}

/// The number of its running samples in which it sent an answer; `None` if there are too few. A message that takes long to copy is sent in
/// pieces: the process is then in a trap below the function that sends it.
pub(crate) fn sends_answers(process: &ProcessUse) -> Option<(i64, i64)> {
    let does = |stack: &[String]| {
        let mut at = without_traps(stack).skip_while(|function| function.starts_with("erlang:send/"));
        at.next().is_some_and(is_answer)
    };
    ran_where(process, does)
}

/// The number of its running samples in which it copied whole objects into or out of an ETS table; `None` if there are too few.
pub(crate) fn copies_objects(process: &ProcessUse) -> Option<(i64, i64)> {
    const COPIES: [&str; 5] = ["ets:lookup/", "ets:insert/", "ets:insert_new/", "ets:take/", "ets:tab2list/"];
    ran_where(process, |stack| innermost(stack).is_some_and(|function| begins(function, &COPIES)))
}

/// True for a function in which a process waits for information from another process about itself.
pub(crate) fn asks_a_process(function: &str) -> bool {
    begins(function, &["erts_internal:await_result/1", "erlang:process_info/2"])
}

/// True for a function that collects another process, or waits until that is done: a process collects itself in `erlang:garbage_collect/0`.
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

/// True for a function in which a process waits for one certain answer.
pub(crate) fn is_call(place: &str) -> bool {
    begins(place, &NAMES.calls)
}

/// True for a function that sends the answer of a server.
pub(crate) fn is_answer(function: &str) -> bool {
    begins(function, &NAMES.answers)
}

/// True for such a function in which a process only waits in a receive: built-in functions and those of files may be working.
pub(crate) fn is_receive_of_call(place: &str) -> bool {
    is_call(place) && !begins(place, &["erlang:", "erts_internal:", "prim_file:", "file:", "io:"])
}

/// True for a function in which a process waits for a message, or takes one.
pub(crate) fn is_wait(place: &str) -> bool {
    is_receive_of_call(place) || is_loop(place) || is_flush(place)
}

/// True for a function inside OTP's behaviours, which belongs to no module of its own.
pub(crate) fn is_machinery(function: &str) -> bool {
    is_loop(function) || begins(function, &NAMES.machinery)
}

/// True for a function of supervisors, which start anything.
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

/// The innermost function of a stack that is the program's own: neither a wait of OTP nor what leads there.
pub(crate) fn of_program(stack: &[String]) -> Option<&str> {
    stack.iter().map(String::as_str).find(|function| is_of_program(function))
}

/// The program's own function that called one of these.
pub(crate) fn caller_of<'a>(stack: &'a [String], within: &[&str]) -> Option<&'a str> {
    let outermost = stack.iter().rposition(|function| begins(function, within))?;
    stack.get(outermost + 1..).and_then(of_program)
}

/// The module of the program's own outermost function, which shows the kind of the process.
pub(crate) fn kind_module(stack: &[String]) -> Option<&str> {
    module(
        stack
            .iter()
            .map(String::as_str)
            .rfind(|function| is_of_program(function) && !begins(function, &NAMES.machinery))?,
    )
}

/// `shop` of `shop:buy/2`.
pub(crate) fn module(function: &str) -> Option<&str> {
    function.rsplit_once(':').map(|(module, _)| module).filter(|module| !module.contains(' '))
}

/// True for a function that is neither a wait of OTP nor leads there.
pub(crate) fn is_of_program(function: &str) -> bool {
    !is_call(function) && !is_loop(function) && !begins(function, &NAMES.ways) && !is_trap(function)
}

/// The function in which a fun or a comprehension was made: `shop:sum/1` of `shop:-sum/1-fun-0-/2`.
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

/// True for a place in which a process waits for the log to take the report of an exit, and not a message of the program.
pub(crate) fn reports_an_end(stack: &[String]) -> bool {
    let mut below = stack.iter().skip_while(|function| !begins(function, &NAMES.logger));
    below
        .find(|function| !begins(function, &NAMES.logger))
        .is_some_and(|function| begins(function, &NAMES.ends))
}

/// True for a function in which a process waits for a socket, an answer by HTTP, a file or the clock, whatever processes it monitors.
pub(crate) fn is_for_no_process(function: &str) -> bool {
    begins(function, &NAMES.sockets)
        || begins(function, HTTP)
        || function.starts_with("prim_file:")
        || is_sleep(function)
}

/// True for a server that is within a callback of its own, and takes no other message until that is done.
pub(crate) fn is_in_callback(stack: &[String]) -> bool {
    stack.iter().skip(1).any(|function| begins(function, &NAMES.callbacks))
}

/// True for a function in which a process goes into hibernation, or has just come out of it: `erlang:hibernate/3`, `proc_lib:wake_up/3`,
/// and those of OTP's behaviours (their `loop_hibernate` since OTP 28).
pub(crate) fn is_hibernation(function: &str) -> bool {
    let name = function.split_once(':').map_or("", |(_, name)| name);
    begins(name, &["hibernate/", "loop_hibernate/", "wake_hib/", "wakeup_from_hibernate/"])
        || function == "proc_lib:wake_up/3"
}

/// True for a function in which a process waits for the clock.
pub(crate) fn is_sleep(function: &str) -> bool {
    ["timer:sleep/1", "Elixir.Process:sleep/1"].contains(&function)
}

/// True for a function in which a process waits for the answer of another node.
pub(crate) fn is_for_a_node(function: &str) -> bool {
    begins(function, &["erpc:call/", "erpc:receive_response/", "erpc:wait_response/"])
}

/// True for a function in which a process waits for the other end of a connection.
pub(crate) fn is_for_peer(function: &str) -> bool {
    begins(function, &NAMES.sockets) && !is_accept(function)
}

/// Where a process waits for its port to take what it sends; measured on OTP 23, 25 (`prim_inet:send_recv_reply/2`), 27 and 29
/// (`prim_inet:send/4`), and on all of them `erts_internal:port_command/3`.
const SENDS: [&str; 2] = ["prim_inet:send", "erts_internal:port_command"];

/// True for a function in which a process waits for a port to take what it sends.
pub(crate) fn is_send(function: &str) -> bool {
    begins(function, &SENDS)
}

/// True for a function in which a process waits for the next connection.
pub(crate) fn is_accept(function: &str) -> bool {
    begins(function, &["prim_inet:accept", "gen_tcp_socket:accept", "socket:accept"])
}

/// True for a place in which a process waits inside a call, and not for its next message.
pub(crate) fn is_in_midst(stack: &[String]) -> bool {
    let is_machinery = |function: &String| is_loop(function) || begins(function, &NAMES.machinery);
    // The initial call shows where it belongs: a process that calls one of these has it in the middle of its stack.
    let outermost = stack.iter().rev().find(|function| !is_machinery(function));
    let is_system = outermost.is_some_and(|function| begins(function, &NAMES.system));
    // Loops of programs have such names: ws_loop, main_loop.
    let waits_for_all = |function: &String| is_loop(function) || function.contains("loop");
    stack.first().is_some_and(|function| !waits_for_all(function)) && !is_system
}

/// The share of a process's samples in which it ran or was runnable; `None` if there are fewer than five, which say little.
pub(crate) fn wanted_to_run(process: &ProcessUse) -> Option<f64> {
    (process.judged >= 5).then(|| f64::from(process.runnable) / f64::from(process.judged))
}

#[cfg(test)]
mod tests {
    use beamtune_model::{PeriodBuilder, RanRow};

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
    fn no_trap_is_reported_as_a_place() {
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
    fn a_traversal_is_recognized_by_where_a_process_ran() {
        let share = |ran: &[(&str, i64)]| {
            let mut builder = PeriodBuilder::default();
            builder.process(ProcessRow { pid: "<0.7.0>".to_owned(), ..ProcessRow::default() });
            for &(at, looks) in ran {
                let stack = at.split_whitespace().map(str::to_owned).collect();
                builder.ran(RanRow { pid: "<0.7.0>".to_owned(), stack, looks, ..RanRow::default() });
            }
            builder.finish().process("<0.7.0>").and_then(goes_through_all)
        };
        let folds = "shop:-tell/2-fun-0-/3 maps:fold_1/4 shop:tell/2 gen_server:try_dispatch/4";
        assert_eq!(share(&[(folds, 6), ("gen_server:loop/7", 2)]), Some(0.75));
        assert_eq!(share(&[("shop:price/1 shop:sell/2", 8)]), Some(0.0));
        assert_eq!(share(&[(folds, 2)]), None, "too few looks");
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
    fn where_a_process_ran_the_most_is_reported_with_its_caller() {
        let stack = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let told = |ran: &[(&str, i64)]| {
            let mut builder = PeriodBuilder::default();
            builder.process(ProcessRow {
                pid: "<0.7.0>".to_owned(),
                current_function: Some("gen_server:loop/7".to_owned()),
                ..ProcessRow::default()
            });
            for &(at, looks) in ran {
                builder.ran(RanRow {
                    pid: "<0.7.0>".to_owned(),
                    stack: stack(at),
                    looks,
                    ..RanRow::default()
                });
            }
            let period = builder.finish();
            let evidence = period.process("<0.7.0>").and_then(evidence).expect("evidence");
            format!("{}: {}", evidence.what, evidence.text.unwrap_or_default())
        };
        // The same place, although the stacks below it differ.
        let ran = [
            ("ets:lookup/2 lists:foldl/3 shop:total/1 shop:buy/2", 3),
            ("shop:price/1", 4),
            ("ets:lookup/2 lists:foldl/3 shop:total/1 shop:show/2", 2),
        ];
        assert_eq!(
            told(&ran),
            "where it ran: ets:lookup/2, called by shop:total/1, in 5 of 9 looks at it running"
        );
        assert_eq!(told(&[]), "where it was: gen_server:loop/7");
    }

    #[test]
    fn a_process_that_asks_a_system_process_waits_and_system_processes_do_not() {
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
