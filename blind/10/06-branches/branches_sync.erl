%% Gives a branch that has come the whole catalogue.
-module(branches_sync).
-behaviour(gen_server).
-export([start_link/0, send/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

init([]) ->
    ok = net_kernel:monitor_nodes(true),
    {ok, #{up => 0, down => 0}}.

handle_call(state, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.

handle_info({nodeup, Node}, #{up := U} = S) ->
    case atom_to_list(Node) of
        "branch" ++ [C | _] when C >= $0, C =< $9 -> proc_lib:spawn(?MODULE, send, [Node]), {noreply, S#{up := U + 1}};
        _ -> {noreply, S}
    end;
handle_info({nodedown, _}, #{down := D} = S) -> {noreply, S#{down := D + 1}};
handle_info(_, S) -> {noreply, S}.

send(Node) ->
    [begin
         {branches_peer, Node} ! {catalogue, N, branches_catalogue:part(N)},
         lists:member(Node, nodes()) orelse exit(normal)
     end || N <- lists:seq(0, 59)].
