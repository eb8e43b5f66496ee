%% Long poll: "your number is called". The answer comes after 5..25 seconds; meanwhile the connection waits.
-module(portal_live).
-export([out/1]).
out(_Arg) ->
    timer:sleep(5000 + rand:uniform(20000)),
    {content, "text/plain", integer_to_list(erlang:system_time(second))}.
