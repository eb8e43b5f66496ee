{application, guilds,
 [{description, "Guilds and their members' sessions"}, {vsn, "7.1.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Guilds.Application', []}}]}.
