{application, paddock,
 [{description, "Live odds of horse races"}, {vsn, "2.2.5"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Paddock.Application', []}}]}.
