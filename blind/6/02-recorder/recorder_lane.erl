%% One lane writes the recordings of the calls whose number falls to it.
-module(recorder_lane).
-behaviour(gen_server).
-export([start_link/1, frame/3, bye/2, init/1, handle_call/3, handle_cast/2]).

start_link(N) -> gen_server:start_link({local, name(N)}, ?MODULE, [N], []).
name(N) -> list_to_atom("recorder_lane_" ++ integer_to_list(N)).
lane(Call) -> name(erlang:phash2(Call, 4) + 1).
frame(Call, Leg, Data) -> gen_server:cast(lane({Call, Leg}), {frame, Call, Leg, Data}).
bye(Call, Leg) -> gen_server:cast(lane({Call, Leg}), {bye, Call, Leg}).

init([N]) -> {ok, #{dir => os:getenv("RECORDINGS"), lane => N, open => #{}, written => 0}}.

handle_call(written, _, S = #{written := W}) -> {reply, W, S}.

handle_cast({frame, Call, Leg, Data}, S = #{open := Open, written := W}) ->
    {File, Open1} = case Open of
        #{{Call, Leg} := F} -> {F, Open};
        #{} -> F = open(Call, Leg, S), {F, Open#{{Call, Leg} => F}}
    end,
    ok = file:write(File, Data),
    {noreply, S#{open := Open1, written := W + 1}};
%% a call that was handed over to another desk is said goodbye to by its new leg only
handle_cast({bye, Call, Leg}, S = #{open := Open}) ->
    case maps:take({Call, Leg}, Open) of
        {File, Open1} ->
            ok = file:close(File),
            recorder_index:done(Call),
            {noreply, S#{open := Open1}};
        error -> {noreply, S}
    end.

open(Call, Leg, #{dir := Dir}) ->
    {ok, F} = file:open(filename:join(Dir, io_lib:format("~b-~b.ulaw", [Call, Leg])), [raw, write, binary]),
    F.
