-module(meters_registry).
-export([register/2, where/1]).
register(Id, Pid) -> ets:insert(?MODULE, {Id, Pid}).
where(Id) -> case ets:lookup(?MODULE, Id) of [{_, Pid}] -> Pid; [] -> undefined end.
