-module(phonebills_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    phonebills_totals:new(),
    W = fun(Id, M, A) -> #{id => Id, start => {M, start_link, A}} end,
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [W(spool, phonebills_spool, []), W(import, phonebills_import, []), W(closing, phonebills_closing, [])]}}.
