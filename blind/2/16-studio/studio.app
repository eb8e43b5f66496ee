{application, studio,
 [{description, "Renders the night's clips; answers the editors"}, {vsn, "6.0.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Studio.Application', []}}]}.
