//! Processes of OTP, Elixir's libraries and common servers that programs use without naming them: what they do, and how to avoid them.
//!
//! Users who find `code_server` at the top of a list did not write it and cannot split it. So beamtune says what to call instead. Processes
//! without a fixed name are recognized by their initial call.

use beamtune_model::rows::CHILD_OF;
use beamtune_model::{Evidence, Period, ProcessActivity};

use crate::remedy;
use crate::rule::Draft;

/// How a process is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Its registered name.
    Name(&'static str),
    /// A prefix of the registered name.
    NameFrom(&'static str),
    /// The registered name without the number at its end.
    Partition(&'static str),
    /// A prefix of its initial call.
    Started(&'static str),
}

/// A process that is not the program's own.
struct Known {
    by: By,
    /// Its task, and its clients.
    what: &'static str,
    /// The entry of the remedy in `flags`.
    entry: &'static str,
    /// What to do.
    change: &'static str,
    /// Why that helps.
    why: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        by: By::NameFrom("logger_std_h_"),
        what: "a handler of the logger, which writes to a terminal or a file; who logs waits for it (sync_mode_qlen)",
        entry: "kernel.logger_level",
        change: "log less: -kernel logger_level warning, or a level per module (logger:set_module_level/2)",
        why: "what is below the level is dropped before anything is done for it",
    },
    Known {
        by: By::NameFrom("logger_disk_log_h_"),
        what: "a handler of the logger, which writes to a disk_log; who logs waits for it (sync_mode_qlen)",
        entry: "kernel.logger_level",
        change: "log less: -kernel logger_level warning, or a level per module (logger:set_module_level/2)",
        why: "what is below the level is dropped before anything is done for it",
    },
    Known {
        by: By::Name("error_logger"),
        what: "the logger of releases before 21, kept for handlers that were written for it; it has no protection against overload",
        entry: "kernel.logger_level",
        change: "log less, and replace handlers of error_logger (error_logger:which_report_handlers/0) by handlers of logger",
        why: "every event for such a handler goes through this one process",
    },
    Known {
        by: By::Name("Elixir.Logger"),
        what: "the logger of Elixir before 1.15, which all log through",
        entry: "kernel.logger_level",
        change: "log less: config :logger, level: :warning, and compile_time_purge_matching for what is never wanted",
        why: "what is below the level is dropped before anything is done for it",
    },
    Known {
        by: By::Name("file_server_2"),
        what: "opens files, and reads whole ones, for all who use the module file",
        entry: "code.around_the_server",
        change: "file:open with the option raw, and prim_file or file:read_file(Name, [raw]) (27 and later) for whole files",
        why: "raw files are the caller's own, and go past the server",
    },
    Known {
        by: By::Name("code_server"),
        what: "finds and loads modules; who calls a function that is not loaded, or does not exist, asks it each time",
        // No flag is advised: without a boot script that names all modules (RabbitMQ, erl -pa …), an embedded node does not even start.
        entry: "code.load_at_start",
        change: "load what is needed at start (code:ensure_modules_loaded/1, or a release's boot script with -mode embedded), and look for \
                 calls of modules that do not exist",
        why: "a loaded module is called without asking",
    },
    Known {
        by: By::Name("rex"),
        what: "takes rpc:block_call, which it runs itself, one after the other; rpc:sbcast; and calls of rpc by C nodes, or where either node \
               is before 23, for each of which it starts a process (call, cast and multicall of 23 and later go past it)",
        entry: "code.around_the_server",
        change: "rpc:call or erpc in place of rpc:block_call; an upgrade of nodes before 23; fewer and larger calls by C nodes",
        why: "erpc, by which rpc:call goes, starts a process for each call, and asks nobody",
    },
    Known {
        by: By::Name("application_controller"),
        what: "starts and stops applications, and sets their environment; reading that does not ask it",
        entry: "code.around_the_server",
        change: "no application:set_env, which_applications or ensure_started for each request: persistent_term for what changes seldom",
        why: "it does one thing at a time, and reads the files of applications that are loaded",
    },
    Known {
        by: By::Name("global_name_server"),
        what: "registers names for the whole cluster, under a lock of all nodes",
        entry: "code.around_the_server",
        change: "pg, or names per node, in place of global: for what comes and goes with each user or device",
        why: "each name takes a lock of all nodes",
    },
    Known {
        by: By::Started("global:loop_the_registrar/0"),
        what: "takes names for global_name_server one after the other, each under a lock of all nodes",
        entry: "code.around_the_server",
        change: "pg, or names per node, in place of global: for what comes and goes with each user or device",
        why: "each name takes a lock of all nodes",
    },
    Known {
        by: By::Name("net_kernel"),
        what: "makes connections to other nodes, and tells who wants to know of them",
        entry: "code.around_the_server",
        change: "no net_adm:ping or net_kernel:monitor_nodes for each request",
        why: "it does one thing at a time",
    },
    Known {
        by: By::Name("user"),
        what: "prints to the node's terminal for all who have it as their group leader",
        entry: "code.around_the_server",
        change: "no io:format for each request: the logger, to a file",
        why: "a slow terminal, or a pipe that nobody reads, holds up all who print",
    },
    Known {
        by: By::Name("inet_gethost_native"),
        what: "asks the operating system for addresses of hosts, four at a time",
        entry: "code.around_the_server",
        change: "keep connections and addresses, or {lookup, [file, dns]} in an inetrc, by which the caller itself asks the name servers",
        why: "four slow answers hold up everybody",
    },
    Known {
        by: By::Name("timer_server"),
        what: "runs what the module timer was asked for, unless it is a mere message (25 and later)",
        entry: "code.around_the_server",
        change: "erlang:send_after/3 and start_timer/3 in place of timer:send_interval and apply_after",
        why: "the VM's own timers ask nobody",
    },
    Known {
        by: By::Started("dets:init/"),
        what: "the process of an open dets table, which does all that is asked of the table, one after the other; the first change after each \
               sync starts a timer for auto_save, which nobody cancels",
        entry: "code.around_the_server",
        change: "no dets:sync/1 for each write: sync once for many before these are answered, or leave it to auto_save (dets:open_file/2) where \
                 that much may be lost; keep what is read in ETS (dets:to_ets/2)",
        why: "a sync writes all that is cached, the free lists and the header, and each of several writes waits for the disk",
    },
    Known {
        by: By::Started("disk_log:init/"),
        what: "the process of an open disk_log, which writes what all log there, one after the other",
        entry: "code.around_the_server",
        change: "disk_log:alog/2 or blog/2 with several terms at a time (log_terms/2), and one disk_log:sync/1 for many",
        why: "each write and each sync waits for the one before",
    },
    Known {
        by: By::Name("mnesia_tm"),
        what: "the manager of Mnesia's transactions on this node",
        entry: "code.around_the_server",
        change: "mnesia:dirty_* or activity(ets, …) where a transaction is not needed, and fewer, larger transactions",
        why: "each transaction begins and ends there",
    },
    Known {
        by: By::Name("mnesia_locker"),
        what: "holds all locks of Mnesia's transactions on this node",
        entry: "code.around_the_server",
        change: "mnesia:dirty_* where a transaction is not needed, locks of rows rather than of tables, and fragments of hot tables",
        why: "every lock of every transaction is asked for there",
    },
    Known {
        by: By::Started("supervisor:"),
        what: "a supervisor, which starts its children one after the other: each waits until the init of the one before has returned",
        entry: "code.around_the_server",
        change: "several supervisors by key (PartitionSupervisor in Elixir 1.14 and later), nothing that takes long in init \
                 ({continue, …} in its place), and no which_children or count_children for each request",
        why: "starting, ending and counting children all go through this one process",
    },
    Known {
        by: By::Started("Elixir.DynamicSupervisor:"),
        what: "a supervisor, which starts its children one after the other: each waits until the init of the one before has returned",
        entry: "code.around_the_server",
        change: "several supervisors by key (PartitionSupervisor in Elixir 1.14 and later), nothing that takes long in init \
                 ({continue, …} in its place), and no which_children or count_children for each request",
        why: "starting, ending and counting children all go through this one process",
    },
    Known {
        by: By::Name("pg"),
        what: "a scope of pg: all joins and leaves go through this one process, and each copies the whole list of the group's members",
        entry: "code.split_process",
        change: "smaller groups (by shard, or by topic), and several scopes (pg:start_link/1 with a name); no group of all processes that come and go",
        why: "what a join or a leave costs grows with the group",
    },
    Known {
        by: By::Started("pg:"),
        what: "a scope of pg: all joins and leaves go through this one process, and each copies the whole list of the group's members",
        entry: "code.split_process",
        change: "smaller groups (by shard, or by topic), and several scopes (pg:start_link/1 with a name); no group of all processes that come and go",
        why: "what a join or a leave costs grows with the group",
    },
    Known {
        by: By::Partition(".PIDPartition"),
        what: "a partition of an Elixir Registry, which watches those who are registered there",
        entry: "code.around_the_server",
        change: "partitions: System.schedulers_online() where the Registry is started",
        why: "each registration and each end of a registered process goes through its partition; by default there is one",
    },
    Known {
        by: By::Started("Elixir.Phoenix.PubSub.PG2Worker:"),
        what: "the part of Phoenix.PubSub that takes broadcasts from other nodes, one after the other",
        entry: "code.around_the_server",
        change: "pool_size of Phoenix.PubSub above 1, the same on all nodes; local_broadcast for what other nodes need not know",
        why: "one process takes what all other nodes send to that pool",
    },
    Known {
        by: By::Started("Elixir.DBConnection.ConnectionPool:"),
        what: "hands out the connections of DBConnection (an Ecto repository's, mostly), and queues those who wait for one",
        entry: "code.more_in_flight",
        change: "a larger pool_size, where the database has room; less time within each transaction; pool_count above 1 only where this process \
                 itself is busy",
        why: "each query asks it first",
    },
    Known {
        by: By::Started("poolboy:"),
        what: "a pool of poolboy, which hands out its workers, and starts them itself",
        entry: "code.more_in_flight",
        change: "size and max_overflow above what is in use at a time, where what is behind the workers has room; less time between checkout and \
                 checkin; workers whose init takes no time, since the pool waits for it",
        why: "who asks waits until a worker comes back",
    },
    Known {
        by: By::Started("ranch_conns_sup:"),
        what: "starts the connections of a listener of Ranch, one after the other, and counts them",
        entry: "code.around_the_server",
        change: "nothing that takes long in Protocol:start_link (the handshake belongs into the connection's own process), and num_conns_sups above \
                 1 (Ranch 2); max_connections, where there are as many connections",
        why: "each connection is started and counted there",
    },
    Known {
        by: By::Started("ranch_acceptor:"),
        what: "one of a listener's acceptors of Ranch, each of which takes one connection after the other",
        entry: "ranch.num_acceptors",
        change: "num_acceptors of that listener above 10",
        why: "while one waits for a connection to be started, others accept",
    },
    Known {
        by: By::Name("init"),
        what: "starts and stops the node, and answers for the words of its command line",
        entry: "code.around_the_server",
        change: "init:get_argument, get_plain_arguments and get_status once, and not for each request",
        why: "it does one thing at a time",
    },
    Known {
        by: By::Started("rabbit_prequeue:"),
        what: "a classic queue of RabbitMQ: all of its messages go through this one process",
        entry: "code.split_process",
        change: "several queues behind a consistent hash exchange (or a sharded one), one for each CPU; quorum queues or streams \
                 where order and copies matter",
        why: "a queue uses one CPU at most",
    },
    Known {
        by: By::Started("rabbit_channel:"),
        what: "a channel of RabbitMQ: all that is published or acknowledged on it goes through this one process",
        entry: "code.split_process",
        change: "more channels, one for each thread of a publisher; fewer bindings that have to be matched; confirms and \
                 acknowledgements for several messages at a time",
        why: "a channel uses one CPU at most",
    },
    Known {
        by: By::Started("rabbit_reader:"),
        what: "reads and parses what one connection of RabbitMQ sends",
        entry: "code.split_process",
        change: "more connections for those who publish much",
        why: "a connection is read by one process",
    },
    Known {
        by: By::Started("rabbit_writer:"),
        what: "writes to one channel's connection in RabbitMQ, and waits where the client does not read",
        entry: "code.back_pressure",
        change: "a prefetch limit (basic.qos) for that consumer, and see whether it reads at all",
        why: "without a limit a consumer is sent all that there is",
    },
    Known {
        by: By::Started("rabbit_msg_store:"),
        what: "the store for messages of all classic queues of a virtual host in RabbitMQ",
        entry: "code.split_process",
        change: "several virtual hosts, which have stores of their own; small messages, which queues keep themselves; a faster disk",
        why: "one process writes the larger messages of all queues of a virtual host",
    },
    Known {
        by: By::Name("ra_log_wal"),
        what: "the write-ahead log of all quorum queues of a RabbitMQ node",
        entry: "code.around_the_server",
        change: "a faster disk for the node's data, fewer quorum queues, streams for what is much",
        why: "each operation of each quorum queue is written there, and synced",
    },
    Known {
        by: By::Started("mod_muc_room:"),
        what: "a room of ejabberd's group chat: each message to it is sent to all who are in it by this one process",
        entry: "code.split_process",
        change: "smaller rooms, presence broadcast off for large ones (presence_broadcast, max_users), mucsub for those who only read",
        why: "a room uses one CPU at most",
    },
    Known {
        by: By::Started("xmpp_stream_in:"),
        what: "the connection of one client of ejabberd",
        entry: "code.back_pressure",
        change: "a shaper and max_fsm_queue for clients, so that one that floods or does not read is slowed down or dropped",
        why: "what is sent to a client waits in its process until the client takes it",
    },
    Known {
        by: By::Started("ejabberd_sql:"),
        what: "a connection of ejabberd to its database, which does one query at a time",
        entry: "code.more_in_flight",
        change: "a larger sql_pool_size, if the database is not what is slow",
        why: "each query waits for the one before on its connection",
    },
];

/// Adds what a process is, and what to do instead. Adds nothing for the program's own processes.
pub(crate) fn explain(draft: Draft, period: &Period, process: &ProcessActivity) -> Draft {
    let Some(known) = of_process(process) else { return draft };
    draft.evidence(Evidence::text("what it is", known.what)).remedy(remedy::of(
        period,
        known.entry,
        known.change,
        known.why,
        "messages in its queue, and throughput, under the same load",
    ))
}

/// True for a process that is not the program's own: its users cannot change its code.
pub(crate) fn knows(process: &ProcessActivity) -> bool {
    of_process(process).is_some()
}

/// Applications of OTP whose processes serve others.
const OTP: [&str; 9] = ["kernel", "stdlib", "mnesia", "ssl", "ssh", "inets", "sasl", "snmp", "ftp"];

/// True for a process of OTP.
pub(crate) fn is_of_otp(process: &ProcessActivity) -> bool {
    let application = process.row.as_ref().and_then(|row| row.application.as_deref());
    application.is_some_and(|application| OTP.contains(&application))
}

fn of_process(process: &ProcessActivity) -> Option<&'static Known> {
    let Some(row) = process.row.as_ref() else { return of(process.owner_name.as_deref(), None) };
    of(row.name.as_deref(), row.initial_call.as_deref()).or_else(|| {
        // Before OTP 26.2, the initial call of a behaviour's process is not read if its heap is large, as in processes that are behind.
        let is_untold = row
            .initial_call
            .as_deref()
            .is_none_or(|call| call.starts_with(CHILD_OF) || call.starts_with("proc_lib:"));
        let ran = process.run_stacks.iter().flat_map(|(stack, _)| stack);
        let mut functions = row.stack.iter().chain(ran).filter(|_| is_untold);
        functions.find_map(|function| KNOWN.iter().find(|known| known.by.is_callback(function)))
    })
}

/// Looks up the name first, then the initial call: a supervisor may be better known by its name.
fn of(name: Option<&str>, initial_call: Option<&str>) -> Option<&'static Known> {
    let by_name = name.and_then(|name| KNOWN.iter().find(|known| known.by.is_name(name)));
    by_name.or_else(|| initial_call.and_then(|call| KNOWN.iter().find(|known| known.by.is_start(call))))
}

