{application, fleet,
 [{description, "Where the vans are"}, {vsn, "1.3.7"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Fleet.Application', []}}]}.
