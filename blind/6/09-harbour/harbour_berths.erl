%% Which ship lies where.
-module(harbour_berths).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> erlang:send_after(100, self(), tide), {ok, #{tide => 0, ships => maps:from_list([{B, free} || B <- lists:seq(1, 60)])}}.
handle_call({dock, B, Ship}, _, S = #{ships := M}) -> {reply, ok, S#{ships := M#{B => Ship}}};
handle_call(ships, _, S = #{ships := M}) -> {reply, M, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(tide, S = #{tide := T}) -> erlang:send_after(100, self(), tide), {noreply, S#{tide := (T + 1) rem 7200}}.
