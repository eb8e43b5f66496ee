//! Where a process stands, by the function that it was last seen in.

use beamtune_model::ProcessUse;

/// Functions of OTP and of Elixir's libraries in which a process waits for the answer of a process, a port or the clock. Whatever else
/// comes meanwhile has to wait, and is taken afterwards.
const CALLS: &[&str] = &[
    "gen:",
    "gen_server:call",
    "prim_inet:",
    "gen_tcp_socket:",
    "socket:",
    "prim_file:",
    "file:",
    "io:",
    "disk_log:",
    "logger_std_h:",
    "logger_disk_log_h:",
    "timer:sleep/1",
    "rpc:",
    "erpc:",
    "global:",
    "mnesia:",
    "mnesia_tm:",
    "mnesia_locker:",
    "code_server:call",
    "erlang:",
    "erts_internal:",
    "Elixir.Task:",
    "Elixir.Task.Supervised:",
    "Elixir.DBConnection.Holder:",
];

/// The loops of behaviours, OTP's, RabbitMQ's and ejabberd's, whose receive takes whatever comes.
const LOOPS: &[&str] = &[
    "gen_server:loop",
    "gen_statem:loop",
    "gen_event:fetch_msg",
    "gen_fsm:loop",
    "gen_server2:process_next_msg",
    "gen_batch_server:loop",
    "p1_server:collect_messages",
    "p1_fsm:collect_messages",
];

/// The function that a process was last seen in; `None` where it was not looked at closely.
pub(crate) fn of(process: &ProcessUse) -> Option<&str> {
    process.row.as_ref()?.current_function.as_deref()
}

/// True of a function in which a process waits for one certain answer.
pub(crate) fn is_call(place: &str) -> bool {
    CALLS.iter().any(|call| place.starts_with(call))
}

/// True of the loop of a behaviour.
pub(crate) fn is_loop(place: &str) -> bool {
    LOOPS.iter().any(|start| place.starts_with(start))
}

/// The share of the looks at a process in which it ran or was runnable; `None` of fewer than five looks, which say little.
pub(crate) fn wanted_to_run(process: &ProcessUse) -> Option<f64> {
    (process.judged >= 5).then(|| f64::from(process.runnable) / f64::from(process.judged))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_loops_are_told_from_what_a_program_does_itself() {
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
