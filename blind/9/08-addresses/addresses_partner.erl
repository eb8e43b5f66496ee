%% The partner's API (HTTPS).
-module(addresses_partner).
-export([check/3]).
check(Country, Zip, Street) ->
    request(["/v2/check?country=", Country, "&zip=", Zip, "&street=", uri_string:quote(Street)]).
request(Path) ->
    {Port, Ca} = {list_to_integer(os:getenv("PARTNER_PORT")), os:getenv("PARTNER_CA")},
    case ssl:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {packet, http_bin}, {verify, verify_peer}, {cacertfile, Ca},
                                         {server_name_indication, "localhost"}], 5000) of
        {ok, C} ->
            try
                ok = ssl:send(C, ["GET ", Path, " HTTP/1.1\r\nhost: partner.example\r\naccept: application/json\r\nconnection: close\r\n\r\n"]),
                {ok, {http_response, _, 200, _}} = ssl:recv(C, 0, 5000),
                N = headers(C, 0),
                ok = ssl:setopts(C, [{packet, raw}]),
                {ok, Body} = ssl:recv(C, N, 5000),
                {ok, Body}
            catch
                error:{badmatch, E} -> {error, E}
            after
                ssl:close(C)
            end;
        Error -> Error
    end.
headers(C, N) ->
    case ssl:recv(C, 0, 5000) of
        {ok, {http_header, _, 'Content-Length', _, V}} -> headers(C, binary_to_integer(V));
        {ok, http_eoh} -> N;
        {ok, _} -> headers(C, N)
    end.
