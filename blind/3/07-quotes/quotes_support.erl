%% for the support: which quotes are slow?
-module(quotes_support).
-export([watch_slow/2]).
watch_slow(File, Ms) ->
    {ok, F} = file:open(File, [append, raw]),
    {ok, _} = dbg:tracer(process, {fun(T, Open) -> note(T, Open, F, Ms) end, #{}}),
    {ok, _} = dbg:p(all, [c, timestamp]),
    [{ok, _} = dbg:tpl(M, '_', [{'_', [], [{return_trace}]}]) || M <- [quotes_tariff, quotes_risk, quotes_rules, quotes_desk, ets]],
    ok.
note({trace_ts, P, call, {M, F, As}, At}, Open, _, _) ->
    Open#{{P, M, F, length(As)} => {At, lists:flatten(io_lib:format("~0p", [As]))}};
note({trace_ts, P, return_from, MFA = {M, F, A}, _V, At}, Open, Out, Ms) ->
    case maps:take({P, M, F, A}, Open) of
        {{At0, As}, Rest} ->
            case timer:now_diff(At, At0) > Ms * 1000 of
                true -> file:write(Out, io_lib:format("~p ~p ~s~n", [P, MFA, As])), Rest;
                false -> Rest
            end;
        error -> Open
    end;
note(_, Open, _, _) -> Open.
