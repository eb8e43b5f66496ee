%% One for each customer: looks a mail through (headers, parts, attachments) and files what is to be known of it.
-module(postroom_controller).
-behaviour(gen_server).
-export([start_link/1, mail/2, open/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(N) -> gen_server:start_link({local, name(N)}, ?MODULE, N, []).
name(N) -> list_to_atom("postroom_controller_" ++ integer_to_list(N)).
mail(N, Mail) -> gen_server:call(name(N), {mail, Mail}, 30000).
open(N) -> gen_server:call(name(N), open, 30000).
init(N) -> {ok, #{customer => N, mails => 0, bytes => 0, open => true}}.
handle_call({mail, Mail}, _, #{customer := N, mails := M, bytes := B} = S) ->
    {Headers, Body} = headers(Mail, []),
    Parts = parts(Body),
    Words = length([W || P <- Parts, W <- string:lexemes(binary_to_list(P, 1, min(byte_size(P), 10000)), " ;=\r\n"), length(W) > 3]),
    Id = crypto:hash(sha256, Mail),
    ok = postroom_archive:file({N, Id}, #{subject => binary:copy(proplists:get_value(<<"Subject">>, Headers, <<>>)),
                                          bytes => byte_size(Mail), parts => length(Parts), words => Words}),
    {reply, {ok, Words}, S#{mails := M + 1, bytes := B + byte_size(Mail)}};
handle_call(open, _, #{open := O} = S) -> {reply, O, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
headers(<<"\n", Body/binary>>, Acc) -> {lists:reverse(Acc), Body};
headers(Mail, Acc) ->
    [Line, Rest] = binary:split(Mail, <<"\n">>),
    [K, V] = binary:split(Line, <<": ">>),
    headers(Rest, [{K, V} | Acc]).
parts(Body) -> [P || P <- binary:split(Body, <<"--next--">>, [global]), P =/= <<>>].
