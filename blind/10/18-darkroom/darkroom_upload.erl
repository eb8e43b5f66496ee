%% Takes pictures (multipart/form-data) and keeps the last 30 of them.
-module(darkroom_upload).
-include_lib("/usr/lib/yaws/include/yaws_api.hrl").
-export([out/1]).

-record(upload, {name = "", data = [], last = false}).

out(#arg{req = #http_request{method = 'POST'}, state = State} = A) ->
    Up = case State of undefined -> #upload{}; _ -> State end,
    case yaws_api:parse_multipart_post(A) of
        {cont, Cont, Parts} -> {get_more, Cont, gather(Parts, Up)};
        {result, Parts} -> finish((gather(Parts, Up))#upload{last = true});
        _ -> [{status, 400}, {content, "text/plain", "no picture"}]
    end;
out(_) -> [{status, 405}].

gather([{head, {_, Headers}} | Rest], Up) ->
    gather(Rest, Up#upload{name = proplists:get_value("filename", Headers, proplists:get_value(filename, Headers, "x"))});
gather([{part_body, Data} | Rest], #upload{data = Acc} = Up) -> gather(Rest, Up#upload{data = [Data | Acc]});
gather([{body, Data} | Rest], #upload{data = Acc} = Up) -> gather(Rest, Up#upload{data = [Data | Acc]});
gather([_ | Rest], Up) -> gather(Rest, Up);
gather([], Up) -> Up.

finish(#upload{data = Acc}) ->
    Bytes = lists:append(lists:reverse(Acc)),
    Sum = lists:foldl(fun(B, S) -> (S + B) band 16#ffffff end, 0, Bytes),
    Picture = list_to_binary(Bytes),
    N = darkroom_prints:add(Picture, Sum),
    {content, "text/plain", io_lib:format("picture ~w ~w bytes", [N, byte_size(Picture)])}.
