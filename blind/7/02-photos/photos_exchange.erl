%% Compares our photos with those of the replica, segment by segment, since the disk of the replica was replaced.
-module(photos_exchange).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
-define(SEGMENTS, 1048576).
-define(AT_ONCE, 6).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> erlang:send_after(2000, self(), next), {ok, #{seg => 0, open => 0, ref => undefined, hashes => #{}}}.
handle_call(progress, _, #{seg := Seg} = S) -> {reply, {Seg, ?SEGMENTS}, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(next, #{seg := Seg} = S) ->
    Ref = make_ref(),
    [gen_server:cast(photos_ring:name(N), {segment, Seg + I, ?SEGMENTS, self(), Ref})
     || I <- lists:seq(0, ?AT_ONCE - 1), N <- lists:seq(0, photos_ring:size() - 1)],
    {noreply, S#{seg := Seg + ?AT_ONCE, open := ?AT_ONCE * photos_ring:size(), ref := Ref, hashes := #{}}};
handle_info({hash, Ref, Seg, H}, #{ref := Ref, open := Open, hashes := Hs} = S) ->
    Open =:= 1 andalso erlang:send_after(60, self(), next),
    {noreply, S#{open := Open - 1, hashes := Hs#{{Seg, Open} => H}}};
handle_info(_, S) -> {noreply, S}.
