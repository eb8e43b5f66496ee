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
        what: "a handler of the logger, which writes to a terminal or a file; callers wait for it (sync_mode_qlen)",
        entry: "kernel.logger_level",
        change: "log less: -kernel logger_level warning, or a level per module (logger:set_module_level/2)",
        why: "events below the level are dropped before any work is done",
    },
    Known {
        by: By::NameFrom("logger_disk_log_h_"),
        what: "a handler of the logger, which writes to a disk_log; callers wait for it (sync_mode_qlen)",
        entry: "kernel.logger_level",
        change: "log less: -kernel logger_level warning, or a level per module (logger:set_module_level/2)",
        why: "events below the level are dropped before any work is done",
    },
    Known {
        by: By::Name("error_logger"),
        what: "the logger of releases before 21, kept for handlers that were written for it; it has no protection against overload",
        entry: "kernel.logger_level",
        change: "log less, and replace handlers of error_logger (error_logger:which_report_handlers/0) by logger handlers",
        why: "every event for such a handler goes through this one process",
    },
    Known {
        by: By::Name("Elixir.Logger"),
        what: "the logger of Elixir before 1.15, which handles all log calls",
        entry: "kernel.logger_level",
        change: "log less: config :logger, level: :warning, and compile_time_purge_matching for what is never wanted",
        why: "events below the level are dropped before any work is done",
    },
    Known {
        by: By::Name("file_server_2"),
        what: "opens and reads files for all callers of the module file",
        entry: "code.around_the_server",
        change: "use file:open with raw, and prim_file or file:read_file(Name, [raw]) (OTP 27+) for whole files",
        why: "raw files bypass the server",
    },
    Known {
        by: By::Name("code_server"),
        what: "finds and loads modules; each call of a function that is not loaded, or does not exist, is a request to it",
        // No flag is advised: without a boot script that names all modules (RabbitMQ, erl -pa …), an embedded node does not even start.
        entry: "code.load_at_start",
        change: "load modules at start (code:ensure_modules_loaded/1, or a release's boot script with -mode embedded), and find calls of \
                 modules that do not exist",
        why: "calls of a loaded module do not involve it",
    },
    Known {
        by: By::Name("rex"),
        what: "runs rpc:block_call itself, one at a time; handles rpc:sbcast; starts a process per rpc call of C nodes, or if either node \
               is older than OTP 23 (between newer nodes call, cast and multicall bypass it)",
        entry: "code.around_the_server",
        change: "use rpc:call or erpc instead of rpc:block_call; upgrade nodes before OTP 23; make fewer and larger calls from C nodes",
        why: "erpc, which rpc:call uses, starts a process per call and needs no server",
    },
    Known {
        by: By::Name("application_controller"),
        what: "starts and stops applications, and sets their environment; reading the environment bypasses it",
        entry: "code.around_the_server",
        change: "do not call application:set_env, which_applications or ensure_started per request: use persistent_term for data that rarely changes",
        why: "it handles one request at a time, and reads the files of loaded applications",
    },
    Known {
        by: By::Name("global_name_server"),
        what: "registers names in the whole cluster, under a cluster-wide lock",
        entry: "code.around_the_server",
        change: "use pg, or names per node, instead of global for short-lived names (users, devices)",
        why: "each registration takes a cluster-wide lock",
    },
    Known {
        by: By::Started("global:loop_the_registrar/0"),
        what: "registers names for global_name_server one at a time, each under a cluster-wide lock",
        entry: "code.around_the_server",
        change: "use pg, or names per node, instead of global for short-lived names (users, devices)",
        why: "each registration takes a cluster-wide lock",
    },
    Known {
        by: By::Name("net_kernel"),
        what: "sets up connections to other nodes, and notifies subscribers",
        entry: "code.around_the_server",
        change: "do not call net_adm:ping or net_kernel:monitor_nodes per request",
        why: "it handles one request at a time",
    },
    Known {
        by: By::Name("user"),
        what: "prints to the node's terminal for all processes with it as group leader",
        entry: "code.around_the_server",
        change: "use the logger with a file handler instead of io:format per request",
        why: "a slow terminal, or a pipe that is not read, blocks all processes that print",
    },
    Known {
        by: By::Name("inet_gethost_native"),
        what: "resolves host names through the operating system, four at a time",
        entry: "code.around_the_server",
        change: "reuse connections and cache addresses, or set {lookup, [file, dns]} in an inetrc, so that callers query name servers themselves",
        why: "four slow replies block all callers",
    },
    Known {
        by: By::Name("timer_server"),
        what: "runs the jobs of the module timer, except plain messages (OTP 25+)",
        entry: "code.around_the_server",
        change: "use erlang:send_after/3 and start_timer/3 instead of timer:send_interval and apply_after",
        why: "the VM's own timers need no server",
    },
    Known {
        by: By::Started("dets:init/"),
        what: "the process of an open dets table, which handles all requests for it one at a time; the first change after each sync starts \
               an auto_save timer that is never cancelled",
        entry: "code.around_the_server",
        change: "no dets:sync/1 for each write: sync once for many before these are answered, or leave it to auto_save (dets:open_file/2) where \
                 that much may be lost; keep what is read in ETS (dets:to_ets/2)",
        why: "a sync writes all that is cached, the free lists and the header, and each of several writes waits for the disk",
    },
    Known {
        by: By::Started("disk_log:init/"),
        what: "the process of an open disk_log, which writes all entries one at a time",
        entry: "code.around_the_server",
        change: "disk_log:alog/2 or blog/2 with several terms at a time (log_terms/2), and one disk_log:sync/1 for many",
        why: "each write and each sync waits for the previous one",
    },
    Known {
        by: By::Name("mnesia_tm"),
        what: "the manager of Mnesia's transactions on this node",
        entry: "code.around_the_server",
        change: "use mnesia:dirty_* or activity(ets, …) if no transaction is needed, and fewer, larger transactions",
        why: "each transaction begins and ends there",
    },
    Known {
        by: By::Name("mnesia_locker"),
        what: "manages all locks of Mnesia transactions on this node",
        entry: "code.around_the_server",
        change: "mnesia:dirty_* where a transaction is not needed, locks of rows rather than of tables, and fragments of hot tables",
        why: "every lock of every transaction is requested from it",
    },
    Known {
        by: By::Started("supervisor:"),
        what: "a supervisor, which starts children one at a time: each waits until the previous init has returned",
        entry: "code.around_the_server",
        change: "use several supervisors by key (PartitionSupervisor in Elixir 1.14+), nothing slow in init (use {continue, …}), and no \
                 which_children or count_children per request",
        why: "starting, ending and counting children all go through this one process",
    },
    Known {
        by: By::Started("Elixir.DynamicSupervisor:"),
        what: "a supervisor, which starts children one at a time: each waits until the previous init has returned",
        entry: "code.around_the_server",
        change: "use several supervisors by key (PartitionSupervisor in Elixir 1.14+), nothing slow in init (use {continue, …}), and no \
                 which_children or count_children per request",
        why: "starting, ending and counting children all go through this one process",
    },
    Known {
        by: By::Name("pg"),
        what: "a scope of pg: all joins and leaves go through it, and each copies the group's whole member list",
        entry: "code.split_process",
        change: "smaller groups (by shard, or by topic), and several scopes (pg:start_link/1 with a name); no group of all processes that come and go",
        why: "the cost of a join or leave grows with the group",
    },
    Known {
        by: By::Started("pg:"),
        what: "a scope of pg: all joins and leaves go through it, and each copies the group's whole member list",
        entry: "code.split_process",
        change: "smaller groups (by shard, or by topic), and several scopes (pg:start_link/1 with a name); no group of all processes that come and go",
        why: "the cost of a join or leave grows with the group",
    },
    Known {
        by: By::Partition(".PIDPartition"),
        what: "a partition of an Elixir Registry, which monitors the processes registered in it",
        entry: "code.around_the_server",
        change: "partitions: System.schedulers_online() where the Registry is started",
        why: "each registration, and each exit of a registered process, goes through its partition; by default there is one",
    },
    Known {
        by: By::Started("Elixir.Phoenix.PubSub.PG2Worker:"),
        what: "the process of Phoenix.PubSub that receives broadcasts of other nodes, one at a time",
        entry: "code.around_the_server",
        change: "pool_size of Phoenix.PubSub above 1, the same on all nodes; local_broadcast for what other nodes need not know",
        why: "one process receives all broadcasts of other nodes to that pool",
    },
    Known {
        by: By::Started("Elixir.DBConnection.ConnectionPool:"),
        what: "hands out connections of DBConnection (usually of an Ecto repo), and queues the waiting callers",
        entry: "code.more_in_flight",
        change: "a larger pool_size, where the database has room; less time within each transaction; pool_count above 1 only where this process \
                 itself is busy",
        why: "each query calls it first",
    },
    Known {
        by: By::Started("poolboy:"),
        what: "a pool of poolboy, which hands out its workers, and starts them itself",
        entry: "code.more_in_flight",
        change: "raise size and max_overflow if the backend has room; shorten the time between checkout and checkin; keep init of workers \
                 fast, because the pool waits for it",
        why: "callers wait until a worker is returned",
    },
    Known {
        by: By::Started("ranch_conns_sup:"),
        what: "starts the connections of a Ranch listener, one at a time, and counts them",
        entry: "code.around_the_server",
        change: "do nothing slow in Protocol:start_link (the handshake belongs in the connection's own process), and set num_conns_sups \
                 above 1 (Ranch 2); raise max_connections, if it is reached",
        why: "each connection is started and counted there",
    },
    Known {
        by: By::Started("ranch_acceptor:"),
        what: "a Ranch acceptor, which accepts one connection at a time",
        entry: "ranch.num_acceptors",
        change: "raise num_acceptors of that listener above 10",
        why: "while one waits for a connection to be started, others accept",
    },
    Known {
        by: By::Name("init"),
        what: "starts and stops the node, and serves its command-line arguments",
        entry: "code.around_the_server",
        change: "call init:get_argument, get_plain_arguments and get_status once, not per request",
        why: "it handles one request at a time",
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
        what: "writes to the connection of one RabbitMQ channel, and blocks if the client does not read",
        entry: "code.back_pressure",
        change: "a prefetch limit (basic.qos) for that consumer, and see whether it reads at all",
        why: "without a limit RabbitMQ sends a consumer all messages",
    },
    Known {
        by: By::Started("rabbit_msg_store:"),
        what: "the store for messages of all classic queues of a virtual host in RabbitMQ",
        entry: "code.split_process",
        change: "use several virtual hosts, each with its own store; small messages, which queues store themselves; a faster disk",
        why: "one process writes the larger messages of all queues of a virtual host",
    },
    Known {
        by: By::Name("ra_log_wal"),
        what: "the write-ahead log of all quorum queues of a RabbitMQ node",
        entry: "code.around_the_server",
        change: "use a faster disk for the node's data, fewer quorum queues, and streams for high volumes",
        why: "each operation of each quorum queue is written there, and synced",
    },
    Known {
        by: By::Started("mod_muc_room:"),
        what: "a room of ejabberd's group chat: this process sends each message to all members",
        entry: "code.split_process",
        change: "smaller rooms, presence broadcast off for large ones (presence_broadcast, max_users), mucsub for those who only read",
        why: "a room uses one CPU at most",
    },
    Known {
        by: By::Started("xmpp_stream_in:"),
        what: "the connection of one client of ejabberd",
        entry: "code.back_pressure",
        change: "set a shaper and max_fsm_queue for clients, so that clients that flood or do not read are slowed down or dropped",
        why: "data for a client wait in its process until the client reads them",
    },
    Known {
        by: By::Started("ejabberd_sql:"),
        what: "a connection of ejabberd to its database, which runs one query at a time",
        entry: "code.more_in_flight",
        change: "a larger sql_pool_size, if the database is not what is slow",
        why: "each query waits for the previous one on its connection",
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
        "its queue length, and throughput, under the same load",
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
        assert!(
            told("rex").what.contains("between newer nodes call, cast and multicall bypass it"),
            "{}",
            told("rex").what
        );
        assert!(told("rex").change.starts_with("use rpc:call or erpc instead of rpc:block_call"));
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
