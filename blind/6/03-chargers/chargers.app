{application, chargers,
 [{description, "Sessions at the charging stations"}, {vsn, "2.4.1"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Chargers.Application', []}}]}.
