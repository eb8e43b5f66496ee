{application, dungeon,
 [{description, "Game server"}, {vsn, "0.31.0"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Dungeon.Application', []}}]}.
