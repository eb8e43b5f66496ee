%% from;to;seconds;cell;text
-module(phonebills_record).
-export([take/1]).
take(Line) ->
    [From, _To, Seconds | _] = binary:split(Line, <<";">>, [global]),
    phonebills_totals:add(From, binary_to_integer(Seconds)).
