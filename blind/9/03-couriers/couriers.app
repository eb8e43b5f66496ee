{application, couriers,
 [{description, "Positions of the couriers of a city"}, {vsn, "1.9.3"},
  {modules, []}, {registered, []},
  {applications, [kernel, stdlib, elixir, logger]},
  {mod, {'Elixir.Couriers.Application', []}}]}.
