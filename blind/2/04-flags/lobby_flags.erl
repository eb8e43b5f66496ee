%% Feature flags: takes them from the control plane over and makes them known to all.
-module(lobby_flags).
-behaviour(gen_server).
-export([start_link/0, all/0, on/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
-define(EVERY, 100).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
all() -> persistent_term:get({lobby, flags}).
on(F) -> {_, On, _} = maps:get(F, maps:get(flags, all())), On.

init([]) -> {ok, publish(#{rev => 0}), ?EVERY}.
handle_call(rev, _, S) -> {reply, maps:get(rev, S), S, ?EVERY}.
handle_cast(_, S) -> {noreply, S, ?EVERY}.
handle_info(timeout, S) -> {noreply, publish(S), ?EVERY}.

publish(#{rev := R}) ->
    persistent_term:put({lobby, flags}, #{flags => fetch(), rev => R + 1, fetched_at => os:system_time(millisecond)}),
    #{rev => R + 1}.

%% what the control plane says (it says the same all day)
fetch() -> maps:from_list([{{flag, N}, {N rem 7, N rem 3 =:= 0, [{country, C} || C <- [de, fr, se, ch]]}} || N <- lists:seq(1, 60)]).
