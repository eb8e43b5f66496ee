%% Pictures in ETS up to a limit in bytes; what has not been looked at for longest is dropped.
-module(posters_cache).
-behaviour(gen_server).
-export([start_link/0, fetch/1, stats/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
stats() -> gen_server:call(?MODULE, stats).
fetch(Id) ->
    case ets:lookup(posters_images, Id) of
        [{_, Bin, _}] ->
            gen_server:cast(?MODULE, {used, Id}),
            {hit, Bin};
        [] ->
            Bin = read(Id),
            gen_server:cast(?MODULE, {add, Id, Bin}),
            {miss, Bin}
    end.
%% stands for the picture store behind us
read(Id) ->
    timer:sleep(4),
    binary:copy(<<Id:64, "JFIF poster data ">>, 3000 + erlang:phash2(Id, 4000)).
init([]) ->
    ets:new(posters_images, [named_table, public, {read_concurrency, true}]),
    ets:new(posters_order, [named_table, protected, ordered_set]),
    {ok, MB} = application:get_env(posters, cache_mb),
    S = lists:foldl(fun(Id, A) -> add(Id, read0(Id), A) end, #{max => MB * 1048576, bytes => 0, hits => 0, added => 0, dropped => 0}, lists:seq(1, 6000)),
    {ok, S}.
read0(Id) -> binary:copy(<<Id:64, "JFIF poster data ">>, 3000 + erlang:phash2(Id, 4000)).
add(Id, Bin, #{bytes := B, added := A} = S) ->
    case ets:member(posters_images, Id) of
        true -> S;
        false ->
            At = erlang:unique_integer([monotonic]),
            ets:insert(posters_images, {Id, Bin, At}),
            ets:insert(posters_order, {At, Id}),
            drop(S#{bytes := B + byte_size(Bin), added := A + 1})
    end.
drop(#{bytes := B, max := M, dropped := D} = S) when B > M ->
    At = ets:first(posters_order),
    [{_, Id}] = ets:take(posters_order, At),
    [{_, Bin, _}] = ets:take(posters_images, Id),
    drop(S#{bytes := B - byte_size(Bin), dropped := D + 1});
drop(S) -> S.
handle_call(stats, _, S) -> {reply, S, S}.
handle_cast({used, Id}, #{hits := H} = S) ->
    case ets:lookup(posters_images, Id) of
        [{_, _, At}] ->
            New = erlang:unique_integer([monotonic]),
            ets:delete(posters_order, At), ets:insert(posters_order, {New, Id}), ets:update_element(posters_images, Id, {3, New});
        [] -> ok
    end,
    {noreply, S#{hits := H + 1}};
handle_cast({add, Id, Bin}, S) -> {noreply, add(Id, Bin, S)}.
handle_info(_, S) -> {noreply, S}.
