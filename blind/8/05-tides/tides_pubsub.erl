-module(tides_pubsub).
-export([init/0, subscribe/2, unsubscribe/2, publish/2]).

subscribe(Topic, Pid) -> call({subscribe, Topic, Pid}).
unsubscribe(Topic, Pid) -> call({unsubscribe, Topic, Pid}).
publish(Topic, Term) -> ?MODULE ! {publish, Topic, Term}, ok.

call(What) ->
    Ref = make_ref(),
    ?MODULE ! {call, self(), Ref, What},
    receive {Ref, Answer} -> Answer end.

init() -> loop(#{}).

loop(Topics) ->
    receive
        {call, From, Ref, {subscribe, T, Pid}} ->
            From ! {Ref, ok},
            loop(Topics#{T => [Pid | maps:get(T, Topics, [])]});
        {call, From, Ref, {unsubscribe, T, Pid}} ->
            From ! {Ref, ok},
            loop(Topics#{T => lists:delete(Pid, maps:get(T, Topics, []))});
        {publish, T, Term} ->
            [Pid ! {pub, T, Term} || Pid <- maps:get(T, Topics, [])],
            loop(Topics)
    end.
