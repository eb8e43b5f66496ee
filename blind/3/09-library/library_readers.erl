-module(library_readers).
-behaviour(supervisor).
-export([start_link/0, init/1, start_reader/1, pid/1]).
start_link() ->
    ets:new(library_reader_pids, [named_table, public, {read_concurrency, true}]),
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) -> {ok, {#{strategy => simple_one_for_one}, [#{id => reader, start => {library_reader, start_link, []}, restart => transient}]}}.
start_reader(I) -> supervisor:start_child(?MODULE, [I]).
pid(I) -> ets:lookup_element(library_reader_pids, I, 2).
