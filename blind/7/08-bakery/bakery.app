{application, bakery,
 [{description, "Orders of the bakery"}, {vsn, "2.6.1"}, {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Bakery.Application', []}}]}.
