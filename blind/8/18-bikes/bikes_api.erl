-module(bikes_api).
-export([handle/1]).
handle([<<"where">>, B]) -> io_lib:format("~0p", [bikes_metadata:get({bike, binary_to_integer(B)})]);
handle([<<"station">>, _]) -> "ok";
handle([<<"lock">>, B, St]) -> bikes_metadata:put({bike, binary_to_integer(B)}, {docked, binary_to_integer(St), 70, new}), "locked";
handle([<<"unlock">>, B, St]) -> bikes_metadata:put({bike, binary_to_integer(B)}, {riding, binary_to_integer(St), 70, new}), "unlocked";
handle(_) -> "?".