impl By {
    fn is_name(self, name: &str) -> bool {
        match self {
            By::Name(whole) => name == whole,
            By::NameFrom(start) => name.starts_with(start),
            By::Partition(end) => name.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with(end),
            By::Started(_) => false,
        }
    }

    /// Whether a function is a `handle_…` callback in the module of the initial call.
    fn is_callback(self, function: &str) -> bool {
        self.is_start(function) && function.rsplit(':').next().is_some_and(|name| name.starts_with("handle_"))
    }

    fn is_start(self, call: &str) -> bool {
        matches!(self, By::Started(start) if call.starts_with(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_recognized_by_their_names() {
        let check = |name: &str, expect: Option<By>| {
            assert_eq!(of(Some(name), None).map(|known| known.by), expect, "{name}");
        };
        check("logger_std_h_default", Some(By::NameFrom("logger_std_h_")));
        check("code_server", Some(By::Name("code_server")));
        check("code_server_of_mine", None);
        check("user_sup", None);
        check("Elixir.Shop.Registry.PIDPartition12", Some(By::Partition(".PIDPartition")));
        check("Elixir.Shop.PIDPartitions", None);
        check("", None);
    }

    #[test]
    fn processes_without_a_fixed_name_are_recognized_by_their_initial_call() {
        let check = |name: Option<&str>, call: &str, expect: Option<By>| {
            assert_eq!(of(name, Some(call)).map(|known| known.by), expect, "{call}");
        };
        check(None, "rabbit_channel:init/1", Some(By::Started("rabbit_channel:")));
        check(
            Some("Elixir.Shop.Jobs"),
            "supervisor:Elixir.Task.Supervisor/1",
            Some(By::Started("supervisor:")),
        );
        check(
            Some("Elixir.Shop.R.PIDPartition0"),
            "Elixir.Registry.Partition:init/1",
            Some(By::Partition(".PIDPartition")),
        );
        check(
            Some("Elixir.Shop.PubSub.Adapter_2"),
            "Elixir.Phoenix.PubSub.PG2Worker:init/1",
            Some(By::Started("Elixir.Phoenix.PubSub.PG2Worker:")),
        );
        check(
            None,
            "Elixir.DBConnection.ConnectionPool:init/1",
            Some(By::Started("Elixir.DBConnection.ConnectionPool:")),
        );
        check(Some("rex"), "rpc:init/1", Some(By::Name("rex")));
        check(None, "poolboy:init/1", Some(By::Started("poolboy:")));
        check(None, "shop:supervisor/1", None);
        check(None, "rex", None);
    }

    #[test]
    fn advice_for_rex_and_for_the_code_server_can_be_followed() {
        let told = |name: &str| of(Some(name), None).expect("known");
        // Since OTP 23, rpc:call does not use rex.
        assert!(told("rex").what.contains("multicall of 23 and later go past it"), "{}", told("rex").what);
        assert!(told("rex").change.starts_with("rpc:call or erpc in place of rpc:block_call"));
        // A node whose boot script does not name its modules does not start with the flag alone.
        assert_eq!(told("code_server").entry, "code.load_at_start");
        assert!(
            told("code_server").change.contains("ensure_modules_loaded"),
            "{}",
            told("code_server").change
        );
    }

    #[test]
    fn the_entry_of_each_known_process_exists() {
        for known in KNOWN {
            assert!(beamtune_flags::entry(known.entry).is_some(), "{}", known.entry);
        }
    }
}
