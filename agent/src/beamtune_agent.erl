%% @doc beamtune's agent: the one module that is put into a node that is being looked at.
%%
%% It answers questions ("pull"): a client sends the list of items that it wants, the agent reads them and
%% answers with one message. docs/agent-protocol.md defines every term; agent/README.md says how the module
%% gets in and out, and what it costs.
%%
%% Processes:
%%
%% <ul>
%% <li>the <em>keeper</em> (src/keeper.eval, not part of this module) loads the module, holds the VM's measuring switches,
%%     and undoes everything when the agent process ends, however it ends;</li>
%% <li>the <em>agent</em> ({@link init/1}) takes requests, keeps the clients' leases and the time limit of each item. It
%%     never calls anything that may block;</li>
%% <li>one <em>collector</em> per client reads the items and holds what is known from sample to sample;</li>
%% <li>one <em>reader</em> per collector reads processes, ports and tables. It holds nothing, because it may hang:
%%     process_info waits for a process that is inside a long NIF, and on some releases for ever for one that is just
%%     ending (erlang/otp#7801). Then it is killed and replaced, and what it hung on is left out for a while;</li>
%% <li>one <em>watcher</em>, one <em>filer</em> and one <em>exit monitor</em> for all clients, from the first time on that one needs them:
%%     the watcher takes what the VM tells by itself, the filer reads files of /proc and of control groups, the exit monitor finds out
%%     which processes end with errors.</li>
%% </ul>
%%
%% All have priority high: an overloaded node is just what has to be looked at, and at priority normal each step would wait
%% for the whole run queue. What they may cost is bounded by the budget.
%%
%% Some items take long or disturb the node; they are read only when a person has asked for them by name, within limits of their own.
%%
%% Rules that hold everywhere below: only reading (but for `collect' and `locks', which are among those); no atoms out of data;
%% no process's messages; nothing printed on the node (no process may die of an error); no link to a foreign process; every list
%% and every text that leaves the node is bounded; a scan of everything is done in parts when it would exceed the client's budget.
-module(?AGENT_NAME).

-export([init/1]).

%% Limits that more than one part uses. All others are at the head of their part.

-define(NAME_BYTES, 255).
-define(TEXT_BYTES, 512).
%% A reader hangs when it is still at the same process after two looks that far apart.
-define(LOOK_MS, 150).
%% How long what hung a reader is left out before it is tried again.
-define(SKIP_NS, 60000000000).
-define(MAX_SKIPPED, 16).
%% The first sample may cost as much as one after this time.
-define(FIRST_INTERVAL_NS, 1000000000).
%% How many processes (tables, ports) are read at most between two looks at the clock. Each such step hands a list to the
%% reader and back, which wakes two processes, on an idle node two schedulers.
-define(CHUNK, 2048).
%% How long a part of a scan may take, and then the details of the top ones. Reading a process that runs, or is just
%% ending, waits until that process is scheduled: on an overloaded node that is many times the reading itself.
-define(SCAN_NS, 250000000).
%% The shortest pause between two steps of work that is spread. Receive wakes up by milliseconds.
-define(STEP_PAUSE_NS, 1000000).
%% More processes than this are listed by a process of its own into a table, in rows of ?CHUNK: a list of them on the
%% collector's heap would have to be moved by its garbage collector again and again, for tens of milliseconds.
-define(BOOK, 30000).
%% process_info(P, memory) walks P's messages, and P does nothing else meanwhile: 0.02 us for each. It is not asked of a process
%% that has more than this.
-define(WALKED_MESSAGES, 1000000).
%% How much longer than its own time limit an item that was asked for by name may take before its collector is given up.
-define(GRACE_MS, 2000).
%% The largest heap of a process that does for such an item what needs much memory, in words (256 MB).
-define(ASIDE_WORDS, 33554432).
%% How many processes are kept as those that many others wait for, or that get the largest messages.
-define(MOST_WANTED, 5).
%% Of how many processes that do the most the call stack is sampled, and how many stacks of each are reported.
-define(RAN, 5).
-define(RAN_STACKS, 8).
%% The process with the longest queue is one more, from so many messages on (judgement).
-define(WORTH_QUEUE, 10).
%% For how many receivers at most messages are weighed.
-define(MOST_RECEIVERS, 60).

%% What a collector knows from sample to sample.

%% Where the scan of one kind of things (processes, tables, ports) stands. A round passes through all of them; it is done
%% in parts, one per request, when it would exceed the budget. `alive' are those that answered in the last whole round:
%% while the VM counts as many, there are no new ones, and the list is used again (making it walks the whole table, which
%% has a million slots by default since OTP 27: 1 to 2 ms).
-record(round, {number = 0, part = 0, rest = [], list = [], total = 0, scanned = 0, dead = 0, alive = none, size = 64,
                cost_ns, read_ns = none}).

%% procs: the list of processes, and what their reductions were when they were visited last.
-record(procs, {round = #round{cost_ns = 300},
                seen = none,                  % the part under way, if it is done between samples
                left = 0, pause_ms = infinity, step_ns = 0,  % how many it may read yet, and after which pause; time it took
                listed_ns,                    % when the last book was made
                books = [],                   % the tables in use
                top = 20,                     % how many are to be told
                did = none, quiet = false,    % {when, reductions of all but our own processes}; whether few since the sample before
                watched = #{},                % in parts: the top ones, asked in each sample: Pid => reductions
                told = #{}, told_before = #{},% those not watched any more, in this round and the one before: the same
                counters = none,              % reductions by place in the list (atomics); -1: not known
                marks = [],                   % {place, time} at the end of each part of this round, latest first
                %% Of a round with another list than the round before had:
                old = same, old_place = 1,    % the old list from the first one not yet matched; its place
                old_list = [],                % all of it
                old_counters = none,          % `none' in the very first round
                old_marks = [],               % when the round before visited its places, first ones first
                %% For the other items:
                active = {0, []},             % how many processes of the node did something, about; some of them
                new = 0, origins = #{}, sampled = 0, given = #{},  % new processes and who made some of them, since `spawns' was read
                fresh = [],                           % some of them, since `crashes' was read
                again = [],                           % {Pid, initial call} of some that are looked at again with `spawns'
                most = [],                    % those that did the most when they were last read, these first
                busy = #{}, queued = #{}}).   % the top ones since `processes' was read: Pid => sum, Pid => max

%% table_growth: what `ets' has weighed when it was last read, if there were few tables; which tables are followed.
-record(growing, {words = none, is_first = false, growers = [], largest = [],
                  rows = #{},                 % Tab => #followed{}
                  told = #{}, sampled_ns = [],  % those that were ever told; when rows were sampled of late
                  most = unknown,             % [{Tab, rows}] of those with the most rows when `ets' was last read
                  measured = #{}, ever_measured = 0}).  % Tab => when its binaries were measured; in how many tables

%% Attempts to connect to a node since `dist' was read: the number of the connection that was seen last, and when; attempts, samples in which one was
%% pending, and the last of these; attempts that this node or the other one was seen to make; the most processes that waited; who asked,
%% and how far it was; readings of `dist' without any.
-record(attempts, {number, at_ns, count = 0, samples = 0, sample = 0, out = 0, in = 0, waiting = 0, askers = #{}, steps = #{}, quiet = 0}).
%% up: visible nodes that were seen connected, with the number of the last connection; again: how often each has another one, and in how many
%% samples any had, since `dist' was read.
-record(connecting, {nodes = #{}, sample = 0, samples = 0, looked = false, asked = 0, up = #{}, again = {0, #{}}}).

-record(state, {agent, results, keeper, watcher = none, last_event = 0, filer = none, files = none, exit_monitor = none, budget_ppm, features,
                own = [],
                ends = {none, #{}},           % {exit monitor, its version}, how often what had ended when `crashes' was read
                binary_bytes = 0,             % memory of binaries when `memory' was last read
                timeout_ms = 2000, interval_ns = 1000000000, deadline_ns = 0, spawned = {0, narrow},
                atoms,                        % how many there were when `atoms' was read, at first when we began
                scan_ns = 0, paused_ns = 0, rested_ns, began_ns, accounted_ns,
                %% Lists that are made beside: the one being made and by whom, those that come after it, and books not begun yet.
                listing = none, to_list = [], listed = #{},
                procs = #procs{},
                heaps = #round{cost_ns = 500}, large = #{}, vheap = 0,
                %% Whom `stands' has found that others wait for, who got the heaviest ones of `messages', and whom `traces' has found that
                %% traces are sent to, until `processes' is read.
                waited_for = [], received = [], tracers = [],
                stands_first = true,          % whether `stands' has yet to be read for the first time
                %% Where those that did the most ran since `processes' was read, and where they stood while they waited in the midst of
                %% something: Pid => #{{ran | stood, stack} => how often}.
                ran = #{},
                %% Where any processes ran that were looked at by chance since `processes' was read: #{place => how often}; when the next
                %% look is due, until when there are any, and from when on all processes may be listed again.
                work = #{}, look_ns = infinity, look_until_ns = 0, list_again_ns,
                %% What `weigh' has found since `messages' was read: {how many did something, how many of them were looked at,
                %% microseconds}, and {Pid, size} => {messages, words}.
                weighed = {0, 0, 0}, came = #{},
                connecting = #connecting{},
                titles = #{},                 % processes of the queues that `broker_clients' has found => what they are
                openers = #{},                % {connections | channels, client, user} => how many were met among new processes
                tables = #round{cost_ns = 1000}, large_tables = #{}, applications = #{}, growing = #growing{},
                ports = #round{cost_ns = 3000}, traffic = #{}, old_traffic = none}).

%% The parts. They are joined when the module is compiled, because one module is injected. Macros and records of a part are known
%% to those below it.

-include("parts/session.hrl").        % agent process: clients, leases, time limits
-include("parts/collector.hrl").      % collector and reader
-include("parts/items.hrl").          % dispatch; items that are one call
-include("parts/events.hrl").         % `events' and the watcher
-include("parts/host_files.hrl").     % `host' and the filer
-include("parts/facts.hrl").          % `facts'
-include("parts/scans.hrl").          % scans in parts, lists, the top N
-include("parts/all_processes.hrl").  % `procs': every process
-include("parts/growth.hrl").         % `spawns', `atoms'
-include("parts/waiting.hrl").        % `stands': where processes wait
-include("parts/running.hrl").        % `ran': call stacks of the busiest
-include("parts/messages.hrl").       % `weigh', `messages'
-include("parts/identity.hrl").       % name, label, parent of a process
-include("parts/crashes.hrl").        % `crashes' and the exit monitor
-include("parts/top_processes.hrl").  % `processes'
-include("parts/tracing.hrl").        % `traces': traces that are on
-include("parts/mnesia.hrl").         % what Mnesia says of itself
-include("parts/broker.hrl").         % `broker', `broker_clients'
-include("parts/table_growth.hrl").   % `table_growth': rows of single tables
-include("parts/tables.hrl").         % `ets'
-include("parts/connections.hrl").    % attempts to connect to other nodes, for `dist'
-include("parts/ports.hrl").          % `ports', `dist'
-include("parts/allocators.hrl").     % `allocators'
-include("parts/by_name.hrl").        % what items asked for by name share
-include("parts/carriers.hrl").       % `carriers', `allocations'
-include("parts/code.hrl").           % `code_memory'
-include("parts/locks.hrl").          % `locks'
-include("parts/lock_owners.hrl").    % what a lock belongs to
-include("parts/holders.hrl").        % `holders'
-include("parts/collections.hrl").    % `collect'
-include("parts/encoding.hrl").       % terms as data
