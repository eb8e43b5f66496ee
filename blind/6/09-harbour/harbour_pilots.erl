%% The pilots' boats have nodes that come and go; each second the office calls on the one that is due.
-module(harbour_pilots).
-export([start_link/0, init/0]).
start_link() -> {ok, proc_lib:spawn_link(?MODULE, init, [])}.
init() -> register(?MODULE, self()), ets:new(?MODULE, [named_table, public]), loop(1).
loop(N) ->
    Boat = list_to_atom("pilot" ++ integer_to_list(N rem 2 + 1) ++ "@127.0.0.1"),
    A = erlang:monotonic_time(millisecond),
    R = net_kernel:hidden_connect_node(Boat),
    ets:insert(?MODULE, {N rem 50, Boat, R, erlang:monotonic_time(millisecond) - A}),
    R =:= true andalso erlang:disconnect_node(Boat),
    timer:sleep(700),
    loop(N + 1).
