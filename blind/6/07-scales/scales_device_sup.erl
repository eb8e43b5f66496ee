-module(scales_device_sup).
-behaviour(supervisor).
-export([start_link/0, device/1, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
device(Sock) -> supervisor:start_child(?MODULE, [Sock]).
init([]) ->
    {ok, {#{strategy => simple_one_for_one, intensity => 10, period => 10},
          [#{id => device, start => {scales_device, start_link, []}, restart => temporary}]}}.
