-module(members_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one},
          [#{id => link, start => {members_link, start_link, []}}, #{id => cards, start => {members_cards, start_link, []}}]
          ++ [#{id => {door, I}, start => {members_door, start_link, [I]}} || I <- lists:seq(1, list_to_integer(os:getenv("DOORS", "12")))]}}.
