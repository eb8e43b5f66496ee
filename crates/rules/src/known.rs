//! Processes of OTP and Elixir that many programs send to without knowing: what they are, and how to do without.
//!
//! Whoever finds `code_server` at the top of a list has not written it, and cannot split it. What is called instead of it can be told.

use beamtune_model::{Evidence, Period, ProcessUse};

use crate::remedy;
use crate::rule::Draft;

/// A process by its registered name.
struct Known {
    /// The beginning of the name, which ends there unless it ends in `_`.
    name: &'static str,
    /// What it does for whom.
    what: &'static str,
    /// The remedy's entry.
    entry: &'static str,
    /// What to do.
    change: &'static str,
    /// Why that helps.
    why: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        name: "logger_std_h_",
        what: "a handler of the logger, which writes to a terminal or a file; who logs waits for it (sync_mode_qlen)",
        entry: "kernel.logger_level",
        change: "log less: -kernel logger_level warning, or a level per module (logger:set_module_level/2)",
        why: "what is below the level is dropped before anything is done for it",
    },
    Known {
        name: "logger_disk_log_h_",
        what: "a handler of the logger, which writes to a disk_log; who logs waits for it (sync_mode_qlen)",
        entry: "kernel.logger_level",
        change: "log less: -kernel logger_level warning, or a level per module (logger:set_module_level/2)",
        why: "what is below the level is dropped before anything is done for it",
    },
    Known {
        name: "error_logger",
        what: "the logger of releases before 21, kept for handlers that were written for it; it has no protection against overload",
        entry: "kernel.logger_level",
        change: "log less, and replace handlers of error_logger (error_logger:which_report_handlers/0) by handlers of logger",
        why: "every event for such a handler goes through this one process",
    },
    Known {
        name: "Elixir.Logger",
        what: "the logger of Elixir before 1.15, which all log through",
        entry: "kernel.logger_level",
        change: "log less: config :logger, level: :warning, and compile_time_purge_matching for what is never wanted",
        why: "what is below the level is dropped before anything is done for it",
    },
    Known {
        name: "file_server_2",
        what: "opens files, and reads whole ones, for all who use the module file",
        entry: "code.around_the_server",
        change: "file:open with the option raw, and prim_file or file:read_file(Name, [raw]) (27 and later) for whole files",
        why: "raw files are the caller's own, and go past the server",
    },
    Known {
        name: "code_server",
        what: "finds and loads modules; who calls a function that is not loaded, or does not exist, asks it each time",
        entry: "-mode",
        change: "-mode embedded, which loads all modules when the node starts; and look for calls of modules that do not exist",
        why: "a loaded module is called without asking",
    },
    Known {
        name: "rex",
        what: "takes the calls of rpc from other nodes, one after the other",
        entry: "code.around_the_server",
        change: "erpc in place of rpc where the calling node can be changed (23 and later)",
        why: "erpc starts a process for each call, and asks nobody",
    },
    Known {
        name: "application_controller",
        what: "starts and stops applications, and sets their environment; reading that does not ask it",
        entry: "code.around_the_server",
        change: "no application:set_env, which_applications or ensure_started for each request: persistent_term for what changes seldom",
        why: "it does one thing at a time, and reads the files of applications that are loaded",
    },
    Known {
        name: "global_name_server",
        what: "registers names for the whole cluster, under a lock of all nodes",
        entry: "code.around_the_server",
        change: "pg, or names per node, in place of global: for what comes and goes with each user or device",
        why: "each name takes a lock of all nodes",
    },
    Known {
        name: "net_kernel",
        what: "makes connections to other nodes, and tells who wants to know of them",
        entry: "code.around_the_server",
        change: "no net_adm:ping or net_kernel:monitor_nodes for each request",
        why: "it does one thing at a time",
    },
    Known {
        name: "user",
        what: "prints to the node's terminal for all who have it as their group leader",
        entry: "code.around_the_server",
        change: "no io:format for each request: the logger, to a file",
        why: "a slow terminal, or a pipe that nobody reads, holds up all who print",
    },
    Known {
        name: "inet_gethost_native",
        what: "asks the operating system for addresses of hosts, four at a time",
        entry: "code.around_the_server",
        change: "keep connections and addresses, or {lookup, [file, dns]} in an inetrc, by which the caller itself asks the name servers",
        why: "four slow answers hold up everybody",
    },
    Known {
        name: "timer_server",
        what: "runs what the module timer was asked for, unless it is a mere message (25 and later)",
        entry: "code.around_the_server",
        change: "erlang:send_after/3 and start_timer/3 in place of timer:send_interval and apply_after",
        why: "the VM's own timers ask nobody",
    },
    Known {
        name: "mnesia_tm",
        what: "the manager of Mnesia's transactions on this node",
        entry: "code.around_the_server",
        change: "mnesia:dirty_* or activity(ets, …) where a transaction is not needed, and fewer, larger transactions",
        why: "each transaction begins and ends there",
    },
    Known {
        name: "mnesia_locker",
        what: "holds all locks of Mnesia's transactions on this node",
        entry: "code.around_the_server",
        change: "mnesia:dirty_* where a transaction is not needed, locks of rows rather than of tables, and fragments of hot tables",
        why: "every lock of every transaction is asked for there",
    },
];

/// Adds what is known of a process that is not the program's own, with what to do in its stead; nothing where it is the program's own.
pub(crate) fn explain(draft: Draft, period: &Period, process: &ProcessUse) -> Draft {
    let Some(known) = process.row.as_ref().and_then(|row| row.name.as_deref()).and_then(of) else {
        return draft;
    };
    draft.because(Evidence::text("what it is", known.what)).fix(remedy::of(
        period,
        known.entry,
        known.change,
        known.why,
        "messages in its queue, and throughput, under the same load",
    ))
}

fn of(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| match known.name.ends_with('_') {
        true => name.starts_with(known.name),
        false => name == known.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_known_by_their_names() {
        let check =
            |name: &str, expect: Option<&str>| assert_eq!(of(name).map(|known| known.name), expect, "{name}");
        check("logger_std_h_default", Some("logger_std_h_"));
        check("code_server", Some("code_server"));
        check("code_server_of_mine", None);
        check("user_sup", None);
        check("", None);
    }

    #[test]
    fn each_has_an_entry_that_exists() {
        for known in KNOWN {
            assert!(beamtune_flags::entry(known.entry).is_some(), "{}", known.entry);
        }
    }
}
