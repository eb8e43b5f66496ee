{application, museum,
 [{description, "Objects and where they stand"}, {vsn, "0.9.4"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Museum.Application', []}}]}.
