-module(kitchens_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => queue, start => {kitchens_queue, start_link, []}},
           #{id => menu, start => {kitchens_menu, start_link, []}},
           #{id => listener, start => {kitchens_listener, start_link, []}}] ++
          [#{id => {printer, I}, start => {kitchens_printer, start_link, [I]}} || I <- lists:seq(1, 500)]}}.
