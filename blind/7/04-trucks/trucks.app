{application, trucks,
 [{description, "Positions and states of trucks"}, {vsn, "2.19.0"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Trucks.Application', []}}]}.
