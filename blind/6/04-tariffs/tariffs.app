{application, tariffs,
 [{description, "Tariffs of the transport association"}, {vsn, "7.2.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Tariffs.Application', []}}]}.
