%% Records and macros of the test modules; agent_nodes has the shared functions.

-record(target, {node, os_pid, release, root, beams, log}).

-define(HOT, [msacc, scheduler_wall_time, run_queues, statistics, memory, counts, check_io, procs, events, crashes, table_growth]).
-define(SLOW, [stands, messages, processes, spawns, atoms, ets, ports, dist, allocators]).

%% agent_target:state/1 of a node without the agent.
-define(CLEAN, #{msacc => false, scheduler_wall_time => false, module => false, old_code => false, code_server => false,
                 registered => false, system_monitor => undefined, trace_sessions => 1}).
