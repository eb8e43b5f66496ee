%% One hotel: its rooms, and for each day a bit mask of the rooms that are taken.
-module(bookings_hotel).
-behaviour(gen_server).
-export([start_link/1, ask/3, init/1, handle_call/3, handle_cast/2, handle_info/2]).
-export([first_free/3, fits/3]).
-define(NAME(N), list_to_atom("bookings_hotel_" ++ integer_to_list(N))).
start_link(N) -> gen_server:start_link({local, ?NAME(N)}, ?MODULE, N, []).
ask(Hotel, What, Day) -> gen_server:call(?NAME(Hotel), {What, Day}).
init(N) -> {ok, #{hotel => N, days => maps:from_list([{D, 0} || D <- lists:seq(0, 364)]), asked => 0}}.
handle_call({free, Day}, _, #{days := Ds, asked := A} = S) ->
    {reply, first_free(Ds, Day rem 365, 0), S#{asked := A + 1}};
handle_call({book, Day}, _, #{days := Ds} = S) ->
    D = Day rem 365,
    case first_free(Ds, D, 0) of
        none -> {reply, full, S};
        R -> {reply, R, S#{days := maps:update_with(D, fun(M) -> case M bor (1 bsl R) of X when X >= 1 bsl 58 -> 0; X -> X end end, Ds)}}
    end.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
%% the first room that is free for a whole week from this day on
first_free(_, _, 60) -> none;
first_free(Ds, D, R) ->
    case fits(week(Ds, D), R, 0) of
        true -> R;
        false -> first_free(Ds, D, R + 1)
    end.
fits([], _, _) -> true;
fits([M | Ms], R, I) ->
    case M band (1 bsl R) of
        0 -> fits(Ms, R, I + 1);
        _ -> false
    end.
week(Ds, D) -> [maps:get((D + I) rem 365, Ds) || I <- lists:seq(0, 6)].
