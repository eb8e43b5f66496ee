%% @doc An Erlang client of the agent (crates/attach is the Rust client), for the tests and for creating the fixtures.
-module(agent_client).
-export([inject/2, inject/3, join/2, sample/3, sample/4, leave/1, name/0, prebuilt/0]).

-type agent() :: #{agent := pid(), session := pid(), joined := map()}.
-export_type([agent/0]).

%% The folder of the prebuilt beams. nodes.sh sets the variable.
-spec prebuilt() -> file:filename().
prebuilt() -> os:getenv("AGENT_PREBUILT").

-spec name() -> module().
name() ->
    {ok, Name} = file:read_file(filename:join(prebuilt(), "name")),
    binary_to_atom(string:trim(Name), utf8).

%% Sends the message that injects the agent. The caller receives the agent's `joined' later, and traps exits from now on.
-spec inject(node(), map()) -> pid().
inject(Node, Options) ->
    Release = erpc:call(Node, erlang, system_info, [otp_release]),
    Beam = case list_to_integer(Release) =< 24 of true -> "agent-r23.beam"; false -> "agent-r25.beam" end,
    inject(Node, Options, Beam).

-spec inject(node(), map(), file:filename()) -> pid().
inject(Node, Options, BeamFile) ->
    {ok, Beam} = file:read_file(filename:join(prebuilt(), BeamFile)),
    {ok, Keeper} = file:read_file(filename:join(prebuilt(), "keeper.etf")),
    Bindings = [{'Beam', Beam}, {'Client', self()}, {'Name', name()}, {'Options', Options}],
    process_flag(trap_exit, true),
    Request = spawn_request(Node, erl_eval, exprs, [binary_to_term(Keeper), Bindings, none],
                            [link, {priority, high}]),
    receive {spawn_reply, Request, ok, Session} -> Session after 10000 -> exit(no_spawn_reply) end.

-spec join(node(), map()) -> agent().
join(Node, Options) ->
    Session = inject(Node, Options),
    receive
        {beamtune, joined, #{agent := Agent} = Joined} ->
            #{agent => Agent, session => Session, joined => Joined};
        {'EXIT', Session, Reason} -> exit({not_joined, Reason})
    after 30000 -> exit(not_joined)
    end.

-spec sample(agent(), integer(), list()) -> map().
sample(Agent, Seq, Items) -> sample(Agent, Seq, Items, #{}).

-spec sample(agent(), integer(), list(), map()) -> map().
sample(#{agent := Agent}, Seq, Items, Options) ->
    Agent ! {sample, self(), Seq, Items, Options},
    receive
        {beamtune, sample, Seq, Sample} -> Sample;
        {beamtune, Refusal, _} = Message when Refusal =/= sample -> exit(Message)
    after 180000 -> exit(no_sample)
    end.

%% Ends the session, and waits until the keeper has cleaned up, unless other clients remain. Returns the session's exit reason, or
%% {remaining, number of other clients}.
-spec leave(agent()) -> term().
leave(#{agent := Agent, session := Session}) ->
    Agent ! {leave, self()},
    receive {beamtune, left, #{remaining := Remaining}} -> ok after 5000 -> Remaining = none, exit(no_answer) end,
    case Remaining of
        0 -> receive {'EXIT', Session, Reason} -> Reason after 10000 -> exit(session_stays) end;
        _ -> {remaining, Remaining}
    end.
