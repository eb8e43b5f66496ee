%% @doc beamtune's agent: the one module that is injected into the target node.
%%
%% A client sends a list of items, the agent reads them and answers with one message. docs/agent-protocol.md defines
%% every term; agent/README.md describes how the module is injected and removed, and what it costs.
%%
%% Processes:
%%
%% <ul>
%% <li>the <em>keeper</em> (src/keeper.eval, not part of this module) loads the module, holds the VM's accounting flags,
%%     and undoes everything when the agent process ends, for whatever reason;</li>
%% <li>the <em>agent</em> ({@link init/1}) takes requests, and enforces the clients' leases and the time limit of each item.
%%     It never makes a call that may block;</li>
%% <li>one <em>collector</em> per client reads the items and holds the state from sample to sample;</li>
%% <li>one <em>reader</em> per collector reads processes, ports and tables. It holds no state, because it may hang:
%%     process_info waits for a process inside a long NIF, and on some releases for ever for a process that is just
%%     ending (erlang/otp#7801). Then it is killed and replaced, and the process that it hung on is skipped for a while;</li>
%% <li>one <em>watcher</em>, one <em>filer</em> and one <em>exit monitor</em> for all clients, started when first needed:
%%     the watcher receives system monitor events, the filer reads files of /proc and of control groups, the exit monitor finds
%%     processes that end with errors.</li>
%% </ul>
%%
%% All have priority high: the agent must work on overloaded nodes, where at priority normal each step would wait for the
%% whole run queue. The budget bounds their cost.
%%
%% Explicit items take long or disturb the node. They are read only on a person's request, within limits of their own.
%%
%% Rules for all code below: read only (except `collect' and `locks', which are explicit items); never create atoms from data;
%% never read messages; print nothing on the node (so no process may crash); link to no foreign process; bound every list
%% and text that leaves the node; split a scan into parts when it would exceed the client's budget.
-module(?AGENT_NAME).

-export([init/1]).

%% Limits that several parts use. Others are at the head of their part.

-define(NAME_BYTES, 255).
-define(TEXT_BYTES, 512).
%% A reader hangs if it is at the same process in two checks this far apart.
-define(HANG_CHECK_MS, 150).
%% How long a process that hung a reader is skipped.
-define(SKIP_NS, 60000000000).
-define(MAX_SKIPPED, 16).
%% The first sample's share of the budget is that of one after this time.
-define(FIRST_INTERVAL_NS, 1000000000).
%% Maximum number of processes (tables, ports) read between two checks of the clock. Each such step passes a list to the
%% reader and back, which wakes two processes, on an idle node two schedulers.
-define(CHUNK, 2048).
%% Time limit of a part of a scan, and of the details of its top rows. Reading a process that runs or is just ending waits
%% until that process is scheduled: on an overloaded node many times as long as the reading itself.
-define(SCAN_NS, 250000000).
%% Shortest pause between two steps of work that is spread over time. Receive timeouts have a resolution of 1 ms.
-define(STEP_PAUSE_NS, 1000000).
%% A longer list of processes is built by a separate process, in an ETS table with rows of ?CHUNK (a list table): on the
%% collector's heap, garbage collections would copy it again and again, for tens of milliseconds.
-define(MAX_LIST, 30000).
%% process_info(P, memory) walks P's messages, 0.02 us each, during which P does not run. It is not read of a process with more
%% messages than this.
-define(MAX_WALKED_MESSAGES, 1000000).
%% How much longer than its own time limit an explicit item may take before its collector is killed.
-define(GRACE_MS, 2000).
%% Maximum heap of a process that does memory-intensive work for an explicit item, in words (256 MB).
-define(WORKER_HEAP_WORDS, 33554432).
%% Number of blocking processes, and of receivers of the largest messages, for which details are read.
-define(MAX_NOTED, 5).
%% Number of the busiest processes whose call stacks are sampled, and number of stacks reported for each.
-define(BUSIEST, 5).
-define(STACKS_PER_PROCESS, 8).
%% The process with the longest queue is sampled, too, from this length on (judgement).
-define(MIN_QUEUE, 10).
%% Maximum number of receivers whose messages are sampled.
-define(MAX_RECEIVERS, 60).

%% State of a collector from sample to sample.

%% State of a scan of one kind of objects (processes, tables, ports). A round visits all of them, in parts, one per request,
%% when it would exceed the budget. `alive' is the number that answered in the last complete round: while the VM's count equals
%% it, there are no new ones, and the list is reused (building it walks the whole table, which has a million slots by default
%% since OTP 27: 1 to 2 ms).
-record(round, {number = 0, part = 0, rest = [], list = [], total = 0, scanned = 0, dead = 0, alive = none, size = 64,
                cost_ns, read_ns = none}).

%% procs: the list of processes, and their reductions at the last visit.
-record(procs, {round = #round{cost_ns = 300},
                seen = none,                  % the part under way, if it is read between samples
                left = 0, pause_ms = infinity, step_ns = 0,  % how many it may still read, pause before the next step; time spent so far
                listed_ns,                    % when the last list table was built
                list_tables = [],             % the list tables in use
                top = 20,                     % number of rows to report
                did = none, quiet = false,    % {when, reductions of all but our own processes}; whether the node is quiet
                watched = #{},                % in rounds of several parts, the top processes, read in each sample: Pid => reductions
                reported = #{}, reported_before = #{},  % the same of those no longer watched, in this round and the one before
                counters = none,              % reductions by position in the list (atomics); -1: unknown
                marks = [],                   % {position, time} at the end of each part of this round, latest first
                %% For a round with another list than the round before:
                old = same, old_place = 1,    % the unmatched rest of the old list; its position
                old_list = [],                % the whole old list
                old_counters = none,          % `none' in the very first round
                old_marks = [],               % marks of the round before, earliest first
                %% For other items:
                active = {0, []},             % approximate number of active processes; some of them
                new = 0, origins = #{}, sampled = 0, given = #{},  % new processes and parents of a sample, since `spawns' was read
                fresh = [],                   % some of the new processes, since `crashes' was read
                again = [],                   % {Pid, initial call} of some that are sampled again with `spawns'
                most = [],                    % the busiest processes at the last reading, busiest first
                busy = #{}, queued = #{}}).   % top processes since `processes' was read: Pid => sum, Pid => max

%% table_growth: sizes that `ets' measured at its last reading, if there were few tables; which tables are followed.
-record(growing, {words = none, is_first = false, growers = [], largest = [],
                  rows = #{},                 % Tab => #followed{}
                  reported = #{}, sampled_ns = [],  % tables ever reported; when objects were sampled recently
                  most = unknown,             % [{Tab, size}] of those with the most objects at the last reading of `ets'
                  measured = #{}, ever_measured = 0}).  % Tab => when its binaries were measured; number of tables measured

%% Attempts to connect to a node since `dist' was read. number, at_ns: number of the last connection seen, and when; count: attempts; samples,
%% sample: number of samples with a pending attempt, and the last of these; out, in: attempts by this node and by the other; waiting: maximum
%% number of waiting processes; askers, steps: who requested the connection, and the step reached; quiet: readings of `dist' without an attempt.
-record(attempts, {number, at_ns, count = 0, samples = 0, sample = 0, out = 0, in = 0, waiting = 0, askers = #{}, steps = #{}, quiet = 0}).
%% up: connected visible nodes, with the number of the last connection; again: {samples with any reconnection, reconnections by node} since
%% `dist' was read.
-record(connecting, {nodes = #{}, sample = 0, samples = 0, looked = false, asked = 0, up = #{}, again = {0, #{}}}).

-record(state, {agent, results, keeper, watcher = none, last_event = 0, filer = none, files = none, exit_monitor = none, budget_ppm, features,
                own = [],
                ends = {none, #{}},           % {exit monitor, its version}, how often what had ended when `crashes' was read
                binary_bytes = 0,             % memory of binaries when `memory' was last read
                timeout_ms = 2000, interval_ns = 1000000000, deadline_ns = 0, spawned = {0, narrow},
                atoms,                        % atom count when `atoms' was last read, initially at our start
                scan_ns = 0, paused_ns = 0, rested_ns, began_ns, accounted_ns,
                %% Lists built by other processes: {kind, process} under way, kinds still to be built, and unused list tables.
                listing = none, to_list = [], listed = #{},
                procs = #procs{},
                heaps = #round{cost_ns = 500}, large = #{}, vheap = 0,
                %% Until `processes' is read: blocking processes found by `stands', receivers of the largest messages, tracers.
                waited_for = [], received = [], tracers = [],
                is_first_stands = true,       % whether `stands' has not been read yet
                %% Call stacks of the busiest processes since `processes' was read, while they ran (`ran'), or waited outside of their main
                %% loop (`stood'): Pid => #{{ran | stood, stack} => count}.
                ran = #{},
                %% Call stacks of running processes, sampled at random since `processes' was read: #{place => count}; when the next
                %% sample is due, until when samples are taken, and from when on all processes may be listed again.
                work = #{}, stacks_ns = infinity, stacks_until_ns = 0, list_again_ns,
                %% Results of `weigh' since `messages' was read: {active processes, sampled ones, microseconds}, and
                %% {Pid, size} => {messages, words}.
                weighed = {0, 0, 0}, received_sizes = #{},
                connecting = #connecting{},
                titles = #{},                 % processes of the queues that `broker_clients' has found => labels
                openers = #{},                % {connections | channels, client, user} => number found among new processes
                tables = #round{cost_ns = 1000}, large_tables = #{}, applications = #{}, growing = #growing{},
                ports = #round{cost_ns = 3000}, traffic = #{}, old_traffic = none}).

%% The parts. They are included at compile time, because one module is injected. Macros and records of a part are visible in
%% the parts below it.

-include("parts/session.hrl").        % agent process: clients, leases, time limits
-include("parts/collector.hrl").      % collector and reader
-include("parts/items.hrl").          % dispatch; items that are one call
-include("parts/events.hrl").         % `events' and the watcher
-include("parts/host_files.hrl").     % `host' and the filer
-include("parts/facts.hrl").          % `facts'
-include("parts/scans.hrl").          % scans in parts, lists, the top N
-include("parts/all_processes.hrl").  % `procs': every process
-include("parts/growth.hrl").         % `spawns', `atoms'
-include("parts/waiting.hrl").        % `stands': call stacks of waiting processes
-include("parts/running.hrl").        % `ran': call stacks of the busiest
-include("parts/messages.hrl").       % `weigh', `messages'
-include("parts/identity.hrl").       % name, label, parent of a process
-include("parts/crashes.hrl").        % `crashes' and the exit monitor
-include("parts/top_processes.hrl").  % `processes'
-include("parts/tracing.hrl").        % `traces': active traces
-include("parts/mnesia.hrl").         % Mnesia's counters
-include("parts/broker.hrl").         % `broker', `broker_clients'
-include("parts/table_growth.hrl").   % `table_growth': sizes of growing tables
-include("parts/tables.hrl").         % `ets'
-include("parts/connections.hrl").    % attempts to connect to other nodes, for `dist'
-include("parts/ports.hrl").          % `ports', `dist'
-include("parts/allocators.hrl").     % `allocators'
-include("parts/by_name.hrl").        % shared by the explicit items
-include("parts/carriers.hrl").       % `carriers', `allocations'
-include("parts/code.hrl").           % `code_memory'
-include("parts/locks.hrl").          % `locks'
-include("parts/lock_owners.hrl").    % table, process or port of a lock
-include("parts/holders.hrl").        % `holders'
-include("parts/collections.hrl").    % `collect'
-include("parts/encoding.hrl").       % terms as data
