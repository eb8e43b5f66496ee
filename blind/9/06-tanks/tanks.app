{application, tanks,
 [{description, "A game with tanks"}, {vsn, "1.0.8"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Tanks.Application', []}}]}.
