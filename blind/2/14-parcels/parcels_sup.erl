-module(parcels_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one},
          [#{id => parcels_board, start => {parcels_board, start_link, []}}] ++
          [#{id => {scanner, I}, start => {parcels_scanner, start_link, [I]}} || I <- lists:seq(1, 60)] ++
          [#{id => {track, I}, start => {parcels_track, start_link, [I]}} || I <- lists:seq(1, 30)]}}.
