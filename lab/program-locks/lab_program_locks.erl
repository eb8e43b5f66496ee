%% Bookings of many tours take a lock of global and call a slow service while they hold it. All take the same lock.
%% Healthy: each tour has its own.
-module(lab_program_locks).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Names = lab:names(Context, booking, lab:int(Context, bookings, 25, 45)),
    ServiceMs = lab:int(Context, service_ms, 20, 50),
    Booked = lab:counter(),
    [
        lab:start(Name, fun() ->
            Lock = case lab:sick(Context) of true -> tours; false -> {tour, Name} end,
            lab:forever(fun() ->
                ok = book(Lock, ServiceMs),
                lab:count(Booked),
                lab:pause(rand:uniform(2 * ServiceMs))
            end)
        end)
     || Name <- Names
    ],
    lab:wait_until(booked, fun() -> lab:total(Booked) > length(Names) end),
    lab:pause(2000),
    #{sick => none, details => #{bookings => {list, Names}, service_ms => ServiceMs}}.

book(Lock, ServiceMs) ->
    global:trans({Lock, self()}, fun() -> lab:pause(ServiceMs) end, [node()]).
