#!/usr/bin/env escript
%% Called by scripts/agent-build.sh: build.escript SOURCE_FOLDER OUTPUT_FOLDER HASH
%%
%% Builds are reproducible. The output has no paths (the source and its parts are named without their folder), no line
%% numbers of the keeper, and no chunks that the loader does not need (compiler version, options).
-mode(compile).

main([Source, Out, Hash]) ->
    case erlang:system_info(otp_release) of
        "25" -> ok;
        Release -> fail("OTP 25 is needed, this is OTP ~s", [Release])
    end,
    Name = list_to_atom("beamtune_agent_" ++ Hash),
    write(Out, "name", [atom_to_list(Name), $\n]),
    write(Out, "keeper.etf", term_to_binary(keeper(filename:join(Source, "keeper.eval")), [{minor_version, 2}])),
    write(Out, "agent-r23.beam", agent(filename:join(Source, "beamtune_agent.erl"), Name, [r23])),
    write(Out, "agent-r25.beam", agent(filename:join(Source, "beamtune_agent.erl"), Name, [])).

%% The abstract expressions that erl_eval:exprs/2 takes.
keeper(File) ->
    {ok, Text} = file:read_file(File),
    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Text)),
    case erl_parse:parse_exprs(Tokens) of
        {ok, Exprs} -> [erl_parse:map_anno(fun(_) -> 0 end, Expr) || Expr <- Exprs];
        {error, {Line, Module, What}} -> fail("~s:~p: ~s", [File, Line, Module:format_error(What)])
    end.

agent(File, Name, Options) ->
    {ok, Forms} = epp:parse_file(File, [{macros, [{'AGENT_NAME', Name}]}, {source_name, filename:basename(File)}, deterministic]),
    case compile:forms(Forms, [binary, warnings_as_errors, report]) of
        {ok, Name, _} -> ok;
        error -> fail("~s does not compile", [File])
    end,
    {ok, Name, Beam} = compile:forms(without_badrecord(erl_expand_records:module(Forms, [])),
                                     [binary, deterministic | Options]),
    {ok, {Name, Stripped}} = beam_lib:strip(Beam),
    Stripped.

%% OTP 25's compiler turns error({badrecord, R}) into an instruction that OTP 23 does not have, even with the option r23.
without_badrecord({call, Anno, {remote, _, {atom, _, erlang}, {atom, _, error}} = Error, [{tuple, _, [{atom, _, badrecord}, _]}]}) ->
    {call, Anno, Error, [{atom, Anno, badrecord}]};
without_badrecord(Tuple) when is_tuple(Tuple) -> list_to_tuple(without_badrecord(tuple_to_list(Tuple)));
without_badrecord([Head | Tail]) -> [without_badrecord(Head) | without_badrecord(Tail)];
without_badrecord(Term) -> Term.

write(Out, File, Data) ->
    ok = file:write_file(filename:join(Out, File), Data).

-spec fail(string(), list()) -> no_return().
fail(Format, Args) ->
    io:format(standard_error, Format ++ "~n", Args),
    halt(1).
