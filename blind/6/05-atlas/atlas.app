{application, atlas,
 [{description, "Map tiles"}, {vsn, "8.0.2"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Atlas.Application', []}}]}.
