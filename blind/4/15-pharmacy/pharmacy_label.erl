%% A label: number of the medicine, customer, date of today, check sum.
-module(pharmacy_label).
-export([make/2]).
make(Medicine, Customer) ->
    Today = string:trim(os:cmd("date +%d.%m.%Y")),
    Text = lists:flatten(io_lib:format("~b/~b/~s", [Medicine, Customer, Today])),
    Sum = string:trim(os:cmd("printf %s '" ++ Text ++ "' | cksum | cut -d' ' -f1")),
    Text ++ "/" ++ Sum.
