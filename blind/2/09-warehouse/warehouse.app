{application, warehouse,
 [{description, "Stock, prices and reservations"}, {vsn, "4.4.0"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Warehouse.Application', []}}]}.
