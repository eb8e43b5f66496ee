{application, grocer,
 [{description, "Baskets of the web shop"}, {vsn, "1.9.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Grocer.Application', []}}]}.
