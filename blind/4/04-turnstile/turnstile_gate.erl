-module(turnstile_gate).
-behaviour(supervisor).
-export([start_sup/0, init/1, start_link/1, serve/1]).
start_sup() -> supervisor:start_link({local, turnstile_gate_sup}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => simple_one_for_one, intensity => 50, period => 5},
          [#{id => gate, restart => temporary, start => {?MODULE, start_link, []}}]}}.
start_link(S) -> {ok, proc_lib:spawn_link(?MODULE, serve, [S])}.
serve(S) ->
    receive go -> ok end,
    case gen_tcp:recv(S, 0, 5000) of
        {ok, Line} ->
            [_, G, N] = string:lexemes(string:trim(Line), " "),
            C = turnstile_counts:add(binary_to_integer(G), binary_to_integer(N)),
            gen_tcp:send(S, [integer_to_list(C), $\n]),
            gen_tcp:recv(S, 0, 5000),
            gen_tcp:close(S);
        {error, _} -> gen_tcp:close(S)
    end.
