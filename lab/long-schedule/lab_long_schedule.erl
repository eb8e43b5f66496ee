%% Servers that measure terms now and then. One of them measures a large one with a built-in function that does not count
%% reductions (erts_debug:flat_size/1), and blocks its scheduler for hundreds of milliseconds. Healthy: it measures as
%% much in small steps.
-module(lab_long_schedule).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2]).

%% A call with a term of this depth takes about a millisecond.
-define(PIECE, 14).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    CallMs = lab:int(Context, call_ms, 350, 600),
    EveryMs = lab:int(Context, every_ms, 900, 1400),
    Depth = depth(CallMs),
    Pieces = case lab:sick(Context) of true -> 1; false -> 1 bsl (Depth - ?PIECE) end,
    Servers = [lab:server(Context, {server, N}, {?MODULE, #{}}) || N <- lists:seq(1, lab:int(Context, servers, 4, 7))],
    {Sick, Slow} = lab:pick(Context, which, Servers),
    [asker(Pid, ?PIECE, 1, EveryMs) || {_, Pid} <- Servers, Pid =/= Slow],
    Large = case lab:sick(Context) of true -> Depth; false -> ?PIECE end,
    asker(Slow, Large, Pieces, EveryMs),
    lab:pause(2000),
    #{
        sick => lab:culprit(Context, Sick),
        details => #{
            pid => Slow, servers => {list, [Name || {Name, _} <- Servers]}, call_ms => CallMs, every_ms => EveryMs,
            depth => Depth
        }
    }.

asker(To, Depth, Pieces, EveryMs) ->
    lab:start(fun() ->
        lab:forever(fun() ->
            lab:pause(EveryMs),
            measured = gen_server:call(To, {measure, Depth, Pieces}, infinity)
        end)
    end).

%% Depth of a term for a call of this duration on this host: each level doubles it.
depth(Ms) ->
    Us = lists:min([element(1, timer:tc(erts_debug, flat_size, [term(?PIECE + 4)])) || _ <- [1, 2, 3]]),
    ?PIECE + 4 + max(0, round(math:log2(1000 * Ms / max(1, Us)))).

%% All parts are shared, so the term is small, but it is traversed as a tree.
term(Depth) -> lists:foldl(fun(_, Term) -> [Term | Term] end, [], lists:seq(1, Depth)).

init(_) -> {ok, 0}.

handle_call({measure, Depth, Pieces}, _From, Sum) ->
    Term = term(Depth),
    {reply, measured, lists:foldl(fun(_, S) -> S + erts_debug:flat_size(Term) end, Sum, lists:seq(1, Pieces)) rem 1000}.

handle_cast(_, Sum) -> {noreply, Sum}.
