{application, warranties,
 [{description, "Warranty contracts of many dealers"}, {vsn, "4.4.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Warranties.Application', []}}]}.
