%% Takes uploads of the engineers in and counts them.
-module(sensors_export).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2, status/0, saved/0]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
status() -> gen_server:call(?MODULE, status).
saved() -> gen_server:cast(?MODULE, saved).
init([]) ->
    rand:seed(exsss),
    erlang:send_after(500, self(), upload),
    {ok, {0, 0, 0}}.
handle_call(status, _, S) -> {reply, S, S}.
handle_cast(saved, {N, Saved, F}) -> {noreply, {N, Saved + 1, F}}.
handle_info(upload, {N, Saved, F}) ->
    spawn_monitor(sensors_upload, save, [N]),
    erlang:send_after(200 + rand:uniform(300), self(), upload),
    {noreply, {N + 1, Saved, F}};
handle_info({'DOWN', _, _, _, normal}, S) -> {noreply, S};
handle_info({'DOWN', _, _, _, _}, {N, Saved, F}) -> {noreply, {N, Saved, F + 1}}.
