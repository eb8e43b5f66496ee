-module(tours_web).
-export([start_link/0, init/1, serve/1]).
start_link() -> proc_lib:start_link(?MODULE, init, [self()]).
init(Parent) ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {active, false}, {packet, line}, {reuseaddr, true}, {ip, {127,0,0,1}}, {nodelay, true}, {backlog, 200}]),
    {ok, Port} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)),
    proc_lib:init_ack(Parent, {ok, self()}),
    accept(L).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = proc_lib:spawn(?MODULE, serve, [S]),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    accept(L).
serve(S) -> receive go -> loop(S, #{}) end.
loop(S, Bookings) ->
    case gen_tcp:recv(S, 0, 120000) of
        {ok, Line} ->
            {Answer, New} = request(binary:split(string:trim(Line), <<" ">>, [global]), Bookings),
            ok = gen_tcp:send(S, [Answer, $\n]),
            loop(S, New);
        {error, _} -> gen_tcp:close(S)
    end.
request([<<"OFFER">>, Tour, Persons], B) ->
    {ok, Pid} = tours_booking_sup:start_booking(binary_to_integer(Tour), binary_to_integer(Persons)),
    Id = integer_to_binary(erlang:unique_integer([positive])),
    {Id, B#{Id => Pid}};
request([<<"ACCEPT">>, Id, Name], B) ->
    {Pid, New} = maps:take(Id, B),
    try tours_booking:accept(Pid, Name) of {pay_at, Ref} -> {integer_to_list(Ref), New} catch exit:_ -> {"GONE", New} end;
request([<<"LEAVE">>, Id], B) -> {"OK", maps:remove(Id, B)};
request([<<"PAID">>, Ref], B) -> {atom_to_list(tours_payment:callback(binary_to_integer(Ref), ok)), B};
request([<<"REFUSED">>, Ref], B) -> {atom_to_list(tours_payment:callback(binary_to_integer(Ref), refused)), B}.
