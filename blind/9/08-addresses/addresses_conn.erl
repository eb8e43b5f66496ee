%% A shop's connection: check;COUNTRY;ZIP;STREET  |  countries
-module(addresses_conn).
-export([init/1]).
init(S) -> serve(S).
serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            ok = gen_tcp:send(S, [answer(binary:split(string:trim(Line), <<";">>, [global])), $\n]),
            serve(S);
        {error, _} -> gen_tcp:close(S)
    end.
answer([<<"check">>, Country, Zip, Street]) ->
    case addresses_countries:known(Country) of
        true ->
            addresses_usage:count(Country),
            case addresses_partner:check(Country, Zip, Street) of
                {ok, Verdict} -> Verdict;
                {error, _} -> <<"unknown">>
            end;
        false -> <<"country">>
    end;
answer([<<"countries">>]) -> lists:join($,, addresses_countries:all());
answer(_) -> <<"?">>.
