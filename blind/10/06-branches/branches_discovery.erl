%% Which branches there are: asks the name server, makes the cluster equal to its answer.
-module(branches_discovery).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

init([]) ->
    {ok, P} = file:read_file(os:getenv("RESOLVER_FILE")),
    self() ! poll,
    {ok, #{resolver => {{127, 0, 0, 1}, binary_to_integer(P)}, polls => 0, added => 0, removed => 0}}.

handle_call(state, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.

handle_info(poll, #{resolver := R, polls := N, added := A, removed := D} = S) ->
    erlang:send_after(2000, self(), poll),
    case inet_res:lookup("branches.local", in, a, [{nameservers, [R]}, {timeout, 500}, {retry, 2}]) of
        [] -> {noreply, S};
        Addresses ->
            Listed = [node_of(X) || X <- Addresses],
            Now = [M || M <- nodes(), lists:prefix("branch", atom_to_list(M)), M =/= node()],
            Removed = [M || M <- Now -- Listed, erlang:disconnect_node(M) =:= true],
            Added = [M || M <- Listed -- Now, net_kernel:connect_node(M) =:= true],
            {noreply, S#{polls := N + 1, added := A + length(Added), removed := D + length(Removed)}}
    end.

node_of({127, 0, 1, I}) -> list_to_atom(lists:concat(["branch", I, "@127.0.1.", I])).
